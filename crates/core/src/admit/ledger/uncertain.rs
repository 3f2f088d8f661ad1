//! Decides when a write is held back: the same write may have been executed, and the client has not
//! read from the server since.
//!
//! A client that repeats an uncertain write at once, blindly, could execute it twice. A read of the
//! same server in the same session counts as a check: after it, or after a while, the same write is
//! sent as usual. Other sessions of the same caller are held back too, and a read in one of them
//! frees that session alone. Neither frees a write that waits in the queue and may be sent at any
//! moment, nor one that timed out: its server may still be at it, and a read shows nothing yet.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering};
use super::key::CallKey;
use super::sync::{Mutex, MutexGuard};
use crate::time::clock::{Clock, Moment};

/// How many uncertain writes are remembered; beyond that the caller with the most of them loses
/// one.
pub(super) const MOST: usize = 1000;
/// How many other sessions that have checked are remembered for each write.
pub(super) const LOOKS: usize = 16;
/// No write waits in a queue longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A write that may have been executed.
#[derive(Debug)]
struct UncertainWrite {
    key: CallKey,
    caller: Arc<str>,
    session: Arc<str>,
    server: Arc<str>,
    since: Moment,
    /// Its age by then: an earlier process may have noted it.
    before: Duration,
    lasts: Duration,
    /// The write was put into the queue and may still wait there.
    is_queued: bool,
    /// The server had not answered when its time was over, and may still be executing it.
    still_runs: bool,
    /// Other sessions of the same caller that have read from the server since.
    lifted: VecDeque<Arc<str>>,
}

impl UncertainWrite {
    /// Notes that a session has read from the server. `false` if the write can be forgotten: the
    /// session that made it has seen its effect.
    fn stays_after_look(&mut self, session: &Arc<str>) -> bool {
        let is_own = self.session == *session;
        if !is_own && !self.lifted.contains(session) {
            self.lifted.truncate(LOOKS - 1);
            self.lifted.push_front(Arc::clone(session));
        }
        !is_own
    }

    fn stands(&self, now: Moment) -> bool {
        self.age(now) < if self.is_queued { LONGEST_WAIT } else { self.lasts }
    }

    fn age(&self, now: Moment) -> Duration {
        now.since(self.since) + self.before
    }
}

/// A caller and its session.
pub(crate) type CallerSession<'a> = (&'a Arc<str>, &'a Arc<str>);

/// The reason why a call is held back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// How long ago the same call may have been executed.
    pub(crate) age: Duration,
    /// The time until the call is sent in any case.
    pub(crate) left: Duration,
    /// The same call is in the queue, and this one is held back for as long as it waits there.
    pub(crate) is_queued: bool,
    /// Its server may still execute the same call, so a read shows nothing yet.
    pub(crate) still_runs: bool,
}

/// The uncertain writes.
#[derive(Debug)]
pub(crate) struct UncertainWrites {
    kept: Mutex<Vec<UncertainWrite>>,
    /// How many there are. Mostly none, and then no call takes the lock.
    count: AtomicUsize,
    clock: Clock,
}

impl UncertainWrites {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { kept: Mutex::default(), count: AtomicUsize::new(0), clock }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Why a call is held back in this session; `None` if it may be sent.
    pub(crate) fn check(
        &self,
        session: &Arc<str>,
        key: impl FnOnce() -> CallKey,
    ) -> Option<HeldBack> {
        if self.is_empty() {
            return None;
        }
        let (key, now) = (key(), self.clock.now());
        let kept = self.change(|doubt| doubt.stands(now));
        let doubt =
            kept.iter().find(|doubt| doubt.key == key && !doubt.lifted.contains(session))?;
        let age = doubt.age(now);
        let UncertainWrite { is_queued, still_runs, .. } = *doubt;
        Some(HeldBack { age, left: doubt.lasts.saturating_sub(age), is_queued, still_runs })
    }

    /// Notes that a call may have been executed and that its caller does not know.
    pub(crate) fn note(
        &self,
        key: CallKey,
        who: CallerSession<'_>,
        server: &Arc<str>,
        lasts: Duration,
        still_runs: bool,
    ) {
        self.put(UncertainWrite { still_runs, ..self.doubt(key, who, server, lasts, false) });
    }

