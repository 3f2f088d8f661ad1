//! Decides which child processes stay warm: a child that its client left unused is kept for the
//! next client with the same handshake.
//!
//! A start that was begun is finished even if its client leaves: otherwise clients that open a
//! session for each call would start a server again and again. Only a child that knows nothing of
//! its client is handed on: it has completed the handshake and listed its tools, and nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use seawall::Question;

use super::Session;
use crate::protocol::{Message, limits};
use crate::upstream::call::ClientSink;
use crate::upstream::handshake::HandshakeParams;
use crate::upstream::{Connection, ConnectionSupervisor, Server};

/// How often a starting child is checked.
const LOOK: Duration = Duration::from_secs(1);

/// The current user of a connection: the session that opened it, or the session it was handed on
/// to.
#[derive(Default)]
pub(crate) struct ConnectionUser {
    session: Mutex<Weak<Session>>,
}

impl ConnectionUser {
    /// Hands the connection to this session.
    pub(crate) fn take(&self, session: &Arc<Session>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(session);
    }

    /// The session that uses the connection now.
    pub(crate) fn session(&self) -> Option<Arc<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    fn leave(&self) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
    }

    fn sink(&self) -> Option<Arc<dyn ClientSink>> {
        self.session().map(|session| session.sink(&session.general))
    }
}

impl ClientSink for ConnectionUser {
    fn notify(&self, connection: &Arc<Connection>, notification: Message) {
        if let Some(sink) = self.sink() {
            sink.notify(connection, notification);
        }
    }

    fn ask(&self, connection: &Arc<Connection>, question: Message, open: Option<Question>) {
        match self.sink() {
            Some(sink) => sink.ask(connection, question, open),
            None => {
                connection.note_private();
                connection.refuse(&question, "no client is connected that could be asked");
            }
        }
    }

    fn say(&self, notification: Message) {
        if let Some(sink) = self.sink() {
            sink.say(notification);
        }
    }

    fn listed(&self, connection: &Arc<Connection>, changed: &[&'static str]) {
        if let Some(sink) = self.sink() {
            sink.listed(connection, changed);
        }
    }

    fn can_be_asked(&self) -> bool {
        true
    }

    fn pause(&self) {
        if let Some(sink) = self.sink() {
            sink.pause();
        }
    }

    fn is_open(&self) -> bool {
        self.sink().is_some_and(|sink| sink.is_open())
    }
}

/// A session's own connection, with the data needed to hand it on.
pub(crate) struct WarmConnection {
    /// The supervisor of the connection.
    pub supervisor: Arc<ConnectionSupervisor>,
    /// The current user of the connection.
    pub seat: Arc<ConnectionUser>,
    /// The server at its other end.
    pub server: Arc<Server>,
    /// The `initialize` parameters of the connection's handshake.
    greeting: Bytes,
}

impl WarmConnection {
    /// A connection with this handshake.
    pub(crate) fn new(
        server: &Arc<Server>,
        handshake: &HandshakeParams,
        supervisor: Arc<ConnectionSupervisor>,
        seat: Arc<ConnectionUser>,
    ) -> Self {
        Self {
            supervisor,
            seat,
            server: Arc::clone(server),
            greeting: handshake.initialize.clone(),
        }
    }

    /// Marks the connection's process as the first to give way when there is no room for another.
    fn spare(&self, is_spare: bool) {
        if let Some(connection) = self.supervisor.now() {
            connection.set_spare(is_spare);
        }
    }

