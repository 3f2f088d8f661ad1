//! Decides the state of a circuit breaker: pure values that read no clock and take no lock.
//!
//! Every entry to a state starts a new generation with counters at zero. A result from before the
//! present state decides nothing, so a late success cannot close the breaker and a late failure
//! cannot extend its cool-down. Each row of failures starts a generation too: a success from before
//! the row does not end it.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::slow_start::SlowStart;
use super::window::{TripCause, Window};
use super::{Moment, Rng};
use crate::model::policy::breaker::{BreakerPolicy, BreakerStatus};

/// The result of an admitted call, as far as the breaker cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// The call succeeded, or the server answered and so proved alive.
    Well,
    /// The call failed through the server's fault.
    Badly,
    /// The result tells nothing about the server: cancelled, or refused locally.
    Unknown,
}

/// Proof of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdmissionTicket {
    pub(crate) generation: u64,
    /// The number of the reserved probe, while half-open.
    pub(crate) probe: Option<NonZeroU64>,
    /// When the call was admitted, where a slow-call rule needs it.
    pub(crate) since: Moment,
}

/// A probe in flight and the moment at which it counts as failed.
#[derive(Clone, Copy, Debug)]
struct ProbeLease {
    probe: NonZeroU64,
    until: Moment,
}

#[derive(Debug)]
enum Phase {
    Closed { failures: u32, window: Option<Box<Window>>, slow_start: Option<SlowStart> },
    Open { until: Moment },
    HalfOpen { successes: u32, leases: Vec<ProbeLease>, used: Moment },
}

/// A failure and its age when it was noted: a failure from before the clock began has no moment.
#[derive(Clone, Copy, Debug)]
struct LastFailure {
    noted: Moment,
    age: Duration,
}

impl LastFailure {
    fn age(self, now: Moment) -> Duration {
        self.age.saturating_add(now.since(self.noted))
    }
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateChange {
    pub(crate) from: BreakerStatus,
    pub(crate) to: BreakerStatus,
}

/// While half-open with all probes in flight, the wait told to calls that are refused.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// The state machine. Its owner guards it and passes in the time.
#[derive(Debug)]
pub(crate) struct StateMachine {
    pub(crate) policy: BreakerPolicy,
    rng: Arc<Rng>,
    phase: Phase,
    /// Grows with each state and with each row of failures: it separates calls that began before a
    /// row from calls that began since.
    pub(crate) generation: u64,
    /// The generation with which the present state began.
    pub(crate) began: u64,
    last_failure: Option<LastFailure>,
    /// Failures in a row when the breaker last opened, plus those of its probes since.
    row: u32,
    /// The number of openings in a row, by which the cool-down has grown.
    level: u32,
    closed_since: Moment,
    pub(crate) trips: u64,
    /// What opened the breaker last.
    pub(crate) tripped_by: TripCause,
    last_probe: NonZeroU64,
}

impl StateMachine {
    pub(crate) fn new(policy: BreakerPolicy, rng: Arc<Rng>) -> Self {
        let phase = Self::closed(&policy);
        Self {
            policy,
            rng,
            phase,
            generation: 0,
            began: 0,
            last_failure: None,
            row: 0,
            level: 0,
            closed_since: Moment::default(),
            trips: 0,
            tripped_by: TripCause::Failures,
            last_probe: NonZeroU64::MIN,
        }
    }

    pub(crate) fn status(&self) -> BreakerStatus {
        match self.phase {
            Phase::Closed { .. } => BreakerStatus::Closed,
            Phase::Open { .. } => BreakerStatus::Open,
            Phase::HalfOpen { .. } => BreakerStatus::HalfOpen,
        }
    }

    pub(crate) fn failures(&self) -> u32 {
        match self.phase {
            Phase::Closed { failures, .. } => failures,
            Phase::Open { .. } | Phase::HalfOpen { .. } => self.row,
        }
    }

    /// How long ago the last failure was.
    pub(crate) fn last_failure_ago(&self, now: Moment) -> Option<Duration> {
        self.last_failure.map(|last| last.age(now))
    }

    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// When an open breaker lets a probe through.
    pub(crate) fn open_until(&self) -> Option<Moment> {
        match self.phase {
            Phase::Open { until } => Some(until),
            _ => None,
        }
    }

