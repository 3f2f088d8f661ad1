//! Decides admission without a lock while a server is healthy: one atomic word tells whether the
//! state machine has to be asked.
//!
//! The word is a copy of the guarded state machine's last verdict, published before its lock is
//! released. While it is `QUIET`, admitting a call and recording its success touch nothing but this
//! word; while it is `OPEN`, a refusal reads only the word and the time of the next probe.

use std::time::Duration;

use super::states::{AdmissionTicket, CallEnd, StateChange, StateMachine};
use super::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use super::tally::SuccessCount;
use super::window::TripCause;
use super::{BreakerMode, Clock, Moment};
use crate::model::policy::breaker::BreakerStatus;

/// Closed, and a success would change nothing.
const QUIET: u64 = 0;
/// Closed, but every result has to be counted.
const COUNTING: u64 = 1;
/// Open; `until` holds the time of the next probe.
const OPEN: u64 = 2;
/// Half-open, in slow start, or in shadow mode: the state machine must be asked.
const ASK: u64 = 3;
/// An operator holds the breaker open: every call is refused.
const FORCED: u64 = 4;
/// An operator disabled the breaker: every call passes and nothing is counted.
const DISABLED: u64 = 5;

/// Closed, and a success only adds to the success count.
const TALLYING: u64 = 6;

const TAG_BITS: u32 = 3;
/// A ticket whose result is never recorded.
const UNTRACKED: AdmissionTicket =
    AdmissionTicket { generation: u64::MAX, probe: None, since: Moment(0) };

fn tag(word: u64) -> u64 {
    word & ((1 << TAG_BITS) - 1)
}

/// The result of an admission that the word alone could not decide.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) verdict: Result<AdmissionTicket, Duration>,
    pub(crate) changes: Vec<StateChange>,
    /// In shadow mode: the wait that the breaker would have imposed.
    pub(crate) would_wait: Option<Duration>,
}

impl Admission {
    fn plain(verdict: Result<AdmissionTicket, Duration>) -> Self {
        Self { verdict, changes: Vec::new(), would_wait: None }
    }
}

/// The state machine behind its lock, and the word in front of it. The word has its own cache
/// lines, so that writes to neighbours do not slow its readers.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Gate {
    word: AtomicU64,
    until: AtomicU64,
    /// 1 if slowness opened the breaker last.
    slow: AtomicU32,
    needs_time: bool,
    tally: Option<SuccessCount>,
    guarded: Mutex<LockedGate>,
}

#[derive(Debug)]
pub(crate) struct LockedGate {
    pub(crate) states: StateMachine,
    pub(crate) mode: BreakerMode,
}

impl LockedGate {
    /// The state that callers meet, be it set by the state machine or by an operator.
    pub(crate) fn shown(&self) -> BreakerStatus {
        match self.mode {
            BreakerMode::ForcedOpen => BreakerStatus::Open,
            BreakerMode::Disabled => BreakerStatus::Closed,
            BreakerMode::Auto | BreakerMode::Shadow => self.states.status(),
        }
    }

    /// Applies `change`; returns the change of the state that callers meet, if there is one.
    pub(crate) fn shown_change(&mut self, change: impl FnOnce(&mut Self)) -> Option<StateChange> {
        let from = self.shown();
        change(self);
        let to = self.shown();
        (from != to).then_some(StateChange { from, to })
    }
}

impl Gate {
    pub(crate) fn new(states: StateMachine) -> Self {
        let gate = Self {
            word: AtomicU64::new(0),
            until: AtomicU64::new(0),
            slow: AtomicU32::new(0),
            needs_time: states.needs_time(),
            tally: states.policy.window.as_ref().map(SuccessCount::new),
            guarded: Mutex::new(LockedGate { states, mode: BreakerMode::Auto }),
        };
        gate.change(|_| ());
        gate
    }

    /// The generation to which a call is admitted, if the word alone decides.
    #[inline]
    pub(crate) fn admits_at_a_glance(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        let is_closed = matches!(tag(word), QUIET | COUNTING | TALLYING);
        (is_closed && !self.needs_time).then_some(word >> TAG_BITS)
    }

    /// The imposed wait, if the word and the time of the next probe decide.
    #[inline]
    pub(crate) fn refuses_at_a_glance(&self, clock: &Clock) -> Option<Duration> {
        if tag(self.word.load(Ordering::Acquire)) != OPEN {
            return None;
        }
        // `until` is stored before the word says `OPEN`, so this load sees that time or a later
        // one.
        let (until, now) = (Moment(self.until.load(Ordering::Acquire)), clock.now());
        (now < until).then(|| until.since(now))
    }

    /// Whether a success of this generation needs nothing more than the success count.
    #[inline]
    pub(crate) fn succeeds_at_a_glance(&self, clock: &Clock, generation: u64) -> bool {
        let word = self.word.load(Ordering::Acquire);
        if word == (generation << TAG_BITS | QUIET) {
            return true;
        }
        match &self.tally {
            Some(tally) if word == (generation << TAG_BITS | TALLYING) => {
                tally.add(clock.now());
                true
            }
            _ => false,
        }
    }

