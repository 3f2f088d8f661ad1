//! Who may call, through the running gateway: tokens and keys, and the operator's authorizer.
//!
//! What must hold: a denial is told as a denial and an outage as an outage; nothing reaches a
//! server, a queue or a client before somebody allowed it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "what the hostile tests need is more than is needed here"
)]
#[path = "../hostile/kit/mod.rs"]
mod kit;

mod accounts;
mod client;
mod identity;
mod lists;
mod matrix;
mod outage;
mod passing;
mod queue;
mod real;
mod verdicts;

use serde_json::{Value, json};

use self::kit::upstream::{answer, honest, write};
use self::kit::{Asked, Upstream};

/// A server with a read, a write and what a client may fetch from it; it remembers what it saw.
async fn server() -> Upstream {
    Upstream::start(|asked: Asked, mut tcp| async move {
        let said = match asked.message["method"].as_str().unwrap_or_default() {
            "tools/list" => answer(&asked, &json!({"tools": tools()})),
            "resources/read" => {
                let contents = json!([{"uri": asked.message["params"]["uri"], "text": "inside"}]);
                answer(&asked, &json!({"contents": contents}))
            }
            _ => honest(&asked),
        };
        write(&mut tcp, &said).await;
    })
    .await
}

fn tools() -> Value {
    let tool = |name: &str, is_read: bool| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": is_read}});
    json!([tool("echo", true), tool("get_secret", true), tool("send_mail", false)])
}

/// How often a server was asked to call a tool.
fn calls(server: &Upstream, tool: &str) -> usize {
    server.seen().iter().filter(|asked| asked.is("tools/call") && asked.tool() == tool).count()
}

/// What a failed call says for programs.
fn failure(answer: &Value) -> &Value {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    &answer["result"]["_meta"]["seawall/failure"]
}
