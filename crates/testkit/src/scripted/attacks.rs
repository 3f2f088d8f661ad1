//! The tools: `echo`, `delay`, `write` and `counters` are honest, every other one is an attack on
//! whoever reads the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Ears, Server, pause, start_idle};

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"flood"}}"#;
const PING: &str = r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#;

impl Server {
    pub(super) async fn call(self: &Arc<Self>, message: &Value) -> Ears {
        let (id, params) = (&message["id"], &message["params"]);
        let number = |name: &str| params["arguments"][name].as_u64().unwrap_or_default();
        let text = params["arguments"]["text"].as_str().unwrap_or_default();
        match params["name"].as_str().unwrap_or_default() {
            "echo" => self.out.text(id, text).await,
            "delay" => self.delay(id.clone(), text.to_owned(), number("ms")),
            "counters" => self.counters(id).await,
            "big" => self.out.letters(id, number("bytes")).await,
            "progress_then_big" => self.progress_then_big(message, number("bytes")).await,
            "endless" => self.endless().await,
            "nested" => self.nested(id, number("depth") as usize).await,
            "noise" => self.noise(id, number("lines")).await,
            "flood" => self.flood(id, number("before"), number("after")).await,
            "big_notifications" => {
                self.big_notifications(id, number("count"), number("bytes")).await
            }
            "wrong_id" => self.wrong_id(id).await,
            "twice" => self.twice(id).await,
            "members" => self.members(id, number("count")).await,
            "broken" => self.broken(id, text).await,
            "questions" => self.questions(id, number("count"), number("bytes")).await,
            "list_changed" => {
                self.out
                    .say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
                    .await;
                self.out.text(id, "said").await;
            }
            "deaf" => {
                self.out.text(id, "deaf from now on").await;
                return Ears::Shut;
            }
            "pings" => {
                self.out.repeat(PING, number("count")).await;
                self.out.text(id, "pinged").await;
                return Ears::Shut;
            }
            "orphan" => {
                start_idle(&self.script);
                std::process::exit(3);
            }
            "write" => {
                self.note(&format!("write {text}"));
                self.out.text(id, "written").await;
            }
            "shout" => self.shout(id, number("lines")).await,
            "exit" => std::process::exit(3),
            "write_and_exit" => {
                self.note(&format!("write {text}"));
                std::process::exit(3);
            }
            "hang" => self.hang(params, text).await,
            "fork" => {
                start_idle(&self.script);
                self.out.text(id, "forked").await;
            }
            "only_wrong_id" => self.out.text(&json!(99_999_999), "for nobody").await,
            name => self.out.error(id, -32602, &format!("unknown tool {name}")).await,
        }
        Ears::Open
    }

    fn delay(self: &Arc<Self>, id: Value, text: String, milliseconds: u64) {
        self.delayed.fetch_add(1, Ordering::Relaxed);
        self.note(&format!("delay {text}"));
        let server = Arc::clone(self);
        tokio::spawn(async move {
            pause(milliseconds).await;
            server.out.text(&id, &text).await;
            server.answered.fetch_add(1, Ordering::Relaxed);
        });
    }

    async fn counters(&self, id: &Value) {
        let counted = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let counters = json!({
            "cancelled": counted(&self.cancelled), "pages": counted(&self.pages_served),
            "delayed": counted(&self.delayed), "answered": counted(&self.answered),
        });
        self.out.result(id, &json!({"content": [], "structuredContent": counters})).await;
    }

    /// Never answers, but shows that it is at work if it is asked to.
    async fn hang(&self, params: &Value, text: &str) {
        self.note(&format!("hang {text}"));
        if !params["_meta"]["progressToken"].is_null() {
            self.progress(params).await;
        }
    }

    /// So many lines on stderr.
    async fn shout(&self, id: &Value, lines: u64) {
        (0..lines).for_each(|line| self.out.cry(&format!("shout {line}")));
        self.out.text(id, "shouted").await;
    }

    async fn progress(&self, params: &Value) {
        let progress = json!({"progressToken": params["_meta"]["progressToken"], "progress": 1});
        self.out
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}))
            .await;
    }

    async fn progress_then_big(&self, message: &Value, bytes: u64) {
        self.progress(&message["params"]).await;
        self.out.letters(&message["id"], bytes).await;
    }

    /// A line that has no end.
    async fn endless(&self) {
        let piece = vec![b'x'; 1 << 20];
        loop {
            self.out.write(&piece).await;
        }
    }

    /// An answer of this depth, the envelope counted.
    async fn nested(&self, id: &Value, depth: usize) {
        let inner = depth.saturating_sub(1);
        let value = format!("{}{}", "[".repeat(inner), "]".repeat(inner));
        self.out
            .line(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{value}}}"#).as_bytes())
            .await;
    }

    async fn noise(&self, id: &Value, lines: u64) {
        self.out.noise().await;
        self.out.repeat("this is not a message, and there are many of it", lines).await;
        self.out.text(id, "heard").await;
    }

    async fn flood(&self, id: &Value, before: u64, after: u64) {
        self.out.repeat(LOG, before).await;
        self.out.text(id, "survived").await;
        self.out.repeat(LOG, after).await;
    }

    async fn big_notifications(&self, id: &Value, count: u64, bytes: u64) {
        let params = json!({"level": "info", "data": "x".repeat(bytes as usize)});
        let line = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
            .to_string();
        for _ in 0..count {
            self.out.line(line.as_bytes()).await;
        }
        self.out.text(id, "survived").await;
    }

    /// Answers to nobody, to a text that looks like our id, to none; then the right one.
    async fn wrong_id(&self, id: &Value) {
        for wrong in [json!(99_999_999), json!(id.to_string()), json!(-1)] {
            self.out.text(&wrong, "for somebody else").await;
        }
        self.out.text(id, "for you").await;
    }

    async fn twice(&self, id: &Value) {
        self.out.text(id, "first").await;
        self.out.text(id, "second").await;
    }

    /// A result with this many members.
    async fn members(&self, id: &Value, count: u64) {
        let members = vec![r#""":0"#; count as usize].join(",");
        self.out
            .line(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{members}}}}}"#).as_bytes())
            .await;
    }

    /// An answer that is broken in the way that `how` says.
    async fn broken(&self, id: &Value, how: &str) {
        let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
        let (before, inside): (&[u8], &[u8]) = match how {
            "utf8" => (b"", b"{\"content\":[],\"text\":\"\xff\"}}"),
            "bom" => (b"\xef\xbb\xbf", b"{\"content\":[]}}"),
            "nul" => (b"", b"{\"content\":[]}}\0"),
            "twice" => (b"", b"{\"content\":[]},\"result\":{\"content\":[1]}}"),
            "control" => (b"", b"{\"content\":[],\"text\":\"a\rb\"}}"),
            _ => (b"", b"{\"content\":["),
        };
        self.out.line(&[before, head.as_bytes(), inside].concat()).await;
    }

    async fn questions(&self, id: &Value, count: u64, bytes: u64) {
        let message = "x".repeat(bytes as usize);
        let params =
            json!({"message": message, "requestedSchema": {"type": "object", "properties": {}}})
                .to_string();
        for number in 0..count {
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":"q{number}","method":"elicitation/create","params":{params}}}"#
            );
            self.out.line(line.as_bytes()).await;
        }
        self.out.text(id, "asked").await;
    }
}
