//! One connection to a server: it assigns its own request ids and matches every answer to its call.
//!
//! Requests of all clients get ids and progress tokens of this connection, so no two calls can be
//! mixed up; answers and progress get the client's own id and token again. `liveness` finds out
//! whether a silent server still runs. The end of the connection ends every call in flight at once.

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
use crate::trace::carry;
use crate::upstream::call::{ClientSink, GatewayCall, NoClient};

type PendingReply = Result<Message, UpstreamFailure>;

/// A connection to one server.
pub struct Connection {
    /// The server's name.
    pub server: String,
    /// Cancelled when the connection ends; cancelling it ends the connection.
    pub ended: CancellationToken,
    /// Cancelled when the connection takes no new calls: it has ended, or the server cannot be
    /// reached any more. A child of `ended`.
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
    /// Whether the server may hold state of one client that another client must not see.
    is_private: AtomicBool,
    /// Whether the connection only waits for its next client.
    is_spare: AtomicBool,
    begun: Instant,
    /// When a client last used the connection, in milliseconds since it began.
    used: AtomicU64,
    /// When the server last sent anything, in milliseconds since the connection began; zero: never.
    heard: AtomicU64,
    /// Whether the connection ended to make room for another process.
    has_given_way: AtomicBool,
    /// Whether a liveness check of the server is running.
    is_suspect: AtomicBool,
    /// Whether a client has subscribed to a resource.
    is_followed: AtomicBool,
    open: Mutex<OpenConnection>,
    /// A budget of bytes for notifications and answers that wait to be sent.
    telling: Arc<Semaphore>,
    /// The progress of the gateway's own listing of the server's tools.
    listing: watch::Sender<ListingProgress>,
    /// When the gateway read the tool list, while no client has used that list yet.
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
    /// Whether the connection counts as used while this request is open. A subscription that only
    /// listens for changed lists does not count.
    is_use: bool,
    /// Whether the server may be busy with this request. Subscriptions, which stay open, and the
    /// gateway's own liveness pings do not count.
    is_work: bool,
}

impl Connection {
    /// A connection over `wire`; messages that belong to no call go to `general`.
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

    /// The server's answer to the handshake.
    pub fn info(&self) -> Option<&ServerInfo> {
        self.info.get()
    }

    /// The server's era; a connection without a handshake counts as legacy.
    pub fn era(&self) -> Era {
        self.info.get().map_or(Era::Legacy, |info| info.era)
    }

    /// Notes the result of the handshake, and the server's shared state that incoming messages
    /// update.
    pub fn agree(&self, info: ServerInfo, server: &Server) {
        let _once = self.header_params.set(Arc::clone(&server.header_params));
        let _once = self.status.set(Arc::clone(&server.status));
        if let Wire::Http(http) = &self.wire {
            // Over HTTP all connections reach the same server process, so they share incidents;
            // behind a pipe each connection has its own process.
            let _once = self.incidents.set(Arc::clone(&server.incidents));
            http.agree(&info);
        }
        let _once = self.info.set(info);
    }

    /// Sends `notifications/initialized` to a legacy server, once; from then on the server may send
    /// messages of its own accord.
    pub async fn initialized(self: &Arc<Self>) {
        if self.era() == Era::Legacy && self.initialized.set(()).is_ok() {
            self.tell(build::notification("notifications/initialized", None)).await;
            if let Wire::Http(http) = &self.wire {
                http.listen(self);
            }
        }
    }

    /// Whether the connection takes new calls.
    pub fn is_alive(&self) -> bool {
        !self.over.is_cancelled()
    }

