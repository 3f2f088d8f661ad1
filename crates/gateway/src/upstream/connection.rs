//! One conversation with a server: its ids are ours, and every answer finds the call it belongs to.
//!
//! Requests of all clients get ids and progress tokens of this conversation, so no two can be mixed
//! up; what comes back gets the client's own again. `liveness` finds out whether a server of which
//! nothing is heard is still there. Whatever ends the conversation ends every call in it, at once.

mod incoming;
mod listing;
mod liveness;
mod ticket;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::liveness::SentRequest;
use self::ticket::RequestTicket;
use super::header_params::HeaderParams;
use super::incidents::Incidents;
use super::startup::ListingProgress;
use super::status::ServerStatus;
use super::{Server, UpstreamFailure, Wire};
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{self, JsonObject};
use crate::protocol::names::Era;
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{Id, Message, limits};
use crate::upstream::call::{ClientSink, GatewayCall, NoClient};

type PendingReply = Result<Message, UpstreamFailure>;

/// A conversation with one server.
pub struct Connection {
    /// The server's name.
    pub server: String,
    /// Ends when the conversation ends; ending it ends the conversation.
    pub ended: CancellationToken,
    /// No new calls: the conversation ended, or the server cannot be reached any more.
    pub over: CancellationToken,
    wire: Wire,
    info: OnceLock<ServerInfo>,
    initialized: OnceLock<()>,
    header_params: OnceLock<Arc<HeaderParams>>,
    status: OnceLock<Arc<ServerStatus>>,
    incidents: OnceLock<Arc<Incidents>>,
    has_strays: AtomicBool,
    general: Arc<dyn ClientSink>,
    next: AtomicU64,
    of_use: AtomicBool,
    /// Whether the server may know something of one client that another must not meet.
    is_private: AtomicBool,
    /// Whether it only waits for its next client.
    is_spare: AtomicBool,
    begun: Instant,
    /// When a client last used it, in milliseconds since it began.
    used: AtomicU64,
    /// When something was last heard of the server, in milliseconds since it began; zero: never.
    heard: AtomicU64,
    /// Whether it ended so that another process could be started.
    has_given_way: AtomicBool,
    /// Whether it is being found out if the server is still there.
    is_suspect: AtomicBool,
    /// Whether somebody waits for news of a resource.
    is_followed: AtomicBool,
    open: Mutex<OpenConnection>,
    /// Bytes that may still wait to be told.
    telling: Arc<Semaphore>,
    /// How far the listing of the server's tools has come in it.
    listing: watch::Sender<ListingProgress>,
    /// When the gateway read the list that no client has read yet.
    unread_list: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct OpenConnection {
    pending: HashMap<u64, PendingRequest>,
    lost: Option<UpstreamFailure>,
}

/// A request that the server has not answered.
struct PendingRequest {
    id: Id,
    token: Option<Bytes>,
    sink: Arc<dyn ClientSink>,
    reply: Option<oneshot::Sender<PendingReply>>,
    /// Whether the conversation is in use as long as this is open: not for one who only listens for
    /// changes of lists.
    is_use: bool,
    /// Whether a server may be busy with it: not with a subscription, which lasts, nor with our own
    /// question if it is there.
    is_work: bool,
}

impl Connection {
    /// A conversation over `wire`; what belongs to no call goes to `general`.
    pub fn new(
        server: &str,
        wire: Wire,
        general: Arc<dyn ClientSink>,
        ended: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            server: server.to_owned(),
            over: ended.child_token(),
            ended,
            wire,
            info: OnceLock::new(),
            initialized: OnceLock::new(),
            header_params: OnceLock::new(),
            status: OnceLock::new(),
            incidents: OnceLock::new(),
            has_strays: AtomicBool::new(false),
            general,
            next: AtomicU64::new(1),
            of_use: AtomicBool::new(false),
            is_private: AtomicBool::new(false),
            is_spare: AtomicBool::new(false),
            begun: Instant::now(),
            used: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            has_given_way: AtomicBool::new(false),
            is_suspect: AtomicBool::new(false),
            is_followed: AtomicBool::new(false),
            open: Mutex::default(),
            telling: Arc::new(Semaphore::new(limits::TELL_BYTES)),
            listing: watch::Sender::default(),
            unread_list: Mutex::default(),
        })
    }

    fn open(&self) -> MutexGuard<'_, OpenConnection> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the two agreed on.
    pub fn info(&self) -> Option<&ServerInfo> {
        self.info.get()
    }

    /// How the server speaks; a conversation without a handshake is a legacy one.
    pub fn era(&self) -> Era {
        self.info.get().map_or(Era::Legacy, |info| info.era)
    }

    /// Notes what was agreed on, and who must hear what is said.
    pub fn agree(&self, info: ServerInfo, server: &Server) {
        let _once = self.header_params.set(Arc::clone(&server.header_params));
        let _once = self.status.set(Arc::clone(&server.status));
        if let Wire::Http(http) = &self.wire {
            // All conversations are with one and the same process; behind a pipe each has its own.
            let _once = self.incidents.set(Arc::clone(&server.incidents));
            http.agree(&info);
        }
        let _once = self.info.set(info);
    }

    /// Tells a legacy server that the handshake is over, once; then it may speak by itself.
    pub async fn initialized(self: &Arc<Self>) {
        if self.era() == Era::Legacy && self.initialized.set(()).is_ok() {
            self.tell(build::notification("notifications/initialized", None)).await;
            if let Wire::Http(http) = &self.wire {
                http.listen(self);
            }
        }
    }

    /// Whether it can still be used.
    pub fn is_alive(&self) -> bool {
        !self.over.is_cancelled()
    }

    /// A client's request and its answer, which carries an id of this conversation. Dropping it
    /// calls the request off.
    pub async fn request(self: &Arc<Self>, call: &GatewayCall) -> PendingReply {
        self.touch();
        if !is_neutral(call.request.method()) {
            self.note_private();
        }
        let incidents = self.incidents.get_or_init(Arc::default);
        let before = incidents.last();
        let judged = |failure| incidents.judged(before, failure, self.ended.is_cancelled());
        let answer = self.exchange(call).await.map_err(judged);
        self.touch();
        // Lists are read whenever a client comes; that a server can tell them does not show that it
        // is of use.
        let method = call.request.method();
        if answer.is_ok()
            && !method.ends_with("/list")
            && !matches!(method, "ping" | "server/discover")
        {
            self.of_use.store(true, Ordering::Relaxed);
        }
        answer
    }

    async fn exchange(self: &Arc<Self>, call: &GatewayCall) -> PendingReply {
        // Nobody waits for it any more, and it was not sent yet: then it never is.
        if call.cancel.is_cancelled() {
            return Err(UpstreamFailure::NotAsked);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (mut ticket, reply) = self.enter(number, call)?;
        let bytes = renumbered(&call.request, number);
        let can_be_cancelled = call.request.method() != "initialize";
        if let Wire::Pipe(pipe) = &self.wire {
            pipe.send(bytes.clone()).await?;
        }
        ticket.is_told = can_be_cancelled;
        let answered = async {
            match &self.wire {
                Wire::Pipe(_) => reply
                    .await
                    .unwrap_or(Err(UpstreamFailure::Lost("the conversation ended".to_owned()))),
                Wire::Http(http) => {
                    let mirrored = call.mirrored.as_deref().unwrap_or_default();
                    tokio::select! {
                        answer = http.exchange(self, number, &call.request, bytes, mirrored) => answer,
                        Ok(answer) = reply => answer,
                    }
                }
            }
        };
        let mut answered = pin!(answered);
        let answer = tokio::select! {
            biased;
            answer = answered.as_mut() => answer,
            () = call.cancel.cancelled(), if can_be_cancelled => {
                let can_come_late = ticket.call_off();
                // Whoever waits for it has a limit: the deadline of the call.
                match can_come_late {
                    true => answered.await,
                    false => Err(UpstreamFailure::Cancelled),
                }
            }
        };
        ticket.is_told = false;
        if !matches!(answer, Err(UpstreamFailure::Cancelled)) {
            ticket.sent = None;
        }
        answer
    }

    /// Notes that it is used now.
    pub fn touch(&self) {
        let now = u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
    }

    /// Notes whether it only waits for its next client.
    pub fn set_spare(&self, is_spare: bool) {
        self.is_spare.store(is_spare, Ordering::Relaxed);
    }

    /// Whether it only waits for its next client.
    pub fn is_spare(&self) -> bool {
        self.is_spare.load(Ordering::Relaxed)
    }

    /// How long no client has used it.
    pub fn idle(&self) -> Duration {
        self.age().saturating_sub(Duration::from_millis(self.used.load(Ordering::Relaxed)))
    }

    /// Whether a client waits for something in it.
    pub fn is_in_use(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
            || self.open().pending.values().any(|pending| pending.is_use)
    }

    /// Takes no new calls if nobody has used it for so long; whether that is so. Who comes too late
    /// is not lost: no server has looked at its request.
    pub fn rest(&self, limit: Duration) -> bool {
        let mut open = self.open();
        let is_used = self.is_followed.load(Ordering::Relaxed)
            || open.pending.values().any(|pending| pending.is_use);
        if is_used || self.idle() < limit || open.lost.is_some() {
            return false;
        }
        open.lost = Some(UpstreamFailure::NotTaken);
        drop(open);
        self.over.cancel();
        true
    }

    /// Ends, so that another process can be started, if nobody has used it for so long; whether it
    /// does.
    pub fn give_way(&self, idle: Duration) -> bool {
        // First: whoever sees that it is over asks why.
        self.has_given_way.store(true, Ordering::Release);
        let is_over = self.rest(idle);
        self.has_given_way.fetch_and(is_over, Ordering::AcqRel);
        is_over
    }

    /// Whether it ended so that another process could be started.
    pub fn gave_way(&self) -> bool {
        self.has_given_way.load(Ordering::Acquire)
    }

    /// Whether the server did something for a client.
    pub fn was_of_use(&self) -> bool {
        self.of_use.load(Ordering::Relaxed)
    }

    /// How long the conversation has lasted.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Why the conversation ended.
    pub fn why_lost(&self) -> Option<UpstreamFailure> {
        self.open().lost.clone()
    }

    /// A request of our own that is no client's matter: nothing else that the server says is taken
    /// to be about it.
    pub async fn ask_for_all(self: &Arc<Self>, method: &str, params: &[u8]) -> PendingReply {
        let request = Message::parse(build::request(&Id::number(0), method, params))?;
        self.exchange(&GatewayCall::new(request, Arc::new(NoClient))).await
    }

    /// A request of our own.
    pub async fn ask(self: &Arc<Self>, method: &str, params: &[u8]) -> PendingReply {
        let request = Message::parse(build::request(&Id::number(0), method, params))?;
        self.exchange(&GatewayCall::new(request, Arc::clone(&self.general))).await
    }

    /// A notification, or an answer to the server's question. A lost server loses it, and so does
    /// one that does not take it in time; there is nobody to tell.
    pub async fn tell(self: &Arc<Self>, message: Bytes) {
        let told = async {
            match &self.wire {
                Wire::Pipe(pipe) => {
                    let _lost = pipe.send(message).await;
                }
                Wire::Http(http) => http.tell(message, &[]).await,
            }
        };
        let _in_time =
            tokio::time::timeout(limits::TELL_TIME, self.ended.run_until_cancelled(told)).await;
    }

    /// The same for those who cannot wait. A server that does not take what waits for it loses what
    /// comes on top.
    pub fn tell_soon(self: &Arc<Self>, message: Bytes) {
        let message = match &self.wire {
            Wire::Pipe(pipe) => match pipe.try_send(message) {
                Some(message) => message,
                None => return,
            },
            Wire::Http(_) => message,
        };
        let cost = u32::try_from(message.len() + limits::TELL_EACH).unwrap_or(u32::MAX);
        let Ok(place) = Arc::clone(&self.telling).try_acquire_many_owned(cost) else { return };
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            connection.tell(message).await;
            drop(place);
        });
    }

    /// Answers a server's question with a refusal.
    pub fn refuse(self: &Arc<Self>, question: &Message, why: &str) {
        self.tell_soon(build::error(question.id(), &RpcError::new(build::METHOD_NOT_FOUND, why)));
    }

    /// The conversation is over; every call in it fails now. Whoever hears of it finds it dead.
    pub fn lose(&self, failure: UpstreamFailure) {
        let pending: Vec<PendingRequest> = {
            let mut open = self.open();
            open.lost.get_or_insert_with(|| failure.clone());
            open.pending.drain().map(|(_, pending)| pending).collect()
        };
        self.ended.cancel();
        for reply in pending.into_iter().filter_map(|pending| pending.reply) {
            let _gone = reply.send(Err(failure.clone()));
        }
    }

    /// The server cannot be reached any more: no new calls, but those under way may still be
    /// answered.
    pub fn retire(&self, failure: &UpstreamFailure) {
        self.open().lost.get_or_insert_with(|| failure.clone());
        self.over.cancel();
    }

    fn enter(
        self: &Arc<Self>,
        number: u64,
        call: &GatewayCall,
    ) -> Result<(RequestTicket, oneshot::Receiver<PendingReply>), UpstreamFailure> {
        let (reply, answer) = oneshot::channel();
        let token = call.request.meta("progressToken").map(|span| call.request.slice(span));
        let id = call.request.id().cloned().unwrap_or_else(|| Id::number(number));
        let sink = Arc::clone(&call.sink);
        let mut open = self.open();
        if let Some(failure) = &open.lost {
            return Err(match failure {
                // The server was told nothing of this one: its own session is opened first.
                UpstreamFailure::SessionLost | UpstreamFailure::NotTaken => {
                    UpstreamFailure::NotTaken
                }
                failure => UpstreamFailure::Unreachable(failure.to_string()),
            });
        }
        if open.pending.len() >= limits::CALLS {
            return Err(UpstreamFailure::Full);
        }
        let is_use = match call.request.method() {
            "resources/subscribe" => !self.is_followed.swap(true, Ordering::Relaxed),
            "subscriptions/listen" if call.sink.is_in_passing() => {
                let wanted =
                    JsonObject::of(call.request.field_json("notifications").unwrap_or_default());
                wanted.get("resourceSubscriptions").is_some()
            }
            _ => true,
        };
        let is_work =
            !matches!(call.request.method(), "subscriptions/listen" | "ping" | "server/discover");
        open.pending.insert(
            number,
            PendingRequest { id, token, sink, reply: Some(reply), is_use, is_work },
        );
        let (connection, cancel) = (Arc::clone(self), Arc::clone(&call.cancel));
        let ends = call.ends.unwrap_or_else(|| Instant::now() + limits::SILENCE);
        let sent = is_work.then(|| SentRequest { number, at: self.millis(), ends });
        Ok((RequestTicket { connection, number, cancel, sent, is_told: false }, answer))
    }

    /// The server has hung up on a request and will go on with it when it is asked again.
    pub fn paused(&self, number: u64) {
        let sink = self.open().pending.get(&number).map(|pending| Arc::clone(&pending.sink));
        if let Some(sink) = sink {
            sink.pause();
        }
    }

    /// One request has its answer, or will get none; the conversation goes on.
    pub fn settle(&self, number: Option<u64>, reply: PendingReply) {
        let waiting = number.and_then(|number| self.open().pending.get_mut(&number)?.reply.take());
        if let Some(waiting) = waiting {
            let _gone = waiting.send(reply);
        }
    }

    /// Headers and session of an HTTP conversation are closed with it.
    pub async fn close(&self) {
        if let Wire::Http(http) = &self.wire {
            http.close().await;
        }
        self.lose(UpstreamFailure::Lost("the session was closed".to_owned()));
    }
}

impl Drop for Connection {
    /// A conversation that nobody holds is over: its process or its streams end.
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Whether a server that was asked this is as it was before.
fn is_neutral(method: &str) -> bool {
    matches!(
        method,
        "ping" | "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list"
    )
}

/// The request with an id, and if it asks for progress a token, of this conversation.
fn renumbered(request: &Message, number: u64) -> Bytes {
    let number = number.to_string();
    let spans = [request.id_span(), request.meta("progressToken")];
    let mut cuts: Vec<_> =
        spans.into_iter().flatten().map(|span| (span, number.as_bytes())).collect();
    edit::splice(request.raw(), &mut cuts)
}

/// Headers of a call, by name.
pub(crate) type CallHeaders = [(HeaderName, HeaderValue)];

#[cfg(test)]
mod tests;
