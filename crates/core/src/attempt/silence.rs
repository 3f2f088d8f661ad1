//! Decides when attempts with short timeouts count together as one failure: when they have waited
//! without an answer for as long as one attempt with the full timeout would have.
//!
//! Neither many concurrent attempts nor a few with long gaps between them add up: the rule takes
//! the shorter of the time they waited and the time since the first of them began.

use std::sync::PoisonError;
use std::time::Duration;

use super::atomic::{AtomicBool, Ordering};
use super::sync::{Mutex, MutexGuard};
use crate::time::clock::Moment;

/// When the silence of a tool began, and how long attempts have waited since.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Whether a silence is noted. Changed under the lock only.
    is_noted: AtomicBool,
    noted: Mutex<Option<(Moment, Duration)>>,
}

impl Silence {
    /// The tool answered: the silence is over.
    #[inline]
    pub(crate) fn end(&self) {
        // Relaxed: a silence noted at this very moment may outlive this answer, and the next answer
        // ends it. Healthy traffic only reads.
        if self.is_noted.load(Ordering::Relaxed) {
            self.note(&mut self.lock(), None);
        }
    }

    /// Notes that an attempt waited in vain from `began` to `now`. `true` if the silence has lasted
    /// `enough`; then the next one starts from zero.
    pub(crate) fn is_long(&self, began: Moment, now: Moment, enough: Duration) -> bool {
        let mut noted = self.lock();
        let (since, waited) = noted.unwrap_or((began, Duration::ZERO));
        let waited = waited.saturating_add(now.since(began));
        let is_long = waited.min(now.since(since)) >= enough;
        self.note(&mut noted, (!is_long).then_some((since, waited)));
        is_long
    }

    fn note(&self, noted: &mut Option<(Moment, Duration)>, silence: Option<(Moment, Duration)>) {
        *noted = silence;
        self.is_noted.store(silence.is_some(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Moment, Duration)>> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
