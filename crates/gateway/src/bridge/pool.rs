//! The conversations that stateless clients use with one server.
//!
//! A modern server needs one for all. A legacy server is told in its handshake what its client can do, so there is a
//! group of conversations for each set of capabilities. A call whose server may ask its client something has one of
//! them alone while it runs, because only then is it certain whom the server asks; unless there is one client only.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use super::park::Parked;
use super::subscribe::Hub;
use crate::call::{Call, Outlet};
use crate::upstream::handshake::Opening;
use crate::upstream::{Failure, Link, Server};
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
    modern: Mutex<Option<Arc<Link>>>,
    groups: Mutex<VecDeque<(Bytes, Group)>>,
}

/// A conversation, and the right to have it alone.
struct Member {
    link: Arc<Link>,
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
    pub async fn link(&self, server: &Server, call: &Call) -> Result<Arc<Link>, Failure> {
        if server.only_speaks() != Some(Era::Legacy) {
            let mut modern = self.modern.lock().await;
            if let Some(link) = modern.as_ref().filter(|link| link.is_alive()) {
                return Ok(Arc::clone(link));
            }
            if self.group(call).await.lock().await.iter().all(|member| !member.link.is_alive()) {
                let link = self.open(server, call, Era::Modern).await?;
                if link.era() == Era::Modern {
                    *modern = Some(Arc::clone(&link));
                } else {
                    self.group(call).await.lock().await.push(member(&link));
                }
                return Ok(link);
            }
        }
        let group = self.group(call).await;
        let mut members = group.lock().await;
        members.retain(|member| member.link.is_alive());
        if members.is_empty() {
            members.push(member(&self.open(server, call, Era::Legacy).await?));
        }
        members.first().map(|member| Arc::clone(&member.link)).ok_or_else(|| Failure::Lost("it is gone".to_owned()))
    }

    /// A conversation in which this call is the only one that the server can ask about.
    pub async fn alone(&self, server: &Server, call: &Call) -> Result<(Arc<Link>, Turn), Failure> {
        if self.hub.one_client.get().is_some() {
            return Ok((self.link(server, call).await?, None));
        }
        let group = self.group(call).await;
        let mut members = group.lock().await;
        members.retain(|member| member.link.is_alive());
        for member in members.iter() {
            if let Ok(turn) = Arc::clone(&member.turn).try_acquire_owned() {
                return Ok((Arc::clone(&member.link), Some(turn)));
            }
        }
        let member = member(&self.open(server, call, Era::Legacy).await?);
        let (link, turn) = (Arc::clone(&member.link), Arc::clone(&member.turn).try_acquire_owned().ok());
        if members.len() < KEPT {
            members.push(member);
        }
        Ok((link, turn))
    }

    async fn open(&self, server: &Server, call: &Call, prefer: Era) -> Result<Arc<Link>, Failure> {
        let general: Arc<dyn Outlet> = Arc::clone(&self.hub) as Arc<dyn Outlet>;
        let link = server.open(&Opening { prefer, ..opening(call) }, &general).await?;
        link.initialized().await;
        Ok(link)
    }

    /// The conversations for the capabilities of a call.
    async fn group(&self, call: &Call) -> Group {
        let capabilities = capabilities(call);
        let mut groups = self.groups.lock().await;
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
        let mut links: Vec<Arc<Link>> = self.modern.lock().await.take().into_iter().collect();
        for (_, group) in self.groups.lock().await.drain(..) {
            links.extend(group.lock().await.drain(..).map(|member| member.link));
        }
        for link in links {
            link.close().await;
        }
    }
}

fn member(link: &Arc<Link>) -> Member {
    Member { link: Arc::clone(link), turn: Arc::new(Semaphore::new(1)) }
}

fn capabilities(call: &Call) -> &[u8] {
    call.request.meta_json(CLIENT_CAPABILITIES).unwrap_or(b"{}")
}

/// How a conversation for stateless clients begins.
fn opening(call: &Call) -> Opening {
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
