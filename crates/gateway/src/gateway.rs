//! Decides how a gateway is put together: its servers, the routes to them, and the state that
//! routes share between clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall::{DurableQueue, Env};

use crate::authz::AccessControl;
use crate::call::queued;
use crate::catalog::cached_lists::CatalogHooks;
use crate::client::client_limits::ClientLimits;
use crate::client::detached::DetachedCalls;
use crate::client::pending::PendingAnswers;
use crate::client::results::ResultStore;
use crate::client::server_set::{ServerSet, SessionHooks, SharedConnections};
use crate::client::session::warm::WarmConnections;
use crate::config::{Config, ServerConfig};
use crate::policy::registry::PolicyRegistry;
use crate::policy::startup;
use crate::queue::QueueStore;
use crate::route::Route;
use crate::runtime::http_client::SharedHttpClient;
use crate::runtime::lifecycle::Lifecycle;
use crate::store::catalog_cache::CatalogCache;
use crate::store::journal::{Journal, JournalPlace};
use crate::translate::pool::ConnectionPool;
use crate::upstream::Server;
use crate::upstream::processes::Processes;

/// One gateway: its servers, one route to all of them and one route to each.
pub(crate) struct Gateway {
    /// All servers, in the order of the configuration.
    pub servers: Vec<Arc<Server>>,
    /// Shutdown: draining, then closing.
    pub lifecycle: Arc<Lifecycle>,
    /// The largest message that the gateway takes from a client, in bytes.
    pub max_request: usize,
    /// How long a session may be idle before its servers are stopped.
    pub session_idle: Duration,
    all: Arc<Route>,
    each: HashMap<String, Arc<Route>>,
}

impl Gateway {
    /// Builds the gateway that `config` describes; a server starts when the first client needs it.
    pub(crate) fn new(
        config: &Config,
        catalog_cache: CatalogCache,
        store: Option<QueueStore>,
    ) -> std::io::Result<Arc<Self>> {
        let catalog_cache = Arc::new(catalog_cache);
        let durable = store.clone().map(|store| Arc::new(store) as Arc<dyn DurableQueue>);
        let policies =
            Arc::new(PolicyRegistry::new(config, durable).map_err(std::io::Error::other)?);
        let lifecycle = Arc::new(Lifecycle::default());
        let http = SharedHttpClient::default();
        let access = Arc::new(
            AccessControl::new(config, &http, policies.env()).map_err(std::io::Error::other)?,
        );
        if let Some(identity) = &access.identity {
            identity.start(&lifecycle);
        }
        let servers = servers(config, &http, &lifecycle, policies.env());
        // Hooks come first, so that the first handshake already fills the catalog cache. Then the
        // tool lists cached on disk decide the policies of tools until their servers have listed
        // them again.
        servers.iter().for_each(|server| {
            server.when_greeted(startup::when_greeted(&catalog_cache, &policies))
        });
        servers.iter().for_each(|server| startup::recall(&catalog_cache, &policies, server));
        let names = || servers.iter().map(|server| server.name.clone());
        let shared: Arc<SharedConnections> =
            Arc::new(names().map(|name| (name, Default::default())).collect());
        let pools: Arc<HashMap<String, ConnectionPool>> =
            Arc::new(names().map(|name| (name, ConnectionPool::default())).collect());
        let conversations: Arc<dyn SessionHooks> =
            Arc::new(CatalogHooks { catalog_cache: Arc::clone(&catalog_cache) });
        let (detached, results): (DetachedCalls, Arc<ResultStore>) = Default::default();
        let client_limits: Arc<ClientLimits> = Arc::default();
        let pending = Arc::new(PendingAnswers::new(config.answer_memory));
        let (warm, journal): (Arc<WarmConnections>, Arc<Journal>) = Default::default();
        let everywhere: Arc<[Arc<Server>]> = servers.iter().cloned().collect();
        let route = |servers: Vec<Arc<Server>>, is_prefixed| {
            let set = ServerSet {
                servers,
                warm: Arc::clone(&warm),
                shared: Arc::clone(&shared),
                conversations: Arc::clone(&conversations),
            };
            Arc::new(Route {
                set: Arc::new(set),
                is_prefixed,
                lifecycle: Arc::clone(&lifecycle),
                catalog_cache: Arc::clone(&catalog_cache),
                access: Arc::clone(&access),
                policies: Arc::clone(&policies),
                detached: detached.clone(),
                client_limits: Arc::clone(&client_limits),
                results: Arc::clone(&results),
                pending: Arc::clone(&pending),
                store: store.clone(),
                journal: Arc::clone(&journal),
                everywhere: Arc::clone(&everywhere),
                pools: Arc::clone(&pools),
                owners: Mutex::default(),
            })
        };
        let all = route(servers.clone(), config.rules.prefix.is_used(servers.len()));
        // Only the route to all servers delivers queued writes: a second delivery task for the same
        // server would break the order of its queue.
        if let Some(store) = &store {
            queued::start(&all, store);
        }
        let each = servers
            .iter()
            .map(|server| (server.name.clone(), route(vec![Arc::clone(server)], false)))
            .collect();
        let (max_request, session_idle) = (config.max_request, config.session_idle);
        Ok(Arc::new(Self { servers, lifecycle, max_request, session_idle, all, each }))
    }

    /// The route of a path: `/mcp` leads to all servers, `/mcp/<server>` to one.
    pub(crate) fn route(&self, path: &str) -> Option<&Arc<Route>> {
        match path.strip_prefix("/mcp")? {
            "" | "/" => Some(&self.all),
            rest => self.each.get(rest.strip_prefix('/')?.trim_end_matches('/')),
        }
    }

    /// Says that all calls of this gateway come from one client, so that connections need not keep
    /// clients apart.
    pub(crate) fn serve_one_client(&self) {
        for server in &self.servers {
            if let Some(pool) = self.all.pool(server) {
                pool.serve_one_client();
            }
        }
    }

    /// Journals writes in flight under `name`, for the next process that runs at the same `place`;
    /// does nothing if the catalog cache is not kept on disk.
    pub(crate) fn note_writes(&self, name: &str, place: JournalPlace) {
        if let Some(folder) = self.all.catalog_cache.journal() {
            self.all.journal.open(&folder.join(name), place);
        }
    }

    /// The route to all servers.
    pub(crate) fn all(&self) -> &Arc<Route> {
        &self.all
    }
}

/// The servers of a configuration; none is started.
fn servers(
    config: &Config,
    http: &SharedHttpClient,
    lifecycle: &Arc<Lifecycle>,
    env: &Env,
) -> Vec<Arc<Server>> {
    let processes = Arc::<Processes>::default();
    let server = |server: &ServerConfig| {
        Server::new(
            server.clone(),
            config.startup,
            http.clone(),
            Arc::clone(lifecycle),
            Arc::clone(&processes),
            env.clone(),
        )
    };
    config.servers.iter().map(server).collect()
}
