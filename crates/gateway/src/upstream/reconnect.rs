//! How soon a server that failed is tried again, for all clients together: nobody storms a server that is down.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use seawall::{Backoff, Rng};
use tokio::time::Instant;

use super::Failure;

/// The cool-down of one server.
#[derive(Debug)]
pub struct Reconnect {
    backoff: Backoff,
    rng: Rng,
    state: Mutex<Cooling>,
}

#[derive(Debug, Default)]
struct Cooling {
    failures: u32,
    until: Option<Instant>,
    last: Option<Failure>,
}

impl Reconnect {
    /// With these delays.
    pub fn new(backoff: Backoff, rng: Rng) -> Self {
        Self { backoff, rng, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, Cooling> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to wait before the next try.
    pub fn wait(&self) -> Duration {
        let until = self.state().until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// What went wrong last, if nothing has worked since.
    pub fn last(&self) -> Option<Failure> {
        self.state().last.clone()
    }

    /// A try failed, or a conversation broke before it was of use.
    pub fn failed(&self, failure: Failure) {
        let mut state = self.state();
        state.failures = state.failures.saturating_add(1);
        state.until = Some(Instant::now() + self.backoff.delay(state.failures, &self.rng));
        state.last = Some(failure);
        if state.failures.is_multiple_of(10) {
            drop(state);
            let text = self.last().map(|failure| failure.to_string()).unwrap_or_default();
            crate::ops::log::line(&format!("a server failed ten more times in a row: it {text}"));
        }
    }

    /// A server answered: what was before no longer counts.
    pub fn worked(&self) {
        *self.state() = Cooling::default();
    }
}

impl Default for Reconnect {
    fn default() -> Self {
        Self::new(Backoff::RECONNECT, Rng::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_delays_are_those_of_the_seed_and_success_starts_over() {
        let reconnect = Reconnect::new(Backoff::RECONNECT, Rng::fixed(0.5));
        assert_eq!(reconnect.wait(), Duration::ZERO);
        let mut waits = Vec::new();
        for _ in 0..9 {
            reconnect.failed(Failure::Cancelled);
            waits.push(reconnect.wait().as_millis());
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(reconnect.wait(), Duration::from_secs(1));
        reconnect.worked();
        assert_eq!((reconnect.wait(), reconnect.last()), (Duration::ZERO, None));
        reconnect.failed(Failure::Cancelled);
        assert_eq!(reconnect.wait(), Duration::from_millis(500));
    }
}
