//! Decides whether a call may start: loop guard, write in doubt, then fresh copy or shared flight, then the caller's rate.

pub(crate) mod cache;
mod doubts;
mod ended;
mod flight;
mod halves;
pub(crate) mod key;
pub(crate) mod loops;
mod marks;
pub(crate) mod rate;
mod tat;
#[cfg(test)]
mod tests;
pub(crate) mod turns;

use std::sync::{self, Arc, atomic};

use quick_cache::sync::Cache;

use crate::attempt::deadline::within;
use crate::model::duration::about;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure, Sent};
use crate::model::invalid::Invalid;
use crate::model::policy::Fallback;
use crate::model::time::Clock;
use crate::report::event::Event;
use crate::run::Run;
pub(crate) use doubts::Who;
use doubts::{Doubts, HeldBack};
pub(crate) use flight::Lead;
use flight::{Flight, Flights, Joined};
use loops::LoopMode;
use rate::{Rate, RateLimit};

/// How a call leaves this stage.
pub(crate) enum Admitted<'a, T> {
    /// It goes on; if others wait for the same answer, it leads them.
    Go(Option<Lead<'a, T>>),
    /// It already has its answer.
    Answered(T),
    /// It may not start.
    Refused(Box<Failure>),
    /// An identical call that it waited for has failed.
    Failed(Box<Failure>),
}

impl<T> Admitted<'_, T> {
    fn refused(failure: Failure) -> Self {
        Admitted::Refused(Box::new(failure))
    }
}

/// What a call has to wait for before it is known how it leaves.
pub(crate) enum Held<'a, T> {
    /// An identical call is in flight.
    ByFlight(Flight<'a, T>),
    /// The same call was put into a queue, and may wait there.
    ByQueue,
}

/// What this stage remembers between calls.
#[derive(Debug)]
pub(crate) struct Gatekeeper<T> {
    pub(crate) loops: loops::LoopGuard,
    pub(crate) doubts: Doubts,
    pub(crate) copies: cache::Copies<T>,
    flights: Flights<T>,
    callers: Option<CallerRates>,
}

impl<T: Clone> Gatekeeper<T> {
    pub(crate) fn new(
        caller_rate: Option<Rate>,
        kept_bytes: u64,
        weigh: fn(&T) -> usize,
        clock: &Clock,
    ) -> Result<Self, Invalid> {
        Ok(Self {
            loops: loops::LoopGuard::new(clock.clone()),
            doubts: Doubts::new(clock.clone()),
            copies: cache::Copies::new(kept_bytes, weigh, clock.clone())?,
            flights: Flights::default(),
            callers: caller_rate.map(|rate| CallerRates::new(rate, clock)).transpose()?,
        })
    }

    /// Asks the five questions in order; a call that finds an identical one in flight or queued has to wait for it first.
    pub(crate) fn admit<'a>(&'a self, run: &Run<'a, T>) -> Result<Admitted<'a, T>, Held<'a, T>> {
        let policy = &run.tool.policy;
        if let Some(repeats) = self.loops.check(&policy.loops, &run.call.session, || run.key()) {
            let did = if policy.loops.mode == LoopMode::Failures { "failed" } else { "was made" };
            return Ok(Admitted::refused(run.refuse(Cause::Loop, None, format!("{did} {repeats} times"))));
        }
        // Who says that a repeat is meant is not asked.
        if !policy.effect.is_replayable() && policy.repeat_after.is_some() {
            match self.doubts.check(&run.call.session, || run.key()) {
                Some(held) if !held.is_queued => return Ok(Admitted::refused(run.hold_back(&held))),
                // Also one that was queued elsewhere, or so long ago that it is remembered there only.
                held if held.is_some() || run.may_be_queued() => return Err(Held::ByQueue),
                _ => {}
            }
        }
        if let (Some(fresh), Effect::ReadOnly) = (policy.cache.fresh, policy.effect) {
            if let Some(copy) = self.copies.fresh_at(run.started, run.key(), fresh, run.tool.server.writes()) {
                return Ok(run.answer_at_once(copy, false));
            }
            let lead = self.flights.join((run.key(), run.writes)).map_err(Held::ByFlight)?;
            return Ok(self.within_rate(run, Some(lead)));
        }
        Ok(self.within_rate(run, None))
    }

    /// Waits for what holds a call up.
    pub(crate) async fn wait_for<'a>(&'a self, run: &Run<'a, T>, held: Held<'a, T>) -> Admitted<'a, T> {
        match held {
            Held::ByFlight(flight) => self.follow(run, flight).await,
            // Boxed: it is rare.
            Held::ByQueue => Box::pin(self.look_into_queue(run)).await,
        }
    }

    async fn look_into_queue<'a>(&'a self, run: &Run<'a, T>) -> Admitted<'a, T> {
        let waiting = match run.pipeline.durable.as_deref() {
            Some(durable) => within(run.patience(), durable.waiting(&run.queued())).await,
            None => Ok(Ok(None)),
        };
        match waiting {
            Ok(Ok(Some(id))) => {
                let words = format!("the same call is queued as {id} and is not done yet");
                return Admitted::refused(run.refuse(Cause::InDoubt, None, words));
            }
            Ok(Ok(None)) => self.doubts.left_queue(run.key()),
            Ok(Err(_)) | Err(_) => return Admitted::refused(run.queue_is_silent()),
        }
        match self.doubts.check(&run.call.session, || run.key()) {
            Some(held) => Admitted::refused(run.hold_back(&held)),
            None => self.within_rate(run, None),
        }
    }

    async fn follow<'a>(&'a self, run: &Run<'a, T>, flight: Flight<'a, T>) -> Admitted<'a, T> {
        match flight.landing(run.patience()).await {
            Joined::Lead(lead) => self.within_rate(run, Some(lead)),
            Joined::Landed(outcome) => run.answer_with_flight(outcome),
            Joined::TimedOut => run.fail_with_flight(run.timed_out()),
        }
    }

    fn within_rate<'a>(&'a self, run: &Run<'a, T>, lead: Option<Lead<'a, T>>) -> Admitted<'a, T> {
        if let Some(Err(wait)) = self.callers.as_ref().map(|callers| callers.check(&run.call.caller)) {
            return Admitted::refused(run.refuse(Cause::RateLimited, Some(wait), "this caller's rate is used up"));
        }
        Admitted::Go(lead)
    }
}

