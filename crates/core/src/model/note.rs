//! Decides how a call notes something down for itself.
//!
//! A call is one task, so no two threads are at its notes at once: they are atomic only to be
//! shared by the futures of that task, and are read and written in two steps, which is cheaper than
//! one. Whoever moves a task to another thread sees to it that it finds there what it has noted.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::time::clock::Moment;

/// Whether something has happened.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often something has happened.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU32);

impl Count {
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts once more, and gives how often that is.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        let number = self.get().saturating_add(1);
        self.0.store(number, Ordering::Relaxed);
        number
    }
}

/// When something happens.
#[derive(Debug, Default)]
pub(crate) struct When(AtomicU64);

impl When {
    #[inline]
    pub(crate) fn at(moment: Moment) -> Self {
        Self(AtomicU64::new(moment.0))
    }

    #[inline]
    pub(crate) fn get(&self) -> Moment {
        Moment(self.0.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn set(&self, moment: Moment) {
        self.0.store(moment.0, Ordering::Relaxed);
    }
}
