//! Decides how soon a failed server is tried again, for all clients together, so that no server
//! that is down is flooded with reconnections.
//!
//! The failure count starts over when a connection has lasted a while after its handshake. A
//! connection that answered a client and broke before that halves the count: such a server is of
//! use, but not stable. The backoff of a server that only completes handshakes and dies keeps
//! growing.
//!
//! The backoff paces reconnections that no call asked for. A call that finds its server away may be
//! a try itself, one call at a time and not right after the last try: a server that is back must
//! not be kept from its clients by a backoff that was drawn an hour ago. Two cases are left to the
//! backoff: a process that completes the handshake and dies, which no call may start early, and a
//! server that denies access, where a person has to change something.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall::{Backoff, Disposition, Rng};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::UpstreamFailure;
use super::status::ServerStatus;
use crate::config::{ReconnectConfig, SecretTexts};
use crate::protocol::limits;

/// The backoff of one server.
#[derive(Debug)]
pub struct ReconnectState {
    name: String,
    status: Arc<ServerStatus>,
    secrets: Arc<SecretTexts>,
    backoff: Backoff,
    attempts: Option<u32>,
    patience: Duration,
    rng: Rng,
    /// Whether a try starts a process.
    is_process: bool,
    state: Mutex<CoolDown>,
    /// The permit for a try before the backoff is over: one at a time.
    turn: Arc<Semaphore>,
    /// Counts early tries that ended, and recoveries of the server; waiting supervisors watch it.
    tries: watch::Sender<u64>,
}

/// A permit to try before the backoff is over; its drop wakes the supervisors that wait for the
/// try.
#[derive(Debug)]
pub struct ReconnectTurn<'a> {
    reconnect: &'a ReconnectState,
    place: Option<OwnedSemaphorePermit>,
}

impl Drop for ReconnectTurn<'_> {
    fn drop(&mut self) {
        // The permit goes back before the wake-up: a supervisor that wakes may take it at once.
        self.place = None;
        self.reconnect.tries.send_modify(|count| *count += 1);
    }
}

#[derive(Debug, Default)]
struct CoolDown {
    failures: u32,
    until: Option<Instant>,
    /// The whole pause that ends at `until`.
    pause: Duration,
    last: Option<UpstreamFailure>,
    /// When the last try failed, or the last connection broke.
    ended: Option<Instant>,
    /// Whether that was a connection that broke, and not a failed try to open one.
    has_broken: bool,
    /// Whether the server denied access.
    is_denied: bool,
}

impl CoolDown {
    fn wait(&self) -> Duration {
        self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }
}

impl ReconnectState {
    /// The initial state for a configured server.
    pub fn new(
        name: &str,
        status: Arc<ServerStatus>,
        secrets: &Arc<SecretTexts>,
        config: &ReconnectConfig,
        is_process: bool,
        rng: Rng,
    ) -> Self {
        let backoff = Backoff { base: config.base, max: config.max, ..Backoff::RECONNECT };
        let ReconnectConfig { attempts, wait: patience, .. } = *config;
        let (name, secrets) = (name.to_owned(), Arc::clone(secrets));
        let (state, turn, tries) =
            (Mutex::default(), Arc::new(Semaphore::new(1)), watch::Sender::new(0));
        Self {
            name,
            status,
            secrets,
            backoff,
            attempts,
            patience,
            rng,
            is_process,
            state,
            turn,
            tries,
        }
    }

    fn state(&self) -> MutexGuard<'_, CoolDown> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a call waits for the server.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// How long a call with this timeout waits for the server: a little less than the timeout, so
    /// that the call fails with the certainty that nothing was sent.
    pub(crate) fn patience_within(&self, timeout: Duration) -> Duration {
        self.patience.min(timeout / 10 * 9)
    }

    /// The time until the next try by the backoff.
    pub fn wait(&self) -> Duration {
        self.state().wait()
    }