    /// Whether another client may have the connection: its child is starting, or has completed the
    /// handshake and listed its tools, and nothing else.
    fn is_neutral(&self) -> bool {
        let is_well = self.server.is_child() && self.server.reconnect.last().is_none();
        let is_neutral = match self.supervisor.now() {
            Some(connection) => !connection.is_private(),
            None => self.supervisor.is_opening(),
        };
        is_well && is_neutral && !self.server.life.keep_warm.is_zero()
    }
}

/// The warm children of all servers that wait for their next client.
#[derive(Default)]
pub(crate) struct WarmConnections {
    kept: Mutex<Vec<Arc<WarmConnection>>>,
}

impl WarmConnections {
    fn kept(&self) -> MutexGuard<'_, Vec<Arc<WarmConnection>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection that another client may have; returns a connection to be closed: this
    /// one, or the oldest if there are too many.
    pub(crate) fn keep(
        self: &Arc<Self>,
        kept: WarmConnection,
    ) -> Option<Arc<ConnectionSupervisor>> {
        // The user is removed first: from here on a question of the server is refused, not asked of
        // a client that has left.
        kept.seat.leave();
        if !kept.is_neutral() {
            return Some(kept.supervisor);
        }
        kept.spare(true);
        let kept = Arc::new(kept);
        let surplus = {
            let mut all = self.kept();
            all.push(Arc::clone(&kept));
            (all.len() > limits::WARM).then(|| Arc::clone(&all.remove(0).supervisor))
        };
        tokio::spawn(cool_down(Arc::downgrade(self), Arc::downgrade(&kept)));
        surplus
    }

    fn remove(&self, kept: &Arc<WarmConnection>) -> bool {
        let mut all = self.kept();
        let place = all.iter().position(|known| Arc::ptr_eq(known, kept));
        place.map(|place| all.remove(place)).is_some()
    }

    /// Takes a warm child of this server with the same handshake.
    pub(crate) fn take(
        &self,
        server: &Arc<Server>,
        handshake: &HandshakeParams,
    ) -> Option<WarmConnection> {
        let is_it = |kept: &Arc<WarmConnection>| {
            Arc::ptr_eq(&kept.server, server)
                && kept.greeting == handshake.initialize
                && kept.is_neutral()
        };
        let mut all = self.kept();
        let place = all.iter().position(is_it)?;
        let kept = all.remove(place);
        kept.spare(false);
        let WarmConnection { supervisor, seat, .. } = &*kept;
        Some(WarmConnection::new(server, handshake, Arc::clone(supervisor), Arc::clone(seat)))
    }

    /// Takes all warm children of a server that does not go on.
    pub(crate) fn take_all(&self, server: &Arc<Server>) -> Vec<Arc<ConnectionSupervisor>> {
        let mut all = self.kept();
        let taken = all.extract_if(.., |kept| Arc::ptr_eq(&kept.server, server));
        taken.map(|kept| Arc::clone(&kept.supervisor)).collect()
    }

    /// Closes the child that has waited longest, to make room for a process; returns whether there
    /// was one.
    async fn give_way(&self) -> bool {
        let oldest = {
            let mut all = self.kept();
            if all.is_empty() { None } else { Some(all.remove(0)) }
        };
        match oldest {
            Some(oldest) => {
                oldest.supervisor.close().await;
                true
            }
            None => false,
        }
    }

    /// Closes all of them.
    pub(crate) async fn close(&self) {
        while self.give_way().await {}
    }
}

/// Closes a warm child that no client took. A child that is still starting gets its full time once
/// it is up.
async fn cool_down(warm: Weak<WarmConnections>, kept: Weak<WarmConnection>) {
    // Upgraded only for a check: a client may take the connection meanwhile, and then decides how
    // long it lives.
    let mut looks = limits::HANDSHAKE.as_secs();
    while kept.upgrade().is_some_and(|kept| kept.supervisor.is_opening()) && looks > 0 {
        looks -= 1;
        tokio::time::sleep(LOOK).await;
    }
    let Some(time) = kept.upgrade().map(|kept| kept.server.life.keep_warm) else { return };
    tokio::time::sleep(time).await;
    let (Some(warm), Some(kept)) = (warm.upgrade(), kept.upgrade()) else { return };
    // Only the task that removes the connection may close it; a client may just have taken it.
    if warm.remove(&kept) {
        kept.supervisor.close().await;
    }
}
