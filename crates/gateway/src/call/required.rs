//! Decides whether the gateway may start: servers with `required = true` are loaded before the
//! first client is served, so that a broken setup fails at once.

use std::sync::Arc;

use futures_util::future::join_all;
use seawall::{ConnectServer, FailureSignals, ServerOutcome, load_tools};

use crate::policy::startup;
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::{Era, LEGACY};
use crate::route::Route;
use crate::translate::pool::own_info;
use crate::upstream::Server;
use crate::upstream::handshake::{self, HandshakeParams};

/// Loads all required servers at once; the error has one line for each that failed.
pub(crate) async fn load(route: &Route) -> Result<(), String> {
    let loads = route.set.servers.iter().filter(|server| server.required).map(async |server| {
        let connect = ToolLookup { route, server, handshake: handshake() };
        let loaded = load_tools([server.name.as_str()], &connect, &server.startup.options()).await;
        match loaded {
            Ok(report) => report.outcomes.iter().filter_map(told).collect(),
            Err(invalid) => vec![invalid.within("startup").to_string()],
        }
    });
    let failed: Vec<String> = join_all(loads).await.into_iter().flatten().collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn told(outcome: &ServerOutcome<()>) -> Option<String> {
    let error = outcome.error()?;
    let (name, status, attempts) = (&outcome.server_id, outcome.status(), outcome.attempts);
    let times = if attempts == 1 { "attempt" } else { "attempts" };
    Some(format!(
        "the required server {name:?} did not load ({status}, {attempts} {times}): {error}"
    ))
}

struct ToolLookup<'a> {
    route: &'a Route,
    server: &'a Arc<Server>,
    handshake: HandshakeParams,
}

impl ConnectServer<()> for ToolLookup<'_> {
    async fn connect(&self, _: &str) -> Result<Vec<()>, FailureSignals> {
        let found = self.server.list_once(&self.handshake).await?;
        startup::keep_found(
            &self.route.catalog_cache,
            &self.route.policies,
            self.server,
            &self.handshake,
            &found,
        );
        Ok(Vec::new())
    }
}

/// The gateway's own handshake parameters.
pub(crate) fn handshake() -> HandshakeParams {
    let mut params = JsonObject::default();
    params
        .set("protocolVersion", quoted(LEGACY[0]))
        .set("capabilities", "{}")
        .set("clientInfo", own_info());
    let initialize = params.json();
    HandshakeParams {
        headers: Default::default(),
        prefer: Era::Legacy,
        meta: handshake::meta(&initialize),
        initialize: initialize.into(),
    }
}
