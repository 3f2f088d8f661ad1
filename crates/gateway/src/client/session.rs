//! Holds one legacy client's state: its handshake, its connections to servers, its calls and open
//! questions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use bytes::Bytes;
use futures_util::future::join_all;
use seawall::Question;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::client::calls::ClientCalls;
use crate::client::server_set::ServerSet;
use crate::client::stream::ClientStream;
use crate::protocol::names::Era;
use crate::protocol::{Id, Message, build, edit, limits};
use crate::upstream::call::ClientSink;
use crate::upstream::handshake::{ClientHeaders, HandshakeParams};
use crate::upstream::{Connection, ConnectionSupervisor};
use warm::WarmConnection;

mod choices;
mod go_on;
mod missing;
mod moved;
mod servers;
mod to_client;
pub(crate) mod warm;

/// Questions held back for a client that is not initialized yet; further ones are asked at once.
const EARLY: usize = 16;

/// A client session.
pub(crate) struct Session {
    /// The session's id, unique among all clients.
    pub id: Arc<str>,
    /// The client's identity, if it gave a secret of its own; else empty. All sessions of one
    /// client have the same identity.
    pub identity: Arc<str>,
    /// The servers that the session sees, as the configuration in force has them.
    set: RwLock<Arc<ServerSet>>,
    /// The stream for messages that belong to no call: the GET stream, or stdout.
    pub general: Arc<ClientStream>,
    /// The client's `initialize` parameters.
    pub handshake: OnceLock<HandshakeParams>,
    /// The headers of the client's last request, for servers that get one of them.
    pub headers: ClientHeaders,
    /// The log level that the client set, for servers that expect it with each request.
    log_level: Mutex<Option<String>>,
    /// Resources that the client subscribed to, per server.
    subscribed: Mutex<HashMap<String, Vec<String>>>,
    followers: Mutex<HashMap<String, AbortHandle>>,
    /// The session owns its sinks, one per server: a shared connection holds them weakly, and so
    /// knows which clients are still there.
    sinks: Mutex<HashMap<String, Arc<dyn ClientSink>>>,
    greeted: AtomicBool,
    initialized: AtomicBool,
    promised: Mutex<HashMap<String, Option<Bytes>>>,
    missing: Mutex<Vec<missing::MissingServer>>,
    supervisors: Mutex<HashMap<String, WarmConnection>>,
    calls: ClientCalls,
    asked: Mutex<HashMap<u64, ClientQuestion>>,
    /// Questions of servers that were told that the handshake is complete before the client said
    /// so.
    early: Mutex<Vec<(Weak<Connection>, Message)>>,
    next: AtomicU64,
}

/// A question that the client has not answered.
enum ClientQuestion {
    /// A server's question.
    Server { connection: Weak<Connection>, id: Id, token: Option<Bytes>, _open: Option<Question> },
    /// The gateway's own question, on behalf of a modern server.
    Own(oneshot::Sender<Message>),
}

