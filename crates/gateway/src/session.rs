//! One client of the legacy era: what it said when it came, its conversations with servers, what is under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::accept::stream::Stream;
use crate::bridge::{subscribe, to_modern};
use crate::call::{Call, Nowhere, Outlet};
use crate::calls::Calls;
use crate::catalog::stable;
use crate::gateway::Route;
use crate::upstream::handshake::Opening;
use crate::upstream::keeper::Prepare;
use crate::upstream::{Failure, Hello, Keeper, Link, Server};
use crate::wire::edit::{self, quoted};
use crate::wire::names::Era;
use crate::wire::{Id, Message, build, limits};

mod to_client;

/// A client session.
pub struct Session {
    /// The servers it sees.
    pub route: Arc<Route>,
    /// What belongs to no call goes here: the GET stream, or stdout.
    pub general: Arc<Stream>,
    /// What it said in `initialize`.
    pub opening: OnceLock<Opening>,
    /// The log level it asked for, for servers that want to hear it with each request.
    pub log_level: Mutex<Option<String>>,
    /// Resources it subscribed to, per server.
    pub subscribed: Mutex<HashMap<String, Vec<String>>>,
    followers: Mutex<HashMap<String, AbortHandle>>,
    /// Kept here, one per server, so that shared conversations know who is still there.
    outlets: Mutex<HashMap<String, Arc<dyn Outlet>>>,
    greeted: AtomicBool,
    initialized: AtomicBool,
    promised: Mutex<HashMap<String, Option<Bytes>>>,
    keepers: Mutex<HashMap<String, Arc<Keeper>>>,
    calls: Calls,
    asked: Mutex<HashMap<u64, Asked>>,
    next: AtomicU64,
}

/// A question that the client has not answered.
enum Asked {
    /// A server's.
    Server { link: Weak<Link>, id: Id, token: Option<Bytes> },
    /// Our own, on behalf of a modern server.
    Own(oneshot::Sender<Message>),
}

impl Session {
    /// A session on `route` whose messages at large go to `general`.
    pub fn new(route: Arc<Route>, general: Arc<Stream>) -> Arc<Self> {
        Arc::new(Self {
            route,
            general,
            opening: OnceLock::new(),
            log_level: Mutex::default(),
            subscribed: Mutex::default(),
            followers: Mutex::default(),
            outlets: Mutex::default(),
            greeted: AtomicBool::new(false),
            initialized: AtomicBool::new(false),
            promised: Mutex::default(),
            keepers: Mutex::default(),
            calls: Calls::default(),
            asked: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<u64, Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls under way.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The name under which is remembered what a server says to clients like this one.
    pub fn key(&self, server: &Server) -> String {
        self.opening.get().map(|opening| opening.key(server)).unwrap_or_default()
    }

    /// The handshake with the client was answered.
    pub fn greet(&self) {
        self.greeted.store(true, Ordering::Release);
    }

    /// Whether the handshake with the client was answered.
    pub fn is_greeted(&self) -> bool {
        self.greeted.load(Ordering::Acquire)
    }

    /// What the client was told the server had said, before it said it.
    pub fn promise(&self, server: &Server, hello: Bytes) {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner).insert(server.name.clone(), Some(hello));
    }

    /// The client asked for a list while the server was away, and there was nothing to stand in.
    pub fn miss(&self, server: &Server) {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner).insert(server.name.clone(), None);
    }

    /// Who keeps the conversation with a server.
    pub fn keeper(self: &Arc<Self>, server: &Arc<Server>) -> Result<Arc<Keeper>, Failure> {
        let Some(opening) = self.opening.get() else {
            return Err(Failure::Handshake("the client has not sent initialize yet".to_owned()));
        };
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keeper) = keepers.get(&server.name) {
            return Ok(Arc::clone(keeper));
        }
        let outlet = self.outlet(&self.general);
        let keeper = if server.shared {
            let mut outlets = self.outlets.lock().unwrap_or_else(PoisonError::into_inner);
            outlets.insert(server.name.clone(), Arc::clone(&outlet));
            self.route.common(server, opening, &outlet)
        } else {
            let (session, opened) = (Arc::downgrade(self), Arc::downgrade(server));
            let prepare: Prepare = Box::new(move |link| {
                let (session, server) = (session.clone(), opened.clone());
                Box::pin(async move {
                    if let (Some(session), Some(server)) = (session.upgrade(), server.upgrade()) {
                        session.opened(&server, &link).await;
                    }
                })
            });
            Keeper::new(server, opening.clone(), outlet, prepare)
        };
        keepers.insert(server.name.clone(), Arc::clone(&keeper));
        Ok(keeper)
    }

