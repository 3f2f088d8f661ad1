//! How a server is loaded, and what came of it, for all who ask.
//!
//! A server that has not failed before gets a few quick tries; after that the keeper goes on at its own pace, one try at
//! a time. What a failure means is the library's to say.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::StatusCode;
use seawall::{Backoff, Cause, Classifier, Connect, Disposition, Env, LoadOptions, ServerOutcome, Signals, load_tools};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::handshake::Opening;
use super::look::Missed;
use super::{Failure, Link, Server};
use crate::call::Outlet;
use crate::ops::config::{LoadConfig, Transport};
use crate::wire::limits;

/// What is known of loading one server.
#[derive(Debug)]
pub struct Load {
    config: LoadConfig,
    env: Env,
    state: Mutex<State>,
    late: Arc<Semaphore>,
    given_up: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Since when it is not there.
    since: Option<Instant>,
    /// Attempts since then that failed.
    attempts: u32,
    /// What the last of them means.
    failed: Option<seawall::Failure>,
    /// The tools that were left out of its list, as it was told last.
    quarantined: String,
    /// Whether the last try worked.
    is_loaded: bool,
}

impl Load {
    /// As it is configured; nothing was tried.
    pub fn new(config: LoadConfig, env: Env) -> Self {
        Self {
            config,
            env,
            state: Mutex::default(),
            late: Arc::new(Semaphore::new(limits::LATE_LISTS)),
            given_up: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn began(&self) {
        self.state().since.get_or_insert_with(Instant::now);
    }

    fn failed(&self, signals: &Signals, is_final: bool) {
        let failure = Classifier::new().classify_load(signals);
        // Who waits for the keeper hears from it when it stops; this is for what it goes on with.
        let is_given_up = failure.disposition != Disposition::Transient && !is_final;
        let mut state = self.state();
        state.attempts = state.attempts.saturating_add(1);
        state.failed = Some(failure);
        state.is_loaded = false;
        drop(state);
        if is_given_up {
            self.given_up.notify_waiters();
        }
    }

    fn worked(&self) {
        let mut state = self.state();
        *state = State { quarantined: std::mem::take(&mut state.quarantined), is_loaded: true, ..State::default() };
    }

    /// Whether it was there when it was tried last.
    pub fn is_loaded(&self) -> bool {
        self.state().is_loaded
    }

    /// Attempts that failed since it was there.
    pub fn attempts(&self) -> u32 {
        self.state().attempts
    }

    /// How long it is worth waiting for, if nobody is to be kept for longer than `most` since it began to start: not at
    /// all once trying again at once cannot help.
    pub fn patience(&self, most: Duration) -> Duration {
        let state = self.state();
        let is_given_up = state.failed.as_ref().is_some_and(|failed| failed.disposition != Disposition::Transient);
        let since = state.since.map(|since| since.elapsed()).unwrap_or_default();
        if is_given_up { Duration::ZERO } else { most.saturating_sub(since) }
    }

    /// Whether it is being started, and is not there yet.
    pub fn is_missing(&self) -> bool {
        self.state().since.is_some()
    }

    /// Whether it said no when it was tried last.
    pub fn is_denied(&self) -> bool {
        self.state().failed.as_ref().is_some_and(|failed| failed.disposition == Disposition::Denied)
    }

    /// Waits until a try has failed so that trying again at once cannot help, although it is tried again.
    pub async fn gave_up(&self) {
        self.given_up.notified().await;
    }

    /// Notes which tools are left out of its list; whether that is news.
    pub fn note_quarantined(&self, text: &str) -> bool {
        let mut state = self.state();
        let is_news = state.quarantined != text;
        text.clone_into(&mut state.quarantined);
        is_news
    }

    /// A place for a list that nobody waits for any more, if there is one.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.late).try_acquire_owned().ok()
    }

    /// How it is loaded where somebody waits for the end of it.
    pub fn options(&self) -> LoadOptions {
        let backoff = Backoff { base: self.config.backoff, ..Backoff::LOAD };
        let max = backoff.max.max(backoff.base);
        let backoff = Backoff { max, ..backoff };
        LoadOptions { attempts: self.config.attempts, backoff, env: self.env.clone(), ..LoadOptions::default() }
    }
}

impl Server {
    /// Opens a conversation; what belongs to no call goes to `general`.
    pub async fn open(&self, opening: &Opening, general: &Arc<dyn Outlet>) -> Result<Arc<Link>, Failure> {
        self.load.began();
        // A process that dies at its start is not started three times within a second.
        let is_quick = self.reconnect.last().is_none() && !matches!(self.transport, Transport::Stdio { .. });
        let options = LoadOptions {
            attempts: if is_quick { self.load.config.attempts } else { 1 },
            // The handshake has limits of its own.
            attempt_timeout: limits::HANDSHAKE * 4,
            timeout: limits::HANDSHAKE * 4,
            ..self.load.options()
        };
        let tries = Tries { server: self, opening, general, link: Mutex::default(), last: Mutex::default() };
        if let Err(invalid) = load_tools::<()>([self.name.as_str()], &tries, &options).await {
            return Err(Failure::Unreachable(invalid.within("load").to_string()));
        }
        match tries.link.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(link) => {
                self.load.worked();
                Ok(link)
            }
            None => {
                let last = tries.last.into_inner().unwrap_or_else(PoisonError::into_inner);
                Err(last.unwrap_or_else(|| Failure::Silent(limits::HANDSHAKE * 4)))
            }
        }
    }

