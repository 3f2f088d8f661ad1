//! What there is: the servers, the routes to them, and what they share between clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use seawall::{Durable, Question};

use crate::call::client_limits::ClientLimits;
use crate::call::detached::DetachedCalls;
use crate::call::results::Results;
use crate::catalog::startup;
use crate::client::pending::PendingAnswers;
use crate::client::session::warm::Warm;
use crate::config::Config;
use crate::policy::registry::Policies;
use crate::protocol::{Message, limits};
use crate::queue;
use crate::runtime::lifecycle::Lifecycle;
use crate::store::catalog_cache::Memory;
use crate::store::embedded::Store;
use crate::store::journal::Journal;
use crate::translate::pool::Pool;
use crate::upstream::call::Outlet;
use crate::upstream::handshake::Opening;
use crate::upstream::keeper::Prepare;
use crate::upstream::processes::Processes;
use crate::upstream::{Keeper, Link, Server, client};

/// One gateway.
pub struct Gateway {
    /// All servers, in the order of the configuration.
    pub servers: Vec<Arc<Server>>,
    /// How it ends.
    pub lifecycle: Arc<Lifecycle>,
    /// The largest message that is taken from a client, in bytes.
    pub max_request: usize,
    /// How long a session may be idle before its servers are stopped.
    pub session_idle: Duration,
    all: Arc<Route>,
    each: HashMap<String, Arc<Route>>,
}

impl Gateway {
    /// A gateway as it is configured; servers start when the first client needs them.
    pub fn new(config: &Config, memory: Memory, store: Option<Store>) -> std::io::Result<Arc<Self>> {
        let memory = Arc::new(memory);
        let durable = store.clone().map(|store| Arc::new(store) as Arc<dyn Durable>);
        let policies = Arc::new(Policies::new(config, durable).map_err(std::io::Error::other)?);
        let lifecycle = Arc::new(Lifecycle::default());
        let http = client::Shared::default();
        let processes = Arc::<Processes>::default();
        let settings = config.startup;
        let server = |config: &crate::config::ServerConfig| {
            Server::new(
                config.clone(),
                settings,
                http.clone(),
                Arc::clone(&lifecycle),
                Arc::clone(&processes),
                policies.env().clone(),
            )
        };
        let servers: Vec<Arc<Server>> = config.servers.iter().map(server).collect();
        servers.iter().for_each(|server| server.when_greeted(startup::when_greeted(&memory, &policies)));
        servers.iter().for_each(|server| startup::recall(&memory, &policies, server));
        let shared: Arc<Shared> =
            Arc::new(servers.iter().map(|server| (server.name.clone(), Common::default())).collect());
        let (detached, results): (DetachedCalls, Arc<Results>) = Default::default();
        let client_limits: Arc<ClientLimits> = Arc::default();
        let pending = Arc::new(PendingAnswers::new(config.answer_memory));
        let (warm, journal): (Arc<Warm>, Arc<Journal>) = Default::default();
        let everywhere: Arc<[Arc<Server>]> = servers.iter().cloned().collect();
        let route = |servers: Vec<Arc<Server>>, is_prefixed| {
            Arc::new(Route {
                servers,
                is_prefixed,
                lifecycle: Arc::clone(&lifecycle),
                memory: Arc::clone(&memory),
                policies: Arc::clone(&policies),
                detached: detached.clone(),
                client_limits: Arc::clone(&client_limits),
                results: Arc::clone(&results),
                pending: Arc::clone(&pending),
                warm: Arc::clone(&warm),
                store: store.clone(),
                journal: Arc::clone(&journal),
                everywhere: Arc::clone(&everywhere),
                shared: Arc::clone(&shared),
                owners: Mutex::default(),
            })
        };
        let all = route(servers.clone(), config.rules.prefix.is_used(servers.len()));
        if let Some(store) = &store {
            queue::start(&all, store);
        }
        let each = servers.iter().map(|server| (server.name.clone(), route(vec![Arc::clone(server)], false))).collect();
        let (max_request, session_idle) = (config.max_request, config.session_idle);
        Ok(Arc::new(Self { servers, lifecycle, max_request, session_idle, all, each }))
    }

    /// The route of a path: `/mcp` is all servers, `/mcp/<server>` is one.
    pub fn route(&self, path: &str) -> Option<&Arc<Route>> {
        match path.strip_prefix("/mcp")? {
            "" | "/" => Some(&self.all),
            rest => self.each.get(rest.strip_prefix('/')?.trim_end_matches('/')),
        }
    }

    /// All calls of this gateway come from one client: it need not be told from others.
    pub fn serve_one_client(&self) {
        for server in &self.servers {
            if let Some(pool) = self.all.pool(server) {
                pool.serve_one_client();
            }
        }
    }

    /// Notes writes under way for the next gateway at the same `place`, where anything is kept; `circumstances` are what else
    /// decides what its servers show.
    pub fn note_writes(&self, place: &str, circumstances: &str) {
        if let Some(folder) = self.all.memory.journal() {
            self.all.journal.open(&folder, place, circumstances);
        }
    }

    /// The route to all servers.
    pub fn all(&self) -> &Arc<Route> {
        &self.all
    }
}

type Shared = HashMap<String, Common>;

