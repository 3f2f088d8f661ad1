//! Loads a server, and keeps the outcome for clients, status and reports.
//!
//! Loading is two steps: the handshake (here), then the tool list (`policy::startup`). The server
//! is available when both succeeded. A remote server that has not failed before gets a few quick
//! tries; after that the supervisor goes on at its own pace, one try at a time. The library's
//! classifier gives each failure its meaning.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use seawall::{
    Backoff, Cause, Classifier, ConnectServer, DeniedText, Disposition, Env, FailureSignals,
    LoadOptions, ServerOutcome, load_step,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::handshake::HandshakeParams;
use super::probe::{ProbeFailed, ProbeResult};
use super::{Connection, Server, UpstreamFailure};
use crate::config::{StartupConfig, Transport, place};
use crate::protocol::limits;
use crate::upstream::call::ClientSink;

/// Why a server that was never there yet is not there, in a tool list and in a failure.
pub(crate) const NOT_READY_YET: &str = "it is starting up and not ready yet";

/// The state of loading one server.
#[derive(Debug)]
pub struct ServerStartup {
    config: StartupConfig,
    env: Env,
    state: Mutex<StartupState>,
    late: Arc<Semaphore>,
    given_up: Notify,
}

#[derive(Debug, Default)]
struct StartupState {
    /// Since when the server is not available.
    since: Option<Instant>,
    /// Failed attempts since then.
    attempts: u32,
    /// The last failure, classified.
    failed: Option<seawall::Failure>,
    /// The tools left out of the server's list, as last reported.
    quarantined: String,
    /// Whether `failed` is about the tool list: the handshake succeeded.
    is_unlisted: bool,
    /// Whether the last load succeeded.
    is_loaded: bool,
}

/// The progress of the gateway's listing of a server's tools on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListingProgress {
    /// The gateway does not list the tools; only clients do.
    #[default]
    Unasked,
    /// The handshake succeeded and the tools are being listed.
    UnderWay,
    /// The tools were listed, or the server has none.
    Done,
    /// The listing failed in every attempt that a load may make; it may be tried again.
    Failed,
}

impl ServerStartup {
    /// The state for a configured server; nothing was tried yet.
    pub fn new(config: StartupConfig, env: Env) -> Self {
        Self {
            config,
            env,
            state: Mutex::default(),
            late: Arc::new(Semaphore::new(limits::LATE_LISTS)),
            given_up: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, StartupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn began(&self) {
        self.state().since.get_or_insert_with(Instant::now);
    }

    fn failed(&self, signals: &FailureSignals, is_final: bool) {
        let failure = Classifier::new().classify_load(signals);
        // After a final failure the supervisor stops and tells waiting calls itself; this wakes
        // them for a failure after which it goes on, but which a quick retry cannot mend.
        let is_given_up = failure.disposition != Disposition::Transient && !is_final;
        self.note_failed(failure, 1, false);
        if is_given_up {
            self.given_up.notify_waiters();
        }
    }

    /// The handshake succeeded, but the tools could not be listed in `attempts` attempts.
    pub fn unlisted(&self, failure: seawall::Failure, attempts: u32) {
        self.note_failed(failure, attempts, true);
    }

    fn note_failed(&self, failure: seawall::Failure, attempts: u32, is_unlisted: bool) {
        let mut state = self.state();
        // A listing can fail long after the last load: then the server is unavailable from now on.
        state.since.get_or_insert_with(Instant::now);
        state.attempts = state.attempts.saturating_add(attempts);
        state.failed = Some(failure);
        state.is_unlisted = is_unlisted;
        state.is_loaded = false;
    }

    /// The handshake succeeded: clears the failure of earlier handshakes. The server is not loaded
    /// yet.
    fn greeted(&self) {
        let mut state = self.state();
        if !state.is_unlisted {
            state.failed = None;
        }
    }

    /// The handshake succeeded and the tools are listed.
    pub fn worked(&self) {
        let mut state = self.state();
        *state = StartupState {
            quarantined: std::mem::take(&mut state.quarantined),
            is_loaded: true,
            ..StartupState::default()
        };
    }

    /// The state of the load: `available`, `transient`, `permanent` or `denied`; `None` if never
    /// tried.
    pub fn status(&self) -> Option<&'static str> {
        let state = self.state();
        match &state.failed {
            _ if state.is_loaded => Some("available"),
            Some(failed) => Some(match failed.disposition {
                Disposition::Denied => "denied",
                Disposition::Transient if !self.is_overdue(&state) => "transient",
                Disposition::Transient | Disposition::Permanent => "permanent",
            }),
            None => state
                .since
                .is_some()
                .then(|| if self.is_overdue(&state) { "permanent" } else { "transient" }),
        }
    }

    /// Whether the server has been starting for so long that a person should look at it.
    fn is_overdue(&self, state: &StartupState) -> bool {
        state.since.is_some_and(|since| since.elapsed() >= self.config.max_starting)
    }

    /// How a denial is worded.
    pub(crate) fn denied_text(&self) -> DeniedText {
        self.config.denied_text.unwrap_or_default()
    }

    /// Whether the last listing of tools failed although the handshake had succeeded.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.state().is_unlisted
    }

