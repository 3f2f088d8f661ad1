//! Decides which connection to a server a stateless (modern) client uses.
//!
//! A child process may keep state of its client, so each client has its own, unless the server is
//! `shared`. Clients are told apart by their secret (Authorization) and their name (`clientInfo`);
//! clients with the same secret and name share a connection. A remote server keeps its clients
//! apart itself, so a modern one needs one connection for all. A legacy server learns the client's
//! capabilities in the handshake, so there is a group of connections for each set of capabilities.
//! A call whose server may ask its client something has a connection of the group to itself while
//! it runs: only then is it certain which client the server asks. With a single client this is not
//! needed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::input_required::ParkedCalls;
use super::subscribe::SubscriptionHub;
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::{
    CLIENT_CAPABILITIES, CLIENT_INFO, Era, LEGACY, MODERN, PROTOCOL_VERSION,
};
use crate::protocol::{hash, limits};
use crate::upstream::call::{ClientSink, GatewayCall};
use crate::upstream::handshake::{ClientHeaders, HandshakeParams};
use crate::upstream::supervisor::PrepareConnection;
use crate::upstream::{Connection, ConnectionSupervisor, Server, UpstreamFailure};

/// How many clients and sets of capabilities have connections at a time; the least recently used
/// gives way.
const GROUPS: usize = 64;
/// How many connections of one group are kept.
const KEPT: usize = 8;

/// The connections to one server.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    /// Parked calls: they wait for their client.
    pub parked: ParkedCalls,
    /// Subscribers to the server's own notifications.
    pub hub: Arc<SubscriptionHub>,
    modern: Mutex<RecentClients<Arc<ConnectionSupervisor>>>,
    groups: Mutex<RecentClients<CapabilityGroup>>,
}

/// Values for a bounded number of clients, the least recently used first.
struct RecentClients<T>(VecDeque<(Bytes, Instant, T)>);

impl<T> Default for RecentClients<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Clone + InUse> RecentClients<T> {
    /// The value for this client, made if there is none. Values that were idle for as long as a
    /// session is kept are removed; where there is no room, so is the least recently used value not
    /// in use.
    fn get(&mut self, key: &[u8], make: impl FnOnce() -> T) -> T {
        let now = Instant::now();
        let place = self.0.iter().position(|(known, ..)| known == key);
        let (key, kept) = match place.and_then(|place| self.0.remove(place)) {
            Some((key, _, kept)) => (key, kept),
            None => (Bytes::copy_from_slice(key), make()),
        };
        self.0.retain(|(_, used, kept)| {
            now.duration_since(*used) < limits::SESSION_IDLE || kept.is_in_use()
        });
        if self.0.len() >= GROUPS {
            let idle = self.0.iter().position(|(.., kept)| !kept.is_in_use());
            // If all are in use the oldest goes anyway: the bound holds. Its calls keep their own
            // reference.
            self.0.remove(idle.unwrap_or_default());
        }
        self.0.push_back((key, now, kept.clone()));
        kept
    }

    fn all(&mut self) -> impl Iterator<Item = T> + use<'_, T> {
        self.0.drain(..).map(|(.., kept)| kept)
    }
}

/// A value that is not removed while it is in use.
trait InUse {
    fn is_in_use(&self) -> bool;
}

impl InUse for Arc<ConnectionSupervisor> {
    fn is_in_use(&self) -> bool {
        self.now().is_some_and(|connection| connection.is_in_use())
    }
}

impl InUse for CapabilityGroup {
    fn is_in_use(&self) -> bool {
        locked(self)
            .iter()
            .any(|member| member.supervisor.is_in_use() || member.turn.available_permits() == 0)
    }
}

/// A connection, and the permit to use it exclusively.
struct PooledConnection {
    supervisor: Arc<ConnectionSupervisor>,
    turn: Arc<Semaphore>,
}

/// The connections for one client and set of capabilities.
type CapabilityGroup = Arc<Mutex<Vec<PooledConnection>>>;

/// The exclusive use of a connection; ends when dropped.
pub(crate) type PoolTurn = Option<OwnedSemaphorePermit>;

impl ConnectionPool {
    /// From now on all calls come from one client.
    pub(crate) fn serve_one_client(&self) {
        let _already = self.hub.one_client.set(());
    }

    /// The connection for calls about which the server asks no questions.
    pub(crate) async fn connection(
        &self,
        server: &Arc<Server>,
        call: &GatewayCall,
        wait: Duration,
    ) -> Result<Arc<Connection>, UpstreamFailure> {
        if server.only_speaks() == Some(Era::Legacy) {
            return self.first(server, call).connection(wait).await;
        }
        let key = self.client(server, call);
        let supervisor =
            locked(&self.modern).get(&key, || self.supervisor(server, call, Era::Modern));
        let connection = supervisor.connection(wait).await?;
        if connection.era() == Era::Modern {
            return Ok(connection);
        }
        // The server speaks only the legacy era, so this connection carries the client's
        // capabilities: it moves to their group.
        let group = self.group(server, call);
        let mut members = locked(&group);
        if members.is_empty() {
            members.push(member(&supervisor));
        }
        locked(&self.modern).0.retain(|(.., kept)| !Arc::ptr_eq(kept, &supervisor));
        Ok(connection)
    }

    /// The first connection of the group that a call belongs to.
    fn first(&self, server: &Arc<Server>, call: &GatewayCall) -> Arc<ConnectionSupervisor> {
        let group = self.group(server, call);
        let mut members = locked(&group);
        if members.is_empty() {
            members.push(member(&self.supervisor(server, call, Era::Legacy)));
        }
        Arc::clone(&members[0].supervisor)
    }

