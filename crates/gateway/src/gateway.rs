//! Decides how a gateway is put together, and how it goes on under another configuration: its
//! servers, the routes to them, and the state that outlives both.

mod change;
mod generation;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use tokio::sync::watch;

pub(crate) use change::ConfigChange;
pub(crate) use generation::Generation;

use crate::call::queued::{self, QueueDeliveries};
use crate::catalog::cached_lists::CatalogHooks;
use crate::client::client_limits::ClientLimits;
use crate::client::detached::DetachedCalls;
use crate::client::pending::PendingAnswers;
use crate::client::results::ResultStore;
use crate::client::server_set::SessionHooks;
use crate::client::session::warm::WarmConnections;
use crate::config::Config;
use crate::config::telemetry::TelemetryConfig;
use crate::fleet::Fleet;
use crate::queue::QueueStore;
use crate::route::Route;
use crate::runtime::http_client::SharedHttpClient;
use crate::runtime::lifecycle::Lifecycle;
use crate::store::audit::AuditLog;
use crate::store::catalog_cache::CatalogCache;
use crate::store::journal::{Journal, JournalPlace};
use crate::trace::Tracer;
use crate::upstream::Server;
use crate::upstream::processes::Processes;

/// One gateway.
pub(crate) struct Gateway {
    /// Shutdown: draining, then closing.
    pub lifecycle: Arc<Lifecycle>,
    parts: GatewayParts,
    /// The configuration that the gateway was started with.
    first: Config,
    now: RwLock<Arc<Generation>>,
    /// How many configurations came after the first.
    changes: watch::Sender<u64>,
    deliveries: Mutex<Option<QueueDeliveries>>,
    is_one_client: AtomicBool,
    /// One change of configuration at a time.
    changing: tokio::sync::Mutex<()>,
}

/// The state of a gateway that outlives its configuration.
struct GatewayParts {
    lifecycle: Arc<Lifecycle>,
    http: SharedHttpClient,
    processes: Arc<Processes>,
    catalog_cache: Arc<CatalogCache>,
    store: Option<QueueStore>,
    fleet: OnceLock<Arc<Fleet>>,
    conversations: Arc<dyn SessionHooks>,
    warm: Arc<WarmConnections>,
    journal: Arc<Journal>,
    audit: Arc<AuditLog>,
    tracer: Arc<Tracer>,
    detached: DetachedCalls,
    results: Arc<ResultStore>,
    client_limits: Arc<ClientLimits>,
    pending: Arc<PendingAnswers>,
}

impl Gateway {
    /// Builds the gateway that `config` describes; a server starts when the first client needs it.
    pub(crate) fn new(
        config: &Config,
        catalog_cache: CatalogCache,
        store: Option<QueueStore>,
    ) -> std::io::Result<Arc<Self>> {
        let catalog_cache = Arc::new(catalog_cache);
        let lifecycle: Arc<Lifecycle> = Arc::default();
        let parts = GatewayParts {
            lifecycle: Arc::clone(&lifecycle),
            http: SharedHttpClient::default(),
            processes: Arc::default(),
            conversations: Arc::new(CatalogHooks { catalog_cache: Arc::clone(&catalog_cache) }),
            catalog_cache,
            store,
            fleet: OnceLock::new(),
            warm: Arc::default(),
            journal: Arc::default(),
            audit: Arc::default(),
            tracer: Arc::default(),
            detached: DetachedCalls::default(),
            results: Arc::default(),
            client_limits: Arc::default(),
            pending: Arc::new(PendingAnswers::new(config.answer_memory)),
        };
        let first = Generation::first(config, &parts).map_err(std::io::Error::other)?;
        let gateway = Self {
            lifecycle,
            parts,
            first: config.clone(),
            now: RwLock::new(Arc::new(first)),
            changes: watch::Sender::new(0),
            deliveries: Mutex::default(),
            is_one_client: AtomicBool::new(false),
            changing: tokio::sync::Mutex::default(),
        };
        gateway.deliver(&gateway.all());
        Ok(Arc::new(gateway))
    }

    /// The configuration in force, with its servers and routes.
    pub(crate) fn now(&self) -> Arc<Generation> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes when another configuration is in force.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The route of a path: `/mcp` leads to all servers, `/mcp/<server>` to one.
    pub(crate) fn route(&self, path: &str) -> Option<Arc<Route>> {
        self.now().route(path).cloned()
    }

    /// The route to all servers.
    pub(crate) fn all(&self) -> Arc<Route> {
        Arc::clone(&self.now().all)
    }

    /// The server of this name.
    pub(crate) fn server(&self, name: &str) -> Option<Arc<Server>> {
        self.now().servers.iter().find(|server| server.name == name).cloned()
    }

    /// The durable queue, if there is one.
    pub(crate) fn store(&self) -> Option<&QueueStore> {
        self.parts.store.as_ref()
    }

    /// The other replicas, if this gateway shares a Redis with them.
    pub(crate) fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.parts.fleet.get()
    }

    /// Says that all calls of this gateway come from one client, so that connections need not keep
    /// clients apart.
    pub(crate) fn serve_one_client(&self) {
        self.is_one_client.store(true, Ordering::Release);
        self.now().serve_one_client();
    }

    /// Journals writes in flight under `name`, for the next process that runs at the same `place`;
    /// does nothing if the catalog cache is not kept on disk.
    pub(crate) fn note_writes(&self, name: &str, place: JournalPlace) {
        if let Some(folder) = self.parts.catalog_cache.journal() {
            self.parts.journal.open(&folder.join(name), place);
        }
    }

    /// The audit log; off until somebody opens it.
    pub(crate) fn audit(&self) -> &AuditLog {
        &self.parts.audit
    }

    /// The spans of this gateway; off until `trace` opens them.
    pub(crate) fn tracer(&self) -> &Tracer {
        &self.parts.tracer
    }

    /// Exports spans and metrics from now on.
    pub(crate) fn trace(&self, settings: &TelemetryConfig) -> Result<(), String> {
        self.parts.tracer.open(settings, &self.parts.http)
    }

    /// Goes on under another configuration. Servers that it does not change keep their connections,
    /// breakers and queues; calls in flight end under the old one. An error changes nothing.
    pub(crate) async fn change(&self, config: &Config) -> Result<ConfigChange, String> {
        let _one_at_a_time = self.changing.lock().await;
        let before = self.now();
        let next = change::until_restart(&self.first, &before.config, config);
        let change = ConfigChange::between(&self.first, &before.config, &next, config);
        if change.is_nothing() {
            return Ok(change);
        }
        let next = before.followed_by(&next, &self.parts).map_err(|error| error.to_string())?;
        let next = Arc::new(next);
        if self.is_one_client.load(Ordering::Acquire) {
            next.serve_one_client();
        }
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&next);
        self.deliver(&next.all);
        self.changes.send_modify(|count| *count += 1);
        before.retire(&next, &self.parts);
        Ok(change)
    }

    /// Delivers queued writes over this route from now on. Only the route to all servers delivers:
    /// a second task for the same server would break the order of its queue.
    fn deliver(&self, route: &Arc<Route>) {
        let Some(store) = &self.parts.store else { return };
        let mut deliveries = self.deliveries.lock().unwrap_or_else(PoisonError::into_inner);
        let before = deliveries.take();
        *deliveries = Some(queued::start(route, store, before));
    }
}