    /// Whether the last load succeeded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.state().is_loaded
    }

    /// Failed attempts since the server was last available.
    pub fn attempts(&self) -> u32 {
        self.state().attempts
    }

    /// How long it is worth waiting for the server, at most `most` after its start began; zero once
    /// a quick retry cannot help.
    pub fn patience(&self, most: Duration) -> Duration {
        let state = self.state();
        let is_given_up = state
            .failed
            .as_ref()
            .is_some_and(|failed| failed.disposition != Disposition::Transient);
        let since = state.since.map(|since| since.elapsed()).unwrap_or_default();
        if is_given_up { Duration::ZERO } else { most.saturating_sub(since) }
    }

    /// Whether the server is being started and is not available yet.
    pub fn is_missing(&self) -> bool {
        self.state().since.is_some()
    }

    /// Whether the server denied access in the last attempt.
    pub(crate) fn is_denied(&self) -> bool {
        self.state().failed.as_ref().is_some_and(|failed| failed.disposition == Disposition::Denied)
    }

    /// Waits for a failure that a quick retry cannot mend, although the supervisor goes on trying.
    pub(crate) async fn gave_up(&self) {
        self.given_up.notified().await;
    }

    /// Notes which tools are left out of the server's list; returns whether that is news.
    pub(crate) fn note_quarantined(&self, text: &str) -> bool {
        let mut state = self.state();
        let is_news = state.quarantined != text;
        text.clone_into(&mut state.quarantined);
        is_news
    }

    /// A permit to finish a listing that no client waits for any more, if one is free.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.late).try_acquire_owned().ok()
    }

    /// The options of a load whose end a caller awaits.
    pub fn options(&self) -> LoadOptions {
        let backoff = Backoff { base: self.config.backoff, ..Backoff::LOAD };
        let max = backoff.max.max(backoff.base);
        let backoff = Backoff { max, ..backoff };
        LoadOptions {
            attempts: self.config.attempts,
            backoff,
            env: self.env.clone(),
            ..LoadOptions::default()
        }
    }
}

