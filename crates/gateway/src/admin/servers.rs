//! The servers as an operator sees them.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use seawall::Tool;
use serde_json::{Map, Value, json};

use super::respond::{self, AdminResponse};
use crate::admin::telemetry::scrape::ServerSnapshot;
use crate::gateway::Gateway;
use crate::policy::registry::PolicyName;
use crate::runtime::log;
use crate::upstream::Server;
use crate::upstream::chaos::ServerChaos;
use crate::upstream::status::Observations;

/// All servers.
pub(super) fn list(gateway: &Gateway) -> AdminResponse {
    let tools = gateway.all().policies.all();
    let told = |server: &Arc<Server>| (server.name.clone(), detail(server, &tools));
    let servers: Map<String, Value> = gateway.now().servers.iter().map(told).collect();
    respond::json(StatusCode::OK, &json!({"servers": servers}))
}

fn detail(server: &Server, all: &[(PolicyName, Arc<Tool>)]) -> Value {
    let seen = server.status.seen();
    let is_its = |(named, tool): &&(PolicyName, Arc<Tool>)| {
        *named == PolicyName::Tool && tool.server().name() == server.name
    };
    let tools = all.iter().filter(is_its).count();
    // Null for a server that was never listed: zero would say that it has no tools.
    let tools = (tools > 0 || server.startup.is_loaded()).then_some(tools);
    let stderr: Vec<String> = seen.stderr.iter().map(|line| server.without_secrets(line)).collect();
    json!({
        "status": word(server, &seen),
        "load": server.startup.status(),
        "required": server.required,
        "tools": tools,
        "attempts": server.startup.attempts(),
        "lastError": seen.last_error.as_deref().map(|error| server.without_secrets(error)),
        "nextTryMs": next_try(server, &seen).map(respond::millis),
        "lastExit": seen.last_exit,
        "pid": seen.pids.last(),
        "pids": seen.pids,
        "restarts": seen.restarts,
        "since": seen.since.and_then(|since| respond::when(since.elapsed())),
        "noise": seen.noise,
        "strays": seen.strays,
        "stderr": stderr,
        "chaos": server.chaos.as_ref().map(|chaos| json!({
            "adds": chaos.told(), "struck": Map::from_iter(struck(chaos)),
        })),
    })
}

fn struck(chaos: &ServerChaos) -> impl Iterator<Item = (String, Value)> {
    chaos.struck().into_iter().map(|(fault, count)| (fault.to_owned(), count.into()))
}

/// The time until the backoff tries a server again that is away.
fn next_try(server: &Server, seen: &Observations) -> Option<Duration> {
    Some(server.reconnect.wait())
        .filter(|wait| matches!(seen.word(), "away" | "down") && !wait.is_zero())
}

/// The state of a server in one word. A server whose tools cannot be listed is not up.
fn word(server: &Server, seen: &Observations) -> &'static str {
    match (seen.word(), server.startup.status()) {
        ("up", None | Some("available")) => "up",
        ("up", Some(_)) if server.startup.is_unlisted() => "unlisted",
        ("up", Some(_)) => "starting",
        (word, _) => word,
    }
}

/// Restarts a server for all its clients; no client's session ends.
pub(super) fn restart(gateway: &Gateway, name: &str) -> AdminResponse {
    let Some(server) = gateway.server(name) else {
        return respond::error(
            StatusCode::NOT_FOUND,
            "there is no server of this name; GET /resilience/servers lists them",
        );
    };
    log::line(&format!("an operator restarts {name}"));
    server.restart();
    respond::json(StatusCode::OK, &detail(&server, &gateway.all().policies.all()))
}

/// Whether each server is up. An idle server that was stopped counts as up.
pub(super) fn now(servers: &[Arc<Server>]) -> Vec<ServerSnapshot<'_>> {
    let now = |server: &'_ Arc<Server>| {
        let seen = server.status.seen();
        let is_up = matches!(word(server, &seen), "up" | "starting" | "resting");
        let chaos = server.chaos.as_ref().map(ServerChaos::struck);
        (is_up, seen.restarts, server.startup.status(), chaos)
    };
    let servers = servers.iter().map(|server| (server.name.as_str(), now(server)));
    servers
        .map(|(name, (is_up, reconnects, load, chaos))| ServerSnapshot {
            name,
            is_up,
            reconnects,
            load,
            chaos,
        })
        .collect()
}
