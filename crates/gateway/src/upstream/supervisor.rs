//! Supervises one connection to a server: opens it, notices when it ends, opens it again, and lets
//! calls wait for it.
//!
//! Opening goes on whether or not a call waits: a slow server must not start from the beginning
//! because a client lost patience. A server that is away is tried at the pace of its backoff, and
//! sooner if a call needs it.

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

/// A server whose connection lasted this long after its handshake has recovered.
const STABLE: Duration = Duration::from_secs(10);

/// The time limit for restoring a client's state on a server that came back.
const PREPARE: Duration = Duration::from_secs(10);
/// How often a connection that is to be closed is checked for calls in flight.
const LOOK: Duration = Duration::from_millis(100);
/// The shortest time between two idle checks of a connection.
const SHORTEST_LOOK: Duration = Duration::from_millis(10);

/// Prepares a connection before calls may use it.
pub(crate) type PrepareConnection =
    Box<dyn Fn(Arc<Connection>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Supervises one connection.
pub struct ConnectionSupervisor {
    server: Arc<Server>,
    handshake: HandshakeParams,
    general: Arc<dyn ClientSink>,
    prepare: PrepareConnection,
    state: watch::Sender<SupervisorState>,
    stopped: CancellationToken,
    asked: Arc<Demand>,
}

/// The demand for a server that is away: calls that wait for it now, and calls since the last try.
#[derive(Default)]
struct Demand {
    waiting: AtomicUsize,
    since_last_try: AtomicBool,
    somebody: Notify,
}

impl Demand {
    /// Registers a call that needs the server; it counts as waiting until the returned guard is
    /// dropped.
    fn ask(self: &Arc<Self>) -> impl Drop + use<> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        self.since_last_try.store(true, Ordering::SeqCst);
        // `notify_one` keeps the wake-up for a supervisor that does not wait yet.
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
    /// No task works on the connection. `Some`: the last try failed; `None`: never opened, or
    /// stopped when idle.
    Closed(Option<UpstreamFailure>),
    /// The connection is being opened, or will be once the backoff is over.
    Opening,
    Open(Arc<Connection>),
}

impl ConnectionSupervisor {
    /// A supervisor; opens nothing before it is asked to.
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

    /// The connection, if it is open.
    pub fn now(&self) -> Option<Arc<Connection>> {
        match &*self.state.borrow() {
            SupervisorState::Open(connection) if connection.is_alive() => {
                Some(Arc::clone(connection))
            }
            _ => None,
        }
    }

    /// Waits for the connection, at most for `patience`.
    pub async fn connection(
        self: &Arc<Self>,
        patience: Duration,
    ) -> Result<Arc<Connection>, UpstreamFailure> {
        if let Some(connection) = self.now() {
            return Ok(connection);
        }
        let deadline = Instant::now() + patience;
        // Subscribed before `start`, so that no change of the state is missed.
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
            // Waiting makes no sense when the next try comes after `patience` ends.
            let is_too_far = self.server.reconnect.soonest()
                > deadline.saturating_duration_since(Instant::now());
            if is_too_far
                || !matches!(tokio::time::timeout_at(deadline, state.changed()).await, Ok(Ok(())))
            {
                return Err(self.starting());
            }
        }
    }

    /// Why there is no connection yet.
    pub fn starting(&self) -> UpstreamFailure {
        let retry_in = self.server.reconnect.soonest();
        match self.server.reconnect.last() {
            Some(full @ UpstreamFailure::NoRoom(_)) => full,
            Some(failure) => UpstreamFailure::Away { reason: failure.to_string(), retry_in },
            None => UpstreamFailure::Starting(retry_in),
        }
    }

    /// Begins to open the connection, unless that is under way; a lazy server waits for its first
    /// call.
    pub fn begin(self: &Arc<Self>) {
        if !self.server.life.lazy {
            self.start();
        }
    }

    /// Whether the server is stopped because no client has needed it yet, or for a while: its last
    /// known lists are still valid.
    pub(crate) fn is_resting(&self) -> bool {
        let may_rest = self.server.life.lazy || self.server.life.idle_stop.is_some();
        may_rest && matches!(*self.state.borrow(), SupervisorState::Closed(None))
    }

    /// Whether the connection is being opened.
    pub(crate) fn is_opening(&self) -> bool {
        matches!(*self.state.borrow(), SupervisorState::Opening)
    }

    fn start(self: &Arc<Self>) {
        let is_idle = self.state.send_if_modified(|state| {
            // `Open` with an ended connection does not count: its task is about to open the next
            // one.
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
                    // Biased: a connection that was closed on purpose must not count as a failure.
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

    /// Ends the wait of all calls with this failure.
    fn give_up(&self, failure: UpstreamFailure) {
        self.state.send_if_modified(|state| {
            let is_waited_for = !matches!(state, SupervisorState::Closed(_));
            if is_waited_for {
                *state = SupervisorState::Closed(Some(failure));
            }
            is_waited_for
        });
    }

    /// Closes the connection once no call is in flight or waits for it to open, or after the
    /// longest time a call may run on.
    pub(crate) async fn close_when_idle(&self) {
        let ends = Instant::now() + limits::LEFT_RUNNING;
        // Two looks in a row: a call may have found this connection and not begun yet.
        let mut idle_looks = 0;
        while idle_looks < 2 && Instant::now() < ends {
            tokio::time::sleep(LOOK).await;
            idle_looks = if self.is_needed() { 0 } else { idle_looks + 1 };
        }
        self.close().await;
    }

    /// Whether a call is in flight, or waits for the connection.
    fn is_needed(&self) -> bool {
        self.asked.waiting.load(Ordering::SeqCst) > 0
            || self.now().is_some_and(|connection| connection.is_in_use())
    }

    /// Closes the connection for good.
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

/// Opens the connection again and again, as long as the supervisor has other holders and a try
/// makes sense.
async fn keep(weak: Weak<ConnectionSupervisor>) {
    let mut is_again = false;
    loop {
        // The supervisor is never held across a wait: without other holders it must be dropped,
        // also during a handshake.
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
        // After the outcome is noted: the drop wakes the others, and they read the outcome.
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
                // Before `Open` is published: a call that gets the connection finds its listing
                // already under way.
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

/// Waits until the server may be tried: `Some` now, with a permit if the try comes before the
/// backoff is over. `None`: something changed, ask again.
async fn turn<'a>(
    server: &'a Server,
    asked: &Demand,
    again: &mut watch::Receiver<u64>,
) -> Option<Option<reconnect::ReconnectTurn<'a>>> {
    // Subscribed before the backoff is read: a change in between ends the wait below at once.
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
    // It is too early, or another supervisor makes the try.
    let pause = if soonest.is_zero() { wait } else { soonest };
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        _ = again.changed() => {}
        _ = tries.changed() => {}
        () = asked.somebody.notified() => {}
    }
    None
}

/// Waits until no client has used the connection for the server's idle limit.
async fn rest(connection: &Connection, server: &Server) {
    let Some(limit) = server.life.idle_stop else { return std::future::pending().await };
    while !connection.rest(limit) {
        tokio::time::sleep(limit.saturating_sub(connection.idle()).max(SHORTEST_LOOK)).await;
    }
    let name = &server.name;
    let text = format!("not used for {limit:?}, stopped; the next call starts it");
    crate::runtime::log::line_of(name, &text);
}

/// Closes an idle connection; the next call opens it again.
async fn put_to_rest(weak: &Weak<ConnectionSupervisor>, connection: &Arc<Connection>) {
    if let Some(supervisor) = weak.upgrade() {
        // Before the close: a call that comes now starts a new connection and need not wait for the
        // close.
        supervisor.state.send_replace(SupervisorState::Closed(None));
    }
    connection.close().await;
}

/// Waits until the connection ends, and notes for the backoff how it ended.
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
    // A server that forgot the session is up, so its handshake is repeated at once; unless it
    // forgets sessions as soon as it has opened them.
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