impl<T: Clone> Run<'_, T> {
    /// Not sent, by a decision of ours that is told to those who listen.
    pub(crate) fn refuse(
        &self,
        cause: Cause,
        retry_after: Option<std::time::Duration>,
        message: impl Into<String>,
    ) -> Failure {
        self.emit(|server, tool| Event::Refused { server, tool, cause });
        Failure::local(cause, retry_after, message)
    }

    /// Not sent, because the same call may have been executed and nobody has looked since.
    fn hold_back(&self, held: &HeldBack) -> Failure {
        let words = format!("the same call may have been executed {} ago", about(held.age));
        Failure { sent: Sent::Maybe, ..self.refuse(Cause::InDoubt, Some(held.left), words) }
    }

    /// Not sent, because nobody can say whether the same call waits in the queue, or was made from there.
    fn queue_is_silent(&self) -> Failure {
        let words = "the queue did not answer, and the same call may wait there or may have been executed";
        Failure { sent: Sent::Maybe, ..self.refuse(Cause::InDoubt, None, words) }
    }

    /// Whether the same call may wait in the queue. Most of the time nothing does, and then the queue need not be asked.
    fn may_be_queued(&self) -> bool {
        let may_wait = || self.pipeline.durable.as_ref().is_some_and(|queue| !queue.is_idle(&self.tool.server.name));
        self.tool.policy.fallback.contains(&Fallback::Queue) && may_wait()
    }

    fn answer_at_once<'a>(&self, value: T, shared_flight: bool) -> Admitted<'a, T> {
        self.emit(|server, tool| Event::CacheHit { server, tool, shared_flight });
        Admitted::Answered(value)
    }

    fn answer_with_flight<'a>(&self, landed: Result<T, Failure>) -> Admitted<'a, T> {
        match landed {
            Ok(value) => self.answer_at_once(value, true),
            Err(failure) => self.fail_with_flight(failure),
        }
    }

    fn fail_with_flight<'a>(&self, failure: Failure) -> Admitted<'a, T> {
        self.note_followed();
        Admitted::Failed(Box::new(failure))
    }
}

/// How many callers are remembered; one that was long silent starts afresh.
const CALLERS: usize = 10_000;

/// One rate limit per caller.
#[derive(Debug)]
struct CallerRates {
    rate: Rate,
    clock: Clock,
    limits: Cache<Arc<str>, Arc<RateLimit>>,
}

impl CallerRates {
    fn new(rate: Rate, clock: &Clock) -> Result<Self, Invalid> {
        rate.validate().map_err(|error| error.within("caller_rate"))?;
        Ok(Self { rate, clock: clock.clone(), limits: Cache::new(CALLERS) })
    }

    fn check(&self, caller: &Arc<str>) -> Result<(), std::time::Duration> {
        let limit = self.limits.get_or_insert_with(caller, || RateLimit::new(self.rate, &self.clock).map(Arc::new));
        // The rate was checked when the pipeline was built.
        limit.map_or(Ok(()), |limit| limit.check())
    }
}
