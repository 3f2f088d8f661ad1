//! Keeps one conversation with a server: opens it, notices when it ends, opens it again, and lets
//! calls wait for it.
//!
//! Opening goes on whether or not somebody waits: a server that takes long to start must not begin
//! anew because a client lost patience. A server that is away is tried at the pace of its backoff,
//! and sooner if somebody asks for it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handshake::HandshakeParams;
use super::{Connection, Server, UpstreamFailure, reconnect};
use crate::protocol::limits;
use crate::upstream::call::ClientSink;

/// A server whose conversation lasted this long after its handshake is well again.
const STABLE: Duration = Duration::from_secs(10);

/// How long a server that came back may take to be told what the one before it knew.
const PREPARE: Duration = Duration::from_secs(10);
/// How often it is looked whether something is under way.
const LOOK: Duration = Duration::from_millis(100);
/// How soon it is looked again whether a conversation is used.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);

/// What is to be done with a conversation before calls may use it.
pub(crate) type PrepareConnection =
    Box<dyn Fn(Arc<Connection>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Keeps one conversation.
pub struct ConnectionSupervisor {
    server: Arc<Server>,
    handshake: HandshakeParams,
    general: Arc<dyn ClientSink>,
    prepare: PrepareConnection,
    state: watch::Sender<SupervisorState>,
    stopped: CancellationToken,
    asked: Arc<Demand>,
}

/// Who needs the server while it is away: calls that wait for it now, and those that came since it
/// was last tried.
#[derive(Default)]
struct Demand {
    waiting: AtomicUsize,
    since_last_try: AtomicBool,
    somebody: Notify,
}

impl Demand {
    /// Somebody needs it, and waits until what this gives is dropped.
    fn ask(self: &Arc<Self>) -> impl Drop + use<> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.since_last_try.store(true, Ordering::SeqCst);
        self.somebody.notify_one();
        WaitingCall(Arc::clone(self))
    }

    fn is_so(&self) -> bool {
        self.since_last_try.load(Ordering::SeqCst) || self.waiting.load(Ordering::SeqCst) > 0
    }

    fn is_tried(&self) {
        self.since_last_try.store(false, Ordering::SeqCst);
    }
}

struct WaitingCall(Arc<Demand>);

impl Drop for WaitingCall {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Clone)]
enum SupervisorState {
    /// Nobody is at it; why, if it was tried and not put to rest.
    Closed(Option<UpstreamFailure>),
    /// It is being opened, or will be once the server has cooled down.
    Opening,
    Open(Arc<Connection>),
}

impl ConnectionSupervisor {
    /// A supervisor; nothing is opened before somebody asks.
    pub fn new(
        server: &Arc<Server>,
        handshake: HandshakeParams,
        general: Arc<dyn ClientSink>,
        prepare: PrepareConnection,
    ) -> Arc<Self> {
        let (state, stopped) = (
            watch::Sender::new(SupervisorState::Closed(None)),
            server.lifecycle.ended.child_token(),
        );
        Arc::new(Self {
            server: Arc::clone(server),
            handshake,
            general,
            prepare,
            state,
            stopped,
            asked: Arc::default(),
        })
    }

