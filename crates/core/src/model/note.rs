//! Decides how a call keeps its own counters and flags.
//!
//! A call is one task, so no two threads touch its notes at once: they are atomic only to be shared
//! by the futures of that task. A load and a store are cheaper than one read-modify-write. The
//! runtime that moves a task to another thread makes the earlier stores visible there.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::time::clock::Moment;

/// Whether an event has happened.
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

/// How often an event has happened.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU32);

impl Count {
    #[inline]
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds one, and gives the new count.
    #[inline]
    pub(crate) fn next(&self) -> u32 {
        // Not `fetch_add`: no other thread counts here, and a locked instruction costs more.
        let number = self.get().saturating_add(1);
        self.0.store(number, Ordering::Relaxed);
        number
    }
}

/// The moment of an event.
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
