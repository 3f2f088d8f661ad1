//! Upstream servers: how the gateway reaches each server, which era it speaks, and the connections
//! to it.
//!
//! `connection` is one connection, over a `pipe` (to a `child`, over `websocket`, over legacy
//! `sse`) or over `http`. `handshake` opens a connection, `startup` repeats a failed handshake a
//! few times, `probe` opens one connection and closes it again, `supervisor` keeps a connection
//! open, `reconnect` sets the pace of reconnection. `status` holds the observed state of a server,
//! `endpoint` resolves the POST address of a legacy event stream, `stderr` reads a child's stderr,
//! `header_params` copies arguments into headers for tools that ask for it, and `chaos` adds faults
//! where the configuration asks for them.

pub(crate) mod call;
pub(crate) mod chaos;
pub(crate) mod child;
pub(crate) mod connection;
mod endpoint;
mod failure;
pub(crate) mod handshake;
pub(crate) mod header_params;
pub(crate) mod http;
pub(crate) mod incidents;
mod lost_session;
pub(crate) mod pipe;
pub(crate) mod probe;
pub(crate) mod processes;
pub(crate) mod reconnect;
mod redirect;
pub(crate) mod reply;
mod response;
mod signals;
mod sse;
pub(crate) mod startup;
pub(crate) mod status;
mod stderr;
mod stderr_limit;
pub(crate) mod supervisor;
mod websocket;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use seawall::{Env, FailureSignals, Rng};
use tokio::sync::watch;

pub use connection::Connection;
pub use failure::UpstreamFailure;
pub(crate) use failure::{beginning, seconds};
use handshake::HandshakeParams;
pub(crate) use lost_session::SendAgain;
pub use supervisor::ConnectionSupervisor;

use crate::config::{
    PassedHeader, SecretTexts, ServerConfig, ServerLifetime, StartupConfig, Transport,
};
use crate::protocol::names::Era;
use crate::runtime::http_client;
use crate::runtime::lifecycle::Lifecycle;
use crate::trace::peer::Peer;

/// The transport of a connection.
pub enum Wire {
    /// A duplex pipe: messages travel both ways, one after the other.
    Pipe(pipe::PipeWriter),
    /// One HTTP exchange per message.
    Http(Box<http::HttpConnection>),
}

/// Runs for every connection once its handshake has succeeded.
pub(crate) type GreetedHook =
    Box<dyn Fn(&Arc<Server>, &HandshakeParams, &Arc<Connection>) + Send + Sync>;

/// One configured server.
pub struct Server {
    /// The server's name in the configuration.
    pub name: String,
    /// Whether all clients share one connection.
    pub shared: bool,
    /// The arguments that the server's tools want repeated in headers.
    pub header_params: Arc<header_params::HeaderParams>,
    /// Whether the gateway's start fails if this server cannot be loaded.
    pub required: bool,
    /// The outcome of loading the server: handshake and first tool list.
    pub startup: startup::ServerStartup,
    /// When the server runs: lazily, until idle, and how it is reconnected.
    pub life: ServerLifetime,
    /// The observed state of the server, over all its connections.
    pub status: Arc<status::ServerStatus>,
    /// The backoff before the next reconnection.
    pub reconnect: reconnect::ReconnectState,
    /// Losses of the server that several calls share, for transports where all connections reach
    /// the same server process.
    pub incidents: Arc<incidents::Incidents>,
    /// What spans say of the server.
    pub(crate) peer: Arc<Peer>,
    /// The faults that are added to calls, if the configuration asks for any.
    pub(crate) chaos: Option<chaos::ServerChaos>,
    secrets: Arc<SecretTexts>,
    pass_headers: Vec<PassedHeader>,
    transport: Transport,
    /// Legacy SSE at the same URL, tried if the configuration states no transport and HTTP is
    /// refused.
    older: Option<Transport>,
    is_older: AtomicBool,
    http: http_client::SharedHttpClient,
    lifecycle: Arc<Lifecycle>,
    processes: Arc<processes::Processes>,
    only: Mutex<Option<Era>>,
    /// Counts restarts by hand; every supervisor of this server watches the count.
    again: watch::Sender<u64>,
    when_greeted: OnceLock<GreetedHook>,
}

