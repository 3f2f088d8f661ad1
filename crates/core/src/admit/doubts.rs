//! Decides when a write is not sent again yet: the very same one may have been executed, and nobody has looked since.
//!
//! Whoever repeats it at once, blindly, would do it twice. A read of the same server in the same session is a look: after
//! it, or after a while, the same call is sent as ever.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering};
use super::key::CallKey;
use super::sync::{Mutex, MutexGuard};
use crate::model::time::{Clock, Moment};

/// How many are remembered; the oldest give way.
pub(super) const MOST: usize = 1000;

/// One write whose fate nobody knows.
#[derive(Debug)]
struct Doubt {
    key: CallKey,
    session: Arc<str>,
    server: Arc<str>,
    since: Moment,
    lasts: Duration,
}

/// A call that is held back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// How long ago the same call may have been executed.
    pub(crate) age: Duration,
    /// When it is sent again in any case.
    pub(crate) left: Duration,
}

/// The writes whose fate nobody knows.
#[derive(Debug)]
pub(crate) struct Doubts {
    kept: Mutex<Vec<Doubt>>,
    /// How many there are: most of the time none, and then nobody looks.
    count: AtomicUsize,
    clock: Clock,
}

impl Doubts {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { kept: Mutex::default(), count: AtomicUsize::new(0), clock }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Why a call is not sent now, if it is not.
    pub(crate) fn check(&self, key: impl FnOnce() -> CallKey) -> Option<HeldBack> {
        if self.is_empty() {
            return None;
        }
        let (key, now) = (key(), self.clock.now());
        let kept = self.change(|doubt| now.since(doubt.since) < doubt.lasts);
        let doubt = kept.iter().find(|doubt| doubt.key == key)?;
        let age = now.since(doubt.since);
        Some(HeldBack { age, left: doubt.lasts.saturating_sub(age) })
    }

    /// A call may have been executed, and its caller does not know.
    pub(crate) fn note(&self, key: CallKey, session: &Arc<str>, server: &Arc<str>, lasts: Duration) {
        let since = self.clock.now();
        let doubt = Doubt { key, session: Arc::clone(session), server: Arc::clone(server), since, lasts };
        let mut kept = self.lock();
        kept.retain(|doubt| doubt.key != key && since.since(doubt.since) < doubt.lasts);
        if kept.len() >= MOST {
            kept.remove(0);
        }
        kept.push(doubt);
        // Told once all is done: whoever saw the count in between would take the doubt for gone.
        self.count.store(kept.len(), Ordering::Relaxed);
    }

    /// Somebody read from this server in this session, and can know now what was done before `began`.
    pub(crate) fn looked(&self, session: &str, server: &str, began: Moment) {
        drop(self.change(|doubt| doubt.since > began || *doubt.session != *session || *doubt.server != *server));
    }

    fn change(&self, stays: impl FnMut(&Doubt) -> bool) -> MutexGuard<'_, Vec<Doubt>> {
        let mut kept = self.lock();
        kept.retain(stays);
        self.count.store(kept.len(), Ordering::Relaxed);
        kept
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Doubt>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
