//! Decides whether an attempt may start: the circuit breaker.
//!
//! At most `probes` attempts are in flight while half-open, and at most `slow_start` right after
//! the breaker closed. A [`Permit`] carries the generation in which it was granted: dropped, it
//! releases its place and decides nothing; from an earlier generation, it decides nothing either.
//! Time comes from the injected clock only.

mod gate;
mod incident;
mod lease;
mod registry;
mod slow_start;
mod states;
mod stripe;
mod tally;
mod window;

pub use registry::CircuitBreaker;

use std::future::Future;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::classify::{Classifier, Describe};
use crate::env::Env;
use crate::model::failure::{Blame, Cause, Failure, TOO_SLOW};
use crate::model::invalid::Invalid;
use crate::model::policy::breaker::{BreakerPolicy, BreakerStatus};
use crate::model::rng::Rng;
use crate::model::signals::FailureSignals;
use crate::report::event::Event;
use crate::time::clock::{Clock, Moment, millis, nanos};
use gate::Gate;
use incident::Incident;
use states::{AdmissionTicket, CallEnd, StateChange, StateMachine};

/// How long after its deadline a probe counts as lost: its own end comes first, because its result
/// decides.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The primitives of the lock-free parts; `tests/loom` swaps in those of the model checker.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard};
}

/// The wait told to calls that get no lease for a probe.
const LEASE_PAUSE: Duration = Duration::from_secs(1);

/// Whether the state machine or an operator decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum BreakerMode {
    /// The state machine decides.
    #[default]
    Auto,
    /// Every call is refused until an operator changes the mode.
    ForcedOpen,
    /// Every call passes and nothing is counted.
    Disabled,
    /// The state machine counts and changes state, but every call passes all the same.
    Shadow,
}

/// A breaker in a form that can be stored: times as durations, never as dates.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BreakerSnapshot {
    /// The state of the state machine, in any mode.
    pub status: BreakerStatus,
    /// Whether the state machine or an operator decides.
    pub mode: BreakerMode,
    /// Failures in a row.
    pub failures: u32,
    /// How long ago the last failure was.
    pub last_failure_ago: Option<Duration>,
    /// While open, the time until a probe may pass.
    pub remaining: Option<Duration>,
    /// How often the breaker has opened.
    pub trips: u64,
    /// How many steps the cool-down has grown.
    pub level: u32,
}

/// A refusal: the breaker is open, half-open with all probes out, or in slow start. Borrows the
/// breaker's name, so that a refusal costs next to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Circuit breaker open for \"{name}\". Retry in {}ms.{}",
    millis(*retry_after),
    if *slow { TOO_SLOW } else { "" }
)]
pub struct BreakerRefusal<'a> {
    /// The breaker's name.
    pub name: &'a str,
    /// The time until a call may be tried.
    pub retry_after: Duration,
    /// An operator holds the breaker open; no time will close it.
    pub forced: bool,
    /// The breaker opened because its calls were too slow, not because they failed.
    pub slow: bool,
}

impl BreakerRefusal<'_> {
    pub(crate) fn failure(&self) -> Failure {
        if self.forced {
            return Failure::switched_off();
        }
        Failure::local(Cause::CircuitOpen, Some(self.retry_after), self.to_string())
    }
}

/// A call that was refused because the breaker is open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.refused())]
pub struct CircuitOpen {
    /// The breaker's name.
    pub name: Arc<str>,
    /// The time until a call may be tried.
    pub retry_after: Duration,
    /// An operator holds the breaker open; no time will close it.
    pub forced: bool,
    /// The breaker opened because its calls were too slow, not because they failed.
    pub slow: bool,
}

impl CircuitOpen {
    fn refused(&self) -> BreakerRefusal<'_> {
        let Self { name, retry_after, forced, slow } = self;
        BreakerRefusal { name, retry_after: *retry_after, forced: *forced, slow: *slow }
    }
}