    /// Whether a success would change nothing at all.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.phase, Phase::Closed { failures: 0, window: None, slow_start: None })
    }

    /// Whether the breaker remembers nothing at `now` that a new one would not know, or nothing of
    /// use: if no call has come for `memory` since its cool-down ended, it protects no server.
    pub(crate) fn is_at_rest(&self, now: Moment) -> bool {
        let is_grown = self.policy.cooldown.growth > 1.0 && self.level_at(now) > 0;
        let is_long_ago = |moment: Moment| now.since(moment) > self.policy.memory;
        match &self.phase {
            Phase::Closed { failures, window, slow_start } => {
                let is_forgotten = *failures == 0 || self.is_row_old(now);
                let is_over = slow_start.as_ref().is_none_or(|slow_start| slow_start.is_over(now));
                is_forgotten
                    && !is_grown
                    && is_over
                    && window.as_ref().is_none_or(|window| window.is_clean(now))
            }
            Phase::Open { until } => is_long_ago(*until),
            // A probe that never ended has failed, which opened the breaker once more.
            Phase::HalfOpen { leases, used, .. } => {
                let again = self.policy.cooldown.length(self.level, 1.0);
                is_long_ago(*used)
                    && leases.iter().all(|lease| is_long_ago(lease.until.plus(again)))
            }
        }
    }

    /// Whether a success only adds to the count: there is no row to end, durations do not matter,
    /// and the window holds no failure whose share the success could complete.
    pub(crate) fn only_tallies(&self) -> bool {
        let Phase::Closed { failures: 0, window: Some(window), slow_start: None } = &self.phase
        else {
            return false;
        };
        window.is_plain() && !self.needs_time()
    }

    /// Whether any number of attempts may be in flight at once.
    pub(crate) fn is_unlimited(&self) -> bool {
        matches!(self.phase, Phase::Closed { slow_start: None, .. })
    }

    /// Whether a rule counts slow calls.
    pub(crate) fn needs_time(&self) -> bool {
        self.policy.window.as_ref().is_some_and(|window| window.slow.is_some())
    }

    /// The wait of a call; `None` if it would be admitted.
    pub(crate) fn wait(&self, now: Moment) -> Option<Duration> {
        match &self.phase {
            Phase::Closed { slow_start, .. } => {
                slow_start.as_ref().and_then(|slow_start| slow_start.wait(now))
            }
            Phase::Open { until } => (now < *until).then(|| until.since(now)),
            Phase::HalfOpen { leases, .. } => {
                (self.is_full(leases) && !is_overdue(leases, now)).then_some(PROBE_PAUSE)
            }
        }
    }

    /// Admits a call, as a probe or with a place of the slow start if need be, or returns the wait.
    pub(crate) fn admit(
        &mut self,
        now: Moment,
        lease: Duration,
    ) -> (Result<AdmissionTicket, Duration>, Vec<StateChange>) {
        let mut changes = Vec::new();
        // Overdue probes fail first: that may open the breaker, and an expired cool-down then lets
        // this call probe.
        changes.extend(self.fail_overdue_probes(now));
        self.end_slow_start(now);
        if let Phase::Open { until } = self.phase
            && now >= until
        {
            changes.push(self.enter(Phase::HalfOpen {
                successes: 0,
                leases: Vec::new(),
                used: now,
            }));
        }
        if let Some(wait) = self.wait(now) {
            return (Err(wait), changes);
        }
        if let Phase::Closed { slow_start: Some(slow_start), .. } = &mut self.phase {
            slow_start.take();
        }
        let lease = if lease == Duration::MAX { self.policy.lease } else { lease };
        let probe = self.reserve_probe(now.plus(lease));
        (Ok(AdmissionTicket { generation: self.generation, probe, since: now }), changes)
    }

