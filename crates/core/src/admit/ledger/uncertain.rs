//! Decides when a write is not sent again yet: the very same one may have been executed, and nobody
//! has looked since.
//!
//! Whoever repeats it at once, blindly, would do it twice. A read of the same server in the same
//! session is a look: after it, or after a while, the same call is sent as ever. Another session of
//! the same caller is held back too, and its own look lifts that for itself alone. Neither helps
//! while it waits in a queue, and may be made any moment.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::atomic::{AtomicUsize, Ordering};
use super::key::CallKey;
use super::sync::{Mutex, MutexGuard};
use crate::time::clock::{Clock, Moment};

/// How many are remembered; then those of the caller that has most give way.
pub(super) const MOST: usize = 1000;
/// How many other sessions that looked are remembered of each.
pub(super) const LOOKS: usize = 16;
/// Nothing waits longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// One write whose fate nobody knows.
#[derive(Debug)]
struct UncertainWrite {
    key: CallKey,
    caller: Arc<str>,
    session: Arc<str>,
    server: Arc<str>,
    since: Moment,
    /// How old it was by then: it may have come from a process before this one.
    before: Duration,
    lasts: Duration,
    /// It was put into a queue, and may wait there.
    is_queued: bool,
    /// Other sessions of the same caller that have looked since.
    lifted: VecDeque<Arc<str>>,
}

impl UncertainWrite {
    /// Notes who looked. `false` if nobody has to know of it any more: whoever left it has seen
    /// what became of it.
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

/// A caller, and the session it is in.
pub(crate) type CallerSession<'a> = (&'a Arc<str>, &'a Arc<str>);

/// A call that is held back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeldBack {
    /// How long ago the same call may have been executed.
    pub(crate) age: Duration,
    /// When it is sent again in any case.
    pub(crate) left: Duration,
    /// The same call was put into a queue, and is held back for as long as it waits there.
    pub(crate) is_queued: bool,
}

/// The writes whose fate nobody knows.
#[derive(Debug)]
pub(crate) struct UncertainWrites {
    kept: Mutex<Vec<UncertainWrite>>,
    /// How many there are: most of the time none, and then nobody looks.
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

    /// Why a call is not sent now in this session, if it is not.
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
        Some(HeldBack { age, left: doubt.lasts.saturating_sub(age), is_queued: doubt.is_queued })
    }

    /// A call may have been executed, and its caller does not know.
    pub(crate) fn note(
        &self,
        key: CallKey,
        who: CallerSession<'_>,
        server: &Arc<str>,
        lasts: Duration,
    ) {
        self.put(self.doubt(key, who, server, lasts, false));
    }

    /// The same, known since an earlier process.
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

    /// A call is about to be put into a queue. `false` if the same one was before.
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
            lifted: VecDeque::new(),
        }
    }

    /// It does not wait any more, and nobody knows when it left and what became of it: what holds
    /// for others holds for it from now on.
    pub(crate) fn left_queue(&self, key: CallKey) {
        let now = self.clock.now();
        for doubt in self.lock().iter_mut().filter(|doubt| doubt.key == key && doubt.is_queued) {
            (doubt.is_queued, doubt.since, doubt.before) = (false, now, Duration::ZERO);
        }
    }

    /// What this session left was certainly not done, and does not wait either.
    pub(crate) fn forget(&self, key: CallKey, session: &Arc<str>) {
        drop(self.change(|doubt| doubt.key != key || doubt.session != *session));
    }

    /// It was queued, by whomever, and it is known by now what became of it.
    pub(crate) fn forget_queued(&self, key: CallKey) {
        drop(self.change(|doubt| doubt.key != key || !doubt.is_queued));
    }

    /// Whether the same call was queued before; then it stays so.
    fn put(&self, mut doubt: UncertainWrite) -> bool {
        let mut kept = self.lock();
        let was_queued = kept.iter().any(|old| old.key == doubt.key && old.is_queued);
        doubt.is_queued |= was_queued;
        // What another session left, that one has still to look at.
        let is_same = |old: &UncertainWrite| old.key == doubt.key && old.session == doubt.session;
        kept.retain(|old| !is_same(old) && old.stands(doubt.since));
        if kept.len() >= MOST {
            let gone = gives_way(&kept);
            kept.remove(gone);
        }
        kept.push(doubt);
        // Told once all is done: whoever saw the count in between would take the doubt for gone.
        self.count.store(kept.len(), Ordering::Relaxed);
        was_queued
    }

    /// Somebody read from this server, and can know now what was done before `began`.
    pub(crate) fn looked(&self, (caller, session): CallerSession<'_>, server: &str, began: Moment) {
        let is_other = |doubt: &UncertainWrite| doubt.caller != *caller || *doubt.server != *server;
        let is_hidden = |doubt: &UncertainWrite| doubt.is_queued || doubt.since > began;
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

/// Which of them makes room: of the caller that has most, so that nobody makes others forget, the
/// oldest. What is queued goes last: the queue still tells of it, but not of how long ago it left.
fn gives_way(kept: &[UncertainWrite]) -> usize {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    kept.iter().for_each(|doubt| *counts.entry(&doubt.caller).or_default() += 1);
    let count = |doubt: &UncertainWrite| Reverse(counts.get(&*doubt.caller).copied());
    let first = kept.iter().enumerate().min_by_key(|(_, doubt)| (count(doubt), doubt.is_queued));
    first.map_or(0, |(place, _)| place)
}