/// A circuit breaker.
///
/// ```
/// # use seawall::{Breaker, BreakerPolicy, BreakerStatus, Env};
/// # use std::time::Duration;
/// let policy = BreakerPolicy::new(2, Duration::from_secs(30));
/// let breaker = Breaker::new("jira", policy, &Env::new())?;
/// for _ in 0..2 {
///     breaker.admit().unwrap().badly();
/// }
/// assert_eq!(breaker.status(), BreakerStatus::Open);
/// assert_eq!(breaker.admit().unwrap_err().name, "jira");
/// # Ok::<(), seawall::Invalid>(())
/// ```
#[derive(Debug)]
pub struct Breaker {
    name: Arc<str>,
    gate: Gate,
    counts_throttling: bool,
    incident: Incident,
    env: Env,
}

impl Breaker {
    /// A closed breaker.
    pub fn new(
        name: impl Into<Arc<str>>,
        policy: BreakerPolicy,
        env: &Env,
    ) -> Result<Self, Invalid> {
        policy.validate()?;
        Ok(Self::valid(name.into(), policy, env))
    }

    /// As [`Self::new`], under a policy that was validated before.
    fn valid(name: Arc<str>, policy: BreakerPolicy, env: &Env) -> Self {
        let counts_throttling = policy.trip_on_429;
        let gate = Gate::new(StateMachine::new(policy, env.rng.clone()));
        Self { name, gate, counts_throttling, incident: Incident::default(), env: env.clone() }
    }

    /// Its name: a tool, a server, or `global`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes a permit for one attempt, or refuses it. Checking and reserving are one step.
    #[inline]
    pub fn admit(&self) -> Result<Permit<'_>, BreakerRefusal<'_>> {
        self.admit_for(Duration::MAX)
    }

    /// As [`Self::admit`], for an attempt that ends within `lease` in any case.
    #[inline]
    pub fn admit_for(&self, lease: Duration) -> Result<Permit<'_>, BreakerRefusal<'_>> {
        match self.gate.admits_at_a_glance() {
            Some(generation) => {
                Ok(Permit { breaker: self, generation, probe: None, since: Moment(0) })
            }
            None => self.ask_for(lease),
        }
    }

