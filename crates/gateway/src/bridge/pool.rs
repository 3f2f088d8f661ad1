//! The conversations that stateless clients use: one for all, and on legacy servers one alone for each call whose
//! server may ask its client something, because only then is it certain whom it asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::park::Parked;
use super::subscribe::Hub;
use crate::call::{Call, Outlet};
use crate::upstream::handshake::Opening;
use crate::upstream::{Failure, Link, Server};
use crate::wire::edit::{Object, quoted};
use crate::wire::names::{CLIENT_CAPABILITIES, CLIENT_INFO, Era, LEGACY, MODERN, PROTOCOL_VERSION};

/// Conversations kept for the next call that needs one alone.
const IDLE: usize = 8;

/// The conversations with one server.
#[derive(Default)]
pub struct Pool {
    /// Calls that wait for their client.
    pub parked: Parked,
    /// Who listens to what the server says by itself.
    pub hub: Arc<Hub>,
    common: tokio::sync::Mutex<Option<Arc<Link>>>,
    idle: Mutex<HashMap<Bytes, Vec<Arc<Link>>>>,
}

impl Pool {
    fn idle(&self) -> MutexGuard<'_, HashMap<Bytes, Vec<Arc<Link>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn general(&self) -> Arc<dyn Outlet> {
        Arc::clone(&self.hub) as Arc<dyn Outlet>
    }

    /// The conversation for all.
    pub async fn link(&self, server: &Server, call: &Call) -> Result<Arc<Link>, Failure> {
        let mut common = self.common.lock().await;
        if let Some(link) = common.as_ref().filter(|link| link.is_alive()) {
            return Ok(Arc::clone(link));
        }
        let link = server.open(&opening(call, b"{}"), &self.general()).await?;
        link.initialized().await;
        *common = Some(Arc::clone(&link));
        Ok(link)
    }

    /// A conversation for one call alone, with the capabilities of its client, under which it is given back.
    pub async fn take(&self, server: &Server, call: &Call) -> Result<(Arc<Link>, Bytes), Failure> {
        let capabilities = Bytes::copy_from_slice(call.request.meta_json(CLIENT_CAPABILITIES).unwrap_or(b"{}"));
        let kept = self.idle().get_mut(&capabilities).and_then(Vec::pop).filter(|link| link.is_alive());
        let link = match kept {
            Some(link) => link,
            None => {
                let opening = Opening { prefer: Era::Legacy, ..opening(call, &capabilities) };
                let link = server.open(&opening, &self.general()).await?;
                link.initialized().await;
                link
            }
        };
        Ok((link, capabilities))
    }

    /// Takes a conversation back whose call is over.
    pub fn give(&self, link: Arc<Link>, capabilities: Bytes) {
        let mut idle = self.idle();
        let count: usize = idle.values().map(Vec::len).sum();
        if link.is_alive() && count < IDLE {
            idle.entry(capabilities).or_default().push(link);
        } else {
            link.ended.cancel();
        }
    }

    /// Ends all of them.
    pub async fn close(&self) {
        let idle: Vec<Arc<Link>> = self.idle().drain().flat_map(|(_, links)| links).collect();
        for link in idle.into_iter().chain(self.common.lock().await.take()) {
            link.close().await;
        }
        self.parked.close();
    }
}

/// How a conversation for stateless clients begins.
fn opening(call: &Call, capabilities: &[u8]) -> Opening {
    let info = call.request.meta_json(CLIENT_INFO).map_or_else(own_info, <[u8]>::to_vec);
    let mut initialize = Object::default();
    initialize.set("protocolVersion", quoted(LEGACY[0]));
    initialize.set("capabilities", capabilities);
    initialize.set("clientInfo", info.clone());
    let mut meta = Object::default();
    meta.set(PROTOCOL_VERSION, quoted(MODERN));
    meta.set(CLIENT_CAPABILITIES, capabilities);
    meta.set(CLIENT_INFO, info);
    Opening { prefer: Era::Modern, initialize: initialize.json().into(), meta: meta.json().into() }
}

/// Who we are, where nobody else is named.
pub fn own_info() -> Vec<u8> {
    format!(r#"{{"name":"seawall","version":"{}"}}"#, env!("CARGO_PKG_VERSION")).into_bytes()
}
