//! Decides how a faulty server behaves on stdin and stdout. When it dies, its process really ends.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Stdout};
use tokio::sync::Mutex;

use crate::faulty::{Ending, Faulty};

/// Serves requests until stdin ends, or until the fault plan kills the server.
pub async fn serve(server: Faulty) {
    let stdout = Arc::new(Mutex::new(tokio::io::stdout()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        if server.world.plan().is_away {
            return die();
        }
        let Ok(Some(line)) = lines.next_line().await else { return };
        // Checked again: the plan may have changed while the server waited for this line.
        if server.world.plan().is_away {
            return die();
        }
        let Ok(asked) = serde_json::from_str::<Value>(&line) else { continue };
        let Some(ending) = server.hear(&asked) else { continue };
        tokio::spawn(end(ending, asked, Arc::clone(&stdout)));
    }
}

async fn end(ending: Ending, asked: Value, stdout: Arc<Mutex<Stdout>>) {
    let text = match ending {
        Ending::Never => return,
        Ending::Death => return die(),
        Ending::Answer(answer) => format!("{answer}\n"),
        Ending::Noisy(answer) => format!("Listening on stdio...\n{answer}\n"),
        Ending::Later(wait, answer) => {
            tokio::time::sleep(wait).await;
            format!("{answer}\n")
        }
        Ending::Half(answer) => {
            let text = answer.to_string();
            write(&stdout, &text[..text.len() / 2]).await;
            return die();
        }
        Ending::Status(status, wait) => {
            error(&asked, &format!("{} {}", status, reason(status)), wait)
        }
        // A pipe has no sessions: ending the process comes nearest to forgetting one.
        Ending::Forgotten => return die(),
    };
    write(&stdout, &text).await;
}

async fn write(stdout: &Mutex<Stdout>, text: &str) {
    let mut stdout = stdout.lock().await;
    let _gone = stdout.write_all(text.as_bytes()).await;
    let _gone = stdout.flush().await;
}

/// The form of an HTTP status where there is no HTTP: a JSON-RPC error with the service's words.
fn error(asked: &Value, text: &str, wait: Option<u64>) -> String {
    let mut error = json!({"code": -32000, "message": text});
    if let Some(wait) = wait {
        error["data"] = json!({"retryAfter": wait});
    }
    format!("{}\n", json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
}

/// The reason phrase of an HTTP status.
pub fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Unknown")
}

#[expect(clippy::exit, reason = "to die is what this server is for")]
fn die() {
    std::process::exit(1)
}