impl Session {
    /// A session that sees the servers of `set`; messages that belong to no call go to `general`.
    /// Queued writes belong to this `id`, also after a restart.
    pub(crate) fn new(
        id: &str,
        identity: Arc<str>,
        set: Arc<ServerSet>,
        general: Arc<ClientStream>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: id.into(),
            identity,
            set: RwLock::new(set),
            general,
            handshake: OnceLock::new(),
            headers: ClientHeaders::default(),
            log_level: Mutex::default(),
            subscribed: Mutex::default(),
            followers: Mutex::default(),
            sinks: Mutex::default(),
            greeted: AtomicBool::new(false),
            initialized: AtomicBool::new(false),
            promised: Mutex::default(),
            missing: Mutex::default(),
            supervisors: Mutex::default(),
            calls: ClientCalls::default(),
            asked: Mutex::default(),
            early: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    /// The servers that the session sees.
    pub(crate) fn set(&self) -> Arc<ServerSet> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<u64, ClientQuestion>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of this session's calls and results: the client's identity across sessions if it
    /// has one, else this session.
    pub(crate) fn owner(&self) -> Arc<str> {
        Arc::clone(if self.identity.is_empty() { &self.id } else { &self.identity })
    }

    /// The calls in flight.
    pub(crate) fn calls(&self) -> &ClientCalls {
        &self.calls
    }

    /// Completes the handshake with a server: from now on the server may send messages by itself.
    async fn ready(self: &Arc<Self>, connection: &Arc<Connection>) {
        match connection.era() {
            Era::Legacy => connection.initialized().await,
            Era::Modern => self.set().conversations.follow(self, connection),
        }
    }

    /// Notes the task that follows a server; the earlier one is aborted.
    pub(crate) fn follow(&self, server: String, follower: AbortHandle) {
        if let Some(before) =
            self.followers.lock().unwrap_or_else(PoisonError::into_inner).insert(server, follower)
        {
            before.abort();
        }
    }

    fn supervisors(&self) -> Vec<Arc<ConnectionSupervisor>> {
        let supervisors = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner);
        supervisors.values().map(|kept| Arc::clone(&kept.supervisor)).collect()
    }

    /// The connections that are open now.
    pub(crate) fn connections(&self) -> Vec<Arc<Connection>> {
        self.supervisors().iter().filter_map(|supervisor| supervisor.now()).collect()
    }

    /// A sink that leads to this client over one of its streams.
    pub(crate) fn sink(self: &Arc<Self>, stream: &Arc<ClientStream>) -> Arc<dyn ClientSink> {
        Arc::new(to_client::SessionSink {
            session: Arc::downgrade(self),
            stream: Arc::clone(stream),
        })
    }

    /// Takes the client's answer back to the server, or the waiting task, that asked.
    pub(crate) fn answered(&self, answer: Message) {
        let Some(number) = answer.id().and_then(Id::as_number) else { return };
        let asked = self.asked().remove(&number);
        match asked {
            Some(ClientQuestion::Server { connection, id, .. }) => {
                if let (Some(connection), Some(span)) = (connection.upgrade(), answer.id_span()) {
                    connection.note_private();
                    connection.tell_soon(edit::splice(answer.raw(), &mut [(span, id.json())]));
                }
            }
            Some(ClientQuestion::Own(reply)) => {
                let _gone = reply.send(answer);
            }
            None => {}
        }
    }

    /// The server whose question a client's message answers.
    pub(crate) fn asker(&self, answer: &Message) -> Option<String> {
        let number = answer.id().and_then(Id::as_number)?;
        match self.asked().get(&number)? {
            ClientQuestion::Server { connection, .. } => Some(connection.upgrade()?.server.clone()),
            ClientQuestion::Own(_) => None,
        }
    }

    /// Handles a notification of the client: cancellation and progress go to the call or question
    /// they name, all others to every connected legacy server that `may_hear` it.
    pub(crate) async fn notified(
        self: &Arc<Self>,
        notification: &Message,
        may_hear: impl Fn(&str) -> bool,
    ) {
        match notification.method() {
            "notifications/cancelled" => {
                let id = notification
                    .field("requestId")
                    .and_then(|span| Id::new(notification.slice(span)).ok());
                if let Some(id) = id {
                    self.calls.cancel(&id, notification);
                }
            }
            "notifications/initialized" => {
                // Stored before the connections are read: a connection that opens in between sees
                // the flag and completes its own handshake. `holds_back` reads it under the lock
                // that `ask_early` takes, so no question is left behind.
                self.initialized.store(true, Ordering::SeqCst);
                let connections = self.connections();
                join_all(connections.iter().map(|connection| self.ready(connection))).await;
                self.ask_early();
                self.keep_promises(&connections);
                self.tell_missing();
            }
            "notifications/progress" => self.progressed(notification),
            _ => {
                let hears = |connection: &&Arc<Connection>| {
                    connection.era() == Era::Legacy && may_hear(&connection.server)
                };
                for connection in self.connections().iter().filter(hears) {
                    connection.note_private();
                    connection.tell_soon(notification.raw().clone());
                }
            }
        }
    }

