//! What operators see of the configuration: when it was read, why the last one was refused; and the
//! request to read it again.

use std::sync::{Arc, Weak};

use http::StatusCode;
use serde_json::{Value, json};

use super::respond::{self, AdminResponse};
use crate::admin::telemetry::date::iso;
use crate::admin::telemetry::ring::EventKind;
use crate::admin::telemetry::{Telemetry, now};
use crate::reload::{ReloadCause, ReloadHistory, Reloader};

/// Puts every change and refusal of the configuration among the events.
pub(super) fn record(reloader: &Arc<Reloader>, telemetry: &Arc<Telemetry>) {
    let telemetry: Weak<Telemetry> = Arc::downgrade(telemetry);
    reloader.when_reloaded(Box::new(move |told| {
        if let Some(telemetry) = telemetry.upgrade() {
            telemetry.ring.push(now(), 0, [EventKind::Shown(told)]);
        }
    }));
}

/// How reading the configuration ended so far.
pub(super) fn history(reloader: Option<&Reloader>) -> AdminResponse {
    match reloader {
        Some(reloader) => respond::json(StatusCode::OK, &told(&reloader.history())),
        None => no_file(),
    }
}

/// Reads the configuration again; 422 with its problems if it is refused.
pub(super) async fn reload(reloader: Option<&Arc<Reloader>>) -> AdminResponse {
    let Some(reloader) = reloader else { return no_file() };
    match reloader.reload(&ReloadCause::Operator).await {
        Ok(change) => {
            respond::json(StatusCode::OK, &json!({"status": "taken", "change": change.json()}))
        }
        Err(error) => respond::error(StatusCode::UNPROCESSABLE_ENTITY, &error),
    }
}

fn told(history: &ReloadHistory) -> Value {
    json!({
        "inForceSince": iso(history.in_force_since),
        "tried": iso(history.tried),
        "taken": history.taken,
        "refused": history.refused,
        "error": history.error,
        "needsRestart": history.needs_restart,
    })
}

fn no_file() -> AdminResponse {
    respond::error(StatusCode::NOT_FOUND, "this gateway does not read its configuration again")
}
