//! Decides which URLs are valid, and which transport a URL implies.

use http::{HeaderName, Uri};

use super::problem::{ConfigPlace, Problem};
use super::raw::TransportName;
use super::{Secret, Transport};

/// Parses a URL. It may hold a secret, so problems do not quote it.
pub(super) fn parse(place: &ConfigPlace, text: &str) -> Result<Uri, Problem> {
    check(text).map_err(|error| place.problem(error))
}

fn check(text: &str) -> Result<Uri, &'static str> {
    const INVALID: &str = "is not a valid URL; write it like \"https://server.example/mcp\"";
    let (scheme, rest) = text.trim().split_once("://").ok_or(INVALID)?;
    let scheme = scheme.to_ascii_lowercase();
    if !["http", "https", "ws", "wss"].contains(&scheme.as_str()) {
        return Err(
            "must start with http://, https://, ws:// or wss://; no other way (unix://, pipe://) is supported",
        );
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("has a user name or password in it; put it into headers, as Authorization");
    }
    let url: Uri = format!("{scheme}://{rest}").parse().map_err(|_| INVALID)?;
    let host = url.host().filter(|host| !host.is_empty()).ok_or(INVALID)?;
    // Anything after the host has to be a port.
    if authority.len() > host.len() && url.port_u16().is_none() {
        return Err(INVALID);
    }
    Ok(url)
}

/// The transport for a URL: the stated one if it fits, else a guess.
pub(super) fn transport(
    stated: Option<TransportName>,
    url: Uri,
    headers: Vec<(HeaderName, Secret)>,
) -> Result<Transport, &'static str> {
    let is_ws = matches!(url.scheme_str(), Some("ws" | "wss"));
    let has_sse_path = url.path().split('/').any(|part| part == "sse");
    match stated {
        Some(TransportName::Ws) if !is_ws => {
            Err("must start with ws:// or wss://, or its type be \"http\" or \"sse\"")
        }
        Some(TransportName::Http | TransportName::Sse) if is_ws => {
            Err("must start with http:// or https://, or its type be \"ws\"")
        }
        Some(TransportName::Http) => Ok(Transport::Http { url, headers, sse_fallback: false }),
        Some(TransportName::Sse) => Ok(Transport::Sse { url, headers }),
        _ if is_ws => Ok(Transport::Ws { url, headers }),
        _ if has_sse_path => Ok(Transport::Sse { url, headers }),
        _ => Ok(Transport::Http { url, headers, sse_fallback: true }),
    }
}
