//! Decides which servers and routes one configuration has, and what it takes over from the one
//! before.

use std::collections::HashMap;
use std::sync::Arc;

use seawall::{DurableQueue, Invalid};

use super::GatewayParts;
use crate::authz::AccessControl;
use crate::client::server_set::{ServerSet, SharedConnections};
use crate::config::{Config, ServerConfig};
use crate::fleet::Fleet;
use crate::policy::registry::{PolicyRegistry, ServerContinuity};
use crate::policy::startup;
use crate::route::Route;
use crate::translate::pool::ConnectionPool;
use crate::upstream::Server;

/// The servers and routes of one configuration.
pub(crate) struct Generation {
    /// The configuration.
    pub config: Config,
    /// All servers, in the order of the configuration.
    pub servers: Vec<Arc<Server>>,
    /// The route to all servers.
    pub all: Arc<Route>,
    each: HashMap<String, Arc<Route>>,
}

impl Generation {
    /// The first configuration of a gateway.
    pub(super) fn first(config: &Config, parts: &GatewayParts) -> Result<Self, Invalid> {
        let durable = parts.store.clone().map(|store| Arc::new(store) as Arc<dyn DurableQueue>);
        let policies = Arc::new(PolicyRegistry::new(config, durable)?).in_force();
        if let Some(redis) = &config.redis {
            let fleet = Fleet::join(redis, &policies, &parts.lifecycle);
            let fleet = fleet.map_err(|error| Invalid::new("store.redis", error))?;
            // Never set before: this is the first configuration.
            let _first = fleet.map(|fleet| parts.fleet.set(fleet));
        }
        let access = AccessControl::new(config, None, &parts.http, policies.env())?;
        Ok(Self::build(config, None, policies, access, parts))
    }

    /// The configuration that follows this one.
    pub(super) fn followed_by(
        &self,
        config: &Config,
        parts: &GatewayParts,
    ) -> Result<Self, Invalid> {
        let (before, env) = (&self.all, self.all.policies.env());
        let access = AccessControl::new(config, Some(&before.access), &parts.http, env)?;
        // Last, for it takes effect at once.
        let policies = before.policies.followed_by(config, &self.continuity(config))?;
        Ok(Self::build(config, Some(self), policies, access, parts))
    }

    /// What each server of the next configuration has in common with this one.
    fn continuity(&self, next: &Config) -> HashMap<String, ServerContinuity> {
        let of = |after: &ServerConfig| {
            let before = self.config.servers.iter().find(|before| before.name == after.name);
            let goes_on = self.server(after, next).is_some();
            match before {
                Some(_) if goes_on => ServerContinuity::Same,
                Some(before) if before.is_same_server(after) => ServerContinuity::Reopened,
                _ => ServerContinuity::New,
            }
        };
        next.servers.iter().map(|server| (server.name.clone(), of(server))).collect()
    }

    /// The server that goes on under the next configuration, if it can.
    fn server(&self, after: &ServerConfig, next: &Config) -> Option<&Arc<Server>> {
        let mut known = self.config.servers.iter().zip(&self.servers);
        let (before, server) = known.find(|(before, _)| before.name == after.name)?;
        let goes_on = before.connects_like(after) && self.config.startup == next.startup;
        goes_on.then_some(server)
    }