    /// Whether a call would be refused now, without reserving anything.
    #[inline]
    pub fn peek(&self) -> Result<(), BreakerRefusal<'_>> {
        self.gate.peek(&self.env.clock).map_or(Ok(()), |wait| Err(self.refuse(wait)))
    }

    /// The wait that a call would meet now; the check emits no refusal event.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.gate.peek(&self.env.clock)
    }

    /// Runs `work` under a permit. An error is classified by its text and signals: callers' faults,
    /// denials and cancellations do not count as failures.
    pub async fn call<T, E, F>(&self, work: impl FnOnce() -> F) -> Result<T, GuardedError<E>>
    where
        F: Future<Output = Result<T, E>>,
        E: Describe,
    {
        let permit = self.admit().map_err(|refused| GuardedError::Open(self.owned(refused)))?;
        match work().await {
            Ok(value) => {
                permit.well();
                Ok(value)
            }
            Err(error) => {
                permit.blame(error.failure(&Classifier::new()).cause.blame());
                Err(GuardedError::Failed(error))
            }
        }
    }

    /// The state: an open breaker reads `open` until a call finds its cool-down over. A breaker
    /// that an operator holds open is open, and a disabled one closed.
    pub fn status(&self) -> BreakerStatus {
        self.gate.look(gate::LockedGate::shown)
    }

    /// The whole state, with times as durations.
    pub fn snapshot(&self) -> BreakerSnapshot {
        let now = self.env.clock.now();
        self.gate.look(|guarded| {
            let states = &guarded.states;
            BreakerSnapshot {
                status: states.status(),
                mode: guarded.mode,
                failures: states.failures(),
                last_failure_ago: states.last_failure_ago(now),
                remaining: states.open_until().map(|until| until.since(now)),
                trips: states.trips,
                level: states.level(),
            }
        })
    }

    /// Restores the state of a snapshot. A half-open breaker comes back open with no time left, so
    /// that its next call is a probe.
    pub fn restore(&self, snapshot: &BreakerSnapshot) {
        let now = self.env.clock.now();
        let remaining = match snapshot.status {
            BreakerStatus::Closed => None,
            BreakerStatus::Open | BreakerStatus::HalfOpen => {
                Some(snapshot.remaining.unwrap_or_default())
            }
        };
        let BreakerSnapshot { mode, failures, last_failure_ago, trips, level, .. } = *snapshot;
        let change = self.gate.change(|guarded| {
            guarded.shown_change(|guarded| {
                guarded.mode = mode;
                guarded.states.trips = trips;
                guarded.states.restore(now, remaining, failures, level, last_failure_ago);
            })
        });
        self.tell(change.into_iter().collect(), None);
    }

    /// Closes the breaker and forgets its failures.
    pub fn reset(&self) {
        let now = self.env.clock.now();
        let change = self.gate.change(|guarded| {
            guarded.shown_change(|guarded| {
                guarded.states.reset(now);
            })
        });
        self.tell(change.into_iter().collect(), None);
    }

    /// Closes the breaker as its own probes do, with a slow start: a probe elsewhere has shown that
    /// the server is back.
    pub fn recover(&self) {
        let now = self.env.clock.now();
        let change = self.gate.change(|guarded| {
            guarded.shown_change(|guarded| {
                if guarded.states.status() != BreakerStatus::Closed {
                    guarded.states.recover(now);
                }
            })
        });
        self.tell(change.into_iter().collect(), None);
    }

    /// How many probes may be in flight at once.
    pub fn probes(&self) -> u32 {
        self.gate.look(|guarded| guarded.states.policy.probes)
    }

    /// Whether the next call would be a probe. Costs a closed breaker one atomic load.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.gate.admits_at_a_glance().is_none() && self.wait().is_none() && self.may_probe()
    }

    /// Sets the mode. Coming back to [`BreakerMode::Auto`] starts closed.
    pub fn set_mode(&self, mode: BreakerMode) {
        let now = self.env.clock.now();
        let change = self.gate.change(|guarded| {
            guarded.shown_change(|guarded| {
                if mode == BreakerMode::Auto && guarded.mode != mode {
                    guarded.states.reset(now);
                }
                guarded.mode = mode;
            })
        });
        self.tell(change.into_iter().collect(), None);
    }

    /// Whether the breaker is at rest, so that its place may go to another name.
    pub(crate) fn is_idle(&self) -> bool {
        let now = self.env.clock.now();
        self.gate
            .look(|guarded| guarded.mode == BreakerMode::Auto && guarded.states.is_at_rest(now))
    }

    /// Not inlined: its parts would cost the healthy path registers.
    #[inline(never)]
    fn ask_for(&self, lease: Duration) -> Result<Permit<'_>, BreakerRefusal<'_>> {
        if let Some(wait) = self.gate.refuses_at_a_glance(&self.env.clock) {
            return Err(self.refuse(wait));
        }
        let leases = self.env.probes.as_deref().filter(|_| self.may_probe());
        if leases.is_some_and(|leases| !leases.take(&self.name)) {
            return Err(self.refuse(LEASE_PAUSE));
        }
        let admission = self.gate.admit(&self.env.clock, lease);
        let is_probe = admission.verdict.is_ok_and(|ticket| ticket.probe.is_some());
        if let Some(leases) = leases.filter(|_| !is_probe) {
            leases.give_back(&self.name);
        }
        self.tell(admission.changes, admission.would_wait);
        match admission.verdict {
            Ok(AdmissionTicket { generation, probe, since }) => {
                Ok(Permit { breaker: self, generation, probe, since })
            }
            Err(wait) => Err(self.refuse(wait)),
        }
    }

    /// Whether the state machine may answer a call with a probe.
    fn may_probe(&self) -> bool {
        self.gate.look(|guarded| {
            guarded.mode == BreakerMode::Auto && guarded.states.status() != BreakerStatus::Closed
        })
    }

    #[inline]
    fn refuse(&self, retry_after: Duration) -> BreakerRefusal<'_> {
        self.env.events.emit(|| Event::BreakerRejected {
            name: self.name.to_string(),
            retry_after,
            shadow: false,
        });
        let (forced, slow) = (self.gate.is_forced(), self.gate.is_slow());
        BreakerRefusal { name: &self.name, retry_after, forced, slow }
    }

    fn owned(&self, refused: BreakerRefusal<'_>) -> CircuitOpen {
        CircuitOpen {
            name: self.name.clone(),
            retry_after: refused.retry_after,
            forced: refused.forced,
            slow: refused.slow,
        }
    }

    /// Takes the ticket's parts one by one: passing a ticket would cost the healthy path a copy.
    #[cold]
    #[inline(never)]
    fn record(&self, generation: u64, probe: Option<NonZeroU64>, since: Moment, ended: CallEnd) {
        let change =
            self.gate.record(&self.env.clock, AdmissionTicket { generation, probe, since }, ended);
        if let (Some(_), Some(leases)) = (probe, self.env.probes.as_deref()) {
            leases.give_back(&self.name);
        }
        self.tell(change.into_iter().collect(), None);
    }

    #[cold]
    fn tell(&self, changes: Vec<StateChange>, would_wait: Option<Duration>) {
        for StateChange { from, to } in changes {
            self.env.events.emit_rare(|| Event::BreakerChanged {
                name: self.name.to_string(),
                from,
                to,
            });
        }
        if let Some(retry_after) = would_wait {
            self.env.events.emit(|| Event::BreakerRejected {
                name: self.name.to_string(),
                retry_after,
                shadow: true,
            });
        }
    }
}

