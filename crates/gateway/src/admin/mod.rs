//! The admin API: which requests of operators a running gateway answers, and who may make them.
//!
//! `access` decides who may read and change; `breakers`, `tools`, `servers`, `queue`, `events`,
//! `fleet`, `policy` and `health` build the answers; `respond` writes them; `dashboard` is the
//! page. The API has a listener of its own, with the same guard and limits as the listener for
//! clients.

mod access;
mod body;
mod breakers;
mod dashboard;
pub(crate) mod errors;
mod events;
mod fleet;
mod health;
mod path;
mod policy;
mod queue;
mod reload;
mod respond;
mod servers;
pub(crate) mod telemetry;
mod token_guesses;
mod tools;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use self::access::AdminAccess;
use self::respond::AdminResponse;
use super::config::{Config, agentgateway};
use crate::admin::errors::AdminRefusal;
use crate::admin::telemetry::{Telemetry, breakers as watched, scrape};
use crate::catalog::names;
use crate::frontend::connection::{self, ConnectionLimit, ConnectionPermit};
use crate::frontend::guard::{ForeignRequest, OriginGuard};
use crate::gateway::Gateway;
use crate::protocol::limits;
use crate::reload::Reloader;
use crate::runtime::random;

/// The listener for operators.
pub(crate) struct AdminListener {
    admin: Arc<AdminServer>,
    tcp: TcpListener,
}

impl AdminListener {
    /// Binds to the configured address, and starts to count events; `None` if the configuration has
    /// no `[admin]`.
    pub(crate) async fn bind(
        gateway: &Arc<Gateway>,
        reloader: Option<&Arc<Reloader>>,
        config: &Config,
    ) -> io::Result<Option<Self>> {
        let Some(admin) = &config.admin else { return Ok(None) };
        let tcp = TcpListener::bind(admin.listen).await?;
        let mut hosts = config.allowed_hosts.clone();
        // A request by IP address cannot come from DNS rebinding, which needs a name.
        hosts.extend(
            Some(admin.listen.ip()).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string()),
        );
        // Off loopback every read needs the token, which a foreign page does not have; and whoever
        // scrapes the metrics goes by any of the machine's addresses.
        let is_any_host = !admin.listen.ip().is_loopback();
        let origins = config.allowed_origins.clone();
        let guard = OriginGuard { hosts, origins, is_any_host, has_pages: true };
        let access = AdminAccess::new(admin)?;
        let telemetry = Telemetry::listen(&gateway.all().policies, &gateway.lifecycle);
        let readers = Arc::new(Semaphore::new(limits::EVENT_READERS));
        let life = random::secret().chars().take(8).collect();
        if let Some(reloader) = reloader {
            reload::record(reloader, &telemetry);
        }
        if let Some(fleet) = gateway.fleet() {
            fleet::record(fleet, &telemetry, &gateway.lifecycle);
        }
        let (gateway, reloader) = (Arc::clone(gateway), reloader.cloned());
        let admin = AdminServer { gateway, reloader, telemetry, guard, access, readers, life };
        Ok(Some(Self { admin: Arc::new(admin), tcp }))
    }

    /// The address of the listener.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves while the gateway runs and while it drains: monitoring must see the draining state.
    pub(crate) async fn serve(self) {
        let lifecycle = Arc::clone(&self.admin.gateway.lifecycle);
        let places = ConnectionLimit::new(limits::ADMIN_CONNECTIONS);
        loop {
            let accepted = lifecycle.closing.run_until_cancelled(places.accept(&self.tcp));
            let Some(accepted) = accepted.await else { return };
            let Some((tcp, peer, place)) = accepted else { continue };
            lifecycle.connect(Arc::clone(&self.admin).connection(place, tcp, peer.ip()));
        }
    }
}

/// The state that all connections of the listener share.
struct AdminServer {
    gateway: Arc<Gateway>,
    /// Reads the configuration again, where it comes from a file.
    reloader: Option<Arc<Reloader>>,
    telemetry: Arc<Telemetry>,
    guard: OriginGuard,
    access: AdminAccess,
    /// Permits for readers of the event stream.
    readers: Arc<Semaphore>,
    /// Tells event ids of this run of the gateway from those of another run.
    life: String,
}

