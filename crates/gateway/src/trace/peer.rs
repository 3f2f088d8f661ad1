//! Decides what a span says of the other end: which server it is, and how messages reach it.

use std::sync::{Arc, LazyLock};

use http::Uri;

/// The other end of a span.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    /// The server's name in the configuration; empty for a client.
    pub server: String,
    /// The server's host; empty for a process and for a client.
    pub address: String,
    /// The server's port.
    pub port: Option<u16>,
    /// `network.transport`.
    pub transport: &'static str,
    /// `network.protocol.name`; empty on a pipe.
    pub protocol: &'static str,
}

static PIPE: LazyLock<Arc<Peer>> =
    LazyLock::new(|| Arc::new(Peer { transport: "pipe", ..Peer::default() }));
static HTTP: LazyLock<Arc<Peer>> =
    LazyLock::new(|| Arc::new(Peer { transport: "tcp", protocol: "http", ..Peer::default() }));

impl Peer {
    /// A client.
    pub(crate) fn client(is_local: bool) -> &'static Arc<Self> {
        if is_local { &PIPE } else { &HTTP }
    }

    /// A server at a URL, or behind a pipe.
    pub(crate) fn server(name: &str, url: Option<&Uri>) -> Arc<Self> {
        let server = name.to_owned();
        let Some(url) = url else {
            return Arc::new(Self { server, transport: "pipe", ..Self::default() });
        };
        let (protocol, port) = match url.scheme_str() {
            Some("https") => ("http", 443),
            Some("ws") => ("websocket", 80),
            Some("wss") => ("websocket", 443),
            _ => ("http", 80),
        };
        Arc::new(Self {
            server,
            address: url.host().unwrap_or_default().to_owned(),
            port: Some(url.port_u16().unwrap_or(port)),
            transport: "tcp",
            protocol,
        })
    }
}
