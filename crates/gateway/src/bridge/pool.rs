//! The conversations that stateless clients use with one server.
//!
//! A modern server needs one for all. A legacy server is told in its handshake what its client can do, so there is a
//! group of conversations for each set of capabilities. A call whose server may ask its client something has one of
//! them alone while it runs, because only then is it certain whom the server asks; unless there is one client only.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::park::Parked;
use super::subscribe::Hub;
use crate::call::{Call, Outlet};
use crate::upstream::handshake::Opening;
use crate::upstream::keeper::Prepare;
use crate::upstream::{Failure, Keeper, Link, Server};
use crate::wire::edit::{Object, quoted};
use crate::wire::names::{CLIENT_CAPABILITIES, CLIENT_INFO, Era, LEGACY, MODERN, PROTOCOL_VERSION};

/// Sets of capabilities that have conversations at a time; the oldest gives way.
const GROUPS: usize = 16;
/// Conversations of one group that are kept.
const KEPT: usize = 8;

/// The conversations with one server.
#[derive(Default)]
pub struct Pool {
    /// Calls that wait for their client.
    pub parked: Parked,
    /// Who listens to what the server says by itself.
    pub hub: Arc<Hub>,
    modern: Mutex<Option<Arc<Keeper>>>,
    groups: Mutex<VecDeque<(Bytes, Group)>>,
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
        let keeper = Arc::clone(locked(&self.modern).get_or_insert_with(|| self.keeper(server, call, Era::Modern)));
        let link = keeper.link(wait).await?;
        if link.era() == Era::Modern {
            return Ok(link);
        }
        // It turned out to speak the legacy era only: the conversation is one of this client's capabilities.
        let group = self.group(call);
        let mut members = locked(&group);
        if members.is_empty() {
            members.push(member(&keeper));
        }
        locked(&self.modern).take_if(|kept| Arc::ptr_eq(kept, &keeper));
        Ok(link)
    }

    /// The first conversation of the group that a call belongs to.
    fn first(&self, server: &Arc<Server>, call: &Call) -> Arc<Keeper> {
        let group = self.group(call);
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
        let group = self.group(call);
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

    /// The conversations for the capabilities of a call.
    fn group(&self, call: &Call) -> Group {
        let capabilities = capabilities(call);
        let mut groups = locked(&self.groups);
        if let Some((_, group)) = groups.iter().find(|(key, _)| key == capabilities) {
            return Arc::clone(group);
        }
        if groups.len() >= GROUPS {
            groups.pop_front();
        }
        let group = Group::default();
        groups.push_back((Bytes::copy_from_slice(capabilities), Arc::clone(&group)));
        group
    }

    /// Ends all of them.
    pub async fn close(&self) {
        self.parked.close();
        let mut keepers: Vec<Arc<Keeper>> = locked(&self.modern).take().into_iter().collect();
        for (_, group) in locked(&self.groups).drain(..) {
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
