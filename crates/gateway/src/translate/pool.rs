//! The conversations that stateless clients use with one server.
//!
//! A server in a process of its own may keep what a client told it, so each client has its own,
//! unless the server is `shared`: by the secret it gives (Authorization) and by how it calls itself
//! (`clientInfo`). Clients that say the same of both cannot be told apart and share one. A remote
//! server keeps its clients apart itself: a modern one needs one conversation for all. A legacy
//! server is told in its handshake what its client can do, so there is a group of conversations for
//! each set of capabilities. A call whose server may ask its client something has one of them alone
//! while it runs, because only then is it certain whom the server asks; unless there is one client
//! only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::input_required::ParkedCalls;
use super::subscribe::SubscriptionHub;
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::limits;
use crate::protocol::names::{
    CLIENT_CAPABILITIES, CLIENT_INFO, Era, LEGACY, MODERN, PROTOCOL_VERSION,
};
use crate::upstream::call::{ClientSink, GatewayCall};
use crate::upstream::handshake::HandshakeParams;
use crate::upstream::supervisor::PrepareConnection;
use crate::upstream::{Connection, ConnectionSupervisor, Server, UpstreamFailure};

/// Clients and sets of capabilities that have conversations at a time; the one not used for longest
/// gives way.
const GROUPS: usize = 64;
/// Conversations of one group that are kept.
const KEPT: usize = 8;

/// The conversations with one server.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    /// Calls that wait for their client.
    pub parked: ParkedCalls,
    /// Who listens to what the server says by itself.
    pub hub: Arc<SubscriptionHub>,
    modern: Mutex<RecentClients<Arc<ConnectionSupervisor>>>,
    groups: Mutex<RecentClients<CapabilityGroup>>,
}

/// What is kept for each of a bounded number of clients, the least recently used first.
struct RecentClients<T>(VecDeque<(Bytes, Instant, T)>);

impl<T> Default for RecentClients<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Clone + InUse> RecentClients<T> {
    /// What is kept for this client, made now if there is nothing. What nobody has used for as long
    /// as a session is kept goes; so does, where there is no room, what nobody uses now and nobody
    /// has used for longest.
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
            self.0.remove(idle.unwrap_or_default());
        }
        self.0.push_back((key, now, kept.clone()));
        kept
    }

    fn all(&mut self) -> impl Iterator<Item = T> + use<'_, T> {
        self.0.drain(..).map(|(.., kept)| kept)
    }
}

/// Something that is not given up while it is used.
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

/// A conversation, and the right to have it alone.
struct PooledConnection {
    supervisor: Arc<ConnectionSupervisor>,
    turn: Arc<Semaphore>,
}

/// The conversations for one set of capabilities.
type CapabilityGroup = Arc<Mutex<Vec<PooledConnection>>>;

/// The right to have a conversation alone; over when dropped.
pub(crate) type PoolTurn = Option<OwnedSemaphorePermit>;

impl ConnectionPool {
    /// From now on all calls come from one client.
    pub(crate) fn serve_one_client(&self) {
        let _already = self.hub.one_client.set(());
    }

    /// The conversation for what every client may know.
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
        // It turned out to speak the legacy era only: the conversation is one of this client's
        // capabilities.
        let group = self.group(server, call);
        let mut members = locked(&group);
        if members.is_empty() {
            members.push(member(&supervisor));
        }
        locked(&self.modern).0.retain(|(.., kept)| !Arc::ptr_eq(kept, &supervisor));
        Ok(connection)
    }

    /// The first conversation of the group that a call belongs to.
    fn first(&self, server: &Arc<Server>, call: &GatewayCall) -> Arc<ConnectionSupervisor> {
        let group = self.group(server, call);
        let mut members = locked(&group);
        if members.is_empty() {
            members.push(member(&self.supervisor(server, call, Era::Legacy)));
        }
        Arc::clone(&members[0].supervisor)
    }

    /// A conversation in which this call is the only one that the server can ask about.
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

    /// The conversations for the client of a call, or for what it can do.
    fn group(&self, server: &Server, call: &GatewayCall) -> CapabilityGroup {
        let key = [&self.client(server, call), capabilities(call)].concat();
        locked(&self.groups).get(&key, CapabilityGroup::default)
    }

    /// Who the client of a call is to a server that may keep what it is told; nobody in particular
    /// to others.
    fn client(&self, server: &Server, call: &GatewayCall) -> Vec<u8> {
        if server.shared || server.url().is_some() || self.hub.one_client.get().is_some() {
            return Vec::new();
        }
        let info = call.request.meta_json(CLIENT_INFO).unwrap_or_default();
        [call.client.as_bytes(), b"\n", info, b"\n"].concat()
    }

    /// Ends the conversations that nobody uses; the next call begins them again. A client's first
    /// process may be idle for as long as a session; conversations beside the first, which a burst
    /// of calls needed, for as long as a child is kept warm.
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

    /// Ends all of them.
    pub(crate) async fn close(&self) {
        self.parked.close();
        let mut supervisors: Vec<Arc<ConnectionSupervisor>> = locked(&self.modern).all().collect();
        for group in locked(&self.groups).all() {
            supervisors.extend(locked(&group).drain(..).map(|member| member.supervisor));
        }
        for supervisor in supervisors {
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

/// How a conversation for stateless clients begins.
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
    }
}

/// Who we are, where nobody else is named.
pub(crate) fn own_info() -> Vec<u8> {
    format!(r#"{{"name":"seawall","version":"{}"}}"#, env!("CARGO_PKG_VERSION")).into_bytes()
}