impl Server {
    /// A server as it is configured; starts nothing yet.
    pub fn new(
        config: ServerConfig,
        startup: StartupConfig,
        http: http_client::SharedHttpClient,
        lifecycle: Arc<Lifecycle>,
        processes: Arc<processes::Processes>,
        env: Env,
    ) -> Arc<Self> {
        let secrets = Arc::new(SecretTexts::of(&config));
        let ServerConfig { name, transport, shared, required, life, access, chaos, .. } = config;
        let older = match &transport {
            Transport::Http { url, headers, sse_fallback: true } => {
                Some(Transport::Sse { url: url.clone(), headers: headers.clone() })
            }
            _ => None,
        };
        let status: Arc<status::ServerStatus> = Arc::default();
        let is_process = matches!(transport, Transport::Stdio { .. });
        let reconnect = &life.reconnect;
        let reconnect = reconnect::ReconnectState::new(
            &name,
            Arc::clone(&status),
            &secrets,
            reconnect,
            is_process,
            Rng::new(),
        );
        let peer = Peer::server(&name, reached(&transport));
        Arc::new(Self {
            name,
            peer,
            shared,
            required,
            startup: startup::ServerStartup::new(startup, env),
            header_params: Arc::default(),
            incidents: Arc::default(),
            life,
            status,
            reconnect,
            chaos: chaos.map(chaos::ServerChaos::new),
            secrets,
            pass_headers: access.pass_headers,
            transport,
            older,
            is_older: AtomicBool::new(false),
            http,
            lifecycle,
            processes,
            only: Mutex::new(None),
            again: watch::Sender::new(0),
            when_greeted: OnceLock::new(),
        })
    }

    /// Registers the hook that runs for every connection after its handshake: it lists the server's
    /// tools.
    pub(crate) fn when_greeted(&self, then: GreetedHook) {
        let _once = self.when_greeted.set(then);
    }

    /// The handshake on `connection` has succeeded, and calls may use it now. Without a hook the
    /// tools are not listed, so the load counts as successful at once.
    fn greeted(self: &Arc<Self>, handshake: &HandshakeParams, connection: &Arc<Connection>) {
        match self.when_greeted.get() {
            Some(then) => then(self, handshake, connection),
            None => self.startup.worked(),
        }
    }

    /// Ends every connection to the server and reopens those that a client holds. Clears the
    /// reconnection backoff and the failure count first.
    pub fn restart(&self) {
        self.reconnect.worked();
        // After the backoff is cleared: a supervisor that wakes up by this count reads the backoff
        // next.
        self.again.send_modify(|count| *count += 1);
    }

    /// The only era that the server speaks, once a handshake has shown that it refuses the other.
    pub(crate) fn only_speaks(&self) -> Option<Era> {
        *self.only.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_only(&self, era: Era) {
        *self.only.lock().unwrap_or_else(PoisonError::into_inner) = Some(era);
    }

    /// Whether the server sees the headers of a request, and so checks them itself.
    pub(crate) fn sees_headers(&self, connection: &Connection) -> bool {
        connection.era() == Era::Modern && matches!(self.transport, Transport::Http { .. })
    }

    /// The server's key in the catalog cache: a hash of its command and environment, or of its name
    /// and URL.
    pub(crate) fn remembered_as(&self) -> String {
        self.transport.remembered_as(&self.name)
    }

    /// The text without credentials and configured secrets, short enough to be quoted.
    pub(crate) fn without_secrets(&self, text: &str) -> String {
        seawall::quote(&self.hidden(text))
    }

    /// The failure signals without configured secrets: signals go to logs, events, stores and
    /// clients.
    pub(crate) fn discreet(&self, signals: FailureSignals) -> FailureSignals {
        let body = signals.body.as_deref().map(|body| self.hidden(body));
        FailureSignals { message: self.hidden(&signals.message), body, ..signals }
    }

    /// The whole text without configured secrets.
    pub(crate) fn hidden(&self, text: &str) -> String {
        self.secrets.hide(text)
    }

    /// Whether each connection to the server is a child process of the gateway.
    pub(crate) fn is_child(&self) -> bool {
        matches!(self.transport, Transport::Stdio { .. })
    }

    /// The headers of a client that the server gets, under the server's own names for them.
    pub(crate) fn passed(&self, headers: &HeaderMap) -> Vec<(HeaderName, HeaderValue)> {
        let passed =
            |rule: &PassedHeader| Some((rule.to.clone(), rule.value(headers.get(&rule.from))?));
        self.pass_headers.iter().filter_map(passed).collect()
    }

    /// The client's own headers that the server gets, one for each rule: clients with different
    /// ones share no connection.
    pub(crate) fn personal<'a>(&self, headers: &'a HeaderMap) -> Vec<&'a [u8]> {
        let own = |rule: &PassedHeader| {
            headers.get(&rule.from).map(HeaderValue::as_bytes).unwrap_or_default()
        };
        self.pass_headers.iter().map(own).collect()
    }

    /// The server's URL; `None` for a child process and an incomplete configuration.
    pub fn url(&self) -> Option<&Uri> {
        reached(&self.transport)
    }
}

/// The URL of a transport; `None` for a child process and an incomplete configuration.
fn reached(transport: &Transport) -> Option<&Uri> {
    match transport {
        Transport::Stdio { .. } | Transport::Incomplete { .. } => None,
        Transport::Http { url, .. } | Transport::Sse { url, .. } | Transport::Ws { url, .. } => {
            Some(url)
        }
    }
}
