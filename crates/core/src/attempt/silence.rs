//! Decides when attempts that were each given little time are evidence together: when they have
//! waited in vain for as long as one with its full time would have.
//!
//! Neither a crowd that waits at the same time nor a few with long gaps between them add up: what
//! counts is the shorter of the time they waited and the time since nobody was heard.

use std::sync::PoisonError;
use std::time::Duration;

use super::atomic::{AtomicBool, Ordering};
use super::sync::{Mutex, MutexGuard};
use crate::time::clock::Moment;

/// Since when nothing was heard of a tool, and how long attempts have waited since.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    /// Whether there is anything to forget. Changed under the lock only.
    is_noted: AtomicBool,
    noted: Mutex<Option<(Moment, Duration)>>,
}

impl Silence {
    /// Something was heard.
    #[inline]
    pub(crate) fn end(&self) {
        if self.is_noted.load(Ordering::Relaxed) {
            self.note(&mut self.lock(), None);
        }
    }

    /// An attempt waited in vain from `began` to `now`. Whether that makes it `enough`; then the
    /// next silence begins anew.
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
