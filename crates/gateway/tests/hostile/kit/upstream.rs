//! An HTTP server made by hand, so that it can answer as no library would.

use std::future::Future;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Request line and headers.
    pub(crate) head: String,
    /// The message in the body; null if there is none.
    pub(crate) message: Value,
}

impl Asked {
    pub(crate) fn is(&self, method: &str) -> bool {
        self.message["method"] == method
    }

    /// The tool that is called, if that is what is asked.
    pub(crate) fn tool(&self) -> &str {
        self.message["params"]["name"].as_str().unwrap_or_default()
    }
}

/// A server on loopback.
pub(crate) struct Upstream {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Asked>>>,
    task: AbortHandle,
}

impl Upstream {
    /// Answers each request, on a connection of its own, with whatever `respond` writes.
    pub(crate) async fn start<F, R>(respond: F) -> Self
    where
        F: Fn(Asked, TcpStream) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok((mut tcp, _)) = listener.accept().await {
                let (respond, log) = (respond.clone(), Arc::clone(&log));
                tokio::spawn(async move {
                    let Some(asked) = read(&mut tcp).await else { return };
                    log.lock().unwrap().push(asked.clone());
                    respond(asked, tcp).await;
                });
            }
        });
        Self { url, seen, task: task.abort_handle() }
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(tcp: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if tcp.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())
        .unwrap_or(0);
    while bytes.len() < end + length {
        if tcp.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked { head, message: serde_json::from_slice(&bytes[end..]).unwrap_or_default() })
}

/// Writes all of it; a gateway that has gone is no surprise here.
pub(crate) async fn write(tcp: &mut TcpStream, bytes: &[u8]) -> bool {
    tcp.write_all(bytes).await.is_ok() && tcp.flush().await.is_ok()
}

/// A response that closes its connection.
pub(crate) fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// An answer as JSON.
pub(crate) fn answer(asked: &Asked, result: &Value) -> Vec<u8> {
    let message = json!({"jsonrpc": "2.0", "id": asked.message["id"], "result": result});
    response("200 OK", "content-type: application/json\r\n", message.to_string().as_bytes())
}

/// The head of a stream of events that lasts as long as the connection.
pub(crate) const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";

/// What an honest legacy server says: handshake, a list with one tool, and `echo`.
pub(crate) fn honest(asked: &Asked) -> Vec<u8> {
    match asked.message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            let capabilities = json!({"tools": {}});
            let version = &asked.message["params"]["protocolVersion"];
            let info = json!({"name": "by-hand", "version": "1"});
            answer(
                asked,
                &json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}),
            )
        }
        "tools/list" => {
            answer(asked, &json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}))
        }
        "tools/call" => {
            let text = &asked.message["params"]["arguments"]["text"];
            answer(asked, &json!({"content": [{"type": "text", "text": text}]}))
        }
        "server/discover" => response("400 Bad Request", "", b""),
        "" => response("405 Method Not Allowed", "", b""),
        _ => response("202 Accepted", "", b""),
    }
}