    /// Tries once to open a conversation in which the tools can be listed; it is over then.
    pub async fn list_once(&self, opening: &Opening) -> Result<(), Signals> {
        match self.look(opening, 1).await {
            Ok(_) => {
                self.load.worked();
                Ok(())
            }
            Err(Missed::Failed(failure)) => Err(self.told(&failure)),
            Err(Missed::Refused(code, text)) => Err(Signals::rpc(code, text)),
        }
    }

    /// What a failure of this server means for its tools.
    pub fn missing(&self, failure: &Failure) -> ServerOutcome<()> {
        let state = self.load.state();
        let known = match failure {
            // Said of a conversation that could not be opened: how that failed says more.
            Failure::Starting { .. } | Failure::Unreachable(_) => state.failed.clone(),
            _ => None,
        };
        let mut failed = known.unwrap_or_else(|| match failure {
            Failure::Starting { retry_in, .. } => {
                let text = "it is starting up and not ready yet";
                seawall::Failure::local(Cause::Starting, Some(*retry_in), text)
            }
            failure => Classifier::new().classify_load(&self.told(failure)),
        });
        let since = state.since.map(|since| since.elapsed()).unwrap_or_default();
        if failed.disposition == Disposition::Transient && since >= self.load.config.max_starting {
            failed.disposition = Disposition::Permanent;
            failed.message = format!("not ready after {} s: {}", since.as_secs(), failed.message);
        }
        ServerOutcome { server_id: self.name.clone(), result: Err(failed), attempts: state.attempts }
    }

    /// What it means for its tools that a server answers, but with an error.
    pub fn refused(&self, code: i64, text: &str) -> ServerOutcome<()> {
        let failed = Classifier::new().classify_load(&Signals::rpc(code, text));
        ServerOutcome { server_id: self.name.clone(), result: Err(failed), attempts: 1 }
    }

    /// What it means for its tools that a call for its list failed under its policy.
    pub fn reported(&self, failed: seawall::Failure) -> ServerOutcome<()> {
        ServerOutcome { server_id: self.name.clone(), result: Err(failed), attempts: 1 }
    }

    /// The facts of a failure, in words that name the place but no more of the address: the rest can hold secrets.
    fn told(&self, failure: &Failure) -> Signals {
        let signals = Signals { message: failure.to_string(), ..failure.signals() };
        let Some(url) = self.url() else { return signals };
        let (scheme, host) = (url.scheme_str().unwrap_or_default(), url.host().unwrap_or_default());
        let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
        let place = format!("{scheme}://{host}{port}");
        let message = match failure {
            Failure::Status { status, .. } => {
                let reason = StatusCode::from_u16(*status).ok().and_then(|status| status.canonical_reason());
                format!("HTTP {status} {} from {place}", reason.unwrap_or("(unknown status)"))
            }
            Failure::Unreachable(why) => format!("Cannot connect to {place}: {why}"),
            _ => return signals,
        };
        Signals { message, ..signals }
    }
}

/// The tries of one load.
struct Tries<'a> {
    server: &'a Server,
    opening: &'a Opening,
    general: &'a Arc<dyn Outlet>,
    link: Mutex<Option<Arc<Link>>>,
    last: Mutex<Option<Failure>>,
}

impl Tries<'_> {
    async fn once(&self) -> Result<(), Signals> {
        match self.server.shake(self.opening, self.general).await {
            Ok(link) => {
                *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link);
                Ok(())
            }
            Err(failure) => {
                let signals = self.server.told(&failure);
                self.server.load.failed(&signals, failure.is_final());
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                Err(signals)
            }
        }
    }

    fn is_open(&self) -> bool {
        self.link.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Connect<()> for Tries<'_> {
    async fn connect(&self, _: &str) -> Result<Vec<()>, Signals> {
        // The question after an unclear error may have been answered with a conversation.
        if self.is_open() { Ok(Vec::new()) } else { self.once().await.map(|()| Vec::new()) }
    }

    async fn probe(&self, _: &str) -> Option<Signals> {
        self.once().await.err()
    }
}
