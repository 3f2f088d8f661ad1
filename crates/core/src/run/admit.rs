//! Decides whether a call may start: by the ledger, then by a fresh or shared answer, then by the
//! caller's rate limit.

use crate::admit::Gatekeeper;
use crate::admit::ledger::Leading;
use crate::admit::ledger::in_flight::Following;
use crate::admit::ledger::uncertain::HeldBack;
use crate::model::answer::Outcome;
use crate::model::duration::about;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure, MAY_STILL_RUN, QUEUE_IS_SILENT, Sent};
use crate::model::policy::loops::LoopMode;
use crate::registry::durable::{EarlierWrite, NotQueued, WriteFate};
use crate::report::event::Event;
use crate::time::deadline::within;

use super::context::Run;

/// How a call leaves admission.
pub(crate) enum Admitted<'a, T> {
    /// The call goes on; if identical calls wait for its answer, it leads them.
    Go(Leading<'a, T>),
    /// A fresh cached response answers the call.
    Answered(T),
    /// The outcome of an identical call answers it.
    Shared(Box<Outcome<T>>),
    /// The call may not start.
    Refused(Box<Failure>),
}

impl<T> Admitted<'_, T> {
    fn refused(failure: Failure) -> Self {
        Admitted::Refused(Box::new(failure))
    }
}

/// The thing a call must wait for before admission can decide.
pub(crate) enum Wait<T> {
    /// An identical call is in flight.
    ByFlight(Following<T>),
    /// The same call was queued and may still wait in the queue.
    ByQueue,
}

impl<T: Clone> Gatekeeper<T> {
    /// Checks in order: uncertain write, queue, loop, fresh or shared answer, caller's rate. A call
    /// that finds an identical one in flight or queued has to wait for it first.
    pub(crate) fn admit<'a>(&'a self, run: &Run<'a, T>) -> Result<Admitted<'a, T>, Wait<T>> {
        let policy = &run.tool.policy;
        // First: a write that may have been executed must not be refused as a mere loop. Tools
        // without `uncertain_write_hold` skip the check: their repeats are meant.
        if !policy.effect.is_replayable() && policy.uncertain_write_hold.is_some() {
            match self.ledger.uncertain.check(&run.call.session, || run.ledger_key()) {
                Some(held) if !held.is_queued => {
                    return Ok(Admitted::refused(run.hold_back(&held)));
                }
                // Also a call queued by another session or process, or so long ago that only the
                // queue remembers it.
                held if held.is_some() || run.may_be_queued() => return Err(Wait::ByQueue),
                _ => {}
            }
        }
        if let Some(repeats) =
            self.ledger.loops.check(&policy.loops, &run.call.session, || run.key())
        {
            let did = if policy.loops.mode == LoopMode::Failures { "failed" } else { "was made" };
            return Ok(Admitted::refused(run.refuse(
                Cause::Loop,
                None,
                format!("{did} {repeats} times"),
            )));
        }
        if let (Some(fresh), Effect::ReadOnly) = (policy.cache.fresh, policy.effect) {
            if let Some(copy) =
                self.copies.fresh_at(run.started, run.copy_key(), fresh, run.tool.server.writes())
            {
                return Ok(run.answer_at_once(copy));
            }
            // A call that may be rejoined was entered in the ledger before.
            if run.call.rejoin.is_none() {
                let leading = self.ledger.share(run).map_err(Wait::ByFlight)?;
                return Ok(self.within_rate(run, leading));
            }
        }
        Ok(self.within_rate(run, None))
    }

    /// Waits for the call in flight or the queue that holds this call up.
    pub(crate) async fn wait_for<'a>(&'a self, run: &Run<'a, T>, held: Wait<T>) -> Admitted<'a, T> {
        match held {
            Wait::ByFlight(flight) => self.follow(run, flight).await,
            // Boxed: this path is rare.
            Wait::ByQueue => Box::pin(self.look_into_queue(run)).await,
        }
    }

    async fn look_into_queue<'a>(&'a self, run: &Run<'a, T>) -> Admitted<'a, T> {
        let found = match run.pipeline.durable.as_deref() {
            Some(durable) => within(run.patience(), durable.find(&run.queued())).await,
            None => Ok(Ok(None)),
        };
        let uncertain = &self.ledger.uncertain;
        match found {
            Ok(Ok(Some(earlier))) => match run.meet_queued(&earlier) {
                // The queue knows the result: the ledger's note about the queued call is obsolete.
                Some(failure) => return Admitted::refused(failure),
                None => uncertain.forget_queued(run.ledger_key()),
            },
            Ok(Ok(None)) => uncertain.left_queue(run.ledger_key()),
            Ok(Err(NotQueued::Refused(why) | NotQueued::Unknown(why))) => {
                return Admitted::refused(run.queue_is_silent(&why));
            }
            Err(_) => return Admitted::refused(run.queue_is_silent("it did not answer in time")),
        }
        match uncertain.check(&run.call.session, || run.ledger_key()) {
            Some(held) => Admitted::refused(run.hold_back(&held)),
            None => self.within_rate(run, None),
        }
    }

