//! Decides which list a client sees: the server's own, or the cached one while the server is away,
//! with the same bytes in the same order.
//!
//! An outage shows when a tool is called, never as tools that vanish. If a list request fails for
//! any reason, the last good list stands. An empty list of a server that has only just started is
//! not believed. A server that is starting or slow delays no client that the catalog cache can
//! answer.

mod late;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seawall::ServerOutcome;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::call::execute;
use crate::catalog::cached_lists::{WARM_UP, is_empty, known, name, part_of, report};
use crate::catalog::{drift, quarantine};
use crate::client::caller::Caller;
use crate::client::missing;
use crate::protocol::edit::JsonObject;
use crate::protocol::{Message, build, limits};
use crate::route::Route;
use crate::translate::pool;
use crate::upstream::call::GatewayCall;
use crate::upstream::probe::holds_list;
use crate::upstream::reply::{Refusal, Reply, answered, with_body};
use crate::upstream::startup::ListingProgress;
use crate::upstream::{Connection, ConnectionSupervisor, Server, UpstreamFailure, beginning};

/// One list of one server, for one client.
#[derive(Clone)]
pub(crate) struct ListRequest {
    /// The route to the server.
    pub route: Arc<Route>,
    /// The client that asks.
    pub caller: Caller,
    /// The server.
    pub server: Arc<Server>,
    /// The list request.
    pub call: GatewayCall,
    /// The key under which the catalog cache holds the answers for clients like this one.
    pub key: String,
}

