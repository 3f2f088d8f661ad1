//! A client of a world: asks, leaves, asks again, and notes what it sees. `http` and `stdio` are
//! its two ways out.

pub(crate) mod http;
mod stdio;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::http::Line;
use self::stdio::Pipe;
use super::config::{REJOIN_AFTER, revision};
use super::gateway::Gateway;
use super::ledger::Ledger;
use super::notes::{Listing, Notes, Request};
use super::plan::{ClientPlan, Effect, Era, Intent, Leave, Manners, Round, Way};

/// How long a client waits for an answer that it wants, at most.
const PATIENCE: Duration = Duration::from_secs(5);

/// What clients share.
pub(crate) struct Shared {
    pub(crate) gateway: Gateway,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) notes: Arc<Notes>,
    pub(crate) alone: bool,
}

/// One client.
pub(crate) struct Client {
    pub(crate) place: usize,
    pub(crate) plan: ClientPlan,
    shared: Arc<Shared>,
    way: Out,
    next: AtomicUsize,
}

enum Out {
    Http(Line),
    Stdio(Box<Pipe>),
}

/// A request on its way; it can be left.
struct Sent {
    tag: String,
    id: Value,
    /// Ends its connection, where it has one.
    connection: Option<AbortHandle>,
    /// Where it was sent.
    path: String,
}

impl Client {
    pub(crate) fn new(
        place: usize,
        plan: &ClientPlan,
        shared: &Arc<Shared>,
        seawall: &Path,
        folder: &Path,
    ) -> Self {
        let way = match plan.way {
            Way::Merged => Out::Http(Line::default()),
            Way::Run(server) => Out::Stdio(Box::new(Pipe::new(seawall, folder, server))),
        };
        Self {
            place,
            plan: plan.clone(),
            shared: Arc::clone(shared),
            way,
            next: AtomicUsize::new(1),
        }
    }

    fn number(&self) -> usize {
        self.next.fetch_add(1, Ordering::SeqCst)
    }

    /// Who the gateway can know a request of this client to come from. One that it cannot know is a
    /// stranger each time.
    fn caller(&self, tag: &str, session: &str) -> String {
        match &self.way {
            Out::Stdio(_) => format!("pipe c{}", self.place),
            Out::Http(_) if self.plan.has_identity => format!("token c{}", self.place),
            Out::Http(_) if self.plan.era == Era::Legacy => format!("session {session}"),
            Out::Http(_) => format!("stranger {tag}"),
        }
    }

    /// Where the tools of a server are.
    fn path(&self, server: usize) -> String {
        if self.shared.alone { format!("/mcp/s{server}") } else { "/mcp".to_owned() }
    }

    fn tool(&self, server: usize, effect: Effect) -> String {
        let name = if effect == Effect::Write { "make_note" } else { "read_note" };
        let is_merged = matches!(self.way, Out::Http(_)) && !self.shared.alone;
        if is_merged { format!("s{server}__{name}") } else { name.to_owned() }
    }

    /// The servers that this client reaches.
    pub(crate) fn reaches(&self, server: usize) -> bool {
        match self.plan.way {
            Way::Merged => true,
            Way::Run(only) => only == server,
        }
    }

    fn capabilities(&self) -> Value {
        match self.plan.manners {
            Manners::Refuses => json!({}),
            _ => json!({"elicitation": {}, "sampling": {}, "roots": {}}),
        }
    }

    fn info(&self) -> Value {
        json!({"name": format!("c{}", self.place), "version": "1"})
    }

    /// What it says to a question; `None`: nothing.
    async fn reply(&self, method: &str) -> Option<Value> {
        match self.plan.manners {
            Manners::Answers(time) => sleep(Duration::from_millis(time)).await,
            Manners::Refuses => {
                return Some(json!({"error": {"code": -32601, "message": "Method not found"}}));
            }
            Manners::Ignores => return None,
        }
        Some(match method {
            "elicitation/create" => {
                json!({"result": {"action": "accept", "content": {"ok": true}}})
            }
            "sampling/createMessage" => {
                let content = json!({"type": "text", "text": "yes"});
                json!({"result": {"model": "none", "role": "assistant", "content": content}})
            }
            "roots/list" => json!({"result": {"roots": []}}),
            _ => json!({"error": {"code": -32601, "message": "Method not found"}}),
        })
    }

    /// A modern request once more, with answers to what was asked; `None`: this client does not
    /// answer, and so it has left.
    async fn answering(&self, request: &Value, asked: &Value, tag: &str) -> Option<Value> {
        let mut responses = json!({});
        for (key, question) in asked["inputRequests"].as_object().into_iter().flatten() {
            let Some(reply) = self.reply(question["method"].as_str().unwrap_or_default()).await
            else {
                let left = (Instant::now(), Leave::Silently);
                self.shared.notes.change(tag, |request| request.left = Some(left));
                return None;
            };
            responses[key] =
                reply.get("result").cloned().unwrap_or_else(|| json!({"action": "decline"}));
        }
        let mut again = request.clone();
        again["id"] = json!(self.number());
        again["params"]["inputResponses"] = responses;
        again["params"]["requestState"] = asked["requestState"].clone();
        Some(again)
    }

