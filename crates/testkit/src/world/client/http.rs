//! A client's way out over HTTP: a connection for each request, and a session where its era has
//! one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::Mutex as Turn;
use tokio::time::{sleep, timeout};

use super::{Client, notification};
use crate::world::config::revision;
use crate::world::http::{Head, Messages, request, write};
use crate::world::plan::Era;

/// How long a client tries to begin a session.
const PATIENCE: Duration = Duration::from_secs(8);

/// What a request ends with whose session is not known.
pub(crate) const LOST: &str = "its session is not known";

/// What a client on HTTP holds: its sessions, by path.
#[derive(Default)]
pub(super) struct Line {
    sessions: Mutex<HashMap<String, String>>,
    former: Mutex<Vec<(String, String)>>,
    turn: Turn<()>,
}

impl Line {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn session(&self, path: &str) -> String {
        self.sessions().get(path).cloned().unwrap_or_default()
    }

    /// The next request begins a new session.
    pub(super) fn forget(&self) {
        let gone: Vec<_> = self.sessions().drain().collect();
        self.former.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
    }

    /// A session that the gateway does not know any more.
    fn lost(&self, path: &str, session: &str) {
        let mut sessions = self.sessions();
        if sessions.get(path).is_some_and(|there| there == session) {
            sessions.remove(path);
        }
    }

    fn headers(&self, client: &Client, session: &str) -> Vec<(String, String)> {
        let mut headers =
            vec![("mcp-protocol-version".to_owned(), revision(client.plan.era).to_owned())];
        if client.plan.has_identity {
            headers.push(("authorization".to_owned(), format!("Bearer token-c{}", client.place)));
        }
        if !session.is_empty() {
            headers.push(("mcp-session-id".to_owned(), session.to_owned()));
        }
        headers
    }

    /// Sees to it that there is a session, where one is needed.
    pub(super) async fn ready(&self, client: &Client, path: &str) {
        if client.plan.era == Era::Modern {
            return;
        }
        let _turn = self.turn.lock().await;
        if self.session(path).is_empty() {
            let begin = async {
                while self.begin(client, path).await.is_none() {
                    sleep(Duration::from_millis(20)).await;
                }
            };
            if timeout(PATIENCE, begin).await.is_err() {
                client.shared.notes.strange(format!("c{} cannot begin a session", client.place));
            }
        }
    }

    async fn begin(&self, client: &Client, path: &str) -> Option<()> {
        let mut tcp = self.connect(client).await?;
        let mut headers = self.headers(client, "");
        headers.retain(|(name, _)| name != "mcp-protocol-version");
        write(&mut tcp, &request("POST", path, &headers, &client.hello().to_string()))
            .await
            .ok()?;
        let head = Head::read(&mut tcp).await?;
        let session = head.header("mcp-session-id")?.to_owned();
        Messages::of(&head, false).next(&mut tcp).await?;
        self.post(client, path, &session, &notification("notifications/initialized", json!({})))
            .await;
        self.sessions().insert(path.to_owned(), session);
        Some(())
    }

    async fn connect(&self, client: &Client) -> Option<TcpStream> {
        TcpStream::connect(("127.0.0.1", client.shared.gateway.port)).await.ok()
    }

    /// Sends something that is not answered, in a session, and waits until it was taken.
    pub(super) async fn post(&self, client: &Client, path: &str, session: &str, message: &Value) {
        let Some(mut tcp) = self.connect(client).await else { return };
        let bytes = request("POST", path, &self.headers(client, session), &message.to_string());
        if write(&mut tcp, &bytes).await.is_ok() {
            _ = timeout(Duration::from_secs(2), Head::read(&mut tcp)).await;
        }
    }

    /// Ends all sessions it ever had.
    pub(super) async fn close(&self, client: &Client) {
        self.forget();
        let former =
            std::mem::take(&mut *self.former.lock().unwrap_or_else(PoisonError::into_inner));
        for (path, session) in former {
            let Some(mut tcp) = self.connect(client).await else { return };
            let headers = self.headers(client, &session);
            if write(&mut tcp, &request("DELETE", &path, &headers, "")).await.is_ok() {
                _ = timeout(Duration::from_secs(2), Head::read(&mut tcp)).await;
            }
        }
    }
}

/// Sends a request and notes what comes back, to the end.
pub(super) async fn ask(client: &Arc<Client>, path: &str, message: Value, tag: &str, slowly: bool) {
    let super::Out::Http(line) = &client.way else { return };
    let notes = &client.shared.notes;
    let Some(mut tcp) = line.connect(client).await else {
        return notes.broke(tag, "no connection");
    };
    // Its client may have begun anew since.
    line.ready(client, path).await;
    let session = line.session(path);
    notes.change(tag, |request| {
        request.caller = client.caller(tag, &session);
        request.session.clone_from(&session);
    });
    let mut headers = line.headers(client, &session);
    if client.plan.era == Era::Modern {
        headers.push((
            "mcp-method".to_owned(),
            message["method"].as_str().unwrap_or_default().to_owned(),
        ));
        if let Some(name) = message["params"]["name"].as_str() {
            headers.push(("mcp-name".to_owned(), name.to_owned()));
        }
    }
    if write(&mut tcp, &request("POST", path, &headers, &message.to_string())).await.is_err() {
        return notes.broke(tag, "the connection ended while it was sent");
    }
    let Some(head) = Head::read(&mut tcp).await else {
        return notes.broke(tag, "the connection ended");
    };
    if head.status() == 404 && client.plan.era == Era::Legacy {
        line.lost(path, &session);
        return notes.broke(tag, LOST);
    }
    let mut messages = Messages::of(&head, slowly);
    while let Some(came) = messages.next(&mut tcp).await {
        take(client, path, &message, came, tag).await;
    }
    notes.broke(tag, format!("HTTP {} without an answer", head.status()));
}

/// What came on the connection of a request.
async fn take(client: &Arc<Client>, path: &str, request: &Value, came: Value, tag: &str) {
    let notes = &client.shared.notes;
    if let Some(method) = came["method"].as_str() {
        if came.get("id").is_some() {
            notes.change(tag, |request| request.questions += 1);
            let (client, method, path) = (Arc::clone(client), method.to_owned(), path.to_owned());
            let session = notes.look(tag).map(|request| request.session).unwrap_or_default();
            tokio::spawn(async move {
                let Some(mut reply) = client.reply(&method).await else { return };
                reply["jsonrpc"] = json!("2.0");
                reply["id"] = came["id"].clone();
                if let super::Out::Http(line) = &client.way {
                    line.post(&client, &path, &session, &reply).await;
                }
            });
        }
        return;
    }
    if came["id"] != request["id"] {
        return notes.strange(format!(
            "{tag} with id {} was answered under another: {came}",
            request["id"]
        ));
    }
    if came["result"]["resultType"] == "input_required" {
        notes.change(tag, |request| request.questions += 1);
        return Box::pin(go_on(client, path, request, &came["result"], tag)).await;
    }
    notes.answer(tag, came);
}

/// A modern client answers what it is asked by sending its request again, with the answers.
async fn go_on(client: &Arc<Client>, path: &str, request: &Value, asked: &Value, tag: &str) {
    let Some(again) = client.answering(request, asked, tag).await else { return };
    ask(client, path, again, tag, false).await;
}
