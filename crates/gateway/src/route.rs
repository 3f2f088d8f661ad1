//! What an endpoint offers: its servers, their policies, and what they share between clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::client::client_limits::ClientLimits;
use crate::client::detached::DetachedCalls;
use crate::client::pending::PendingAnswers;
use crate::client::results::ResultStore;
use crate::client::server_set::ServerSet;
use crate::policy::registry::PolicyRegistry;
use crate::protocol::limits;
use crate::runtime::lifecycle::Lifecycle;
use crate::store::catalog_cache::CatalogCache;
use crate::store::embedded::QueueStore;
use crate::store::journal::Journal;
use crate::translate::pool::ConnectionPool;
use crate::upstream::Server;

/// The servers that an endpoint offers.
pub(crate) struct Route {
    /// Its servers.
    pub set: Arc<ServerSet>,
    /// Whether names have their server before them.
    pub(crate) is_prefixed: bool,
    /// How the gateway ends.
    pub lifecycle: Arc<Lifecycle>,
    /// What the servers said last time.
    pub catalog_cache: Arc<CatalogCache>,
    /// How tools are treated.
    pub policies: Arc<PolicyRegistry>,
    /// The places for calls that run on without their clients.
    pub detached: DetachedCalls,
    /// What is known of how long clients wait.
    pub client_limits: Arc<ClientLimits>,
    /// Results that were too large for their clients.
    pub results: Arc<ResultStore>,
    /// Answers that wait for their clients to read them.
    pub pending: Arc<PendingAnswers>,
    /// Writes that wait for their server.
    pub store: Option<QueueStore>,
    /// Writes under way, for the process after this one.
    pub journal: Arc<Journal>,
    /// All servers of the gateway, also those that are not on this route.
    pub(crate) everywhere: Arc<[Arc<Server>]>,
    /// The conversations that stateless clients use, per server.
    pub(crate) pools: Arc<HashMap<String, ConnectionPool>>,
    /// Which server a resource or a task belongs to, as far as it was seen.
    pub(crate) owners: Mutex<HashMap<String, String>>,
}

impl Route {
    /// The server, if there is one only and its names stay as they are: then everything passes.
    pub(crate) fn single(&self) -> Option<&Arc<Server>> {
        match self.set.servers.as_slice() {
            [server] if !self.is_prefixed => Some(server),
            _ => None,
        }
    }

    /// A server of the gateway, on this route or not.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.everywhere.iter().find(|server| server.name == name)
    }

    /// The conversations that stateless clients use.
    pub(crate) fn pool(&self, server: &Server) -> Option<&ConnectionPool> {
        self.pools.get(&server.name)
    }

    /// Notes whose something is.
    pub(crate) fn own(&self, what: String, server: &str) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() < limits::LISTED * 8 || owners.contains_key(&what) {
            owners.insert(what, server.to_owned());
        }
    }

    /// Whose something is, if that was seen.
    pub(crate) fn owner(&self, what: &str) -> Option<&Arc<Server>> {
        let name = self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(what).cloned()?;
        self.set.servers.iter().find(|server| server.name == name)
    }

    /// Ends the conversations that stateless clients do not use any more.
    pub(crate) fn give_back(&self, idle: Duration) {
        for server in &self.set.servers {
            if let Some(pool) = self.pool(server) {
                pool.give_back(server, idle);
            }
        }
    }

    /// Ends what no client owns.
    pub(crate) async fn close(&self) {
        self.set.close().await;
        for pool in self.pools.values() {
            pool.close().await;
        }
    }
}
