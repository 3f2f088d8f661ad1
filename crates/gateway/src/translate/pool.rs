//! The conversations that stateless clients use with one server.
//!
//! A server in a process of its own may keep what a client told it, so each client has its own, unless the server is
//! `shared`: by the secret it gives (Authorization) and by how it calls itself (`clientInfo`). Clients that say the same of
//! both cannot be told apart and share one. A remote server keeps its clients apart itself: a modern one needs one
//! conversation for all. A legacy server is told in its handshake what its client can do, so there is a group of
//! conversations for each set of capabilities. A call whose server may ask its client something has one of them alone while
//! it runs, because only then is it certain whom the server asks; unless there is one client only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::park::Parked;
use super::subscribe::Hub;
use crate::protocol::edit::{Object, quoted};
use crate::protocol::limits;
use crate::protocol::names::{CLIENT_CAPABILITIES, CLIENT_INFO, Era, LEGACY, MODERN, PROTOCOL_VERSION};
use crate::upstream::call::{Call, Outlet};
use crate::upstream::handshake::Opening;
use crate::upstream::keeper::Prepare;
use crate::upstream::{Failure, Keeper, Link, Server};

/// Clients and sets of capabilities that have conversations at a time; the one not used for longest gives way.
const GROUPS: usize = 64;
/// Conversations of one group that are kept.
const KEPT: usize = 8;

/// The conversations with one server.
#[derive(Default)]
pub struct Pool {
    /// Calls that wait for their client.
    pub parked: Parked,
    /// Who listens to what the server says by itself.
    pub hub: Arc<Hub>,
    modern: Mutex<Recent<Arc<Keeper>>>,
    groups: Mutex<Recent<Group>>,
}