    /// The pause between two tries by the backoff, rounded up to one of a few steps; zero if no try
    /// failed. Unlike the time that is left of it, it stays the same until a further try fails.
    pub(crate) fn pace(&self) -> Duration {
        const STEPS: [u64; 12] = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600];
        let state = self.state();
        let pause = if state.until.is_some() { state.pause } else { Duration::ZERO };
        let steps = [0].into_iter().chain(STEPS).map(Duration::from_secs);
        steps.into_iter().find(|step| *step >= pause).unwrap_or(pause)
    }

    /// The time until a call that needs the server may try it.
    pub(crate) fn soonest(&self) -> Duration {
        let state = self.state();
        let pace = if self.is_process { limits::ASKED_START } else { limits::ASKED_TRY };
        // A denial needs a person; a process that dies after its handshake would be restarted by
        // every call.
        let may_ask = !(state.is_denied || self.is_process && state.has_broken);
        let asked = state
            .ended
            .filter(|_| may_ask)
            .map(|ended| (ended + pace).saturating_duration_since(Instant::now()));
        asked.map_or(state.wait(), |asked| asked.min(state.wait()))
    }

    /// The permit to try before the backoff is over, unless another supervisor holds it.
    pub fn turn(&self) -> Option<ReconnectTurn<'_>> {
        let place = Arc::clone(&self.turn).try_acquire_owned().ok()?;
        Some(ReconnectTurn { reconnect: self, place: Some(place) })
    }

    /// Changes when an early try has ended, or the server has recovered.
    pub fn tries(&self) -> watch::Receiver<u64> {
        self.tries.subscribe()
    }

    /// An early try succeeded: no other supervisor has to wait for the backoff either.
    pub(crate) fn came_early(&self) {
        self.state().until = None;
    }

    /// The pause after `failures` failures in a row.
    pub fn pause(&self, failures: u32) -> Duration {
        self.backoff.delay(failures, &self.rng)
    }

    /// The last failure, if nothing has succeeded since.
    pub fn last(&self) -> Option<UpstreamFailure> {
        self.state().last.clone()
    }

    /// Why there will be no further try, if that is so.
    pub fn given_up(&self) -> Option<UpstreamFailure> {
        let limit = self.attempts?;
        (self.state().failures > limit).then_some(UpstreamFailure::GivenUp(limit))
    }

    /// A connection broke.
    pub fn broke(&self, failure: UpstreamFailure) {
        self.note(failure, true);
    }

    /// A try to open a connection failed.
    pub fn failed(&self, failure: UpstreamFailure) {
        self.note(failure, false);
    }

    /// Notes a failure. Failures during the backoff belong to the same outage and are not counted
    /// again.
    fn note(&self, failure: UpstreamFailure, has_broken: bool) {
        let mut state = self.state();
        (state.ended, state.has_broken) = (Some(Instant::now()), has_broken);
        state.is_denied = seawall::classify(&failure.signals()).disposition == Disposition::Denied;
        // The log needs no "while it worked on the request": a connection can break at any time.
        let text = match &failure {
            UpstreamFailure::Lost(text) => format!("lost: {text}"),
            failure => format!("it {failure}"),
        };
        let text = self.secrets.hide(&text);
        self.status.failed(text.clone());
        state.last = Some(failure);
        if !state.wait().is_zero() {
            return;
        }
        state.failures = state.failures.saturating_add(1);
        let (count, delay) = (state.failures, self.backoff.delay(state.failures, &self.rng));
        (state.until, state.pause) = (Some(Instant::now() + delay), delay);
        // The lock is released before the log is written.
        drop(state);
        let name = &self.name;
        match self.attempts {
            Some(limit) if count > limit => {
                let given_up = UpstreamFailure::GivenUp(limit);
                crate::runtime::log::warn_of(name, &format!("{text}; {given_up}"));
            }
            _ => crate::runtime::log::warn_of(
                name,
                &format!("{text}; attempt {count} in {} ms", delay.as_millis()),
            ),
        }
        if count.is_multiple_of(10) {
            let subject = crate::runtime::log::LogSubject {
                server: name,
                is_named: true,
                ..Default::default()
            };
            let text = format!("{name} failed {count} times in a row: it needs attention");
            crate::runtime::log::about(crate::runtime::log::Level::Warn, subject, &text);
        }
    }

    /// The server has answered a client: halves the count of earlier failures.
    pub(crate) fn was_of_use(&self) {
        let mut state = self.state();
        state.failures = state.failures.saturating_sub(1) / 2;
    }

    /// The server has been up for a while: clears all failures.
    pub fn worked(&self) {
        *self.state() = CoolDown::default();
        // After the state is cleared: the supervisors that this wakes read the new state.
        self.tries.send_modify(|count| *count += 1);
    }

    /// A new client has come: a server that was given up is tried again, once its backoff is over.
    pub(crate) fn forgive(&self) {
        if self.given_up().is_some() {
            self.state().failures = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(attempts: Option<u32>, chance: f64) -> ReconnectState {
        ReconnectState::new(
            "it",
            Arc::default(),
            &Arc::default(),
            &ReconnectConfig { attempts, ..ReconnectConfig::default() },
            true,
            Rng::fixed(chance),
        )
    }

    async fn next_failure(reconnect: &ReconnectState) -> Duration {
        tokio::time::advance(reconnect.wait()).await;
        reconnect.failed(UpstreamFailure::Cancelled);
        reconnect.wait()
    }

    #[tokio::test(start_paused = true)]
    async fn delays_double_from_500_ms_to_a_minute_and_success_starts_over() {
        let reconnect = of(None, 0.5);
        assert_eq!(reconnect.wait(), Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(next_failure(&reconnect).await.as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(reconnect.wait(), Duration::from_secs(1));
        reconnect.worked();
        assert_eq!((reconnect.wait(), reconnect.last()), (Duration::ZERO, None));
        assert_eq!(next_failure(&reconnect).await, Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn every_delay_is_within_a_fifth_of_its_nominal_and_never_above_a_minute() {
        for chance in [0.0, 0.1, 0.3, 0.7, 0.9, 1.0] {
            let reconnect = of(None, chance);
            for nominal in [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
                let wait = next_failure(&reconnect).await.as_millis();
                assert!(
                    wait * 10 >= nominal * 8 && wait * 10 <= nominal * 12 && wait <= 60_000,
                    "{wait} of {nominal}"
                );
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_limit_there_is_no_next_try_until_a_new_client_comes() {
        let reconnect = of(Some(20), 0.5);
        for _ in 0..20 {
            next_failure(&reconnect).await;
            assert_eq!(reconnect.given_up(), None);
        }
        next_failure(&reconnect).await;
        let given_up = reconnect.given_up().unwrap();
        assert!(
            given_up.to_string().contains("Maximum reconnection attempts (20) reached"),
            "{given_up}"
        );
        assert!(given_up.was_not_sent() && given_up.is_final());
        reconnect.forgive();
        assert_eq!(reconnect.given_up(), None);
        assert_eq!(
            reconnect.wait(),
            Duration::from_secs(60),
            "a new client does not hurry a server that cools down"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_asks_waits_seconds_and_not_for_the_backoff() {
        for (is_process, pace) in [(false, limits::ASKED_TRY), (true, limits::ASKED_START)] {
            let reconnect = ReconnectState { is_process, ..of(None, 0.5) };
            for _ in 0..8 {
                next_failure(&reconnect).await;
            }
            assert_eq!((reconnect.wait(), reconnect.soonest()), (Duration::from_secs(60), pace));
            tokio::time::advance(pace).await;
            assert_eq!(reconnect.soonest(), Duration::ZERO);
            let turn = reconnect.turn();
            assert!(turn.is_some() && reconnect.turn().is_none(), "one at a time");
            let tries = reconnect.tries();
            reconnect.failed(UpstreamFailure::Cancelled);
            drop(turn);
            assert!(tries.has_changed().unwrap(), "the others hear of it");
            assert_eq!(reconnect.soonest(), pace, "counted from the end of the last try");
            assert_eq!(
                reconnect.wait(),
                Duration::from_secs(60) - pace,
                "which does not make the backoff longer"
            );
            reconnect.came_early();
            assert_eq!((reconnect.wait(), reconnect.soonest()), (Duration::ZERO, Duration::ZERO));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_starts_a_process_before_its_time_that_shook_hands_and_died() {
        for (is_process, soonest) in [(true, 60), (false, 2)] {
            let reconnect = ReconnectState { is_process, ..of(None, 0.5) };
            for _ in 0..8 {
                tokio::time::advance(reconnect.wait()).await;
                reconnect.broke(UpstreamFailure::Cancelled);
            }
            assert_eq!(reconnect.soonest(), Duration::from_secs(soonest), "{is_process}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_hurries_a_server_that_says_no() {
        let reconnect = ReconnectState { is_process: false, ..of(None, 0.5) };
        for (status, soonest) in [(401, 500), (403, 1000), (404, 2000), (503, 2000)] {
            tokio::time::advance(reconnect.wait()).await;
            reconnect.failed(UpstreamFailure::Status {
                status,
                text: String::new(),
                retry_after: None,
            });
            assert_eq!(reconnect.soonest(), Duration::from_millis(soonest), "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_breaks_for_many_clients_at_once_is_one_outage() {
        let reconnect = of(None, 0.5);
        for _ in 0..100 {
            reconnect.failed(UpstreamFailure::Cancelled);
        }
        assert_eq!(reconnect.wait(), Duration::from_millis(500));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_and_dies_waits_less_each_time_but_always_something() {
        let reconnect = of(None, 0.5);
        for _ in 0..8 {
            next_failure(&reconnect).await;
        }
        let mut waits = Vec::new();
        for _ in 0..5 {
            reconnect.was_of_use();
            waits.push(next_failure(&reconnect).await.as_millis());
        }
        assert_eq!(waits, [4000, 1000, 500, 500, 500]);
    }
}