    /// Records the result of an admitted call. `tallied` returns the successes counted outside this
    /// state machine.
    pub(crate) fn record(
        &mut self,
        now: Moment,
        ticket: AdmissionTicket,
        ended: CallEnd,
        tallied: impl FnOnce() -> u32,
    ) -> Option<StateChange> {
        // A ticket from before the present state is late: its result decides nothing.
        if !(self.began..=self.generation).contains(&ticket.generation) {
            return None;
        }
        if ended == CallEnd::Badly {
            self.forget_an_old_row(now);
            self.last_failure = Some(LastFailure { noted: now, age: Duration::ZERO });
        }
        self.end_slow_start(now);
        let threshold = self.policy.successes;
        let slow_after =
            self.policy.window.as_ref().and_then(|window| window.slow).map(|slow| slow.after);
        let is_slow = slow_after.is_some_and(|after| now.since(ticket.since) > after);
        match &mut self.phase {
            Phase::Closed { failures, window, slow_start } => {
                if let Some(slow_start) = slow_start {
                    // The slow start began with this state, so every ticket of the state holds a
                    // place in it.
                    slow_start.give_back(ended == CallEnd::Well);
                }
                let was_quiet = *failures == 0;
                let in_row = count(
                    failures,
                    ended,
                    self.policy.failures,
                    ticket.generation < self.generation,
                );
                // The first failure of a row starts a generation, so that `count` can tell a
                // success that began before the row.
                if was_quiet && *failures > 0 {
                    self.generation += 1;
                }
                let counts = window.as_mut().filter(|_| ended != CallEnd::Unknown);
                let in_window = counts.and_then(|window| {
                    window.record(now, ended == CallEnd::Badly, is_slow, tallied)
                });
                let cause = if in_row { Some(TripCause::Failures) } else { in_window };
                cause.map(|cause| self.open(now, cause))
            }
            Phase::HalfOpen { successes, leases, used } => {
                let held = leases.iter().position(|lease| Some(lease.probe) == ticket.probe)?;
                leases.swap_remove(held);
                *used = now;
                match ended {
                    CallEnd::Unknown => None,
                    CallEnd::Badly => Some(self.open(now, TripCause::Failures)),
                    // A server that answers slowly has not recovered.
                    CallEnd::Well if is_slow => Some(self.open(now, TripCause::Slowness)),
                    CallEnd::Well => {
                        *successes += 1;
                        (*successes >= threshold).then(|| self.recover(now))
                    }
                }
            }
            Phase::Open { .. } => None,
        }
    }

    /// Closes at once and forgets the failures. Returns no change if the breaker was closed.
    pub(crate) fn reset(&mut self, now: Moment) -> Option<StateChange> {
        self.level = 0;
        self.last_failure = None;
        let change = self.close(now);
        (change.from != change.to).then_some(change)
    }

    /// Restores a snapshot: opens at once for `remaining`, or closes with its row of failures
    /// unless that is too old by now.
    pub(crate) fn restore(
        &mut self,
        now: Moment,
        remaining: Option<Duration>,
        row: u32,
        level: u32,
        ago: Option<Duration>,
    ) {
        self.level = level;
        let age = ago.or((row > 0).then_some(Duration::ZERO));
        self.last_failure = age.map(|age| LastFailure { noted: now, age });
        match remaining {
            Some(remaining) => {
                self.row = row;
                self.tripped_by = TripCause::Failures;
                let longest = self.policy.cooldown.length(u32::MAX, 1.0);
                self.enter(Phase::Open { until: now.plus(remaining.min(longest)) });
            }
            None => {
                self.close(now);
                if let Phase::Closed { failures, .. } = &mut self.phase {
                    *failures = row.min(self.policy.failures.saturating_sub(1));
                }
                self.forget_an_old_row(now);
            }
        }
    }

    fn closed(policy: &BreakerPolicy) -> Phase {
        Phase::Closed {
            failures: 0,
            window: policy.window.clone().map(Window::new).map(Box::new),
            slow_start: None,
        }
    }

    fn close(&mut self, now: Moment) -> StateChange {
        self.closed_since = now;
        let phase = Self::closed(&self.policy);
        self.enter(phase)
    }

