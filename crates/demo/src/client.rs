//! Decides how the demo's client talks to a server or a gateway: it opens a session or starts a
//! child when it has none, waits until its timeout, retries nothing, and returns each answer as it
//! came.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as Plain, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as Http;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Mutex, oneshot};

/// The answer that a client got.
#[derive(Clone, Debug)]
pub enum ClientAnswer {
    /// A JSON-RPC message.
    Message(Value),
    /// An HTTP status without a message.
    Status(u16),
    /// No answer: the connection was lost, or could not be made.
    Lost(String),
    /// No answer before the timeout.
    Silence,
}

/// The address of a server.
#[derive(Clone, Debug)]
pub enum ServerRoute {
    /// A URL.
    Web(String),
    /// A program with its arguments, which talks over pipes.
    Program(Vec<String>),
}

/// An MCP client of one server.
pub struct DemoClient {
    way: ServerRoute,
    next: AtomicU64,
    http: Http<HttpConnector, Full<Bytes>>,
    /// The HTTP session.
    session: Mutex<Option<Arc<str>>>,
    /// The child on pipes.
    child: Mutex<Option<Arc<Piped>>>,
}

impl DemoClient {
    /// A client without a session or a child.
    pub fn new(way: ServerRoute) -> Self {
        let http = Http::builder(TokioExecutor::new()).build_http();
        Self {
            way,
            next: AtomicU64::new(1),
            http,
            session: Mutex::default(),
            child: Mutex::default(),
        }
    }

    /// Calls a tool, and sends the server a cancellation if the answer does not come in time.
    pub async fn call(&self, tool: &str, arguments: &Value, patience: Duration) -> ClientAnswer {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}), patience).await
    }

    /// Sends any request.
    pub async fn ask(&self, method: &str, params: Value, patience: Duration) -> ClientAnswer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        match tokio::time::timeout(patience, self.exchange(&request)).await {
            Ok(told) => told,
            Err(_) => {
                let params = json!({"requestId": id, "reason": "it takes too long"});
                let _told =
                    tokio::time::timeout(patience, self.tell("notifications/cancelled", params))
                        .await;
                ClientAnswer::Silence
            }
        }
    }

    /// Calls a tool, and sends no cancellation when the answer does not come in time: the request
    /// goes on, and its answer is dropped when it comes. Clients with a timeout that send no
    /// cancellation behave like this, such as the Python SDK 1.x.
    pub async fn call_and_leave(
        self: &Arc<Self>,
        tool: &str,
        arguments: &Value,
        patience: Duration,
    ) -> ClientAnswer {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let params = json!({"name": tool, "arguments": arguments});
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let client = Arc::clone(self);
        let exchange = tokio::spawn(async move {
            // The task ends even if the server never answers.
            tokio::time::timeout(LONGEST, client.exchange(&request))
                .await
                .unwrap_or(ClientAnswer::Silence)
        });
        match tokio::time::timeout(patience, exchange).await {
            Ok(told) => told.unwrap_or(ClientAnswer::Silence),
            Err(_) => ClientAnswer::Silence,
        }
    }

    async fn tell(&self, method: &str, params: Value) {
        let notification = json!({"jsonrpc": "2.0", "method": method, "params": params});
        match &self.way {
            ServerRoute::Web(url) => {
                let session = self.session.lock().await.clone();
                if let Some(session) = session {
                    let _said = self.post(url, Some(&session), &notification).await;
                }
            }
            ServerRoute::Program(_) => {
                let child = self.child.lock().await.clone();
                if let Some(child) = child {
                    child.send(&notification).await;
                }
            }
        }
    }

    async fn exchange(&self, request: &Value) -> ClientAnswer {
        match &self.way {
            ServerRoute::Web(url) => {
                let session = match self.begun(url).await {
                    Ok(session) => session,
                    Err(told) => return told,
                };
                let (told, _) = self.post(url, Some(&session), request).await;
                if matches!(told, ClientAnswer::Status(404 | 400) | ClientAnswer::Lost(_)) {
                    // The next call opens a new session. `take_if`: another call may have opened
                    // one already.
                    self.session.lock().await.take_if(|current| *current == session);
                }
                told
            }
            ServerRoute::Program(program) => match self.started(program).await {
                Ok(child) => child.ask(request).await,
                Err(told) => told,
            },
        }
    }

    async fn begun(&self, url: &str) -> Result<Arc<str>, ClientAnswer> {
        // The lock is held over the handshake, so that concurrent calls open one session, not
        // several.
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref() {
            return Ok(Arc::clone(session));
        }
        let (told, given) = self.post(url, None, &info()).await;
        let ClientAnswer::Message(_) = told else { return Err(told) };
        let fresh: Arc<str> = given.unwrap_or_default().into();
        self.post(url, Some(&fresh), &initialized()).await;
        Ok(Arc::clone(session.insert(fresh)))
    }

    /// One POST: the answer, and the session id that the server issued.
    async fn post(
        &self,
        url: &str,
        session: Option<&str>,
        message: &Value,
    ) -> (ClientAnswer, Option<String>) {
        let mut request = Request::post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream");
        if let Some(session) = session {
            request =
                request.header("mcp-protocol-version", VERSION).header("mcp-session-id", session);
        }
        let lost = |error: &dyn std::fmt::Display| (ClientAnswer::Lost(error.to_string()), None);
        let request = match request.body(Full::new(Bytes::from(message.to_string()))) {
            Ok(request) => request,
            Err(error) => return lost(&error),
        };
        let response = match self.http.request(request).await {
            Ok(response) => response,
            Err(error) => return lost(&error),
        };
        let status = response.status().as_u16();
        let given = response
            .headers()
            .get("mcp-session-id")
            .and_then(|id| id.to_str().ok())
            .map(str::to_owned);
        let body = match response.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return lost(&error),
        };
        let found = found(&body, &message["id"]);
        (found.map_or(ClientAnswer::Status(status), ClientAnswer::Message), given)
    }

    async fn started(&self, program: &[String]) -> Result<Arc<Piped>, ClientAnswer> {
        let mut child = self.child.lock().await;
        if let Some(running) = child.as_ref().filter(|child| child.is_alive()) {
            return Ok(Arc::clone(running));
        }
        let fresh = Piped::start(program).map_err(|error| ClientAnswer::Lost(error.to_string()))?;
        let told = fresh.ask(&info()).await;
        let ClientAnswer::Message(_) = told else { return Err(told) };
        fresh.send(&initialized()).await;
        Ok(Arc::clone(child.insert(fresh)))
    }
}