/// What the clients of one server have in common.
#[derive(Default)]
struct Common {
    keeper: OnceLock<Arc<Keeper>>,
    everyone: Arc<Everyone>,
    pool: Pool,
}

/// The servers that an endpoint offers.
pub struct Route {
    /// In the order of the configuration.
    pub servers: Vec<Arc<Server>>,
    /// Whether names have their server before them.
    is_prefixed: bool,
    /// How the gateway ends.
    pub lifecycle: Arc<Lifecycle>,
    /// What the servers said last time.
    pub memory: Arc<Memory>,
    /// How tools are treated.
    pub policies: Arc<Policies>,
    /// The places for calls that run on without their clients.
    pub detached: DetachedCalls,
    /// What is known of how long clients wait.
    pub client_limits: Arc<ClientLimits>,
    /// Results that were too large for their clients.
    pub results: Arc<Results>,
    /// Answers that wait for their clients to read them.
    pub pending: Arc<PendingAnswers>,
    /// Children that wait for their next client.
    pub warm: Arc<Warm>,
    /// Writes that wait for their server.
    pub store: Option<Store>,
    /// Writes under way, for the process after this one.
    pub journal: Arc<Journal>,
    /// All servers of the gateway, also those that are not on this route.
    everywhere: Arc<[Arc<Server>]>,
    shared: Arc<Shared>,
    /// Which server a resource or a task belongs to, as far as it was seen.
    owners: Mutex<HashMap<String, String>>,
}

impl Route {
    /// The server, if there is one only and its names stay as they are: then everything passes.
    pub fn single(&self) -> Option<&Arc<Server>> {
        match self.servers.as_slice() {
            [server] if !self.is_prefixed => Some(server),
            _ => None,
        }
    }

    /// A server of the gateway, on this route or not.
    pub fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.everywhere.iter().find(|server| server.name == name)
    }

    /// Whether all clients talk to this server over one conversation.
    pub fn is_shared(&self, server: &str) -> bool {
        self.servers.iter().any(|known| known.name == server && known.shared)
    }

    /// The conversations that stateless clients use.
    pub fn pool(&self, server: &Server) -> Option<&Pool> {
        self.shared.get(&server.name).map(|common| &common.pool)
    }

    /// Who keeps the one conversation of a shared server; `outlet` hears what belongs to nobody in particular.
    pub fn common(&self, server: &Arc<Server>, opening: &Opening, outlet: &Arc<dyn Outlet>) -> Arc<Keeper> {
        let open = || {
            let everyone = self.shared.get(&server.name).map(|common| Arc::clone(&common.everyone)).unwrap_or_default();
            let prepare: Prepare = Box::new(|link| Box::pin(async move { link.initialized().await }));
            Keeper::new(server, opening.clone(), everyone, prepare)
        };
        let Some(common) = self.shared.get(&server.name) else { return open() };
        common.everyone.join(outlet);
        Arc::clone(common.keeper.get_or_init(open))
    }

    /// Notes whose something is.
    pub fn own(&self, what: String, server: &str) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        if owners.len() < limits::LISTED * 8 || owners.contains_key(&what) {
            owners.insert(what, server.to_owned());
        }
    }

    /// Whose something is, if that was seen.
    pub fn owner(&self, what: &str) -> Option<&Arc<Server>> {
        let name = self.owners.lock().unwrap_or_else(PoisonError::into_inner).get(what).cloned()?;
        self.servers.iter().find(|server| server.name == name)
    }

    /// Ends the conversations that stateless clients do not use any more.
    pub fn give_back(&self, idle: Duration) {
        for server in &self.servers {
            if let Some(pool) = self.pool(server) {
                pool.give_back(server, idle);
            }
        }
    }

    /// Ends what no client owns.
    pub async fn close(&self) {
        self.warm.close().await;
        for common in self.shared.values() {
            if let Some(keeper) = common.keeper.get() {
                keeper.close().await;
            }
            common.pool.close().await;
        }
    }
}

/// All clients that share a conversation.
#[derive(Default)]
struct Everyone {
    outlets: Mutex<Vec<Weak<dyn Outlet>>>,
}

impl Everyone {
    fn join(&self, outlet: &Arc<dyn Outlet>) {
        let mut outlets = self.outlets.lock().unwrap_or_else(PoisonError::into_inner);
        outlets.retain(|known| known.strong_count() > 0);
        let is_known = outlets.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(outlet)));
        if !is_known {
            outlets.push(Arc::downgrade(outlet));
        }
    }

    fn present(&self) -> Vec<Arc<dyn Outlet>> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Outlet for Everyone {
    fn notify(&self, link: &Arc<Link>, notification: Message) {
        for outlet in self.present() {
            outlet.notify(link, notification.clone());
        }
    }

    fn ask(&self, link: &Arc<Link>, question: Message, open: Option<Question>) {
        match self.present().as_slice() {
            [only] => only.ask(link, question, open),
            _ => link.refuse(&question, "several clients share this server; it is not clear which one to ask"),
        }
    }

    fn is_one_client(&self) -> bool {
        self.present().len() <= 1
    }

    fn listed(&self, link: &Arc<Link>, changed: &[&'static str]) {
        for outlet in self.present() {
            outlet.listed(link, changed);
        }
    }

    fn is_open(&self) -> bool {
        self.present().iter().any(|outlet| outlet.is_open())
    }
}