/// Fetches one list of one server as clients see it; its tools update the policy registry.
pub(crate) async fn list(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Reply {
    let list = shown(route, caller, server, call).await?;
    learn(route, &server.name, &call.request, &list, false);
    Ok(list)
}

/// The server's own list if it is connected, else its cached list.
async fn shown(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Reply {
    let (key, supervisor) = match caller {
        Caller::Legacy(session, _) => (session.key(server), session.supervisor(server).ok()),
        Caller::Modern(_) => (pool::handshake(call).key(server), None),
    };
    let (route, caller, server) = (Arc::clone(route), caller.clone(), Arc::clone(server));
    let asked = ListRequest { route, caller, server, call: call.clone(), key };
    // A resting server is not started just to repeat its cached list.
    if supervisor.as_ref().is_some_and(|supervisor| supervisor.is_resting())
        && let Some(list) = asked.known()
    {
        return answered(&list);
    }
    // A server that denied access is not asked again for a list.
    if let Some(supervisor) = supervisor
        .as_ref()
        .filter(|supervisor| asked.server.startup.is_denied() && supervisor.now().is_none())
    {
        let failure = supervisor.starting();
        return asked.remembered(&failure).ok_or_else(|| asked.failed(failure));
    }
    let connection = match asked.at_startup(supervisor.as_ref()).await {
        ControlFlow::Break(reply) => return reply,
        ControlFlow::Continue(connection) => connection,
    };
    match asked.ask(connection).await {
        Ok(answer) => asked.believed(supervisor, answer).await,
        Err(refusal) => asked.without(refusal),
    }
}

impl ListRequest {
    /// The list that clients like this one saw last; else the last one of any client.
    fn known(&self) -> Option<Bytes> {
        known(&self.route.catalog_cache, &self.key, self.caller.era(), &name(&self.call.request))
    }

    /// How long this list may delay a merged list or its client; without limit if there is nothing
    /// else to answer with.
    fn patience(&self) -> Option<Duration> {
        (self.known().is_some() || self.route.single().is_none()).then_some(limits::LIST_WAIT)
    }

    /// The list of a server that is starting: the cached one, at once; if there is none, the result
    /// of the gateway's own startup listing. Otherwise the connection on which to ask, if there is
    /// one.
    async fn at_startup(
        &self,
        supervisor: Option<&Arc<ConnectionSupervisor>>,
    ) -> ControlFlow<Reply, Option<Arc<Connection>>> {
        let is_known = self.known().is_some();
        let began = Instant::now();
        let patience = match self.patience() {
            _ if is_known => limits::CATALOG_WAIT,
            Some(patience) => self.server.startup.patience(patience),
            None => limits::LIST_TIME,
        };
        let away = is_known || self.server.reconnect.last().is_some();
        let wait = if away {
            patience.min(limits::CATALOG_WAIT)
        } else {
            patience.min(limits::HANDSHAKE_WAIT)
        };
        let connection = match (supervisor, self.route.pool(&self.server)) {
            (Some(supervisor), _) => supervisor.connection(wait).await,
            (None, Some(pool)) => pool.connection(&self.server, &self.call, wait).await,
            (None, None) => return ControlFlow::Continue(None),
        };
        let connection = match connection {
            Ok(connection) => connection,
            Err(failure) => {
                return self
                    .remembered(&failure)
                    .map_or(ControlFlow::Continue(None), |list| ControlFlow::Break(Ok(list)));
            }
        };
        if self.call.request.method() != "tools/list" || self.call.request.field("cursor").is_some()
        {
            return ControlFlow::Continue(Some(connection));
        }
        let listing =
            tokio::time::timeout(patience.saturating_sub(began.elapsed()), connection.listed())
                .await;
        match listing {
            // The startup listing answers one request, while it is fresh; later requests go to the
            // server.
            Ok(ListingProgress::Done) if connection.take_unread_list() => {
                let list = self.route.catalog_cache.list(&self.key, &name(&self.call.request));
                list.map_or(ControlFlow::Continue(Some(connection)), |list| {
                    ControlFlow::Break(answered(&list))
                })
            }
            Ok(_) => ControlFlow::Continue(Some(connection)),
            // The startup listing goes on; clients that got another list are notified of the
            // change.
            Err(_) => {
                let starting = UpstreamFailure::Starting(Duration::ZERO);
                ControlFlow::Break(self.without(self.failed(starting)))
            }
        }
    }

    /// The reply without an answer of the server: its cached list, or the refusal.
    fn without(&self, refusal: Refusal) -> Reply {
        let failure = match &refusal {
            Refusal::Failed(_, failure) => self.server.missing(failure),
            Refusal::Reported(report, _) => self.server.reported(report.failure.clone()),
            Refusal::NotAllowed(_, refusal) => self.server.reported(refusal.failure()),
            Refusal::Wrong(error) => self.server.refused(error.code, &beginning(&error.message)),
        };
        if let Some(list) = self.marked(&failure) {
            return Ok(list);
        }
        // A list that is only slow is announced when it arrives (`late`).
        let is_slow = matches!(&refusal, Refusal::Failed(_, UpstreamFailure::Silent(_)));
        if let (Caller::Legacy(session, _), false) = (&self.caller, is_slow) {
            session.miss(&self.server);
        }
        Err(refusal)
    }

    /// Fetches the server's own list. A list that takes too long goes on in the background; so does
    /// one whose connection ends while a cached list is at hand.
    async fn ask(&self, connection: Option<Arc<Connection>>) -> Reply {
        let Some(patience) = self.patience() else {
            return self.execute(limits::SERVER_WAIT).await;
        };
        let wait = self.server.startup.patience(patience);
        let asked = self.clone();
        let mut asking =
            AbortOnDropHandle::new(tokio::spawn(async move { asked.execute(wait).await }));
        let is_known = self.known().is_some();
        let lost = async move {
            match connection.filter(|_| is_known) {
                Some(connection) => connection.over.cancelled().await,
                None => std::future::pending().await,
            }
            // A short grace: the answer, or a quick reconnection, may still win against the cached
            // list.
            tokio::time::sleep(limits::CATALOG_WAIT).await;
        };
        tokio::select! {
            biased;
            reply = &mut asking => {
                reply.unwrap_or_else(|_| Err(self.failed(UpstreamFailure::Lost("its list could not be read".to_owned()))))
            }
            () = lost => {
                late::go_on(self.clone(), asking);
                Err(self.failed(UpstreamFailure::Starting(self.server.reconnect.wait())))
            }
            () = tokio::time::sleep(patience) => {
                late::go_on(self.clone(), asking);
                Err(self.failed(UpstreamFailure::Silent(patience)))
            }
        }
    }

    async fn execute(&self, wait: Duration) -> Reply {
        execute::list(&self.route, &self.caller, &self.server, &self.call, wait).await
    }

    fn failed(&self, failure: UpstreamFailure) -> Refusal {
        Refusal::Failed(self.server.name.clone(), failure)
    }

    /// The cached list, marked with the reason why the server is away.
    fn remembered(&self, failure: &UpstreamFailure) -> Option<Message> {
        self.marked(&self.server.missing(failure))
    }

    /// The cached list, marked with the server's outcome.
    fn marked(&self, outcome: &ServerOutcome<()>) -> Option<Message> {
        let list = self.known()?;
        let mut result = JsonObject::of(&list);
        let entry = missing::entry(&self.server, outcome);
        result.change("_meta", |meta| {
            meta.set(missing::SERVERS, json!({self.server.name.as_str(): entry}).to_string());
        });
        answered(&result.json()).ok()
    }

    /// Checks an answer, caches it, and returns the list to show. An answer without a list counts
    /// as a failed list: the cached one stands, if there is one.
    async fn believed(
        &self,
        supervisor: Option<Arc<ConnectionSupervisor>>,
        answer: Message,
    ) -> Reply {
        let request = &self.call.request;
        let answer = quarantine::cleaned(&self.server, self.caller.era(), request.method(), answer);
        if !holds_list(&answer, part_of(request.method()).1) {
            return Ok(self.marked(&self.refused(&answer)).unwrap_or(answer));
        }
        if is_empty(request.method(), &answer) && request.field("cursor").is_none() {
            let connection = match (supervisor, self.route.pool(&self.server)) {
                (Some(supervisor), _) => supervisor.now(),
                (None, Some(pool)) => {
                    pool.connection(&self.server, &self.call, Duration::ZERO).await.ok()
                }
                (None, None) => None,
            };
            if connection.is_some_and(|connection| connection.age() < WARM_UP) {
                return self.doubted(answer);
            }
        }
        self.keep(&answer);
        if request.method() == "tools/list" {
            self.server.startup.worked();
        }
        Ok(answer)
    }

    /// The server's outcome when it answered a list request without a list.
    fn refused(&self, answer: &Message) -> ServerOutcome<()> {
        let code = answer.field_json("code").and_then(|code| serde_json::from_slice(code).ok());
        match code {
            Some(code) => self
                .server
                .refused(code, &beginning(&answer.field_text("message").unwrap_or_default())),
            None => self.server.refused(build::INTERNAL_ERROR, "its answer is no list"),
        }
    }

    /// An empty list of a server that has only just started: its cached list is shown instead. The
    /// startup listing asks again.
    fn doubted(&self, answer: Message) -> Reply {
        match self.known() {
            Some(before) if before.as_ref() != answer.body_json() => with_body(&answer, &before),
            _ => Ok(answer),
        }
    }

    /// Caches a list.
    pub(crate) fn keep(&self, answer: &Message) {
        keep(&self.route, &self.key, &self.server.name, &self.call.request, answer);
    }
}

/// Caches a list, and logs its changes for the operator.
fn keep(route: &Route, key: &str, server: &str, request: &Message, answer: &Message) {
    let name = name(request);
    let (_, entries, _) = part_of(request.method());
    if let Some(before) = route.catalog_cache.list(key, &name) {
        report(server, &name, drift::between(&before, answer.body_json(), entries));
    }
    route.catalog_cache.keep_list(key, &name, answer.body_json());
    learn(route, server, request, answer, true);
}

/// Updates the policies of tools from a list. `is_new`: the server has just sent it.
fn learn(route: &Route, server: &str, request: &Message, list: &Message, is_new: bool) {
    if request.method() == "tools/list" {
        let cursor = request.field_text("cursor").unwrap_or_default();
        route.policies.learn(server, &cursor, list, is_new);
    }
}