    /// As [`Self::note`], for a write that an earlier process noted.
    pub(crate) fn note_before(
        &self,
        age: Duration,
        key: CallKey,
        who: CallerSession<'_>,
        server: &Arc<str>,
        lasts: Duration,
    ) {
        self.put(UncertainWrite { before: age, ..self.doubt(key, who, server, lasts, false) });
    }

    /// Notes that a call is about to be queued; `false` if the same call was queued before.
    pub(crate) fn note_queued(
        &self,
        key: CallKey,
        who: CallerSession<'_>,
        server: &Arc<str>,
        lasts: Duration,
    ) -> bool {
        !self.put(self.doubt(key, who, server, lasts, true))
    }

    fn doubt(
        &self,
        key: CallKey,
        who: CallerSession<'_>,
        server: &Arc<str>,
        lasts: Duration,
        is_queued: bool,
    ) -> UncertainWrite {
        let (caller, session, server) = (Arc::clone(who.0), Arc::clone(who.1), Arc::clone(server));
        UncertainWrite {
            key,
            caller,
            session,
            server,
            since: self.clock.now(),
            before: Duration::ZERO,
            lasts,
            is_queued,
            still_runs: false,
            lifted: VecDeque::new(),
        }
    }

    /// The write has left the queue at an unknown time and with an unknown result: from now on it
    /// is held back like any other uncertain write.
    pub(crate) fn left_queue(&self, key: CallKey) {
        let now = self.clock.now();
        for doubt in self.lock().iter_mut().filter(|doubt| doubt.key == key && doubt.is_queued) {
            (doubt.is_queued, doubt.since, doubt.before) = (false, now, Duration::ZERO);
        }
    }

    /// This session's write was certainly not executed and is not queued either.
    pub(crate) fn forget(&self, key: CallKey, session: &Arc<str>) {
        drop(self.change(|doubt| doubt.key != key || doubt.session != *session));
    }

    /// The queued write, of any session, has a known result by now.
    pub(crate) fn forget_queued(&self, key: CallKey) {
        drop(self.change(|doubt| doubt.key != key || !doubt.is_queued));
    }

    /// Adds an uncertain write. Returns whether the same call was queued before; then it stays
    /// queued.
    fn put(&self, mut doubt: UncertainWrite) -> bool {
        let mut kept = self.lock();
        let was_queued = kept.iter().any(|old| old.key == doubt.key && old.is_queued);
        doubt.is_queued |= was_queued;
        // An entry of another session stays: that session has yet to check.
        let is_same = |old: &UncertainWrite| old.key == doubt.key && old.session == doubt.session;
        kept.retain(|old| !is_same(old) && old.stands(doubt.since));
        if kept.len() >= MOST {
            let gone = gives_way(&kept);
            kept.remove(gone);
        }
        kept.push(doubt);
        // Stored last, after all changes: a reader of a smaller count in between would take the
        // write for certain.
        self.count.store(kept.len(), Ordering::Relaxed);
        was_queued
    }

    /// Notes that a session has read from this server and can know which writes made before `began`
    /// were executed.
    pub(crate) fn looked(&self, (caller, session): CallerSession<'_>, server: &str, began: Moment) {
        let is_other = |doubt: &UncertainWrite| doubt.caller != *caller || *doubt.server != *server;
        let is_hidden =
            |doubt: &UncertainWrite| doubt.is_queued || doubt.still_runs || doubt.since > began;
        drop(self.change(|doubt| {
            is_other(doubt) || is_hidden(doubt) || doubt.stays_after_look(session)
        }));
    }

    fn change(
        &self,
        stays: impl FnMut(&mut UncertainWrite) -> bool,
    ) -> MutexGuard<'_, Vec<UncertainWrite>> {
        let mut kept = self.lock();
        kept.retain_mut(stays);
        self.count.store(kept.len(), Ordering::Relaxed);
        kept
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UncertainWrite>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which write gives way: the oldest of the caller with the most, so that no caller makes others
/// forget. Queued writes go last: the queue still reports them, but not how long ago they left.
fn gives_way(kept: &[UncertainWrite]) -> usize {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    kept.iter().for_each(|doubt| *counts.entry(&doubt.caller).or_default() += 1);
    let count = |doubt: &UncertainWrite| Reverse(counts.get(&*doubt.caller).copied());
    let first = kept.iter().enumerate().min_by_key(|(_, doubt)| (count(doubt), doubt.is_queued));
    first.map_or(0, |(place, _)| place)
}
