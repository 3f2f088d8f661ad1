//! The tools as an operator sees them: how often each was called since the gateway started, how the
//! calls ended and how long they took.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Value, json};

use super::respond::{self, AdminResponse};
use crate::admin::telemetry::Telemetry;
use crate::admin::telemetry::counts::{ToolCounts, UNKNOWN};
use crate::catalog::names;
use crate::policy::registry::{PolicyName, PolicyRegistry};

/// Every tool that a server listed or that was called, by the name that clients know.
pub(super) fn list(policies: &PolicyRegistry, telemetry: &Telemetry) -> AdminResponse {
    let mut tools = BTreeMap::new();
    let shown = |server: &str, tool: &str| match policies.is_single() {
        true => tool.to_owned(),
        false => names::public(server, tool),
    };
    let listed = policies.all();
    for (_, tool) in listed.iter().filter(|(named, _)| *named == PolicyName::Tool) {
        let (server, tool) = (tool.server().name(), tool.name());
        tools.insert(shown(server, tool), numbers(server, tool, &ToolCounts::default()));
    }
    for (server, tool, counts) in telemetry.counts().called() {
        tools.insert(shown(server, tool), numbers(server, tool, counts));
    }
    respond::json(StatusCode::OK, &json!({ "tools": tools }))
}

fn numbers(server: &str, tool: &str, counts: &ToolCounts) -> Value {
    json!({
        "server": server,
        "tool": tool,
        "listed": tool != UNKNOWN,
        "calls": counts.all(),
        "errors": counts.errors(),
        "attempts": counts.attempts,
        "retries": counts.retries,
        "timeouts": counts.timeouts,
        "fallbacks": counts.fallbacks.values().sum::<u64>(),
        "degraded": counts.degraded,
        "p50Ms": counts.took.quantile(0.5).map(tenths),
        "p99Ms": counts.took.quantile(0.99).map(tenths),
    })
}

/// Rounded: the buckets know no more.
fn tenths(millis: f64) -> f64 {
    (millis * 10.0).round() / 10.0
}