    /// Waits for the answer of an identical call. If that call is cancelled, one of its followers
    /// takes the lead.
    async fn follow<'a>(
        &'a self,
        run: &Run<'a, T>,
        mut following: Following<T>,
    ) -> Admitted<'a, T> {
        loop {
            match within(run.patience(), following.landed()).await {
                Ok(Some(outcome)) => return run.share_answer(outcome),
                Err(_) => return Admitted::Shared(Box::new(run.fail(run.timed_out()))),
                Ok(None) => {}
            }
            match self.ledger.share(run) {
                Ok(leading) => return self.within_rate(run, leading),
                Err(next) => following = next,
            }
        }
    }

    fn within_rate<'a>(&'a self, run: &Run<'a, T>, leading: Leading<'a, T>) -> Admitted<'a, T> {
        let callers = run.pipeline.callers.as_ref().filter(|_| run.tool.policy.is_of_a_tool());
        if let Some(Err(wait)) = callers.map(|callers| callers.check(&run.call.caller)) {
            return Admitted::refused(run.refuse(
                Cause::RateLimited,
                Some(wait),
                "this caller's rate is used up",
            ));
        }
        Admitted::Go(leading)
    }
}
impl<T: Clone> Run<'_, T> {
    /// Refuses the call in this process, and emits an event.
    pub(crate) fn refuse(
        &self,
        cause: Cause,
        retry_after: Option<std::time::Duration>,
        message: impl Into<String>,
    ) -> Failure {
        self.emit(|server, tool| Event::Refused { server, tool, cause });
        Failure::local(cause, retry_after, message)
    }

    /// Refuses the call: the same write may have been executed, and the client has not checked
    /// since.
    fn hold_back(&self, held: &HeldBack) -> Failure {
        let age = about(held.age);
        let words = match held.still_runs {
            true => format!("the same call may have been executed {age} ago {MAY_STILL_RUN}"),
            false => format!("the same call may have been executed {age} ago"),
        };
        Failure { sent: Sent::Maybe, ..self.refuse(Cause::Uncertain, Some(held.left), words) }
    }

    /// Refuses the call if the same call waits in the queue, is being sent from there, or left it
    /// lately. A write executed from the queue holds this one back as if it had just become
    /// uncertain: the client that repeats it does not know of the execution. `None`: the call may
    /// be sent.
    fn meet_queued(&self, EarlierWrite { id, fate }: &EarlierWrite) -> Option<Failure> {
        let queued = |sent, state| {
            let words = format!("the same call is queued as {id} and {state}");
            Some(Failure { sent, ..self.refuse(Cause::Queued, None, words) })
        };
        let left = |ago| {
            self.tool
                .policy
                .uncertain_write_hold
                .and_then(|lasts| lasts.checked_sub(ago))
                .filter(|left| !left.is_zero())
        };
        match *fate {
            WriteFate::Waits => queued(Sent::Never, "is not done yet"),
            WriteFate::UnderWay => queued(Sent::Maybe, "is being tried"),
            WriteFate::Executed(ago) => left(ago).map(|left| {
                let words =
                    format!("the same call, queued as {id}, was executed {} ago", about(ago));
                Failure { sent: Sent::Yes, ..self.refuse(Cause::Uncertain, Some(left), words) }
            }),
            WriteFate::Uncertain(age) => left(age).map(|left| {
                self.hold_back(&HeldBack { age, left, is_queued: false, still_runs: false })
            }),
            WriteFate::NotExecuted => None,
        }
    }

    /// Refuses the call: the queue did not answer whether the same call waits there.
    fn queue_is_silent(&self, why: &str) -> Failure {
        let words = format!("{QUEUE_IS_SILENT} ({why})");
        self.refuse(Cause::Overloaded, Some(std::time::Duration::from_secs(1)), words)
    }

    /// Whether the same call may wait in the queue. Mostly the queue is idle, and then it need not
    /// be searched.
    fn may_be_queued(&self) -> bool {
        self.pipeline.durable.as_ref().is_some_and(|queue| !queue.is_idle(&self.tool.server.name))
    }

    fn answer_at_once<'a>(&self, value: T) -> Admitted<'a, T> {
        self.emit(|server, tool| Event::CacheHit { server, tool, shared_flight: false });
        Admitted::Answered(value)
    }

    fn share_answer<'a>(&self, outcome: Outcome<T>) -> Admitted<'a, T> {
        if !matches!(outcome, Outcome::Failed(_)) {
            self.emit(|server, tool| Event::CacheHit { server, tool, shared_flight: true });
        }
        Admitted::Shared(Box::new(outcome))
    }
}