impl Server {
    /// Opens a connection; messages that belong to no call go to `general`.
    pub async fn open(
        &self,
        handshake: &HandshakeParams,
        general: &Arc<dyn ClientSink>,
    ) -> Result<Arc<Connection>, UpstreamFailure> {
        self.startup.began();
        // A process that dies at its start is not started three times within a second.
        let is_quick =
            self.reconnect.last().is_none() && !matches!(self.transport, Transport::Stdio { .. });
        let options = LoadOptions {
            attempts: if is_quick { self.startup.config.attempts } else { 1 },
            // The handshake has timeouts of its own.
            attempt_timeout: limits::HANDSHAKE * 4,
            timeout: limits::HANDSHAKE * 4,
            ..self.startup.options()
        };
        let tries = LoadTries {
            server: self,
            handshake,
            general,
            connection: Mutex::default(),
            last: Mutex::default(),
        };
        // Boxed: the future of a handshake is large, and the stack is small.
        let outcome = match Box::pin(load_step::<()>(&self.name, &tries, &options)).await {
            Ok(outcome) => outcome,
            Err(invalid) => {
                return Err(UpstreamFailure::Unreachable(invalid.within("startup").to_string()));
            }
        };
        match tries.connection.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(connection) => {
                self.startup.greeted();
                Ok(connection)
            }
            None => {
                outcome.announce(&options.env);
                let last = tries.last.into_inner().unwrap_or_else(PoisonError::into_inner);
                Err(last.unwrap_or_else(|| UpstreamFailure::Silent(limits::HANDSHAKE * 4)))
            }
        }
    }

    /// Tries once to open a connection, list the tools, and close it again.
    pub(crate) async fn list_once(
        &self,
        handshake: &HandshakeParams,
    ) -> Result<ProbeResult, FailureSignals> {
        let found =
            self.look(handshake, limits::PAGES).await.map_err(|missed| self.missed(&missed))?;
        self.startup.worked();
        Ok(found)
    }

    /// The failure signals of a failed probe, without secrets.
    pub fn missed(&self, missed: &ProbeFailed) -> FailureSignals {
        match missed {
            ProbeFailed::Failed(failure) => self.discreet(self.told(failure)),
            ProbeFailed::Refused(code, text) => {
                self.discreet(FailureSignals::rpc(*code, text.clone()))
            }
        }
    }

    /// The outcome of a failure of this server for its tools.
    pub fn missing(&self, failure: &UpstreamFailure) -> ServerOutcome<()> {
        let state = self.startup.state();
        let known = match failure {
            // These say only that no connection is open; the failure to open one says more.
            UpstreamFailure::Starting(_)
            | UpstreamFailure::Away { .. }
            | UpstreamFailure::Unreachable(_) => state.failed.clone(),
            _ => None,
        };
        let mut failed = known.unwrap_or_else(|| match failure {
            UpstreamFailure::Starting(retry_in) => {
                let text = NOT_READY_YET;
                seawall::Failure::local(Cause::Starting, Some(*retry_in), text)
            }
            failure => Classifier::new().classify_load(&self.told(failure)),
        });
        if failed.disposition == Disposition::Transient && self.startup.is_overdue(&state) {
            let since = state.since.map(|since| since.elapsed()).unwrap_or_default();
            failed.disposition = Disposition::Permanent;
            failed.message = format!("not ready after {} s: {}", since.as_secs(), failed.message);
        }
        ServerOutcome {
            server_id: self.name.clone(),
            result: Err(failed),
            attempts: state.attempts,
        }
    }

    /// The outcome for the server's tools of an error answer of the server.
    pub fn refused(&self, code: i64, text: &str) -> ServerOutcome<()> {
        let failed = Classifier::new().classify_load(&FailureSignals::rpc(code, text));
        ServerOutcome { server_id: self.name.clone(), result: Err(failed), attempts: 1 }
    }

    /// The outcome for the server's tools of a list call that failed under its policy.
    pub(crate) fn reported(&self, failed: seawall::Failure) -> ServerOutcome<()> {
        ServerOutcome { server_id: self.name.clone(), result: Err(failed), attempts: 1 }
    }

    /// The failure signals in words that name the endpoint: servers behind one gateway may differ
    /// only in their path.
    fn told(&self, failure: &UpstreamFailure) -> FailureSignals {
        let signals = FailureSignals { message: failure.to_string(), ..failure.signals() };
        let Some(url) = self.url() else { return signals };
        let place = self.hidden(&place::shown(url));
        let message = match failure {
            UpstreamFailure::Status { status, .. } => {
                let reason =
                    StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
                format!("HTTP {status} {} from {place}", reason.unwrap_or("(unknown status)"))
            }
            UpstreamFailure::Unreachable(why) => format!("Cannot connect to {place}: {why}"),
            _ => return signals,
        };
        FailureSignals { message, ..signals }
    }
}

/// The tries of one load.
struct LoadTries<'a> {
    server: &'a Server,
    handshake: &'a HandshakeParams,
    general: &'a Arc<dyn ClientSink>,
    connection: Mutex<Option<Arc<Connection>>>,
    last: Mutex<Option<UpstreamFailure>>,
}

impl LoadTries<'_> {
    async fn once(&self) -> Result<(), FailureSignals> {
        // Boxed: the size of this future varies much with the transport.
        match Box::pin(self.server.shake(self.handshake, self.general)).await {
            Ok(connection) => {
                *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
                Ok(())
            }
            Err(failure) => {
                let signals = self.server.told(&failure);
                self.server.startup.failed(&signals, failure.is_final());
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                Err(signals)
            }
        }
    }

    fn is_open(&self) -> bool {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ConnectServer<()> for LoadTries<'_> {
    async fn connect(&self, _: &str) -> Result<Vec<()>, FailureSignals> {
        // The library's probe after an unclear error may have opened a connection already.
        if self.is_open() { Ok(Vec::new()) } else { self.once().await.map(|()| Vec::new()) }
    }

    async fn probe(&self, _: &str) -> Option<FailureSignals> {
        self.once().await.err()
    }
}