    /// Closes because the probes succeeded. Calls refused meanwhile may come all at once, so a slow
    /// start begins.
    pub(crate) fn recover(&mut self, now: Moment) -> StateChange {
        let change = self.close(now);
        if let Phase::Closed { slow_start, .. } = &mut self.phase {
            *slow_start = SlowStart::begin(&self.policy, now);
        }
        change
    }

    fn open(&mut self, now: Moment, cause: TripCause) -> StateChange {
        self.tripped_by = cause;
        self.row = match self.phase {
            Phase::Closed { failures, .. } => failures,
            Phase::Open { .. } | Phase::HalfOpen { .. } => self.row.saturating_add(1),
        };
        if matches!(self.phase, Phase::Closed { .. }) {
            self.level = self.level_at(now);
        }
        let length = self.policy.cooldown.length(self.level, self.rng.unit());
        self.level = self.level.saturating_add(1);
        self.trips = self.trips.saturating_add(1);
        self.enter(Phase::Open { until: now.plus(length) })
    }

    /// The level left after the healthy time of a closed breaker.
    fn level_at(&self, now: Moment) -> u32 {
        let healthy =
            now.since(self.closed_since).as_nanos() / self.policy.cooldown.base.as_nanos().max(1);
        self.level.saturating_sub(u32::try_from(healthy).unwrap_or(u32::MAX))
    }

    fn enter(&mut self, phase: Phase) -> StateChange {
        let from = self.status();
        self.phase = phase;
        self.generation += 1;
        self.began = self.generation;
        StateChange { from, to: self.status() }
    }

    fn forget_an_old_row(&mut self, now: Moment) {
        if let (true, Phase::Closed { failures, .. }) = (self.is_row_old(now), &mut self.phase) {
            *failures = 0;
        }
    }

    fn end_slow_start(&mut self, now: Moment) {
        if let Phase::Closed { slow_start, .. } = &mut self.phase {
            slow_start.take_if(|slow_start| slow_start.is_over(now));
        }
    }

    fn is_row_old(&self, now: Moment) -> bool {
        self.last_failure.is_some_and(|last| last.age(now) > self.policy.memory)
    }

    fn is_full(&self, leases: &[ProbeLease]) -> bool {
        leases.len() >= usize::try_from(self.policy.probes).unwrap_or(usize::MAX)
    }

    fn reserve_probe(&mut self, until: Moment) -> Option<NonZeroU64> {
        let Phase::HalfOpen { leases, .. } = &mut self.phase else { return None };
        self.last_probe = self.last_probe.saturating_add(1);
        leases.push(ProbeLease { probe: self.last_probe, until });
        Some(self.last_probe)
    }

    /// Gives a probe more time.
    pub(crate) fn extend(&mut self, probe: NonZeroU64, by: Duration) {
        if let Phase::HalfOpen { leases, .. } = &mut self.phase {
            leases
                .iter_mut()
                .filter(|lease| lease.probe == probe)
                .for_each(|lease| lease.until = lease.until.plus(by));
        }
    }

    /// A probe that outlived its lease has failed, at the moment when its lease ended.
    fn fail_overdue_probes(&mut self, now: Moment) -> Option<StateChange> {
        let Phase::HalfOpen { leases, .. } = &self.phase else { return None };
        let overdue = leases.iter().map(|lease| lease.until).filter(|until| now >= *until).min()?;
        Some(self.open(overdue, TripCause::Failures))
    }
}

fn is_overdue(leases: &[ProbeLease], now: Moment) -> bool {
    leases.iter().any(|lease| now >= lease.until)
}

/// Counts a row of failures; returns whether it has reached `limit`. A success that began before
/// the row does not end it but cancels out one failure.
fn count(failures: &mut u32, ended: CallEnd, limit: u32, began_before: bool) -> bool {
    match ended {
        CallEnd::Well if began_before => *failures = failures.saturating_sub(1),
        CallEnd::Well => *failures = 0,
        CallEnd::Badly if limit > 0 => *failures = failures.saturating_add(1),
        CallEnd::Badly | CallEnd::Unknown => {}
    }
    limit > 0 && *failures >= limit
}