const VERSION: &str = "2025-11-25";
/// How long a request runs on after its client has left.
const LONGEST: Duration = Duration::from_secs(10);

fn info() -> Value {
    let params = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

/// The answer to `id` in a body, which is a message or an event stream.
fn found(body: &[u8], id: &Value) -> Option<Value> {
    if let Ok(message) = serde_json::from_slice::<Value>(body) {
        return Some(message).filter(|message| message["jsonrpc"] == "2.0");
    }
    let text = std::str::from_utf8(body).ok()?;
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    events
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .find(|message| message["id"] == *id)
}

type AwaitedAnswers = Arc<Plain<Option<HashMap<u64, oneshot::Sender<Value>>>>>;

/// A child on pipes.
struct Piped {
    stdin: Mutex<ChildStdin>,
    /// The callers that wait for an answer, by request id; `None` once the child is gone.
    waiting: AwaitedAnswers,
    _child: Child,
}

impl Piped {
    fn start(program: &[String]) -> std::io::Result<Arc<Self>> {
        let (name, arguments) = program.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(name);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let waiting: AwaitedAnswers = Arc::new(Plain::new(Some(HashMap::new())));
        let heard = Arc::clone(&waiting);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                let waits =
                    message["id"].as_u64().and_then(|id| lock(&heard).as_mut()?.remove(&id));
                waits.map(|waits| waits.send(message));
            }
            // Dropping the map drops its senders, which ends every wait with `Lost`.
            *lock(&heard) = None;
        });
        Ok(Arc::new(Self { stdin: Mutex::new(stdin), waiting, _child: child }))
    }

    fn is_alive(&self) -> bool {
        lock(&self.waiting).is_some()
    }

    async fn send(&self, message: &Value) -> bool {
        let mut stdin = self.stdin.lock().await;
        stdin.write_all(format!("{message}\n").as_bytes()).await.is_ok()
            && stdin.flush().await.is_ok()
    }

    async fn ask(&self, request: &Value) -> ClientAnswer {
        let (tell, told) = oneshot::channel();
        match (lock(&self.waiting).as_mut(), request["id"].as_u64()) {
            (Some(waiting), Some(id)) => _ = waiting.insert(id, tell),
            // The server's process has ended: nobody will answer.
            _ => drop(tell),
        }
        self.send(request).await;
        told.await.map_or_else(
            |_| ClientAnswer::Lost("the server's process ended".to_owned()),
            ClientAnswer::Message,
        )
    }
}

fn lock<T>(mutex: &Plain<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