/// What is kept for each of a bounded number of clients, the least recently used first.
struct Recent<T>(VecDeque<(Bytes, Instant, T)>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Clone + Kept> Recent<T> {
    /// What is kept for this client, made now if there is nothing. What nobody has used for as long as a session is kept
    /// goes; so does, where there is no room, what nobody uses now and nobody has used for longest.
    fn get(&mut self, key: &[u8], make: impl FnOnce() -> T) -> T {
        let now = Instant::now();
        let place = self.0.iter().position(|(known, ..)| known == key);
        let (key, kept) = match place.and_then(|place| self.0.remove(place)) {
            Some((key, _, kept)) => (key, kept),
            None => (Bytes::copy_from_slice(key), make()),
        };
        self.0.retain(|(_, used, kept)| now.duration_since(*used) < limits::SESSION_IDLE || kept.is_in_use());
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
trait Kept {
    fn is_in_use(&self) -> bool;
}

impl Kept for Arc<Keeper> {
    fn is_in_use(&self) -> bool {
        self.now().is_some_and(|link| link.is_in_use())
    }
}

impl Kept for Group {
    fn is_in_use(&self) -> bool {
        locked(self).iter().any(|member| member.keeper.is_in_use() || member.turn.available_permits() == 0)
    }
}

/// A conversation, and the right to have it alone.
struct Member {
    keeper: Arc<Keeper>,
    turn: Arc<Semaphore>,
}

/// The conversations for one set of capabilities.
type Group = Arc<Mutex<Vec<Member>>>;

/// The right to have a conversation alone; over when dropped.
pub type Turn = Option<OwnedSemaphorePermit>;

impl Pool {
    /// From now on all calls come from one client.
    pub fn serve_one_client(&self) {
        let _already = self.hub.one_client.set(());
    }

    /// The conversation for what every client may know.
    pub async fn link(&self, server: &Arc<Server>, call: &Call, wait: Duration) -> Result<Arc<Link>, Failure> {
        if server.only_speaks() == Some(Era::Legacy) {
            return self.first(server, call).link(wait).await;
        }
        let key = self.client(server, call);
        let keeper = locked(&self.modern).get(&key, || self.keeper(server, call, Era::Modern));
        let link = keeper.link(wait).await?;
        if link.era() == Era::Modern {
            return Ok(link);
        }
        // It turned out to speak the legacy era only: the conversation is one of this client's capabilities.
        let group = self.group(server, call);
        let mut members = locked(&group);
        if members.is_empty() {
            members.push(member(&keeper));
        }
        locked(&self.modern).0.retain(|(.., kept)| !Arc::ptr_eq(kept, &keeper));
        Ok(link)
    }

    /// The first conversation of the group that a call belongs to.
    fn first(&self, server: &Arc<Server>, call: &Call) -> Arc<Keeper> {
        let group = self.group(server, call);
        let mut members = locked(&group);
        if members.is_empty() {
            members.push(member(&self.keeper(server, call, Era::Legacy)));
        }
        Arc::clone(&members[0].keeper)
    }

    /// A conversation in which this call is the only one that the server can ask about.
    pub async fn alone(&self, server: &Arc<Server>, call: &Call) -> Result<(Arc<Link>, Turn), Failure> {
        if self.hub.one_client.get().is_some() {
            return Ok((self.link(server, call, server.reconnect.patience()).await?, None));
        }
        let (keeper, turn) = self.turn(server, call);
        Ok((keeper.link(server.reconnect.patience()).await?, turn))
    }

    fn turn(&self, server: &Arc<Server>, call: &Call) -> (Arc<Keeper>, Turn) {
        let group = self.group(server, call);
        let mut members = locked(&group);
        for member in members.iter() {
            if let Ok(turn) = Arc::clone(&member.turn).try_acquire_owned() {
                return (Arc::clone(&member.keeper), Some(turn));
            }
        }
        let member = member(&self.keeper(server, call, Era::Legacy));
        let (keeper, turn) = (Arc::clone(&member.keeper), Arc::clone(&member.turn).try_acquire_owned().ok());
        if members.len() < KEPT {
            members.push(member);
        }
        (keeper, turn)
    }

    fn keeper(&self, server: &Arc<Server>, call: &Call, prefer: Era) -> Arc<Keeper> {
        let general: Arc<dyn Outlet> = Arc::clone(&self.hub) as Arc<dyn Outlet>;
        let prepare: Prepare = Box::new(|link| Box::pin(async move { link.initialized().await }));
        Keeper::new(server, Opening { prefer, ..opening(call) }, general, prepare)
    }

    /// The conversations for the client of a call, or for what it can do.
    fn group(&self, server: &Server, call: &Call) -> Group {
        let key = [&self.client(server, call), capabilities(call)].concat();
        locked(&self.groups).get(&key, Group::default)
    }

    /// Who the client of a call is to a server that may keep what it is told; nobody in particular to others.
    fn client(&self, server: &Server, call: &Call) -> Vec<u8> {
        if server.shared || server.url().is_some() || self.hub.one_client.get().is_some() {
            return Vec::new();
        }
        let info = call.request.meta_json(CLIENT_INFO).unwrap_or_default();
        [call.client.as_bytes(), b"\n", info, b"\n"].concat()
    }

    /// Ends the conversations that nobody uses; the next call begins them again. A client's first process may be idle for as
    /// long as a session; conversations beside the first, which a burst of calls needed, for as long as a child is kept warm.
    pub fn give_back(&self, server: &Server, idle: Duration) {
        let is_own = server.is_child() && !server.shared;
        let first = if is_own { idle } else { Duration::MAX };
        let give_back = |keeper: &Keeper, limit| keeper.now().is_some_and(|link| link.give_way(limit));
        for (.., keeper) in &locked(&self.modern).0 {
            give_back(keeper, first);
        }
        for (.., group) in &locked(&self.groups).0 {
            for (place, member) in locked(group).iter().enumerate() {
                give_back(&member.keeper, if place == 0 { first } else { server.life.keep_warm });
            }
        }
    }

    /// Ends all of them.
    pub async fn close(&self) {
        self.parked.close();
        let mut keepers: Vec<Arc<Keeper>> = locked(&self.modern).all().collect();
        for group in locked(&self.groups).all() {
            keepers.extend(locked(&group).drain(..).map(|member| member.keeper));
        }
        for keeper in keepers {
            keeper.close().await;
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn member(keeper: &Arc<Keeper>) -> Member {
    Member { keeper: Arc::clone(keeper), turn: Arc::new(Semaphore::new(1)) }
}

fn capabilities(call: &Call) -> &[u8] {
    call.request.meta_json(CLIENT_CAPABILITIES).unwrap_or(b"{}")
}

/// How a conversation for stateless clients begins.
pub fn opening(call: &Call) -> Opening {
    let info = call.request.meta_json(CLIENT_INFO).map_or_else(own_info, <[u8]>::to_vec);
    let mut initialize = Object::default();
    initialize.set("protocolVersion", quoted(LEGACY[0]));
    initialize.set("capabilities", capabilities(call));
    initialize.set("clientInfo", info.clone());
    let mut meta = Object::default();
    meta.set(PROTOCOL_VERSION, quoted(MODERN));
    meta.set(CLIENT_CAPABILITIES, capabilities(call));
    meta.set(CLIENT_INFO, info);
    Opening { prefer: Era::Modern, initialize: initialize.json().into(), meta: meta.json().into() }
}

/// Who we are, where nobody else is named.
pub fn own_info() -> Vec<u8> {
    format!(r#"{{"name":"seawall","version":"{}"}}"#, env!("CARGO_PKG_VERSION")).into_bytes()
}
