//! The breakers as an operator sees them, and how one is closed by hand.

use http::StatusCode;
use seawall::{Breaker, Status};
use serde_json::{Map, Value, json};

use super::respond::{self, Answer};
use crate::ops::log;
use crate::ops::telemetry::{Telemetry, breakers};
use crate::policies::Policies;

/// All breakers, and the sums of what happened.
pub(super) fn list(policies: &Policies, telemetry: &Telemetry) -> Answer {
    let (mut states, mut details) = (Map::new(), Map::new());
    for (name, entry) in breakers::all(policies) {
        let Some(breaker) = entry.breaker() else { continue };
        let detail = detail(breaker, &entry.server);
        states.insert(name.clone(), detail["status"].clone());
        details.insert(name, detail);
    }
    let metrics = telemetry.counts().sums();
    respond::json(StatusCode::OK, &json!({"breakers": states, "details": details, "metrics": metrics}))
}

fn detail(breaker: &Breaker, server: &str) -> Value {
    let snapshot = breaker.snapshot();
    let remaining = snapshot.remaining.filter(|_| snapshot.status == Status::Open);
    json!({
        "status": snapshot.status,
        "failures": snapshot.failures,
        "lastFailure": snapshot.last_failure_ago.and_then(respond::when),
        "retryAfterMs": remaining.map(respond::millis),
        "server": Some(server).filter(|server| !server.is_empty()),
        "trips": snapshot.trips,
    })
}

/// Closes a breaker.
pub(super) fn reset(policies: &Policies, tool: &str) -> Answer {
    let breakers = breakers::all(policies);
    let Some(breaker) = breakers.get(tool).and_then(|entry| entry.breaker()) else {
        return respond::error(StatusCode::NOT_FOUND, "no breaker has this name; GET /resilience/breakers lists them");
    };
    log::line(&format!("an operator resets the breaker of {tool}"));
    breaker.reset();
    respond::json(StatusCode::OK, &json!({"status": "reset", "tool": tool}))
}