/// Permission for one attempt. Report how the attempt ended; a permit dropped without a report
/// (cancelled, panicked) releases its place and decides nothing.
#[derive(Debug)]
#[must_use = "a permit that is dropped decides nothing"]
pub struct Permit<'a> {
    breaker: &'a Breaker,
    generation: u64,
    probe: Option<NonZeroU64>,
    since: Moment,
}

impl Permit<'_> {
    /// The attempt succeeded, or the server answered and so proved alive.
    #[inline]
    pub fn well(self) {
        let Permit { breaker, generation, probe, since } = self;
        std::mem::forget(self);
        if !breaker.gate.succeeds_at_a_glance(&breaker.env.clock, generation) {
            breaker.record(generation, probe, since, CallEnd::Well);
        }
    }

    /// Whether the attempt is a probe: its result closes or opens the breaker.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }

    /// Extends the lease of a probe by this much.
    pub(crate) fn extend(&self, by: Duration) {
        if let Some(probe) = self.probe {
            self.breaker.gate.change(|guarded| guarded.states.extend(probe, by));
        }
    }

    /// The attempt failed through the server's fault.
    pub fn badly(self) {
        self.end(CallEnd::Badly);
    }

    /// The attempt failed; `blame` decides whether that counts against the server.
    pub fn blame(self, blame: Blame) {
        let ended = match blame {
            Blame::Server => CallEnd::Badly,
            Blame::Throttle if self.breaker.counts_throttling => CallEnd::Badly,
            Blame::Alive => CallEnd::Well,
            Blame::Throttle | Blame::Nobody => CallEnd::Unknown,
        };
        self.end(ended);
    }

    /// As [`Self::blame`], for one of several failures with one cause: an incident counts once.
    pub fn blame_incident(self, blame: Blame, incident: Option<u64>) {
        let is_known = |number| self.breaker.incident.is_known(number);
        match blame == Blame::Server && incident.is_some_and(is_known) {
            true => self.end(CallEnd::Unknown),
            false => self.blame(blame),
        }
    }

    fn end(self, ended: CallEnd) {
        let Permit { breaker, generation, probe, since } = self;
        // `end` reports the result; `Drop` would report another.
        std::mem::forget(self);
        breaker.record(generation, probe, since, ended);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.breaker.record(self.generation, self.probe, self.since, CallEnd::Unknown);
    }
}

/// Why a call under a breaker returned no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardedError<E> {
    /// The breaker is open; the work was not started.
    #[error(transparent)]
    Open(CircuitOpen),
    /// The work itself failed.
    #[error("{0}")]
    Failed(E),
}

impl<E: Describe> Describe for GuardedError<E> {
    fn signals(&self) -> FailureSignals {
        match self {
            GuardedError::Open(open) => FailureSignals::text(open.to_string()),
            GuardedError::Failed(error) => error.signals(),
        }
    }

    /// An open breaker is recognised by its type, never by its text.
    fn failure(&self, classifier: &Classifier) -> Failure {
        match self {
            GuardedError::Open(open) => open.refused().failure(),
            GuardedError::Failed(error) => error.failure(classifier),
        }
    }
}

#[cfg(test)]
mod tests;
