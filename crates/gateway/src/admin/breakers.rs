//! The circuit breakers as an operator sees them; an operator can reset one, force it open or
//! disable it. What an operator does here all replicas do.

use std::sync::Arc;

use http::StatusCode;
use hyper::body::Incoming;
use seawall::{Breaker, BreakerMode, BreakerStatus, Scope};
use serde_json::{Map, Value, json};

use super::body::{self, BreakerWish, ForcedState};
use super::respond::{self, AdminResponse};
use crate::admin::telemetry::Telemetry;
use crate::admin::telemetry::breakers::{self, BreakerScope, WatchedBreaker};
use crate::config::policy::value::{SCOPES, word};
use crate::fleet::{BreakerDeed, Fleet};
use crate::policy::registry::PolicyRegistry;
use crate::protocol::limits;
use crate::runtime::log;
use crate::runtime::plural::counted;

/// All breakers, and the sums of all counters.
pub(super) fn list(policies: &PolicyRegistry, telemetry: &Telemetry) -> AdminResponse {
    let (mut states, mut details) = (Map::new(), Map::new());
    for (name, entry) in breakers::all(policies) {
        let Some(breaker) = entry.breaker() else { continue };
        let detail = detail(breaker, &entry.server);
        states.insert(name.clone(), detail["status"].clone());
        details.insert(name, detail);
    }
    let metrics = telemetry.counts().sums();
    respond::json(
        StatusCode::OK,
        &json!({"breakers": states, "details": details, "metrics": metrics}),
    )
}

fn detail(breaker: &Breaker, server: &str) -> Value {
    let snapshot = breaker.snapshot();
    // A breaker that an operator holds open does not close with time.
    let is_open = snapshot.mode == BreakerMode::Auto && snapshot.status == BreakerStatus::Open;
    let remaining = snapshot.remaining.filter(|_| is_open);
    json!({
        "status": breaker.status(),
        "mode": snapshot.mode,
        "failures": snapshot.failures,
        "lastFailure": snapshot.last_failure_ago.and_then(respond::when),
        "retryAfterMs": remaining.map(respond::millis),
        "server": Some(server).filter(|server| !server.is_empty()),
        "trips": snapshot.trips,
    })
}

/// Closes a breaker.
pub(super) fn reset(
    policies: &PolicyRegistry,
    fleet: Option<&Arc<Fleet>>,
    tool: &str,
) -> AdminResponse {
    let breakers = breakers::all(policies);
    let Some(entry) = breakers.get(tool) else { return unknown() };
    let Some(breaker) = entry.breaker() else { return unknown() };
    if breaker.snapshot().mode == BreakerMode::ForcedOpen {
        let why = "an operator holds it open, and resetting it would not close it; POST …/force {\"state\": \"auto\"} does";
        return respond::error(StatusCode::CONFLICT, why);
    }
    log::line(&format!("an operator resets the breaker of {tool}"));
    breaker.reset();
    tell(fleet, entry, BreakerDeed::Reset);
    respond::json(StatusCode::OK, &json!({"status": "reset", "tool": tool}))
}

/// Closes every breaker that is not closed or has counted failures, unless an operator holds it.
pub(super) fn reset_all(policies: &PolicyRegistry, fleet: Option<&Arc<Fleet>>) -> AdminResponse {
    let breakers = breakers::all(policies);
    let needs_it = |breaker: &Breaker| {
        let snapshot = breaker.snapshot();
        snapshot.mode == BreakerMode::Auto
            && (snapshot.status != BreakerStatus::Closed || snapshot.failures != 0)
    };
    // All are found before any is reset: tools that share one are all told.
    let found: Vec<(&String, &WatchedBreaker, &Breaker)> = breakers
        .iter()
        .filter_map(|(name, entry)| {
            Some((name, entry, entry.breaker().filter(|one| needs_it(one))?))
        })
        .collect();
    for (name, entry, breaker) in &found {
        log::line(&format!("an operator resets the breaker of {name}"));
        breaker.reset();
        tell(fleet, entry, BreakerDeed::Reset);
    }
    let names: Vec<&String> = found.iter().map(|(name, ..)| *name).collect();
    respond::json(StatusCode::OK, &json!({ "reset": names }))
}

/// Forces a breaker open, disables it, or lets it decide again, as the body says.
pub(super) async fn force(
    policies: &PolicyRegistry,
    fleet: Option<&Arc<Fleet>>,
    tool: &str,
    body: Incoming,
) -> AdminResponse {
    let allowed = r#"{"state": "open"}, {"state": "closed"} or {"state": "auto"}"#;
    let wanted = match body::read(body, allowed).await {
        Ok(ForcedState { state }) => state,
        Err(wrong) => return *wrong,
    };
    let breakers = breakers::all(policies);
    let (mode, deed) = match wanted {
        BreakerWish::Open => (BreakerMode::ForcedOpen, "is held open by an operator"),
        BreakerWish::Closed => (BreakerMode::Disabled, "is left out by an operator"),
        BreakerWish::Auto => {
            (BreakerMode::Auto, "decides by itself again, as an operator wants it")
        }
    };
    let Some(entry) = breakers.get(tool).and_then(|entry| entry.force(policies, mode)) else {
        return unknown();
    };
    let (Some(breaker), Some(covers)) = (entry.breaker(), entry.covers(policies)) else {
        return unknown();
    };
    tell(fleet, &entry, BreakerDeed::Force(mode));
    log::line(&format!("the breaker of {tool}{} {deed}", shared(&covers)));
    let named: Vec<&String> = covers.tools.iter().take(limits::COVERED).collect();
    respond::json(
        StatusCode::OK,
        &json!({
            "status": breaker.status(), "mode": mode, "tool": tool,
            "scope": word(&SCOPES, covers.scope), "tools": named, "more": covers.tools.len() - named.len(),
        }),
    )
}

/// Lets all replicas do the same.
fn tell(fleet: Option<&Arc<Fleet>>, entry: &WatchedBreaker, deed: BreakerDeed) {
    if let (Some(fleet), Some(name)) = (fleet, entry.fleet_name()) {
        fleet.order(&name, deed);
    }
}

/// The other tools that a forced breaker concerns, for the log.
fn shared(BreakerScope { scope, tools }: &BreakerScope) -> String {
    let by = match scope {
        Scope::Tool => return String::new(),
        Scope::Server => "its server",
        Scope::Global => "all servers",
    };
    format!(" (shared by {by}: {})", counted(tools.len(), "tool"))
}

fn unknown() -> AdminResponse {
    respond::error(
        StatusCode::NOT_FOUND,
        "no breaker has this name; GET /resilience/breakers lists them",
    )
}
