//! Decides the era of a message, and whether a modern request is complete.

use std::borrow::Cow;

use serde_json::json;

use crate::protocol::build::{self, RpcError};
use crate::protocol::names::{CLIENT_CAPABILITIES, Era, LEGACY, MODERN, PROTOCOL_VERSION};
use crate::protocol::{Message, scan};

/// Methods that the modern era no longer has.
const REMOVED: [&str; 5] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// The era of a message; `header` is the version in the HTTP header.
pub(super) fn era(message: &Message, header: Option<&str>) -> Era {
    let is_said = message.meta(PROTOCOL_VERSION).is_some();
    let is_legacy = header.is_none_or(|version| LEGACY.contains(&version));
    let is_discovery = message.method() == "server/discover" && header.is_none();
    if is_said || !is_legacy || is_discovery { Era::Modern } else { Era::Legacy }
}

/// The protocol revision that a modern request states.
pub(super) fn stated(request: &Message) -> Result<Cow<'_, str>, RpcError> {
    request
        .meta_json(PROTOCOL_VERSION)
        .and_then(scan::text)
        .ok_or_else(|| missing(PROTOCOL_VERSION))
}

/// Checks that a modern request can be taken.
pub(super) fn check(request: &Message) -> Result<(), RpcError> {
    let version = stated(request)?;
    if version != MODERN {
        let data = json!({"supported": [MODERN], "requested": version});
        return Err(
            RpcError::new(build::UNSUPPORTED_VERSION, "unsupported protocol version").with(data)
        );
    }
    if request.meta_json(CLIENT_CAPABILITIES).is_none_or(|json| json.first() != Some(&b'{')) {
        return Err(missing(CLIENT_CAPABILITIES));
    }
    if REMOVED.contains(&request.method()) {
        let text = format!("{} is not part of protocol revision {MODERN}", request.method());
        return Err(RpcError::new(build::METHOD_NOT_FOUND, text));
    }
    Ok(())
}

fn missing(name: &str) -> RpcError {
    RpcError::new(build::INVALID_PARAMS, format!("params._meta[\"{name}\"] is missing"))
}
