//! The pipe to the client: whole messages, and whatever else an attack wants to write.

use std::io::Write;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt, Stdout};
use tokio::sync::Mutex;

pub(super) struct Out {
    to: Mutex<Stdout>,
}

impl Default for Out {
    fn default() -> Self {
        Self { to: Mutex::new(tokio::io::stdout()) }
    }
}

/// Lines that are no messages: text, escapes of terminals, almost JSON, JSON that is something
/// else.
const NOISE: [&[u8]; 9] = [
    b"starting up...",
    b"",
    b"\x1b[2J\x1b[31mred\x1b[0m\rseawall: forged",
    b"{\"level\":\"info\",\"msg\":\"ready\"}",
    b"[1,2,3]",
    b"null",
    b"{broken",
    b"\xff\xfe not text \x00",
    b"42",
];

impl Out {
    /// Writes bytes; a client that is gone ends the process.
    pub(super) async fn write(&self, bytes: &[u8]) {
        let mut to = self.to.lock().await;
        if to.write_all(bytes).await.is_err() || to.flush().await.is_err() {
            std::process::exit(0);
        }
    }

    /// Writes bytes and ends the line.
    pub(super) async fn line(&self, bytes: &[u8]) {
        self.write(&[bytes, b"\n"].concat()).await;
    }

    pub(super) async fn say(&self, message: &Value) {
        self.line(message.to_string().as_bytes()).await;
    }

    pub(super) async fn result(&self, id: &Value, result: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
    }

    pub(super) async fn text(&self, id: &Value, text: &str) {
        self.result(id, &json!({"content": [{"type": "text", "text": text}]})).await;
    }

    /// A text of this many letters, written without looking at each of them.
    pub(super) async fn letters(&self, id: &Value, count: u64) {
        let letters = "x".repeat(count as usize);
        let content = format!(r#"[{{"type":"text","text":"{letters}"}}]"#);
        self.line(
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":{content}}}}}"#).as_bytes(),
        )
        .await;
    }

    pub(super) async fn error(&self, id: &Value, code: i64, message: &str) {
        self.say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}))
            .await;
    }

    /// The same line many times, a block at a time.
    pub(super) async fn repeat(&self, line: &str, count: u64) {
        const BLOCK: u64 = 1_000;
        let line = format!("{line}\n");
        let block = line.repeat(BLOCK as usize);
        for _ in 0..count / BLOCK {
            self.write(block.as_bytes()).await;
        }
        self.write(line.repeat((count % BLOCK) as usize).as_bytes()).await;
    }

    /// A line on stderr.
    pub(super) fn cry(&self, line: &str) {
        _ = writeln!(std::io::stderr(), "{line}");
    }

    pub(super) async fn noise(&self) {
        for line in NOISE {
            self.line(line).await;
        }
    }
}
