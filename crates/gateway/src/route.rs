//! Decides which servers one endpoint offers, and holds the policies and state that its clients
//! share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::authz::AccessControl;
use crate::client::client_limits::ClientLimits;
use crate::client::detached::DetachedCalls;
use crate::client::pending::PendingAnswers;
use crate::client::results::ResultStore;
use crate::client::server_set::ServerSet;
use crate::fleet::Fleet;
use crate::policy::registry::PolicyRegistry;
use crate::protocol::limits;
use crate::queue::QueueStore;
use crate::runtime::lifecycle::Lifecycle;
use crate::store::audit::AuditLog;
use crate::store::catalog_cache::CatalogCache;
use crate::store::journal::Journal;
use crate::trace::Tracer;
use crate::translate::pool::ConnectionPool;
use crate::upstream::Server;

/// The servers behind one endpoint, their policies, and the state shared between clients.
pub(crate) struct Route {
    /// The servers of this route.
    pub set: Arc<ServerSet>,
    /// Whether public names carry their server's name as a prefix.
    pub(crate) is_prefixed: bool,
    /// Shutdown of the gateway: draining, then closing.
    pub lifecycle: Arc<Lifecycle>,
    /// The last handshake and lists of each server.
    pub catalog_cache: Arc<CatalogCache>,
    /// Who may use which server.
    pub access: Arc<AccessControl>,
    /// The policy of every tool.
    pub policies: Arc<PolicyRegistry>,
    /// Bounds the detached calls: calls that run on although their clients have left.
    pub detached: DetachedCalls,
    /// How long each client waits for an answer, as far as the gateway has learned it.
    pub client_limits: Arc<ClientLimits>,
    /// Results that were too large for their clients.
    pub results: Arc<ResultStore>,
    /// Answers that wait for their clients to read them.
    pub pending: Arc<PendingAnswers>,
    /// Queued writes that wait for their server; `None` without a durable queue.
    pub store: Option<QueueStore>,
    /// The other replicas; `None` without Redis.
    pub fleet: Option<Arc<Fleet>>,
    /// One line for each call, where the operator wants it.
    pub audit: Arc<AuditLog>,
    /// Spans for a collector, where the operator wants them.
    pub tracer: Arc<Tracer>,
    /// The write journal: writes in flight, noted for the process after this one.
    pub journal: Arc<Journal>,
    /// The connections that modern (stateless) clients use, per server.
    pub(crate) pools: Arc<HashMap<String, Arc<ConnectionPool>>>,
    /// Which server a resource or a task belongs to, as far as the gateway has seen it.
    pub(crate) owners: Arc<Mutex<HashMap<String, String>>>,
}

impl Route {
    /// The server, if the route has only one and does not prefix its names: then every call passes
    /// through unchanged.
    pub(crate) fn single(&self) -> Option<&Arc<Server>> {
        match self.set.servers.as_slice() {
            [server] if !self.is_prefixed => Some(server),
            _ => None,
        }
    }

    /// Finds a server of the gateway by its name, on this route or not: a fallback may name a
    /// server of another route.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.set.known(name)
    }

    /// The connections that modern (stateless) clients use for this server.
    pub(crate) fn pool(&self, server: &Server) -> Option<&ConnectionPool> {
        self.pools.get(&server.name).map(Arc::as_ref)
    }

    /// Notes that `server` owns a resource or a task.
    pub(crate) fn own(&self, what: String, server: &str) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        // Servers choose resource and task ids, so the map is bounded; once full, it takes no new
        // ids.
        if owners.len() < limits::LISTED * 8 || owners.contains_key(&what) {
            owners.insert(what, server.to_owned());
        }
    }

    /// The server that owns a resource or a task, if the gateway has seen it.
    pub(crate) fn owner(&self, what: &str) -> Option<&Arc<Server>> {
        let name = self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(what).cloned()?;
        self.set.servers.iter().find(|server| server.name == name)
    }

    /// Closes the pooled connections that modern clients have not used for `idle`.
    pub(crate) fn give_back(&self, idle: Duration) {
        for server in &self.set.servers {
            if let Some(pool) = self.pool(server) {
                pool.give_back(server, idle);
            }
        }
    }

    /// Closes the connections that no client session owns: warm, shared and pooled ones.
    pub(crate) async fn close(&self) {
        self.set.close().await;
        for pool in self.pools.values() {
            pool.close().await;
        }
    }
}