    /// Sends a client's request and returns the answer, under this connection's request id.
    /// Dropping the future cancels the request.
    pub async fn request(self: &Arc<Self>, call: &GatewayCall) -> PendingReply {
        self.touch();
        if !is_neutral(call.request.method()) {
            self.note_private();
        }
        let incidents = self.incidents.get_or_init(Arc::default);
        // Read before the request goes out: a loss with a later number hit this request as well.
        let before = incidents.last();
        let judged = |failure| incidents.judged(before, failure, self.ended.is_cancelled());
        let answer = self.exchange(call).await.map_err(judged);
        self.touch();
        // A successful list or ping does not show that the server is of use: lists are read
        // whenever a client connects.
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
        // Cancelled before it was sent: it never is.
        if call.cancel.is_cancelled() {
            return Err(UpstreamFailure::NotAsked);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (mut ticket, reply) = self.enter(number, call)?;
        let bytes = renumbered(call, number);
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
                    tokio::select! {
                        answer = http.exchange(self, number, call, bytes) => answer,
                        Ok(answer) = reply => answer,
                    }
                }
            }
        };
        // Biased towards the answer: an answer that is already here wins over a cancellation.
        let mut answered = pin!(answered);
        let answer = tokio::select! {
            biased;
            answer = answered.as_mut() => answer,
            () = call.cancel.cancelled(), if can_be_cancelled => {
                let can_come_late = ticket.call_off();
                // The call's deadline bounds this wait.
                match can_come_late {
                    true => answered.await,
                    false => Err(UpstreamFailure::Cancelled),
                }
            }
        };
        // The exchange is over, so the ticket's drop must not cancel the request. Only a cancelled
        // call without an answer keeps `sent`, which lets the drop check whether the server is
        // alive.
        ticket.is_told = false;
        if !matches!(answer, Err(UpstreamFailure::Cancelled)) {
            ticket.sent = None;
        }
        answer
    }

    /// Notes that the connection is in use now.
    pub fn touch(&self) {
        let now = u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
    }

    /// Notes whether the connection only waits for its next client.
    pub(crate) fn set_spare(&self, is_spare: bool) {
        self.is_spare.store(is_spare, Ordering::Relaxed);
    }

    /// Whether the connection only waits for its next client.
    pub(crate) fn is_spare(&self) -> bool {
        self.is_spare.load(Ordering::Relaxed)
    }

    /// How long no client has used the connection.
    pub fn idle(&self) -> Duration {
        self.age().saturating_sub(Duration::from_millis(self.used.load(Ordering::Relaxed)))
    }

    /// Whether a client waits for an answer or a notification on this connection.
    pub(crate) fn is_in_use(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
            || self.open().pending.values().any(|pending| pending.is_use)
    }

    /// Stops taking new calls if no client has used the connection for `limit`; returns whether it
    /// did. A call that comes too late is not lost: it fails with [`UpstreamFailure::NotTaken`],
    /// which proves that no server has seen it.
    pub fn rest(&self, limit: Duration) -> bool {
        // One lock over the check and the change: no call can enter between them.
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

    /// Ends the connection to make room for another process, if no client has used it for `idle`;
    /// returns whether it did.
    pub(crate) fn give_way(&self, idle: Duration) -> bool {
        // Set before `rest` cancels `over`: the supervisor wakes up by `over` and then reads this
        // flag. Taken back if the connection stays.
        self.has_given_way.store(true, Ordering::Release);
        let is_over = self.rest(idle);
        self.has_given_way.fetch_and(is_over, Ordering::AcqRel);
        is_over
    }

    /// Whether the connection ended to make room for another process.
    pub(crate) fn gave_way(&self) -> bool {
        self.has_given_way.load(Ordering::Acquire)
    }

    /// Whether the server answered a client's request, other than a list, a ping or
    /// `server/discover`.
    pub(crate) fn was_of_use(&self) -> bool {
        self.of_use.load(Ordering::Relaxed)
    }

    /// The age of the connection.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Why the connection ended.
    pub(crate) fn why_lost(&self) -> Option<UpstreamFailure> {
        self.open().lost.clone()
    }

    /// Sends a request of the gateway's own that concerns no client: other messages of the server
    /// are never taken to be about this request.
    pub(crate) async fn ask_for_all(self: &Arc<Self>, method: &str, params: &[u8]) -> PendingReply {
        let request = Message::parse(build::request(&Id::number(0), method, params))?;
        self.exchange(&GatewayCall::new(request, Arc::new(NoClient))).await
    }

    /// Sends a request of the gateway's own on behalf of the connection's clients.
    pub async fn ask(self: &Arc<Self>, method: &str, params: &[u8]) -> PendingReply {
        let request = Message::parse(build::request(&Id::number(0), method, params))?;
        self.exchange(&GatewayCall::new(request, Arc::clone(&self.general))).await
    }

    /// Sends a notification, or an answer to the server's question. A server that is lost, or that
    /// does not take the message in time, loses it; no caller is left to report that to.
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

    /// Like [`tell`](Self::tell), without waiting. Messages beyond the byte budget of a slow server
    /// are dropped.
    pub(crate) fn tell_soon(self: &Arc<Self>, message: Bytes) {
        let message = match &self.wire {
            Wire::Pipe(pipe) => match pipe.try_send(message) {
                Some(message) => message,
                None => return,
            },
            Wire::Http(_) => message,
        };
        // Each message is charged for its task as well, so that many tiny messages are bounded too.
        let cost = u32::try_from(message.len() + limits::TELL_EACH).unwrap_or(u32::MAX);
        let Ok(place) = Arc::clone(&self.telling).try_acquire_many_owned(cost) else { return };
        let connection = Arc::clone(self);
        tokio::spawn(async move {
            connection.tell(message).await;
            drop(place);
        });
    }

    /// Answers a server's question with an error.
    pub fn refuse(self: &Arc<Self>, question: &Message, why: &str) {
        self.tell_soon(build::error(question.id(), &RpcError::new(build::METHOD_NOT_FOUND, why)));
    }

    /// Ends the connection; every call in flight fails now, and a caller that gets such a failure
    /// finds the connection dead.
    pub fn lose(&self, failure: UpstreamFailure) {
        let pending: Vec<PendingRequest> = {
            let mut open = self.open();
            open.lost.get_or_insert_with(|| failure.clone());
            open.pending.drain().map(|(_, pending)| pending).collect()
        };
        // Before the replies: a caller that sees its failure must not send its next call into this
        // connection. The failures go out without the lock.
        self.ended.cancel();
        for reply in pending.into_iter().filter_map(|pending| pending.reply) {
            let _gone = reply.send(Err(failure.clone()));
        }
    }

    /// Stops taking new calls because the server cannot be reached any more; calls in flight may
    /// still be answered.
    pub(crate) fn retire(&self, failure: &UpstreamFailure) {
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
        // Checked and entered under one lock, so that a request either is here when `lose` fails
        // all calls, or is refused.
        if let Some(failure) = &open.lost {
            return Err(match failure {
                // The server has not seen this request: the supervisor opens another session for it
                // first.
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

    /// The server has closed the stream of a request and will go on with it once the gateway
    /// resumes the stream.
    pub fn paused(&self, number: u64) {
        let sink = self.open().pending.get(&number).map(|pending| Arc::clone(&pending.sink));
        if let Some(sink) = sink {
            sink.pause();
        }
    }

    /// Hands a request its answer, or its failure; the connection goes on.
    pub fn settle(&self, number: Option<u64>, reply: PendingReply) {
        let waiting = number.and_then(|number| self.open().pending.get_mut(&number)?.reply.take());
        if let Some(waiting) = waiting {
            let _gone = waiting.send(reply);
        }
    }

    /// Ends the connection; the session of an HTTP server is closed with a DELETE first.
    pub async fn close(&self) {
        if let Wire::Http(http) = &self.wire {
            http.close().await;
        }
        self.lose(UpstreamFailure::Lost("the session was closed".to_owned()));
    }
}

impl Drop for Connection {
    /// A connection without holders is over: its process or its streams end.
    fn drop(&mut self) {
        self.ended.cancel();
    }
}

/// Whether a request leaves the server's state untouched.
fn is_neutral(method: &str) -> bool {
    matches!(
        method,
        "ping" | "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list"
    )
}

/// The request with an id of this connection, a progress token of it if it asks for progress, and
/// the trace context of its attempt while calls are traced.
fn renumbered(call: &GatewayCall, number: u64) -> Bytes {
    let (request, number) = (&call.request, number.to_string());
    let spans = [request.id_span(), request.meta("progressToken")];
    let mut cuts: Vec<_> =
        spans.into_iter().flatten().map(|span| (span, number.as_bytes())).collect();
    let carried = call.trace.as_ref().map(|trace| carry::cuts(request, &trace.context));
    cuts.extend(carried.iter().flatten().map(|(span, with)| (*span, &**with)));
    edit::splice(request.raw(), &mut cuts)
}

/// Headers of a call, by name.
pub(crate) type CallHeaders = [(HeaderName, HeaderValue)];

#[cfg(test)]
mod tests;
