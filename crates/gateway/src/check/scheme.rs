//! Detects that only one of gateway and server speaks TLS: no log says so, and only the URL has to
//! be corrected.

use crate::config::Transport;

/// The answers of common servers to plain HTTP on a TLS port.
const WANTS_TLS: [&str; 3] = [
    "HTTP request to an HTTPS server",
    "plain HTTP request was sent to HTTPS port",
    "speaking plain HTTP to an SSL",
];

/// The problem and its remedy, if the URL's scheme is wrong about TLS; `why` is the text of the
/// failure.
pub(super) fn mistaken(transport: &Transport, why: &str) -> Option<(String, String)> {
    let (stated, other) = schemes(transport)?;
    let is_tls = is_tls(stated);
    let says = |words: &str| why.contains(words);
    Some(match is_tls {
        true if says("InvalidContentType") => (
            format!("it does not speak TLS, and its url begins with {stated}://"),
            format!("Write {other}:// in its url, or let it speak TLS. Is the port right?"),
        ),
        true if says("tls handshake eof") => (
            format!("it hung up when it was spoken to in TLS: {why}"),
            format!("If it does not speak TLS, write {other}:// in its url. Is the port right?"),
        ),
        false if WANTS_TLS.into_iter().any(says) => (
            format!("it wants TLS, and its url begins with {stated}://"),
            format!("Write {other}:// in its url."),
        ),
        false if says("invalid HTTP version") => (
            "what it answers is no HTTP, and may be TLS".to_owned(),
            format!("If it speaks TLS, write {other}:// in its url. Is the port right?"),
        ),
        _ => return None,
    })
}

/// The URL's scheme with TLS, if the URL has none.
pub(super) fn with_tls(transport: &Transport) -> Option<&'static str> {
    schemes(transport).filter(|(stated, _)| !is_tls(stated)).map(|(_, other)| other)
}

fn is_tls(scheme: &str) -> bool {
    matches!(scheme, "https" | "wss")
}

/// The scheme of a server's URL, and its counterpart with or without TLS.
fn schemes(transport: &Transport) -> Option<(&'static str, &'static str)> {
    let url = match transport {
        Transport::Stdio { .. } | Transport::Incomplete { .. } => return None,
        Transport::Http { url, .. } | Transport::Sse { url, .. } | Transport::Ws { url, .. } => url,
    };
    Some(match url.scheme_str()? {
        "https" => ("https", "http"),
        "wss" => ("wss", "ws"),
        "ws" => ("ws", "wss"),
        _ => ("http", "https"),
    })
}