    /// Begins a new session.
    pub(crate) async fn reconnect(&self) {
        match &self.way {
            Out::Http(line) => line.forget(),
            Out::Stdio(pipe) => pipe.end(&self.shared.notes).await,
        }
    }

    /// Kills what stands between it and its server.
    pub(crate) async fn kill_wrapper(&self) {
        if let Out::Stdio(pipe) = &self.way {
            pipe.kill(&self.shared.notes).await;
        }
    }

    /// Gives back what it holds at the gateway.
    pub(crate) async fn leave(&self) {
        match &self.way {
            Out::Http(line) => line.close(self).await,
            Out::Stdio(pipe) => pipe.end(&self.shared.notes).await,
        }
    }

    /// A request as it goes over the wire, in its era's dress.
    fn message(&self, id: &Value, method: &str, mut params: Value, tag: &str) -> Value {
        if !tag.is_empty() {
            params["_meta"]["world/request"] = json!(tag);
        }
        if self.plan.era == Era::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(revision(Era::Modern));
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities();
            meta["io.modelcontextprotocol/clientInfo"] = self.info();
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    fn hello(&self) -> Value {
        let version = revision(Era::Legacy);
        let params = json!({"protocolVersion": version, "capabilities": self.capabilities(), "clientInfo": self.info()});
        json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params})
    }

    /// Sends a request, noted under a tag of its own.
    async fn send(
        self: &Arc<Self>,
        intent: &str,
        method: &str,
        params: Value,
        path: &str,
        slowly: bool,
    ) -> Sent {
        let number = self.number();
        let tag = format!("r{}.{number}", self.place);
        let id = json!(number);
        let message = self.message(&id, method, params, &tag);
        match &self.way {
            Out::Http(line) => line.ready(self, path).await,
            Out::Stdio(pipe) => pipe.ready(self).await,
        }
        self.shared.notes.begin(Request {
            tag: tag.clone(),
            intent: intent.to_owned(),
            client: self.place,
            caller: self.caller(&tag, ""),
            life: self.shared.gateway.life(),
            sent: Instant::now(),
            left: None,
            answers: Vec::new(),
            broke: None,
            questions: 0,
            session: String::new(),
        });
        let connection = match &self.way {
            Out::Http(_) => {
                let (client, tag, path) = (Arc::clone(self), tag.clone(), path.to_owned());
                let task =
                    tokio::spawn(
                        async move { http::ask(&client, &path, message, &tag, slowly).await },
                    );
                Some(task.abort_handle())
            }
            Out::Stdio(pipe) => {
                pipe.ask(&message, &tag).await;
                None
            }
        };
        Sent { tag, id, connection, path: path.to_owned() }
    }

    /// Leaves a request.
    async fn abandon(&self, sent: &Sent, how: Leave) {
        let note =
            |at| self.shared.notes.change(&sent.tag, |request| request.left = Some((at, how)));
        let drop_it = || sent.connection.as_ref().map(AbortHandle::abort);
        match (how, &self.way) {
            (Leave::Silently, _) => _ = note(Instant::now()),
            (Leave::Dropping, Out::Http(_)) => {
                note(Instant::now());
                drop_it();
            }
            (Leave::Cancelling, Out::Http(_)) if self.plan.era == Era::Modern => {
                note(Instant::now());
                drop_it();
            }
            (Leave::Cancelling, Out::Http(line)) => {
                let session = self
                    .shared
                    .notes
                    .look(&sent.tag)
                    .map(|request| request.session)
                    .unwrap_or_default();
                let message =
                    notification("notifications/cancelled", json!({"requestId": sent.id}));
                line.post(self, &sent.path, &session, &message).await;
                note(Instant::now());
            }
            (Leave::Dropping, Out::Stdio(_)) => _ = note(Instant::now()),
            (Leave::Cancelling, Out::Stdio(pipe)) => {
                pipe.tell("notifications/cancelled", json!({"requestId": sent.id})).await;
                note(Instant::now());
            }
        }
    }

    /// Does what it wants done: asks in rounds until it knows.
    pub(crate) async fn pursue(self: Arc<Self>, intent: Intent) {
        let path = self.path(intent.server);
        for (place, round) in intent.rounds.iter().enumerate() {
            if place > 0 && !self.prepare(&intent, round).await {
                return;
            }
            let mut sent = Vec::new();
            for _ in 0..round.times {
                sent.push(
                    self.send(
                        &intent.name,
                        "tools/call",
                        self.call(&intent),
                        &path,
                        round.reads_slowly,
                    )
                    .await,
                );
            }
            let all = async {
                for one in &sent {
                    self.shared.notes.over(&one.tag).await;
                }
            };
            let (patience, how) =
                round.leaves.unwrap_or((PATIENCE.as_millis() as u64, Leave::Silently));
            if timeout(Duration::from_millis(patience), all).await.is_err()
                && round.leaves.is_some()
            {
                for one in &sent {
                    if !self.shared.notes.look(&one.tag).is_some_and(|request| request.is_over()) {
                        self.abandon(one, how).await;
                    }
                }
            }
            let knows = |one: &Sent| {
                self.shared.notes.look(&one.tag).is_some_and(|request| is_content(&request))
            };
            if sent.iter().any(knows) {
                return;
            }
        }
    }

    fn call(&self, intent: &Intent) -> Value {
        let arguments = json!({"intent": intent.name, "nonce": nonce(&intent.name)});
        json!({"name": self.tool(intent.server, intent.effect), "arguments": arguments})
    }

    /// Waits until asking again is clearly the same intent, unless the client hastes. Whether it is
    /// worth asking.
    async fn prepare(&self, intent: &Intent, round: &Round) -> bool {
        if round.reconnects {
            self.reconnect().await;
        }
        if !round.hastes {
            let first =
                timeout(Duration::from_millis(400), self.shared.ledger.executed(&intent.name))
                    .await;
            let first = first.unwrap_or_else(|_| Instant::now());
            sleep_until(first + Duration::from_millis(REJOIN_AFTER + 30)).await;
        }
        true
    }

    /// Reads at a server until it answers itself or time is up; gives what came last if it did not.
    pub(crate) async fn uses(self: Arc<Self>, server: usize, limit: Duration) -> Option<String> {
        let begun = Instant::now();
        let path = self.path(server);
        let mut last = "no answer at all".to_owned();
        for count in 0.. {
            let name = format!("use-c{}-s{server}-{count}", self.place);
            let intent = Intent {
                name: name.clone(),
                client: self.place,
                twin: None,
                server,
                effect: Effect::Read,
                fates: Vec::new(),
                rounds: Vec::new(),
            };
            let sent = self.send(&name, "tools/call", self.call(&intent), &path, false).await;
            let left = (begun + limit).saturating_duration_since(Instant::now());
            let in_time = timeout(left, self.shared.notes.over(&sent.tag)).await.is_ok();
            let request = self.shared.notes.look(&sent.tag)?;
            if request.is_over() {
                let answer = request.answers.last().map(|(_, answer)| answer.to_string());
                last = answer.or(request.broke.clone().map(|(_, why)| why)).unwrap_or_default();
            }
            if !in_time {
                self.shared.notes.change(&sent.tag, |request| {
                    request.left = Some((Instant::now(), Leave::Silently))
                });
            }
            if request.answers.iter().any(|(_, answer)| execution(answer).is_some()) {
                return None;
            }
            if begun.elapsed() >= limit {
                return Some(last);
            }
            sleep(Duration::from_millis(200)).await;
        }
        None
    }

    /// Asks which tools there are.
    pub(crate) async fn list(self: Arc<Self>, server: Option<usize>) {
        let path = self.path(server.unwrap_or(0));
        let (sent_at, life) = (Instant::now(), self.shared.gateway.life());
        let sent = self.send("tools/list", "tools/list", json!({}), &path, false).await;
        _ = timeout(PATIENCE, self.shared.notes.over(&sent.tag)).await;
        let Some(request) = self.shared.notes.look(&sent.tag) else { return };
        let names = match (request.answers.first(), request.broke) {
            (Some((_, answer)), _) => listed(answer, &path, server),
            (None, why) => Err(format!("nothing: {why:?}")),
        };
        self.shared.notes.listed(Listing {
            client: self.place,
            life,
            sent: sent_at,
            came: Instant::now(),
            names,
        });
    }
}

