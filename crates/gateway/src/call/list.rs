//! Lists that stay as they are: what a server listed last stands in while it is away, the same
//! bytes in the same order.
//!
//! An outage shows when a tool is called, never as tools that vanish. However a list fails, the
//! last good one stands. An empty list of a server that has only just started is not believed. A
//! server that is starting, or slow to list, keeps nobody waiting who can be answered from the
//! catalog cache.

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
    /// The way to the server.
    pub route: Arc<Route>,
    /// Who asks.
    pub caller: Caller,
    /// The server.
    pub server: Arc<Server>,
    /// What is asked.
    pub call: GatewayCall,
    /// The name under which is remembered what the server says to clients like this one.
    pub key: String,
}

/// One list of one server, as clients see it; what it says of tools is learned.
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

/// The server's own list if it is there, else what it listed last.
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
    // One that rests is not started to say what it said last.
    if supervisor.as_ref().is_some_and(|supervisor| supervisor.is_resting())
        && let Some(list) = asked.known()
    {
        return answered(&list);
    }
    // Who said no is not asked again for a list.
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
    /// What clients like this one were shown last; else what any other was.
    fn known(&self) -> Option<Bytes> {
        known(&self.route.catalog_cache, &self.key, self.caller.era(), &name(&self.call.request))
    }

    /// How long this list may keep others or its client waiting; for ever if there is nothing else
    /// to answer.
    fn patience(&self) -> Option<Duration> {
        (self.known().is_some() || self.route.single().is_none()).then_some(limits::LIST_WAIT)
    }

    /// The answer of a server that is starting: what it listed last, at once; if it never listed
    /// anything, what the gateway's own listing brings. Else the conversation in which it can be
    /// asked, if there is one.
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
            Ok(ListingProgress::Done) if connection.take_unread_list() => {
                let list = self.route.catalog_cache.list(&self.key, &name(&self.call.request));
                list.map_or(ControlFlow::Continue(Some(connection)), |list| {
                    ControlFlow::Break(answered(&list))
                })
            }
            Ok(_) => ControlFlow::Continue(Some(connection)),
            // It goes on, and who was told something else hears of it.
            Err(_) => {
                let starting = UpstreamFailure::Starting(Duration::ZERO);
                ControlFlow::Break(self.without(self.failed(starting)))
            }
        }
    }

    /// There is no answer of the server: what it listed last, or why there is nothing.
    fn without(&self, refusal: Refusal) -> Reply {
        let failure = match &refusal {
            Refusal::Failed(_, failure) => self.server.missing(failure),
            Refusal::Reported(report, _) => self.server.reported(report.failure.clone()),
            Refusal::Wrong(error) => self.server.refused(error.code, &beginning(&error.message)),
        };
        if let Some(list) = self.marked(&failure) {
            return Ok(list);
        }
        // A list that is only slow is told when it comes.
        let is_slow = matches!(&refusal, Refusal::Failed(_, UpstreamFailure::Silent(_)));
        if let (Caller::Legacy(session, _), false) = (&self.caller, is_slow) {
            session.miss(&self.server);
        }
        Err(refusal)
    }

    /// The server's own list. One that takes too long goes on behind the client's back; so does one
    /// whose conversation ends, where there is something else to answer.
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

    /// What was listed last, with the word that the server is away.
    fn remembered(&self, failure: &UpstreamFailure) -> Option<Message> {
        self.marked(&self.server.missing(failure))
    }

    /// What was listed last, with the word what is wrong with the server.
    fn marked(&self, outcome: &ServerOutcome<()>) -> Option<Message> {
        let list = self.known()?;
        let mut result = JsonObject::of(&list);
        let entry = missing::entry(&self.server, outcome);
        result.change("_meta", |meta| {
            meta.set(missing::SERVERS, json!({self.server.name.as_str(): entry}).to_string());
        });
        answered(&result.json()).ok()
    }

    /// Remembers an answer; gives the one to believe. One that is no list is a list that failed,
    /// unless the server has none.
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

    /// What it means that a list was answered with something else.
    fn refused(&self, answer: &Message) -> ServerOutcome<()> {
        let code = answer.field_json("code").and_then(|code| serde_json::from_slice(code).ok());
        match code {
            Some(code) => self
                .server
                .refused(code, &beginning(&answer.field_text("message").unwrap_or_default())),
            None => self.server.refused(build::INTERNAL_ERROR, "its answer is no list"),
        }
    }

    /// An empty list of a server that has only just started: what it listed before is believed. It
    /// is asked again at its startup.
    fn doubted(&self, answer: Message) -> Reply {
        match self.known() {
            Some(before) if before.as_ref() != answer.body_json() => with_body(&answer, &before),
            _ => Ok(answer),
        }
    }

    /// Remembers a list.
    pub(crate) fn keep(&self, answer: &Message) {
        keep(&self.route, &self.key, &self.server.name, &self.call.request, answer);
    }
}

/// Remembers a list, and tells the operator what has changed in it.
fn keep(route: &Route, key: &str, server: &str, request: &Message, answer: &Message) {
    let name = name(request);
    let (_, entries, _) = part_of(request.method());
    if let Some(before) = route.catalog_cache.list(key, &name) {
        report(server, &name, drift::between(&before, answer.body_json(), entries));
    }
    route.catalog_cache.keep_list(key, &name, answer.body_json());
    learn(route, server, request, answer, true);
}

/// What a list says of tools decides how they are treated. `is_new`: the server has just said it.
fn learn(route: &Route, server: &str, request: &Message, list: &Message, is_new: bool) {
    if request.method() == "tools/list" {
        let cursor = request.field_text("cursor").unwrap_or_default();
        route.policies.learn(server, &cursor, list, is_new);
    }
}