    /// A connection on which this is the only call that the server can ask about.
    pub(crate) async fn alone(
        &self,
        server: &Arc<Server>,
        call: &GatewayCall,
    ) -> Result<(Arc<Connection>, PoolTurn), UpstreamFailure> {
        if self.hub.one_client.get().is_some() {
            return Ok((self.connection(server, call, server.reconnect.patience()).await?, None));
        }
        let (supervisor, turn) = self.turn(server, call);
        Ok((supervisor.connection(server.reconnect.patience()).await?, turn))
    }

    fn turn(
        &self,
        server: &Arc<Server>,
        call: &GatewayCall,
    ) -> (Arc<ConnectionSupervisor>, PoolTurn) {
        let group = self.group(server, call);
        let mut members = locked(&group);
        for member in members.iter() {
            if let Ok(turn) = Arc::clone(&member.turn).try_acquire_owned() {
                return (Arc::clone(&member.supervisor), Some(turn));
            }
        }
        // All connections of the group are busy: a further one is opened. Beyond `KEPT` it is not
        // kept for later calls.
        let member = member(&self.supervisor(server, call, Era::Legacy));
        let (supervisor, turn) =
            (Arc::clone(&member.supervisor), Arc::clone(&member.turn).try_acquire_owned().ok());
        if members.len() < KEPT {
            members.push(member);
        }
        (supervisor, turn)
    }

    fn supervisor(
        &self,
        server: &Arc<Server>,
        call: &GatewayCall,
        prefer: Era,
    ) -> Arc<ConnectionSupervisor> {
        let general: Arc<dyn ClientSink> = Arc::clone(&self.hub) as Arc<dyn ClientSink>;
        let prepare: PrepareConnection =
            Box::new(|connection| Box::pin(async move { connection.initialized().await }));
        ConnectionSupervisor::new(
            server,
            HandshakeParams { prefer, ..handshake(call) },
            general,
            prepare,
        )
    }

    /// The group of connections for the client and capabilities of a call.
    fn group(&self, server: &Server, call: &GatewayCall) -> CapabilityGroup {
        let key = [&self.client(server, call), capabilities(call)].concat();
        locked(&self.groups).get(&key, CapabilityGroup::default)
    }

    /// The key of a call's client, for servers that may keep state per client; empty for all
    /// others.
    fn client(&self, server: &Server, call: &GatewayCall) -> Vec<u8> {
        let own = server.personal(&call.origin.headers);
        if !own.is_empty() {
            // A connection carries the headers that it was opened with.
            return hash::key(&[own, vec![call.client.as_bytes()]].concat()).into_bytes();
        }
        if server.shared || server.url().is_some() || self.hub.one_client.get().is_some() {
            return Vec::new();
        }
        let info = call.request.meta_json(CLIENT_INFO).unwrap_or_default();
        [call.client.as_bytes(), b"\n", info, b"\n"].concat()
    }

    /// Closes idle connections; the next call opens them again. A client's first connection may be
    /// idle for as long as a session; further ones, opened for a burst of calls, for as long as a
    /// child is kept warm.
    pub(crate) fn give_back(&self, server: &Server, idle: Duration) {
        let is_own = server.is_child() && !server.shared;
        let first = if is_own { idle } else { Duration::MAX };
        let give_back = |supervisor: &ConnectionSupervisor, limit| {
            supervisor.now().is_some_and(|connection| connection.give_way(limit))
        };
        for (.., supervisor) in &locked(&self.modern).0 {
            give_back(supervisor, first);
        }
        for (.., group) in &locked(&self.groups).0 {
            for (place, member) in locked(group).iter().enumerate() {
                give_back(
                    &member.supervisor,
                    if place == 0 { first } else { server.life.keep_warm },
                );
            }
        }
    }

    /// Takes all connections, to be closed.
    pub(crate) fn take_all(&self) -> Vec<Arc<ConnectionSupervisor>> {
        let mut supervisors: Vec<Arc<ConnectionSupervisor>> = locked(&self.modern).all().collect();
        for group in locked(&self.groups).all() {
            supervisors.extend(locked(&group).drain(..).map(|member| member.supervisor));
        }
        supervisors
    }

    /// Closes all connections and cancels all parked calls.
    pub(crate) async fn close(&self) {
        self.parked.close();
        for supervisor in self.take_all() {
            supervisor.close().await;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn member(supervisor: &Arc<ConnectionSupervisor>) -> PooledConnection {
    PooledConnection { supervisor: Arc::clone(supervisor), turn: Arc::new(Semaphore::new(1)) }
}

fn capabilities(call: &GatewayCall) -> &[u8] {
    call.request.meta_json(CLIENT_CAPABILITIES).unwrap_or(b"{}")
}

/// The handshake parameters of a stateless client's connection.
pub(crate) fn handshake(call: &GatewayCall) -> HandshakeParams {
    let info = call.request.meta_json(CLIENT_INFO).map_or_else(own_info, <[u8]>::to_vec);
    let mut initialize = JsonObject::default();
    initialize.set("protocolVersion", quoted(LEGACY[0]));
    initialize.set("capabilities", capabilities(call));
    initialize.set("clientInfo", info.clone());
    let mut meta = JsonObject::default();
    meta.set(PROTOCOL_VERSION, quoted(MODERN));
    meta.set(CLIENT_CAPABILITIES, capabilities(call));
    meta.set(CLIENT_INFO, info);
    HandshakeParams {
        prefer: Era::Modern,
        initialize: initialize.json().into(),
        meta: meta.json().into(),
        headers: ClientHeaders::of(&call.origin.headers),
    }
}

/// The gateway's own client info, used where no other is given.
pub(crate) fn own_info() -> Vec<u8> {
    format!(r#"{{"name":"seawall","version":"{}"}}"#, env!("CARGO_PKG_VERSION")).into_bytes()
}
