//! Servers whose tools are missing: what the model, the user and a program are told of them.

use bytes::Bytes;
use seawall::{DeniedText, LoadReport, ServerOutcome, Warnings};
use serde_json::{Map, Value, json};

use crate::protocol::build;
use crate::upstream::{Server, seconds};

/// Where a list says which servers are missing.
pub(crate) const SERVERS: &str = "seawall/servers";

/// The exact lines about servers that did not load.
pub(crate) fn warnings(outcomes: Vec<ServerOutcome<()>>, denied: DeniedText) -> Warnings {
    LoadReport { outcomes }.warnings_with(denied)
}

/// What a program is told of a server: whether it will come back by itself, why it is not there,
/// when it is tried next.
pub(crate) fn entry(server: &Server, outcome: &ServerOutcome<()>) -> Value {
    let status = outcome.status();
    let mut entry = json!({"status": status, "reason": outcome.error().unwrap_or_default()});
    let wait = seconds(server.reconnect.wait());
    match status {
        // It is tried all the time.
        "transient" => entry["retryAfter"] = wait.max(1).into(),
        "permanent" if wait > 0 => entry["retryAfter"] = wait.into(),
        _ => {}
    }
    entry
}

/// What a program is told of a server that is there, but whose list is not whole.
pub(crate) fn partial(reason: &str) -> Value {
    json!({"status": "available", "reason": reason})
}

/// What a client may ask of a server that has not said yet what it can do.
pub(crate) fn capabilities() -> Map<String, Value> {
    let changing = json!({"listChanged": true});
    let all = [
        ("tools", changing.clone()),
        ("prompts", changing.clone()),
        ("resources", changing),
        ("logging", json!({})),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A line for the user, as the client gets it.
pub(crate) fn message(line: &str) -> Bytes {
    let params = json!({"level": "warning", "logger": "seawall", "data": line});
    build::notification("notifications/message", Some(params.to_string().as_bytes()))
}