    /// A conversation was opened, perhaps again: it is brought to where the client believes it to be.
    async fn opened(self: &Arc<Self>, server: &Arc<Server>, link: &Arc<Link>) {
        let Some(hello) = link.hello() else { return };
        let key = self.key(server);
        self.route.memory.keep_hello(&key, hello);
        if !self.initialized.load(Ordering::SeqCst) {
            return;
        }
        self.ready(link).await;
        self.replay(link).await;
        let promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner).remove(&server.name);
        match promised {
            Some(promised) if promised.as_ref() != Some(&hello.result) => self.lists_changed(hello),
            _ => {
                let (session, link) = (Arc::clone(self), Arc::clone(link));
                tokio::spawn(async move { stable::compare(&session, &key, &link).await });
            }
        }
    }

    /// Tells the client to read again whatever the server can list.
    fn lists_changed(&self, hello: &Hello) {
        for list in ["tools", "prompts", "resources"] {
            if hello.can(list) {
                self.general.notify(build::notification(&format!("notifications/{list}/list_changed"), None));
            }
        }
    }

    /// Tells a legacy server again what the client told the one before it.
    async fn replay(&self, link: &Arc<Link>) {
        if link.era() != Era::Legacy {
            return;
        }
        let level = self.log_level.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(level) = level {
            let _not_every_server_logs =
                link.ask("logging/setLevel", format!(r#"{{"level":{}}}"#, quoted(&level)).as_bytes()).await;
        }
        for uri in self.subscribed(&link.server) {
            let _gone = link.ask("resources/subscribe", format!(r#"{{"uri":{}}}"#, quoted(&uri)).as_bytes()).await;
        }
    }

    /// The resources of a server that the client subscribed to.
    fn subscribed(&self, server: &str) -> Vec<String> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner).get(server).cloned().unwrap_or_default()
    }

    /// Notes what a server must be told again when it comes back.
    pub fn note(&self, server: &Server, request: &Message) {
        let mut subscribed = self.subscribed.lock().unwrap_or_else(PoisonError::into_inner);
        let uris = subscribed.entry(server.name.clone()).or_default();
        let uri = request.field_text("uri").unwrap_or_default().into_owned();
        match request.method() {
            "logging/setLevel" => {
                let level = request.field_text("level").map(|level| level.into_owned());
                *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = level;
            }
            "resources/subscribe" if uris.len() < limits::LISTED && !uris.contains(&uri) => uris.push(uri),
            "resources/unsubscribe" => uris.retain(|known| *known != uri),
            _ => {}
        }
    }

    /// A list as the client would read it.
    pub async fn list(self: &Arc<Self>, link: &Arc<Link>, method: &str) -> Option<Message> {
        let server = self.route.servers.iter().find(|server| server.name == link.server)?;
        match link.era() {
            Era::Legacy => link.ask(method, b"{}").await.ok(),
            Era::Modern => {
                let request = Message::parse(build::request(&Id::number(0), method, b"{}")).ok()?;
                let call = Call { request, outlet: Arc::new(Nowhere), cancel: Arc::default(), mirrored: None };
                to_modern::exchange(self, &self.general, server, link, &call).await.ok()
            }
        }
    }

    /// The handshake with the client is over: the server may speak by itself.
    async fn ready(self: &Arc<Self>, link: &Arc<Link>) {
        match link.era() {
            Era::Legacy => link.initialized().await,
            Era::Modern => subscribe::follow(self, link),
        }
    }

    /// Notes who follows a server; whoever did before stops.
    pub fn follow(&self, server: String, follower: AbortHandle) {
        if let Some(before) = self.followers.lock().unwrap_or_else(PoisonError::into_inner).insert(server, follower) {
            before.abort();
        }
    }

    fn keepers(&self) -> Vec<Arc<Keeper>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The conversations that are open now.
    pub fn links(&self) -> Vec<Arc<Link>> {
        self.keepers().iter().filter_map(|keeper| keeper.now()).collect()
    }

    /// The way to this client over one of its streams.
    pub fn outlet(self: &Arc<Self>, stream: &Arc<Stream>) -> Arc<dyn Outlet> {
        Arc::new(to_client::ToClient { session: Arc::downgrade(self), stream: Arc::clone(stream) })
    }

    /// Takes the client's answer to a question, back to whoever asked.
    pub fn answered(&self, answer: Message) {
        let Some(number) = answer.id().and_then(Id::as_number) else { return };
        let asked = self.asked().remove(&number);
        match asked {
            Some(Asked::Server { link, id, .. }) => {
                if let (Some(link), Some(span)) = (link.upgrade(), answer.id_span()) {
                    link.tell_soon(edit::splice(answer.raw(), &mut [(span, id.json())]));
                }
            }
            Some(Asked::Own(reply)) => {
                let _gone = reply.send(answer);
            }
            None => {}
        }
    }

    /// Takes a notification of the client that is not about one of its calls: to every server that is open.
    pub async fn notified(self: &Arc<Self>, notification: &Message) {
        match notification.method() {
            "notifications/cancelled" => {
                let id = notification.field("requestId").and_then(|span| Id::new(notification.slice(span)).ok());
                if let Some(id) = id {
                    self.calls.cancel(&id, notification);
                }
            }
            "notifications/initialized" => {
                self.initialized.store(true, Ordering::SeqCst);
                join_all(self.links().iter().map(|link| self.ready(link))).await;
            }
            "notifications/progress" => self.progressed(notification),
            _ => {
                for link in self.links().iter().filter(|link| link.era() == Era::Legacy) {
                    link.tell_soon(notification.raw().clone());
                }
            }
        }
    }

    /// Progress of the client with a server's question.
    fn progressed(&self, notification: &Message) {
        let Some(span) = notification.field("progressToken") else { return };
        let number = std::str::from_utf8(span.of(notification.raw())).ok().and_then(|text| text.parse::<u64>().ok());
        let found = number.and_then(|number| match self.asked().get(&number) {
            Some(Asked::Server { link, token: Some(token), .. }) => Some((link.upgrade()?, token.clone())),
            _ => None,
        });
        if let Some((link, token)) = found {
            link.tell_soon(edit::splice(notification.raw(), &mut [(span, &token)]));
        }
    }

    /// Asks the client something of our own, on one of its streams.
    pub async fn ask(&self, stream: &Stream, method: &str, params: &[u8]) -> Option<Message> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        if !self.remember(number, Asked::Own(reply)) {
            return None;
        }
        let forget = Forget { session: self, number };
        if !stream.ask(build::request(&Id::number(number), method, params)) {
            return None;
        }
        let answer = answer.await.ok();
        drop(forget);
        answer
    }

    fn remember(&self, number: u64, asked: Asked) -> bool {
        let mut open = self.asked();
        if open.len() >= limits::CALLS {
            return false;
        }
        open.insert(number, asked);
        true
    }

    /// The client is gone for good, whatever is under way.
    pub fn leave(&self) {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.calls.cancel_all();
    }

    /// Everything this client had is over.
    pub async fn close(&self) {
        self.general.end();
        let keepers: Vec<_> = self.keepers.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        for (server, keeper) in keepers {
            if !self.route.is_shared(&server) {
                keeper.close().await;
            }
        }
        self.calls.cancel_all();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for follower in self.followers.get_mut().unwrap_or_else(PoisonError::into_inner).values() {
            follower.abort();
        }
    }
}

struct Forget<'a> {
    session: &'a Session,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.session.asked().remove(&self.number);
    }
}