    /// The conversation, if it is open.
    pub fn now(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            SupervisorState::Open(connection) if connection.is_alive() => {
                Some(Arc::clone(connection))
            }
            _ => None,
        }
    }

    /// The conversation, waited for; `patience` bounds the wait.
    pub async fn connection(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Arc<Connection>, UpstreamFailure> {
        if let Some(connection) = self.now() {
            return Ok(connection);
        }
        let deadline = Instant::now() + patience;
        let mut state = self.state.subscribe();
        let _asked = self.asked.ask();
        self.start();
        loop {
            let was_put_to_rest = match &*state.borrow_and_update() {
                SupervisorState::Open(connection) if connection.is_alive() => {
                    return Ok(Arc::clone(connection));
                }
                SupervisorState::Closed(Some(failure)) => return Err(failure.clone()),
                SupervisorState::Closed(None) => true,
                SupervisorState::Open(_) | SupervisorState::Opening => false,
            };
            if was_put_to_rest {
                self.start();
            }
            // Waiting makes no sense when the next try comes later than patience ends.
            let is_too_far = self.server.reconnect.soonest()
                > deadline.saturating_duration_since(Instant::now());
            if is_too_far
                || !matches!(tokio::time::timeout_at(deadline, state.changed()).await, Ok(Ok(())))
            {
                return Err(self.starting());
            }
        }
    }

    /// Why there is no conversation yet.
    pub fn starting(&self) -> UpstreamFailure {
        let retry_in = self.server.reconnect.soonest();
        match self.server.reconnect.last() {
            Some(full @ UpstreamFailure::NoRoom(_)) => full,
            Some(failure) => UpstreamFailure::Away { reason: failure.to_string(), retry_in },
            None => UpstreamFailure::Starting(retry_in),
        }
    }

    /// Begins to open it, unless that is under way; a lazy server waits for somebody who needs it.
    pub fn begin(self: &Arc<Self>) {
        if !self.server.life.lazy {
            self.start();
        }
    }

    /// Whether nobody has needed the server yet, or for a while: what it lists is what it listed
    /// last.
    pub fn is_resting(&self) -> bool {
        let may_rest = self.server.life.lazy || self.server.life.idle_stop.is_some();
        may_rest && matches!(*self.state.borrow(), SupervisorState::Closed(None))
    }

    /// Whether it is being opened.
    pub fn is_opening(&self) -> bool {
        matches!(*self.state.borrow(), SupervisorState::Opening)
    }

    fn start(self: &Arc<Self>) {
        let is_idle = self.state.send_if_modified(|state| {
            // Whoever opened a conversation that has ended is on the way to open the next one.
            let is_idle =
                matches!(state, SupervisorState::Closed(_)) && !self.stopped.is_cancelled();
            if is_idle {
                *state = SupervisorState::Opening;
            }
            is_idle
        });
        if is_idle {
            let (supervisor, stopped) = (Arc::downgrade(self), self.stopped.clone());
            tokio::spawn(async move {
                tokio::select! {
                    // First, so that what is closed on purpose is not taken for a failure.
                    biased;
                    () = stopped.cancelled() => {}
                    () = keep(supervisor.clone()) => return,
                }
                if let Some(supervisor) = supervisor.upgrade() {
                    supervisor.give_up(UpstreamFailure::Unreachable(
                        "the gateway is going down".to_owned(),
                    ));
                }
            });
        }
    }

    /// Whoever waits need not wait any longer.
    fn give_up(&self, failure: UpstreamFailure) {
        self.state.send_if_modified(|state| {
            let is_waited_for = !matches!(state, SupervisorState::Closed(_));
            if is_waited_for {
                *state = SupervisorState::Closed(Some(failure));
            }
            is_waited_for
        });
    }

    /// Ends it once nothing is under way in it, or after as long as a call may take.
    pub async fn close_when_idle(&self) {
        let ends = Instant::now() + limits::LEFT_RUNNING;
        while Instant::now() < ends && self.now().is_some_and(|connection| connection.is_in_use()) {
            tokio::time::sleep(LOOK).await;
        }
        self.close().await;
    }

    /// Ends it; it stays ended.
    pub async fn close(&self) {
        self.stopped.cancel();
        let state = self.state.send_replace(SupervisorState::Closed(Some(UpstreamFailure::Lost(
            "the session was closed".to_owned(),
        ))));
        if let SupervisorState::Open(connection) = state {
            connection.close().await;
        }
    }
}

impl Drop for ConnectionSupervisor {
    fn drop(&mut self) {
        self.stopped.cancel();
    }
}

