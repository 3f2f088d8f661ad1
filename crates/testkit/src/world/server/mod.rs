//! A server of a world: what it says to a message, whichever way the message came.
//!
//! `answers` says what befalls a call; `http` and `pipe` are the two ways in. The child behind a
//! pipe is only a relay ([`relay`]): what it is told to say is decided here, so the ledger is exact
//! and the child may die at any time.

mod answers;
mod http;
mod pipe;
pub mod relay;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ledger::Ledger;
use super::plan::{Era, Face, Fate, Ms, ServerPlan, Trouble};
use super::process;

/// What is sent to whoever asked.
pub(crate) enum Out {
    /// More than one message follows.
    Stream,
    Message(Value),
    /// Bytes that are no message.
    Raw(String),
    /// An HTTP status with a body; on a pipe nothing.
    Status(u16, String),
    /// The connection is cut.
    Cut,
}

/// How it is with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Health {
    is_away: bool,
    hangs: bool,
}

#[derive(Default)]
struct State {
    sessions: HashSet<String>,
    opened: usize,
    questions: HashMap<String, oneshot::Sender<Value>>,
    asked: usize,
    list_fails: Option<u16>,
    has_extra: bool,
}

/// A server.
pub(crate) struct Server {
    pub(crate) place: usize,
    pub(crate) plan: ServerPlan,
    fates: HashMap<String, Vec<Fate>>,
    ledger: Arc<Ledger>,
    word: String,
    /// Where every message is written down, if somebody wants to look.
    trace: Option<Mutex<File>>,
    state: Mutex<State>,
    health: watch::Sender<Health>,
    /// Ends all connections; replaced by a new one each time.
    cut: Mutex<CancellationToken>,
    news: broadcast::Sender<Value>,
    over: CancellationToken,
    begun: Instant,
}

