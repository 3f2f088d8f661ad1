//! The servers: how each is reached, what it speaks, and the conversations with it.
//!
//! `connection` is one conversation, over a `pipe` (to a `child`, over `websocket`, over legacy
//! `sse`) or over `http`; `handshake` opens it, `startup` tries that a few times, `probe` once,
//! `supervisor` keeps it open, `reconnect` says how soon; `status` is what is known of a server,
//! `endpoint` how its address is shown, `stderr` what it says outside the protocol, `orphans` finds
//! what it started, `watcher` outlives us for that; `header_params` puts arguments into headers
//! where a tool wants that.

pub(crate) mod call;
pub(crate) mod child;
pub(crate) mod connection;
mod endpoint;
mod failure;
pub(crate) mod handshake;
pub(crate) mod header_params;
pub(crate) mod http;
pub mod http_client;
pub(crate) mod incidents;
mod lost_session;
pub(crate) mod orphans;
pub(crate) mod pipe;
pub(crate) mod probe;
pub(crate) mod processes;
pub(crate) mod reconnect;
pub(crate) mod reply;
mod response;
mod signals;
mod sse;
pub(crate) mod startup;
pub(crate) mod status;
mod stderr;
mod stderr_limit;
pub(crate) mod supervisor;
pub(crate) mod watcher;
mod websocket;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ::http::Uri;
use seawall::{Env, FailureSignals, Rng};
use tokio::sync::watch;

pub use connection::Connection;
pub use failure::UpstreamFailure;
pub(crate) use failure::{beginning, seconds};
use handshake::HandshakeParams;
pub(crate) use lost_session::SendAgain;
pub use supervisor::ConnectionSupervisor;

use crate::config::{SecretTexts, ServerConfig, ServerLifetime, StartupConfig, Transport};
use crate::protocol::names::Era;
use crate::runtime::lifecycle::Lifecycle;

/// What carries the messages.
pub enum Wire {
    /// Both ways, one message after the other.
    Pipe(pipe::PipeWriter),
    /// One HTTP exchange per message.
    Http(Box<http::HttpConnection>),
}

/// What is done with every conversation once the server was greeted in it.
pub(crate) type GreetedHook =
    Box<dyn Fn(&Arc<Server>, &HandshakeParams, &Arc<Connection>) + Send + Sync>;

/// One configured server.
pub struct Server {
    /// Its name in the configuration.
    pub name: String,
    /// Whether all clients share one conversation.
    pub shared: bool,
    /// Which arguments its tools want in headers.
    pub header_params: Arc<header_params::HeaderParams>,
    /// Whether the start fails if it cannot be loaded.
    pub required: bool,
    /// What came of loading it.
    pub startup: startup::ServerStartup,
    /// When it is there.
    pub life: ServerLifetime,
    /// What is known of it.
    pub status: Arc<status::ServerStatus>,
    /// How soon it is tried again.
    pub reconnect: reconnect::ReconnectState,
    /// When it was lost to all who use it, where they use the same one.
    pub incidents: Arc<incidents::Incidents>,
    secrets: Arc<SecretTexts>,
    transport: Transport,
    /// The transport of old to try at the same address, where none was stated.
    older: Option<Transport>,
    is_older: AtomicBool,
    http: http_client::SharedHttpClient,
    lifecycle: Arc<Lifecycle>,
    processes: Arc<processes::Processes>,
    only: Mutex<Option<Era>>,
    /// How often somebody wanted it to start again.
    again: watch::Sender<u64>,
    when_greeted: OnceLock<GreetedHook>,
}

impl Server {
    /// A server as it is configured; nothing is started yet.
    pub fn new(
        config: ServerConfig,
        startup: StartupConfig,
        http: http_client::SharedHttpClient,
        lifecycle: Arc<Lifecycle>,
        processes: Arc<processes::Processes>,
        env: Env,
    ) -> Arc<Self> {
        let secrets = Arc::new(SecretTexts::of(&config));
        let ServerConfig { name, transport, shared, required, life, .. } = config;
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
        Arc::new(Self {
            name,
            shared,
            required,
            startup: startup::ServerStartup::new(startup, env),
            header_params: Arc::default(),
            incidents: Arc::default(),
            life,
            status,
            reconnect,
            secrets,
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

    /// Says what is done with every conversation once the server was greeted in it: its tools are
    /// listed.
    pub fn when_greeted(&self, then: GreetedHook) {
        let _once = self.when_greeted.set(then);
    }

    /// The server was greeted in a conversation, which may be used now.
    fn greeted(self: &Arc<Self>, handshake: &HandshakeParams, connection: &Arc<Connection>) {
        match self.when_greeted.get() {
            Some(then) => then(self, handshake, connection),
            None => self.startup.worked(),
        }
    }

    /// Ends every conversation with it and opens those anew that somebody holds, whatever was
    /// before.
    pub fn restart(&self) {
        self.reconnect.worked();
        self.again.send_modify(|count| *count += 1);
    }

    /// The one era it is known to speak, if it turned out to speak one only.
    pub fn only_speaks(&self) -> Option<Era> {
        *self.only.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_only(&self, era: Era) {
        *self.only.lock().unwrap_or_else(PoisonError::into_inner) = Some(era);
    }

    /// Whether it sees the headers of a request, and so checks them itself.
    pub fn sees_headers(&self, connection: &Connection) -> bool {
        connection.era() == Era::Modern && matches!(self.transport, Transport::Http { .. })
    }

    /// The name under which all is remembered that it says.
    pub fn remembered_as(&self) -> String {
        self.transport.remembered_as(&self.name)
    }

    /// The text without credentials, and without what the configuration keeps secret, short enough
    /// to be quoted.
    pub fn without_secrets(&self, text: &str) -> String {
        seawall::quote(&self.hidden(text))
    }

    /// What was seen of it, without what the configuration keeps secret: it goes to logs, events,
    /// stores and clients.
    pub fn discreet(&self, signals: FailureSignals) -> FailureSignals {
        let body = signals.body.as_deref().map(|body| self.hidden(body));
        FailureSignals { message: self.hidden(&signals.message), body, ..signals }
    }

    /// The whole text without what the configuration keeps secret.
    pub fn hidden(&self, text: &str) -> String {
        self.secrets.hide(text)
    }

    /// Whether each conversation with it is a process of ours.
    pub fn is_child(&self) -> bool {
        matches!(self.transport, Transport::Stdio { .. })
    }

    /// The address, where there is one.
    pub fn url(&self) -> Option<&Uri> {
        match &self.transport {
            Transport::Stdio { .. } | Transport::Incomplete { .. } => None,
            Transport::Http { url, .. }
            | Transport::Sse { url, .. }
            | Transport::Ws { url, .. } => Some(url),
        }
    }
}
