//! Decides what is offered over HTTP, and at which paths: MCP, health, metrics, breakers, the queue.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, State};
use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use seawall_gateway::queue::QueueStore;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::keys::{Keys, admit, refused};
use crate::server::{Manager, Session};

/// The most that a request may have: an issue's text is at most 256 KiB.
const REQUEST: usize = 1 << 20;

#[derive(Clone)]
struct Http {
    manager: Arc<Manager>,
    sessions: Arc<LocalSessionManager>,
    store: Option<QueueStore>,
    began: Instant,
}

/// All routes.
pub(crate) fn routes(
    manager: &Arc<Manager>,
    store: Option<QueueStore>,
    keys: Keys,
    hosts: &[String],
    stop: &CancellationToken,
) -> Router {
    let sessions: Arc<LocalSessionManager> = Arc::default();
    let served = Arc::clone(manager);
    let names = ["localhost", "127.0.0.1", "::1"].into_iter().map(str::to_owned);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(names.chain(hosts.iter().cloned()))
        .with_max_request_body_bytes(REQUEST)
        .with_cancellation_token(stop.clone());
    let mcp = StreamableHttpService::new(
        move || Ok(Session::new(&served)),
        Arc::clone(&sessions),
        config,
    );
    #[expect(clippy::disallowed_methods, reason = "/health tells how long it has been there")]
    let began = Instant::now();
    let http = Http { manager: Arc::clone(manager), sessions, store, began };
    Router::new()
        .route_service("/mcp", mcp)
        .route("/metrics", get(metrics))
        .route("/resilience/breakers", get(breakers))
        .route("/resilience/breakers/{tool}/reset", post(reset))
        .route("/resilience/queue", get(queue))
        .fallback(nothing)
        .layer(from_fn_with_state(Arc::new(keys), admit))
        // Added after the layer: whoever watches the process needs no key.
        .route("/health", get(health))
        .with_state(http)
}

async fn health(State(http): State<Http>) -> Json<Value> {
    let connections = http.sessions.sessions.read().await.len();
    Json(json!({
        "status": "ok", "uptime": http.began.elapsed().as_secs(), "activeConnections": connections,
    }))
}

async fn metrics(State(http): State<Http>) -> Response {
    let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, http.manager.metrics_text()).into_response()
}

async fn breakers(State(http): State<Http>) -> Json<Value> {
    let caller = &http.manager.caller;
    let (mut breakers, mut details) = (Map::new(), Map::new());
    for (tool, state) in caller.all_breaker_status() {
        breakers.insert(tool.to_string(), state.to_string().into());
        let Some(now) = caller.breaker_status(&tool) else { continue };
        let millis = now.remaining.map(|left| left.as_millis().to_string().parse::<u64>().ok());
        details.insert(
            tool.to_string(),
            json!({
                "status": now.status.to_string(), "failures": now.failures, "trips": now.trips,
                "retryAfterMs": millis,
            }),
        );
    }
    Json(json!({"breakers": breakers, "details": details, "metrics": http.manager.counts.sums()}))
}

async fn reset(State(http): State<Http>, Path(tool): Path<String>) -> Response {
    if http.manager.caller.reset_breaker(&tool) {
        return Json(json!({"status": "reset", "tool": tool})).into_response();
    }
    refused(
        StatusCode::NOT_FOUND,
        &format!("no tool is called {tool:?}; GET /resilience/breakers names them"),
    )
}

async fn queue(State(http): State<Http>) -> Response {
    let Some(store) = &http.store else {
        return refused(StatusCode::NOT_FOUND, "nothing is queued: start with --store FOLDER");
    };
    match store.list().await {
        Ok(items) => Json(json!({"items": items})).into_response(),
        Err(error) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn nothing() -> Response {
    refused(
        StatusCode::NOT_FOUND,
        "nothing is here; /mcp, /health, /metrics, /resilience/breakers, /resilience/queue are",
    )
}