impl Server {
    /// Starts to serve; `fates` are what befalls each intent here.
    pub(crate) fn start(
        place: usize,
        plan: &ServerPlan,
        fates: HashMap<String, Vec<Fate>>,
        ledger: &Arc<Ledger>,
        port: u16,
        folder: &Path,
    ) -> Arc<Self> {
        let server = Arc::new(Self {
            place,
            plan: plan.clone(),
            fates,
            ledger: Arc::clone(ledger),
            word: socket(folder, place).display().to_string(),
            trace: trace(folder, place),
            state: Mutex::default(),
            health: watch::Sender::default(),
            cut: Mutex::default(),
            news: broadcast::channel(16).0,
            over: CancellationToken::new(),
            begun: Instant::now(),
        });
        match plan.face {
            Face::Http => _ = tokio::spawn(http::serve(Arc::clone(&server), port)),
            Face::Stdio => {
                _ = tokio::spawn(pipe::serve(Arc::clone(&server), socket(folder, place)))
            }
        }
        server
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends with the next time that all connections are cut.
    fn connection(&self) -> CancellationToken {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lives through a trouble, to its end.
    pub(crate) async fn suffer(&self, trouble: Trouble) {
        match trouble {
            Trouble::Dies => self.die(),
            Trouble::Away(time) => {
                self.health.send_modify(|health| health.is_away = true);
                self.die();
                pause(time).await;
                self.health.send_modify(|health| health.is_away = false);
            }
            Trouble::Hangs(time) => {
                self.health.send_modify(|health| health.hangs = true);
                self.signal(process::STOP);
                pause(time).await;
                self.health.send_modify(|health| health.hangs = false);
                self.signal(process::CONTINUE);
            }
            Trouble::Forgets => self.state().sessions.clear(),
            Trouble::ListFails(time, how) => {
                self.state().list_fails = Some(how);
                pause(time).await;
                self.state().list_fails = None;
            }
            Trouble::ListChanges => {
                let has_extra = !self.state().has_extra;
                self.state().has_extra = has_extra;
                _ = self
                    .news
                    .send(json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            }
        }
    }

    fn die(&self) {
        self.state().sessions.clear();
        self.signal(process::KILL);
        let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *cut).cancel();
    }

    fn signal(&self, signal: rustix::process::Signal) {
        for pid in self.ledger.children_of(self.place) {
            process::send(pid, &self.word, signal);
        }
    }

    /// A word in the command line of its children.
    pub(crate) fn word(&self) -> &str {
        &self.word
    }

    /// Writes down what came or went, with the time since the world began.
    fn traced(&self, what: &str) {
        let Some(file) = &self.trace else { return };
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        _ = writeln!(file, "{:>6} {what}", self.begun.elapsed().as_millis());
    }

    /// Nobody is served any more.
    pub(crate) fn end(&self) {
        self.over.cancel();
        self.signal(process::CONTINUE);
    }

    /// What it says to a message; `session` is what the message came with.
    async fn take(
        self: Arc<Self>,
        message: Value,
        session: Option<String>,
        out: mpsc::Sender<Out>,
    ) {
        let id = message["id"].clone();
        if message.get("method").is_none() {
            let waiting = self.state().questions.remove(id.as_str().unwrap_or_default());
            _ = waiting.map(|waiting| waiting.send(message));
            return;
        }
        let method = message["method"].as_str().unwrap_or_default().to_owned();
        if self.plan.era == Era::Legacy && self.plan.face == Face::Http && method != "initialize" {
            let is_known = session.is_some_and(|session| self.state().sessions.contains(&session));
            if !is_known {
                return self.unknown_session(&id, &method, &out).await;
            }
        }
        match method.as_str() {
            "initialize" | "server/discover" => {
                self.greet(&method, &id, &message["params"], &out).await
            }
            "tools/list" => self.list(&id, &out).await,
            "tools/call" => self.call(&message, &out).await,
            "ping" => say(&out, self.result(&id, json!({}))).await,
            _ if id.is_null() => {}
            _ => say(&out, error(&id, -32601, "Method not found")).await,
        }
    }

    async fn unknown_session(&self, id: &Value, method: &str, out: &mpsc::Sender<Out>) {
        if method == "server/discover" {
            let text =
                error(&Value::Null, -32000, "Bad Request: Server not initialized").to_string();
            return send(out, Out::Status(400, text)).await;
        }
        let id = if self.plan.names_the_call { id.clone() } else { Value::Null };
        send(out, Out::Status(404, error(&id, -32001, "Session not found").to_string())).await;
    }

    async fn greet(&self, method: &str, id: &Value, params: &Value, out: &mpsc::Sender<Out>) {
        let capabilities = json!({"tools": {"listChanged": true}});
        let info = json!({"name": format!("s{}", self.place), "version": "1"});
        let answer = match (self.plan.era, method) {
            (Era::Legacy, "initialize") => json!({
                "protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info,
            }),
            (Era::Modern, "server/discover") => json!({
                "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "ttlMs": 0, "cacheScope": "public",
            }),
            (Era::Legacy, _) => return say(out, error(id, -32601, "Method not found")).await,
            (Era::Modern, _) => {
                let mut refusal = error(id, -32022, "Unsupported protocol version");
                refusal["error"]["data"] =
                    json!({"supported": ["2026-07-28"], "requested": params["protocolVersion"]});
                return self.refuse(400, refusal, out).await;
            }
        };
        say(out, self.result(id, answer)).await;
    }

    /// A status on HTTP, the message on a pipe.
    async fn refuse(&self, status: u16, message: Value, out: &mpsc::Sender<Out>) {
        match self.plan.face {
            Face::Http => send(out, Out::Status(status, message.to_string())).await,
            Face::Stdio => say(out, message).await,
        }
    }

    async fn list(&self, id: &Value, out: &mpsc::Sender<Out>) {
        let (fails, has_extra) = {
            let state = self.state();
            (state.list_fails, state.has_extra)
        };
        match fails {
            Some(200) => return say(out, error(id, -32603, "database is locked")).await,
            Some(status) => {
                return self
                    .refuse(status, error(id, -32603, "the list is not there now"), out)
                    .await;
            }
            None => {}
        }
        let tool = |name: &str, is_read: bool| {
            let annotations = json!({"readOnlyHint": is_read, "destructiveHint": false});
            json!({"name": name, "inputSchema": {"type": "object"}, "annotations": annotations})
        };
        let mut tools = vec![tool("read_note", true), tool("make_note", false)];
        if has_extra {
            tools.push(tool("extra", true));
        }
        let mut result = json!({"tools": tools});
        if self.plan.era == Era::Modern {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("public");
        }
        say(out, self.result(id, result)).await;
    }

    fn result(&self, id: &Value, mut result: Value) -> Value {
        if self.plan.era == Era::Modern && result.get("resultType").is_none() {
            result["resultType"] = json!("complete");
        }
        json!({"jsonrpc": "2.0", "id": id, "result": result})
    }
}

/// A file beside the others of a world that is kept.
fn trace(folder: &Path, place: usize) -> Option<Mutex<File>> {
    std::env::var_os("SEAWALL_WORLD_KEEP")?;
    File::create(folder.join(format!("s{place}.trace"))).ok().map(Mutex::new)
}

/// Where the children of a server find us.
pub(crate) fn socket(folder: &Path, place: usize) -> std::path::PathBuf {
    folder.join(format!("s{place}.sock"))
}

fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

async fn send(out: &mpsc::Sender<Out>, what: Out) {
    _ = out.send(what).await;
}

async fn say(out: &mpsc::Sender<Out>, message: Value) {
    send(out, Out::Message(message)).await;
}

async fn pause(time: Ms) {
    tokio::time::sleep(Duration::from_millis(time)).await;
}