/// Opens the conversation, again and again, as long as somebody holds the supervisor and trying
/// makes sense.
async fn keep(weak: Weak<ConnectionSupervisor>) {
    let mut is_again = false;
    loop {
        // Held only where nothing waits: a supervisor that nobody else holds must go, whatever is
        // under way.
        let Some(supervisor) = weak.upgrade() else { return };
        let server = Arc::clone(&supervisor.server);
        let (handshake, general) = (supervisor.handshake.clone(), Arc::clone(&supervisor.general));
        let asked = Arc::clone(&supervisor.asked);
        if let Some(failure) = server.reconnect.given_up() {
            return supervisor.give_up(failure);
        }
        drop(supervisor);
        let starting = server.status.starting();
        let mut again = server.again.subscribe();
        let Some(early) = turn(&server, &asked, &mut again).await else { continue };
        asked.is_tried();
        let opened = server.open(&handshake, &general).await;
        match &opened {
            Ok(_) if early.is_some() => server.reconnect.came_early(),
            Ok(_) => {}
            Err(failure) => server.reconnect.failed(failure.clone()),
        }
        drop(early);
        let Some(supervisor) = weak.upgrade() else { return };
        match opened {
            Ok(connection) => {
                let prepared = (supervisor.prepare)(Arc::clone(&connection));
                drop(supervisor);
                let _in_time = tokio::time::timeout(PREPARE, prepared).await;
                let Some(supervisor) = weak.upgrade() else { return };
                let _open = server.status.open(std::mem::replace(&mut is_again, true));
                drop(starting);
                connection.touch();
                server.greeted(&handshake, &connection);
                supervisor.state.send_replace(SupervisorState::Open(Arc::clone(&connection)));
                drop(supervisor);
                tokio::select! {
                    () = watch(&connection, &server) => match connection.gave_way() {
                        true => return put_to_rest(&weak, &connection).await,
                        false => drop(connection),
                    },
                    () = rest(&connection, &server) => return put_to_rest(&weak, &connection).await,
                    Ok(()) = again.changed() => connection.close().await,
                }
                let Some(supervisor) = weak.upgrade() else { return };
                supervisor.state.send_replace(SupervisorState::Opening);
            }
            Err(failure) if failure.is_final() => return supervisor.give_up(failure),
            Err(_) => {}
        }
    }
}

/// Whether the server may be tried now, perhaps with the right to do so early. If not, waits until
/// that may have changed.
async fn turn<'a>(
    server: &'a Server,
    asked: &Demand,
    again: &mut watch::Receiver<u64>,
) -> Option<Option<reconnect::ReconnectTurn<'a>>> {
    let mut tries = server.reconnect.tries();
    let wait = server.reconnect.wait();
    if wait.is_zero() {
        return Some(None);
    }
    let soonest = if asked.is_so() { server.reconnect.soonest() } else { wait };
    if soonest.is_zero()
        && let Some(early) = server.reconnect.turn()
    {
        return Some(Some(early));
    }
    // It is too early, or somebody else is the try.
    let pause = if soonest.is_zero() { wait } else { soonest };
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        _ = again.changed() => {}
        _ = tries.changed() => {}
        () = asked.somebody.notified() => {}
    }
    None
}

/// Waits until nobody has used a conversation for as long as its server may be idle.
async fn rest(connection: &Connection, server: &Server) {
    let Some(limit) = server.life.idle_stop else { return std::future::pending().await };
    while !connection.rest(limit) {
        tokio::time::sleep(limit.saturating_sub(connection.idle()).max(SHORTEST_LOOK)).await;
    }
    let name = &server.name;
    crate::runtime::log::line(&format!(
        "{name}: not used for {limit:?}, stopped; the next call starts it"
    ));
}

/// Ends a conversation that nobody uses; whoever needs it next opens it again.
async fn put_to_rest(weak: &Weak<ConnectionSupervisor>, connection: &Arc<Connection>) {
    if let Some(supervisor) = weak.upgrade() {
        supervisor.state.send_replace(SupervisorState::Closed(None));
    }
    connection.close().await;
}

/// Waits until a conversation ends, and notes what that says about the server.
async fn watch(connection: &Arc<Connection>, server: &Server) {
    let began = Instant::now();
    let is_stable = tokio::time::timeout(STABLE, connection.over.cancelled()).await.is_err();
    if is_stable {
        server.reconnect.worked();
        connection.over.cancelled().await;
    }
    if connection.gave_way() {
        return;
    }
    let why = connection
        .why_lost()
        .unwrap_or_else(|| UpstreamFailure::Lost("it closed the conversation".to_owned()));
    // A server that forgot the session is there, and is greeted again at once; unless it forgets as
    // soon as it is greeted.
    if why == UpstreamFailure::SessionLost
        && (connection.was_of_use() || began.elapsed() >= limits::ASKED_TRY)
    {
        return;
    }
    if connection.was_of_use() {
        server.reconnect.was_of_use();
    }
    server.reconnect.broke(why);
}

#[cfg(test)]
mod tests;
