//! One client of the legacy era: what it said when it came, its conversations with servers, what is under way.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use crate::accept::stream::Stream;
use crate::bridge::subscribe;
use crate::call::Outlet;
use crate::calls::Calls;
use crate::gateway::Route;
use crate::upstream::handshake::Opening;
use crate::upstream::{Failure, Link, Server};
use crate::wire::edit;
use crate::wire::names::Era;
use crate::wire::{Id, Message, build, limits};

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
    /// Kept here so that shared conversations know who is still there.
    outlets: Mutex<Vec<Arc<dyn Outlet>>>,
    initialized: AtomicBool,
    links: HashMap<String, tokio::sync::Mutex<Option<Arc<Link>>>>,
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
        let links = route.servers.iter().map(|server| (server.name.clone(), Default::default())).collect();
        Arc::new(Self {
            route,
            general,
            opening: OnceLock::new(),
            log_level: Mutex::default(),
            subscribed: Mutex::default(),
            followers: Mutex::default(),
            outlets: Mutex::default(),
            initialized: AtomicBool::new(false),
            links,
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

    /// The conversation with a server, opened if there is none that lives.
    pub async fn link(self: &Arc<Self>, server: &Arc<Server>) -> Result<Arc<Link>, Failure> {
        let Some(slot) = self.links.get(&server.name) else {
            return Err(Failure::Unreachable("it is not on this route".to_owned()));
        };
        let mut slot = slot.lock().await;
        if let Some(link) = slot.as_ref().filter(|link| link.is_alive()) {
            return Ok(Arc::clone(link));
        }
        let Some(opening) = self.opening.get() else {
            return Err(Failure::Handshake("the client has not sent initialize yet".to_owned()));
        };
        let outlet = self.outlet(&self.general);
        let link = if server.shared {
            self.outlets.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&outlet));
            self.route.common(server, opening, &outlet).await?
        } else {
            server.open(opening, &outlet).await?
        };
        if self.initialized.load(Ordering::Acquire) {
            self.ready(&link).await;
        }
        *slot = Some(Arc::clone(&link));
        Ok(link)
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

    /// The conversations that are open now.
    pub async fn links(&self) -> Vec<Arc<Link>> {
        let mut open = Vec::new();
        for slot in self.links.values() {
            open.extend(slot.lock().await.iter().cloned());
        }
        open
    }

    /// The way to this client over one of its streams.
    pub fn outlet(self: &Arc<Self>, stream: &Arc<Stream>) -> Arc<dyn Outlet> {
        Arc::new(ToClient { session: Arc::downgrade(self), stream: Arc::clone(stream) })
    }

    /// Takes the client's answer to a question, back to whoever asked.
    pub async fn answered(&self, answer: Message) {
        let Some(number) = answer.id().and_then(Id::as_number) else { return };
        let asked = self.asked().remove(&number);
        match asked {
            Some(Asked::Server { link, id, .. }) => {
                if let (Some(link), Some(span)) = (link.upgrade(), answer.id_span()) {
                    link.tell(edit::splice(answer.raw(), &mut [(span, id.json())])).await;
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
                self.initialized.store(true, Ordering::Release);
                for link in self.links().await {
                    self.ready(&link).await;
                }
            }
            "notifications/progress" => self.progressed(notification).await,
            _ => {
                for link in self.links().await.iter().filter(|link| link.era() == Era::Legacy) {
                    link.tell(notification.raw().clone()).await;
                }
            }
        }
    }

    /// Progress of the client with a server's question.
    async fn progressed(&self, notification: &Message) {
        let Some(span) = notification.field("progressToken") else { return };
        let number = std::str::from_utf8(span.of(notification.raw())).ok().and_then(|text| text.parse::<u64>().ok());
        let found = number.and_then(|number| match self.asked().get(&number) {
            Some(Asked::Server { link, token: Some(token), .. }) => Some((link.upgrade()?, token.clone())),
            _ => None,
        });
        if let Some((link, token)) = found {
            link.tell(edit::splice(notification.raw(), &mut [(span, &token)])).await;
        }
    }

    /// Asks the client something of our own, on one of its streams.
    pub async fn ask(&self, stream: &Stream, method: &str, params: &[u8]) -> Option<Message> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        if !self.remember(number, Asked::Own(reply)) {
            return None;
        }
        stream.ask(build::request(&Id::number(number), method, params));
        let forget = Forget { session: self, number };
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

    /// Everything this client had is over.
    pub async fn close(&self) {
        self.general.end();
        for link in self.links().await {
            if !self.route.is_shared(&link.server) {
                link.close().await;
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
        for slot in self.links.values_mut() {
            if let Some(link) = slot.get_mut().take().filter(|link| !self.route.is_shared(&link.server)) {
                link.ended.cancel();
            }
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

/// The way to one client over one of its streams.
struct ToClient {
    session: Weak<Session>,
    stream: Arc<Stream>,
}

impl Outlet for ToClient {
    fn notify(&self, link: &Arc<Link>, notification: Message) {
        if notification.method() != "notifications/cancelled" {
            return self.stream.notify(notification.raw().clone());
        }
        // The server takes back a question: the client knows it under our id.
        let (Some(session), Some(span)) = (self.session.upgrade(), notification.field("requestId")) else { return };
        let is_it = |asked: &Asked| {
            matches!(asked, Asked::Server { link: from, id, .. }
                if Weak::as_ptr(from) == Arc::as_ptr(link) && id.json() == span.of(notification.raw()))
        };
        let number = session.asked().iter().find(|(_, asked)| is_it(asked)).map(|(number, _)| *number);
        if let Some(number) = number {
            session.asked().remove(&number);
            self.stream.ask(edit::splice(notification.raw(), &mut [(span, number.to_string().as_bytes())]));
        }
    }

    fn ask(&self, link: &Arc<Link>, question: Message) {
        let (Some(session), Some(id), Some(id_span)) = (self.session.upgrade(), question.id(), question.id_span())
        else {
            return link.refuse(&question, "the client is gone");
        };
        let number = session.next.fetch_add(1, Ordering::Relaxed);
        let token_span = question.meta("progressToken");
        let token = token_span.map(|span| question.slice(span));
        if !session.remember(number, Asked::Server { link: Arc::downgrade(link), id: id.clone(), token }) {
            return link.refuse(&question, "the client has too many questions to answer already");
        }
        let text = number.to_string();
        let mut cuts: Vec<_> =
            [Some(id_span), token_span].into_iter().flatten().map(|span| (span, text.as_bytes())).collect();
        self.stream.ask(edit::splice(question.raw(), &mut cuts));
    }

    fn can_be_asked(&self) -> bool {
        true
    }

    fn pause(&self) {
        self.stream.pause();
    }

    fn is_open(&self) -> bool {
        self.stream.is_read()
    }
}