    /// Holds back a question for a client that is not initialized yet; returns whether it did. The
    /// gateway completes the handshake with a server early, to list its tools, so the server may
    /// ask sooner than the client expects.
    fn holds_back(&self, connection: &Arc<Connection>, question: &Message) -> bool {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = !self.initialized.load(Ordering::SeqCst) && early.len() < EARLY;
        if is_early {
            early.push((Arc::downgrade(connection), question.clone()));
        }
        is_early
    }

    /// The client is initialized: asks the questions that were held back.
    fn ask_early(self: &Arc<Self>) {
        let early = std::mem::take(&mut *self.early.lock().unwrap_or_else(PoisonError::into_inner));
        let sink = self.sink(&self.general);
        for (connection, question) in early {
            if let Some(connection) = connection.upgrade() {
                sink.ask(&connection, question, None);
            }
        }
    }

    /// Passes on the client's progress with a server's question, under the server's own token.
    fn progressed(&self, notification: &Message) {
        let Some(span) = notification.field("progressToken") else { return };
        let number = std::str::from_utf8(span.of(notification.raw()))
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        let found = number.and_then(|number| match self.asked().get(&number) {
            Some(ClientQuestion::Server { connection, token: Some(token), .. }) => {
                Some((connection.upgrade()?, token.clone()))
            }
            _ => None,
        });
        if let Some((connection, token)) = found {
            connection.tell_soon(edit::splice(notification.raw(), &mut [(span, &token)]));
        }
    }

    /// Asks the client a question of the gateway's own, on one of its streams.
    pub(crate) async fn ask(
        &self,
        stream: &ClientStream,
        method: &str,
        params: &[u8],
    ) -> Option<Message> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        if !self.remember(number, ClientQuestion::Own(reply)) {
            return None;
        }
        // A guard: the question is forgotten also if this future is dropped while it waits.
        let forget = ForgetQuestion { session: self, number };
        if !stream.ask(build::request(&Id::number(number), method, params)) {
            return None;
        }
        let answer = answer.await.ok();
        drop(forget);
        answer
    }

    fn remember(&self, number: u64, asked: ClientQuestion) -> bool {
        let mut open = self.asked();
        if open.len() >= limits::CALLS {
            return false;
        }
        open.insert(number, asked);
        true
    }

    /// The client is gone for good: cancels its calls and gives up its connections.
    pub(crate) fn leave(&self) {
        drop(self.give_up());
        self.calls.cancel_all();
    }

    /// Ends the session and closes its connections. Connections that the client never used are kept
    /// warm for the next client.
    pub(crate) async fn close(&self) {
        self.general.end();
        for supervisor in self.give_up() {
            supervisor.close().await;
        }
        self.calls.cancel_all();
    }

    /// Ends the session on the client's request. A client with an identity may ask for its
    /// unfinished calls in its next session: they are cancelled like abandoned calls, and their
    /// connections close only when idle.
    pub(crate) async fn end(&self) {
        if self.identity.is_empty() {
            return self.close().await;
        }
        self.general.end();
        self.calls.cancel_all();
        for supervisor in self.give_up() {
            tokio::spawn(async move { supervisor.close_when_idle().await });
        }
    }

    /// Gives up all connections: warm ones are handed on to other clients, the rest is returned to
    /// be closed.
    fn give_up(&self) -> Vec<Arc<ConnectionSupervisor>> {
        let kept: Vec<_> =
            self.supervisors.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        let (own, set) = (kept.into_iter().filter(|(_, kept)| !kept.server.shared), self.set());
        own.filter_map(|(_, kept)| set.warm.keep(kept)).collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for follower in self.followers.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            follower.abort();
        }
    }
}

struct ForgetQuestion<'a> {
    session: &'a Session,
    number: u64,
}

impl Drop for ForgetQuestion<'_> {
    fn drop(&mut self) {
        self.session.asked().remove(&self.number);
    }
}
