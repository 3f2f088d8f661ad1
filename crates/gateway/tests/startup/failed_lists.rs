//! A list that fails takes no tool away: what the server listed last stands, the same bytes in the
//! same order, however the list failed, whoever asks, on whichever endpoint.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::kit::*;
use super::upstream::{Upstream, honest, response, write};

/// What `tools/list` is answered with once it fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It does not.
    None,
    /// A JSON-RPC error.
    Error(i64, &'static str),
    /// A result that is no list.
    Garbage(&'static str),
    /// No JSON at all.
    Noise,
    Status(&'static str),
    Hangs,
    Closes,
}

const FAULTS: [Fault; 14] = [
    Fault::Error(-32603, "database is locked"),
    Fault::Error(-32000, "Connection closed"),
    Fault::Error(-32602, "Invalid request parameters"),
    Fault::Error(-32601, "Method not found"),
    Fault::Garbage(r#"{"tools":{"no":"list"}}"#),
    Fault::Garbage("{}"),
    Fault::Garbage("null"),
    Fault::Noise,
    Fault::Status("403 Forbidden"),
    Fault::Status("404 Not Found"),
    Fault::Status("500 Internal Server Error"),
    Fault::Status("503 Service Unavailable"),
    Fault::Closes,
    Fault::Hangs,
];

/// A server with two tools whose list fails as it is told to.
async fn failing(fault: &Arc<Mutex<Fault>>) -> Upstream {
    let fault = Arc::clone(fault);
    Upstream::start(move |asked, mut tcp| {
        let fault = *fault.lock().unwrap();
        async move {
            let json = "content-type: application/json\r\n";
            let id = &asked.message["id"];
            let bytes = match fault {
                _ if !asked.is("tools/list") => honest(&asked),
                Fault::None => super::upstream::answer(&asked, &json!({"tools": [tool("zebra"), tool("ant")]})),
                Fault::Error(code, text) => {
                    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}});
                    response("200 OK", json, error.to_string().as_bytes())
                }
                Fault::Garbage(result) => {
                    response("200 OK", json, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).as_bytes())
                }
                Fault::Noise => response("200 OK", json, b"<html>"),
                Fault::Status(status) => response(status, "", b""),
                Fault::Closes => return,
                Fault::Hangs => std::future::pending().await,
            };
            write(&mut tcp, &bytes).await;
        }
    })
    .await
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "description": "what it does"})
}

/// The tools that each kind of client reads on each endpoint.
async fn read(served: &Served, sessions: &[Legacy<'_>]) -> Vec<String> {
    let mut lists = Vec::new();
    for session in sessions {
        lists.push(session.ask("tools/list", json!({})).await);
    }
    for path in ["/mcp", "/mcp/a"] {
        lists.push(served.modern_at(path, "tools/list").await);
    }
    lists.iter().map(|list| format!("{} {}", list["result"]["tools"], list["error"])).collect()
}

async fn survives(faults: &[Fault]) {
    let fault = Arc::new(Mutex::new(Fault::None));
    let (a, b) = (failing(&fault).await, healthy().await);
    // No retries and no breakers: each fault is to be met as it is.
    let once = "[defaults]\nretry = { attempts = 1 }\nbreaker = { failures = 0 }\n";
    let (_folder, file) =
        configured(&format!("{once}{}{}", remote("a", &a.url), remote("b", &b.url)));
    let served = Served::start(&file).await;
    let sessions =
        [served.session("/mcp", &json!({})).await, served.session("/mcp/a", &json!({})).await];
    let before = read(&served, &sessions).await;
    assert!(
        before.iter().all(|list| list.contains("zebra") && list.ends_with("null")),
        "{before:?}"
    );
    for broken in faults {
        *fault.lock().unwrap() = *broken;
        assert_eq!(read(&served, &sessions).await, before, "{broken:?}");
        let list = sessions[0].ask("tools/list", json!({})).await;
        assert!(told(&list["result"], "a")["status"].is_string(), "{broken:?}: {list}");
    }
    *fault.lock().unwrap() = Fault::None;
    assert_eq!(read(&served, &sessions).await, before);
}

#[tokio::test]
async fn tools_survive_every_kind_of_failed_list() {
    survives(&FAULTS[..13]).await;
}

#[tokio::test]
async fn tools_survive_a_list_that_never_comes() {
    let began = tokio::time::Instant::now();
    survives(&FAULTS[13..]).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}