impl AdminServer {
    async fn connection(self: Arc<Self>, place: ConnectionPermit, tcp: TcpStream, peer: IpAddr) {
        let lifecycle = Arc::clone(&self.gateway.lifecycle);
        let answer = move |request| {
            let admin = Arc::clone(&self);
            async move {
                let answer = admin.answer(request).await;
                admin.access.slowed(peer, answer).await
            }
        };
        connection::serve(place, tcp, &lifecycle.closing, &lifecycle.ended, answer).await;
    }

    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> AdminResponse {
        if let Err(foreign) = self.guard.check(request.uri(), request.headers()) {
            let what = if matches!(foreign, ForeignRequest::Host(_)) {
                AdminRefusal::Host
            } else {
                AdminRefusal::Origin
            };
            return respond::barred(what, foreign.why());
        }
        let (request, body) = request.into_parts();
        let (request, path) = (&request, request.uri.path());
        self.access.renew(self.gateway.now().config.admin.as_ref());
        let may_read = self.access.read(&request.headers);
        match path {
            // The page itself tells nothing; what it reads and changes needs the token.
            "/" => self.get(request, Ok(()), dashboard::page),
            "/healthz" => self.get(request, Ok(()), health::alive),
            "/readyz" => {
                self.get(request, Ok(()), || health::ready(&self.gateway, may_read.is_ok()))
            }
            "/metrics" => self.get(request, may_read, || respond::metrics(self.scrape())),
            "/config" => self.get(request, may_read, || {
                let shape = agentgateway::shape::shape(&self.gateway.now().config);
                respond::json(StatusCode::OK, &shape)
            }),
            "/resilience/servers" => self.get(request, may_read, || servers::list(&self.gateway)),
            "/resilience/breakers" => self.get(request, may_read, || {
                breakers::list(&self.gateway.all().policies, &self.telemetry)
            }),
            "/resilience/tools" => self.get(request, may_read, || {
                tools::list(&self.gateway.all().policies, &self.telemetry)
            }),
            "/resilience/events" => self.get(request, may_read, || events::stream(self, request)),
            "/resilience/fleet" => {
                self.get(request, may_read, || fleet::status(self.gateway.fleet()))
            }
            "/resilience/queue" => {
                self.reading(request, may_read, queue::list(&self.gateway, &request.uri)).await
            }
            "/resilience/reload" if matches!(request.method, Method::GET | Method::HEAD) => {
                self.get(request, may_read, || reload::history(self.reloader.as_deref()))
            }
            _ => match path::between(path, "/resilience/policy/", "") {
                Some(tool) => {
                    self.get(request, may_read, || policy::explained(&self.gateway, &tool))
                }
                None => self.change(request, path, body).await,
            },
        }
    }

    /// Routes requests that change something; the path names the target.
    async fn change(&self, request: &Parts, path: &str, body: Incoming) -> AdminResponse {
        let all = self.gateway.all();
        let (policies, fleet) = (&all.policies, self.gateway.fleet());
        if path == "/resilience/reload" {
            return match request.method {
                Method::POST => {
                    self.deed(request, "POST", reload::reload(self.reloader.as_ref())).await
                }
                _ => respond::not_allowed("GET, HEAD, POST"),
            };
        }
        if path == "/resilience/breakers/reset" {
            return self
                .deed(request, "POST", async { breakers::reset_all(policies, fleet) })
                .await;
        }
        if let Some(tool) = path::between(path, "/resilience/breakers/", "/reset") {
            return self
                .deed(request, "POST", async { breakers::reset(policies, fleet, &tool) })
                .await;
        }
        if let Some(tool) = path::between(path, "/resilience/breakers/", "/force") {
            return self.deed(request, "POST", breakers::force(policies, fleet, &tool, body)).await;
        }
        if let Some(id) = path::between(path, "/resilience/queue/", "/retry") {
            return self.deed(request, "POST", queue::retry(&self.gateway, &id, body)).await;
        }
        if let Some(id) = path::between(path, "/resilience/queue/", "") {
            return self.deed(request, "DELETE", queue::forget(&self.gateway, &id, body)).await;
        }
        match path::between(path, "/resilience/servers/", "/restart") {
            Some(name) => {
                self.deed(request, "POST", async { servers::restart(&self.gateway, &name) }).await
            }
            None => respond::error(StatusCode::NOT_FOUND, respond::NOTHING_HERE),
        }
    }

    fn get(
        &self,
        request: &Parts,
        may: access::AccessDecision,
        answer: impl FnOnce() -> AdminResponse,
    ) -> AdminResponse {
        match (&request.method, may) {
            (&Method::GET | &Method::HEAD, Ok(())) => answer(),
            (&Method::GET | &Method::HEAD, Err(refused)) => refused.answer(),
            _ => respond::not_allowed("GET, HEAD"),
        }
    }

    /// Like [`get`](Self::get), for an answer that has to be awaited.
    async fn reading(
        &self,
        request: &Parts,
        may: access::AccessDecision,
        answer: impl Future<Output = AdminResponse>,
    ) -> AdminResponse {
        match (&request.method, may) {
            (&Method::GET | &Method::HEAD, Ok(())) => answer.await,
            _ => self.get(request, may, || respond::not_allowed("GET, HEAD")),
        }
    }

    /// Runs a change only if the method fits and the request may change things: without that,
    /// `deed` is never polled.
    async fn deed(
        &self,
        request: &Parts,
        method: &'static str,
        deed: impl Future<Output = AdminResponse>,
    ) -> AdminResponse {
        match (request.method == method, self.access.change(&request.headers)) {
            (true, Ok(())) => deed.await,
            (true, Err(refused)) => refused.answer(),
            (false, _) => respond::not_allowed(method),
        }
    }

    fn scrape(&self) -> String {
        let all = self.gateway.all();
        let queued = all.store.as_ref().map(|store| {
            let tally = *store.changes().borrow();
            tally.waiting + tally.delivering
        });
        let breakers = watched::all(&all.policies);
        let servers = servers::now(&all.set.servers);
        let reloads = self.reloader.as_ref().map(|reloader| reloader.history());
        let audit = self.gateway.audit();
        let audited = audit.is_on().then(|| audit.counts());
        let traced = self.gateway.tracer().counts();
        let fleet = self.gateway.fleet().map(|fleet| {
            let status = fleet.status();
            (status.redis.is_connected(), status.replicas)
        });
        let now =
            scrape::GatewaySnapshot { breakers, servers, queued, reloads, audited, traced, fleet };
        let is_single = all.policies.is_single();
        let shown = |server: &str, tool: &str| {
            if is_single { tool.to_owned() } else { names::public(server, tool) }
        };
        scrape::text(&self.telemetry.counts(), &now, shown)
    }
}
