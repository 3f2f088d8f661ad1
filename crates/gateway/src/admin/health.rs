//! Health checks: whether the process is alive, and whether it is ready for clients.

use http::StatusCode;
use serde_json::json;

use super::respond::{self, AdminResponse};
use crate::gateway::Gateway;

/// Liveness: a process that answers is alive.
pub(super) fn alive() -> AdminResponse {
    respond::json(StatusCode::OK, &json!({"status": "ok"}))
}

/// Readiness: every required server is loaded, and the gateway is not shutting down. Only readers
/// with access see the names of missing servers.
pub(super) fn ready(gateway: &Gateway, shows_names: bool) -> AdminResponse {
    if gateway.lifecycle.draining.is_cancelled() {
        return respond::json(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "draining"}));
    }
    let now = gateway.now();
    let known = now.config.servers.iter().zip(&now.servers);
    let missing = known
        .filter(|(config, server)| config.required && !server.startup.is_loaded())
        .map(|(_, server)| server);
    let missing: Vec<&str> = missing.map(|server| server.name.as_str()).collect();
    match (missing.is_empty(), shows_names) {
        (true, _) => respond::json(StatusCode::OK, &json!({"status": "ready"})),
        (false, true) => respond::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &json!({"status": "not ready", "missing": missing}),
        ),
        (false, false) => {
            respond::json(StatusCode::SERVICE_UNAVAILABLE, &json!({"status": "not ready"}))
        }
    }
}