    /// Admits a call or returns the wait. `lease` bounds a probe.
    pub(crate) fn admit(&self, clock: &Clock, lease: Duration) -> Admission {
        let word = self.word.load(Ordering::Acquire);
        match tag(word) {
            QUIET | COUNTING | TALLYING => {
                let since = if self.needs_time { clock.now() } else { Moment(0) };
                Admission::plain(Ok(AdmissionTicket {
                    generation: word >> TAG_BITS,
                    probe: None,
                    since,
                }))
            }
            _ => match self.refuses_at_a_glance(clock) {
                Some(wait) => Admission::plain(Err(wait)),
                None => self.ask(clock.now(), lease),
            },
        }
    }

    /// The wait that a call would meet, without reserving anything.
    #[inline]
    pub(crate) fn peek(&self, clock: &Clock) -> Option<Duration> {
        match tag(self.word.load(Ordering::Acquire)) {
            QUIET | COUNTING | TALLYING | DISABLED => None,
            OPEN => self.refuses_at_a_glance(clock),
            _ => self.look(|guarded| match guarded.mode {
                BreakerMode::ForcedOpen => Some(guarded.states.policy.cooldown.base),
                BreakerMode::Disabled | BreakerMode::Shadow => None,
                BreakerMode::Auto => guarded.states.wait(clock.now()),
            }),
        }
    }

    /// Whether an operator holds the breaker open.
    pub(crate) fn is_forced(&self) -> bool {
        tag(self.word.load(Ordering::Acquire)) == FORCED
    }

    /// Whether the breaker opened because its calls were too slow.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed) == 1
    }

    /// Records the result of an admitted call.
    pub(crate) fn record(
        &self,
        clock: &Clock,
        ticket: AdmissionTicket,
        ended: CallEnd,
    ) -> Option<StateChange> {
        let word = self.word.load(Ordering::Acquire);
        let changes_nothing =
            ended != CallEnd::Badly && word == (ticket.generation << TAG_BITS | QUIET);
        if changes_nothing || ticket.generation == UNTRACKED.generation {
            return None;
        }
        let now = clock.now();
        let tallied = || self.tally.as_ref().map_or(0, |tally| tally.sum(now));
        self.change(|guarded| match guarded.mode {
            // The permit is released, but its result does not count.
            BreakerMode::Disabled => guarded.states.record(now, ticket, CallEnd::Unknown, tallied),
            BreakerMode::ForcedOpen => {
                // The state machine goes on behind the operator's switch; its changes reach no
                // caller.
                let _unseen = guarded.states.record(now, ticket, ended, tallied);
                None
            }
            BreakerMode::Auto | BreakerMode::Shadow => {
                guarded.states.record(now, ticket, ended, tallied)
            }
        })
    }

    /// Changes the state machine and publishes its new verdict.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut LockedGate) -> R) -> R {
        let mut guarded = self.lock();
        let before = guarded.states.began;
        let result = change(&mut guarded);
        let states = &guarded.states;
        // A breaker that has just closed, by any cause, starts with an empty success count.
        if let (true, BreakerStatus::Closed, Some(tally)) =
            (states.began != before, states.status(), &self.tally)
        {
            tally.clear();
        }
        // Relaxed: the release of the word below publishes it with the state that it belongs to.
        let is_slow = states.tripped_by == TripCause::Slowness;
        self.slow.store(is_slow.into(), Ordering::Relaxed);
        let tag = match (guarded.mode, states.open_until()) {
            (BreakerMode::ForcedOpen, _) => FORCED,
            (BreakerMode::Disabled, _) => DISABLED,
            (BreakerMode::Auto, Some(until)) => {
                self.until.store(until.0, Ordering::Release);
                OPEN
            }
            (BreakerMode::Auto | BreakerMode::Shadow, None) if states.is_quiet() => QUIET,
            (BreakerMode::Auto | BreakerMode::Shadow, None) if states.only_tallies() => TALLYING,
            (BreakerMode::Auto | BreakerMode::Shadow, None) if states.is_unlimited() => COUNTING,
            (BreakerMode::Auto | BreakerMode::Shadow, _) => ASK,
        };
        // Published under the lock, so words appear in the order of the changes. Last, so that a
        // reader that sees the new word sees `until` and the cleared count too.
        self.word.store(states.generation << TAG_BITS | tag, Ordering::Release);
        result
    }

    /// Reads the state machine under its lock.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&LockedGate) -> R) -> R {
        look(&self.lock())
    }

    #[cold]
    fn ask(&self, now: Moment, lease: Duration) -> Admission {
        self.change(|guarded| {
            // The mode may have been switched after the word was read: the mode under the lock
            // counts.
            match guarded.mode {
                BreakerMode::Disabled => return Admission::plain(Ok(UNTRACKED)),
                BreakerMode::ForcedOpen => {
                    return Admission::plain(Err(guarded.states.policy.cooldown.base));
                }
                BreakerMode::Auto | BreakerMode::Shadow => {}
            }
            let (verdict, changes) = guarded.states.admit(now, lease);
            match verdict {
                Err(wait) if guarded.mode == BreakerMode::Shadow => {
                    Admission { verdict: Ok(UNTRACKED), changes, would_wait: Some(wait) }
                }
                verdict => Admission { verdict, changes, would_wait: None },
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, LockedGate> {
        self.guarded.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
