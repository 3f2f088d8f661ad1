//! Decides the words about servers whose tools are missing: for the model, the user and programs.

use bytes::Bytes;
use seawall::{DeniedText, LoadReport, ServerOutcome, Warnings};
use serde_json::{Map, Value, json};

use crate::protocol::build;
use crate::upstream::{Server, seconds};

/// The `_meta` key under which a list names missing servers.
pub(crate) const SERVERS: &str = "seawall/servers";

/// The exact warnings about servers that did not load.
pub(crate) fn warnings(outcomes: Vec<ServerOutcome<()>>, denied: DeniedText) -> Warnings {
    LoadReport { outcomes }.warnings_with(denied)
}

/// A server's status for programs: whether it comes back by itself, why it is missing, and within
/// which time the next reconnection attempt is due. The time that is left would change the bytes of
/// the list, which clients compare and hash, at every call.
pub(crate) fn entry(server: &Server, outcome: &ServerOutcome<()>) -> Value {
    let status = outcome.status();
    let mut entry = json!({"status": status, "reason": outcome.error().unwrap_or_default()});
    let wait = seconds(server.reconnect.pace());
    match status {
        // A transient outage is retried all the time, so at least one second.
        "transient" => entry["retryAfter"] = wait.max(1).into(),
        "permanent" if wait > 0 => entry["retryAfter"] = wait.into(),
        _ => {}
    }
    entry
}

/// The status, for programs, of a server that is available but whose list is incomplete.
pub(crate) fn partial(reason: &str) -> Value {
    json!({"status": "available", "reason": reason})
}

/// The capabilities assumed of a server that has not announced its own yet.
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

/// A warning for the user, as a log notification to the client.
pub(crate) fn message(line: &str) -> Bytes {
    let params = json!({"level": "warning", "logger": "seawall", "data": line});
    build::notification("notifications/message", Some(params.to_string().as_bytes()))
}
