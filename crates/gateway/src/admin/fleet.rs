//! The other replicas as an operator sees them, and the one event about their Redis.

use std::sync::{Arc, Weak};

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::respond::{self, AdminResponse};
use crate::admin::telemetry::ring::EventKind;
use crate::admin::telemetry::{Telemetry, now};
use crate::fleet::{Fleet, FleetStatus};
use crate::runtime::lifecycle::Lifecycle;
use crate::store::redis::RedisState;

/// Redis and the live replicas; 404 without Redis.
pub(super) fn status(fleet: Option<&Arc<Fleet>>) -> AdminResponse {
    match fleet {
        Some(fleet) => respond::json(StatusCode::OK, &told(&fleet.status())),
        None => respond::error(
            StatusCode::NOT_FOUND,
            "this gateway shares nothing with others; [store] redis joins them",
        ),
    }
}

fn told(status: &FleetStatus) -> Value {
    let open = status.open.iter().map(|(name, (votes, is_quorum))| {
        (name.clone(), json!({"replicas": votes, "quorum": is_quorum}))
    });
    let (redis, since, why) = match &status.redis {
        RedisState::Connected { since } => ("connected", since, None),
        RedisState::Away { since, why } => ("away", since, Some(why.as_str())),
    };
    json!({
        "redis": redis,
        "sinceMs": respond::millis(since.elapsed()),
        "why": why.filter(|why| !why.is_empty()),
        "replica": status.id,
        "replicas": status.replicas,
        "quorum": status.quorum,
        "open": Value::Object(open.collect()),
    })
}

/// Puts every change of the connection among the events.
pub(super) fn record(fleet: &Fleet, telemetry: &Arc<Telemetry>, lifecycle: &Lifecycle) {
    let telemetry: Weak<Telemetry> = Arc::downgrade(telemetry);
    let (mut state, stop) = (fleet.connection(), lifecycle.ended.clone());
    lifecycle.spawn(async move {
        while let Some(Ok(())) = stop.run_until_cancelled(state.changed()).await {
            let Some(telemetry) = telemetry.upgrade() else { return };
            let event = event(&state.borrow_and_update());
            telemetry.ring.push(now(), 0, [EventKind::Shown(event)]);
        }
    });
}

fn event(state: &RedisState) -> Map<String, Value> {
    let mut event = Map::new();
    match state {
        RedisState::Connected { .. } => {
            event.insert("event".to_owned(), "store_connected".into());
        }
        RedisState::Away { why, .. } => {
            event.insert("event".to_owned(), "store_away".into());
            event.insert("error".to_owned(), why.as_str().into());
        }
    }
    event
}