/// The names in a list, as `server__tool` wherever they were listed.
fn listed(answer: &Value, path: &str, server: Option<usize>) -> Result<Vec<String>, String> {
    let Some(tools) = answer["result"]["tools"].as_array() else { return Err(answer.to_string()) };
    let name = |tool: &Value| {
        let name = tool["name"].as_str().unwrap_or_default();
        match server {
            Some(server) if path != "/mcp" || !name.contains("__") => format!("s{server}__{name}"),
            _ => name.to_owned(),
        }
    };
    Ok(tools.iter().map(name).collect())
}

fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// What only the callers of an intent know.
pub(crate) fn nonce(intent: &str) -> String {
    format!("n-{intent}")
}

/// What a server said of an execution: its object in the answer's text.
pub(crate) fn execution(answer: &Value) -> Option<Value> {
    let blocks = answer["result"]["content"].as_array()?;
    let texts = blocks.iter().filter_map(|block| block["text"].as_str());
    texts
        .filter_map(|text| serde_json::from_str::<Value>(text).ok())
        .find(|object| object["execution"].is_u64())
}

/// The failure in the gateway's own words.
pub(crate) fn failure(answer: &Value) -> Option<&Value> {
    answer["result"]["_meta"].get("seawall/failure")
}

/// Whether a client that got this asks no more: an answer of the server, or a failure that it
/// cannot do anything about.
fn is_content(request: &Request) -> bool {
    request.answers.iter().any(|(_, answer)| failure(answer).is_none())
}