    fn build(
        config: &Config,
        before: Option<&Self>,
        policies: Arc<PolicyRegistry>,
        access: AccessControl,
        parts: &GatewayParts,
    ) -> Self {
        access.start(before.map(|before| &*before.all.access), &parts.lifecycle);
        let server = |server: &ServerConfig| match before.and_then(|it| it.server(server, config)) {
            Some(known) => Arc::clone(known),
            None => parts.server(config, server, &policies),
        };
        let servers: Vec<Arc<Server>> = config.servers.iter().map(server).collect();
        let (shared, pools) = connections(&servers, before);
        let (access, everywhere) = (Arc::new(access), Arc::from(servers.clone()));
        let route = |servers: Vec<Arc<Server>>, is_prefixed, known: Option<&Arc<Route>>| {
            let set = ServerSet {
                servers,
                everywhere: Arc::clone(&everywhere),
                warm: Arc::clone(&parts.warm),
                shared: Arc::clone(&shared),
                conversations: Arc::clone(&parts.conversations),
            };
            Arc::new(Route {
                set: Arc::new(set),
                is_prefixed,
                lifecycle: Arc::clone(&parts.lifecycle),
                catalog_cache: Arc::clone(&parts.catalog_cache),
                access: Arc::clone(&access),
                policies: Arc::clone(&policies),
                detached: parts.detached.clone(),
                client_limits: Arc::clone(&parts.client_limits),
                results: Arc::clone(&parts.results),
                pending: Arc::clone(&parts.pending),
                store: parts.store.clone(),
                fleet: parts.fleet.get().cloned(),
                audit: Arc::clone(&parts.audit),
                tracer: Arc::clone(&parts.tracer),
                journal: Arc::clone(&parts.journal),
                pools: Arc::clone(&pools),
                owners: known.map(|known| Arc::clone(&known.owners)).unwrap_or_default(),
            })
        };
        let is_prefixed = config.rules.prefix.is_used(servers.len());
        let all = route(servers.clone(), is_prefixed, before.map(|before| &before.all));
        let one = |server: &Arc<Server>| {
            let known = before.and_then(|before| before.each.get(&server.name));
            (server.name.clone(), route(vec![Arc::clone(server)], false, known))
        };
        let each = servers.iter().map(one).collect();
        Self { config: config.clone(), servers, all, each }
    }

    /// The route of a path: `/mcp` leads to all servers, `/mcp/<server>` to one.
    pub(crate) fn route(&self, path: &str) -> Option<&Arc<Route>> {
        match path.strip_prefix("/mcp")? {
            "" | "/" => Some(&self.all),
            rest => self.each.get(rest.strip_prefix('/')?.trim_end_matches('/')),
        }
    }

    /// All calls come from one client, so that connections need not keep clients apart.
    pub(super) fn serve_one_client(&self) {
        self.all.pools.values().for_each(|pool| pool.serve_one_client());
    }

    /// Closes the connections that no session owns to servers that do not go on, each when its last
    /// call is over. Sessions give up their own (`Session::move_to`).
    pub(super) fn retire(&self, next: &Self, parts: &GatewayParts) {
        let goes_on = |server: &Arc<Server>| next.servers.iter().any(|it| Arc::ptr_eq(it, server));
        for server in self.servers.iter().filter(|server| !goes_on(server)) {
            let mut left = parts.warm.take_all(server);
            left.extend(self.all.set.shared.get(&server.name).and_then(|shared| shared.opened()));
            left.extend(self.all.pool(server).into_iter().flat_map(ConnectionPool::take_all));
            for supervisor in left {
                parts.lifecycle.spawn(async move { supervisor.close_when_idle().await });
            }
        }
    }
}

/// The connections that servers share between clients; those of servers that go on stay.
fn connections(
    servers: &[Arc<Server>],
    before: Option<&Generation>,
) -> (Arc<SharedConnections>, Arc<HashMap<String, Arc<ConnectionPool>>>) {
    let known = |server: &Arc<Server>| {
        before.filter(|before| before.servers.iter().any(|it| Arc::ptr_eq(it, server)))
    };
    let shared = |server: &Arc<Server>| {
        let known = known(server).and_then(|it| it.all.set.shared.get(&server.name));
        (server.name.clone(), known.cloned().unwrap_or_default())
    };
    let pool = |server: &Arc<Server>| {
        let known = known(server).and_then(|it| it.all.pools.get(&server.name));
        (server.name.clone(), known.cloned().unwrap_or_default())
    };
    (Arc::new(servers.iter().map(shared).collect()), Arc::new(servers.iter().map(pool).collect()))
}

impl GatewayParts {
    /// A server as it is configured; starts nothing yet.
    fn server(
        &self,
        config: &Config,
        server: &ServerConfig,
        policies: &PolicyRegistry,
    ) -> Arc<Server> {
        let server = Server::new(
            server.clone(),
            config.startup,
            self.http.clone(),
            Arc::clone(&self.lifecycle),
            Arc::clone(&self.processes),
            policies.env().clone(),
        );
        // The hook comes first, so that the first handshake already fills the catalog cache. Then
        // the tool lists cached on disk decide the policies of tools until the server has listed
        // them again.
        server.when_greeted(startup::when_greeted(&self.catalog_cache, policies.newest()));
        startup::recall(&self.catalog_cache, policies, &server);
        server
    }
}
