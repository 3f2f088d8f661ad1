//! Decides which facts about a call every stage can read, and which notes the stages leave.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::admit::key::{CallKey, KeyCell};
use crate::admit::ledger::uncertain::CallerSession;
use crate::classify::Classifier;
use crate::env::Env;
use crate::model::call::Call;
use crate::model::duration::seconds;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure};
use crate::model::note::{Count, Flag, When};
use crate::model::report::ErrorCode;
use crate::model::sanitize::one_line;
use crate::pipeline::Pipeline;
use crate::registry::Tool;
use crate::registry::durable::QueuedWrite;
use crate::report::event::Event;
use crate::time::clock::Moment;
use crate::time::deadline::Deadline;

/// A call in progress. It runs in one task, so no other thread changes its notes meanwhile.
pub(crate) struct Run<'a, T> {
    pub(crate) pipeline: &'a Pipeline<T>,
    pub(crate) tool: &'a Tool,
    pub(crate) call: &'a Call,
    /// The deadline of the call.
    whole: Deadline,
    /// The deadline of the way to an answer being tried now: the tool and its fallbacks each get a
    /// share of the time.
    share: When,
    pub(crate) timeout: Duration,
    /// Into how many shares the time is split before the tool itself is tried.
    pub(crate) ways: u32,
    pub(crate) started: Moment,
    /// The server's count of writes when the call began.
    pub(crate) writes: u64,
    attempts: Count,
    /// An attempt failed and may have been executed all the same.
    may_have_acted: Flag,
    /// … and repeating it would execute it again.
    must_not_act_again: Flag,
    /// … and the server may still be executing it: nothing shows that it is done.
    may_still_run: Flag,
    /// The end of the call was reported.
    is_told: Flag,
    /// Time may have passed since the call started.
    waited: Flag,
    /// The failure is about this call alone and not about identical ones.
    own_affair: Flag,
    /// One line for each attempt that failed.
    causes: Mutex<Vec<String>>,
    /// Failures of a whole batch that no breaker has counted yet, each with its incident.
    spared: Mutex<Vec<Option<u64>>>,
    key: KeyCell,
    /// When the answer arrived; the start of the clock until then.
    ended: When,
}

impl<'a, T> Run<'a, T> {
    /// `own_steps` is the number of the caller's own fallback steps.
    pub(crate) fn start(
        pipeline: &'a Pipeline<T>,
        tool: &'a Tool,
        call: &'a Call,
        own_steps: usize,
    ) -> Self {
        let started = pipeline.env.clock.now();
        let timeout = tool.policy.timeout.min(call.timeout.unwrap_or(Duration::MAX));
        let ways = tool.policy.ways(own_steps);
        Self {
            pipeline,
            tool,
            call,
            whole: Deadline::after(started, timeout),
            share: When::at(started.plus(timeout / ways)),
            timeout,
            ways,
            started,
            writes: tool.server.writes(),
            attempts: Count::default(),
            may_have_acted: Flag::default(),
            must_not_act_again: Flag::default(),
            may_still_run: Flag::default(),
            is_told: Flag::default(),
            waited: Flag::default(),
            own_affair: Flag::default(),
            causes: Mutex::default(),
            spared: Mutex::default(),
            key: KeyCell::default(),
            ended: When::default(),
        }
    }

    pub(crate) fn timed_out(&self) -> Failure {
        let message = format!(
            "Tool '{}' exceeded timeout of {}",
            self.tool.name,
            seconds(self.timeout / self.ways)
        );
        Failure::local(Cause::Timeout, None, message)
    }

    pub(crate) fn env(&self) -> &Env {
        &self.pipeline.env
    }

    pub(crate) fn classifier(&self) -> &Classifier {
        &self.pipeline.classifier
    }

    pub(crate) fn error_text(&self, value: &T) -> Option<String> {
        (self.pipeline.error_text)(value)
    }

    /// The present time. On its first use by a call that has not waited it is the start of the
    /// call, which saves a reading of the clock.
    pub(crate) fn now(&self) -> Moment {
        if self.waited.is_set() {
            return self.env().clock.now();
        }
        self.note_wait();
        self.started
    }

    /// Notes that time is about to pass.
    pub(crate) fn note_wait(&self) {
        self.waited.set();
    }

    /// Notes that the failure is about this call alone and not about identical ones.
    pub(crate) fn note_own_affair(&self) {
        self.own_affair.set();
    }

    pub(crate) fn is_own_affair(&self) -> bool {
        self.own_affair.is_set()
    }

    /// How long the call can wait for another one.
    pub(crate) fn patience(&self) -> Duration {
        self.note_wait();
        self.remaining()
    }

    /// The deadline of the way to an answer being tried now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::at(self.share.get())
    }

    /// Starts the share of the next of `ways` to an answer.
    pub(crate) fn begin_share(&self, ways: usize) {
        let now = self.env().clock.now();
        // A write gets all of the time: after one that was cut off, no other way is tried.
        let ways = if self.tool.policy.effect.is_replayable() { ways } else { 1 };
        self.share.set(now.plus(self.whole.share(ways, now).remaining_at(now)));
    }

    /// The time left in the present share.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline().remaining(&self.env().clock)
    }

    /// When the answer arrived; later calls return the same moment.
    pub(crate) fn ended(&self) -> Moment {
        let known = self.ended.get();
        if known != Moment::default() {
            return known;
        }
        let now = self.env().clock.now();
        self.ended.set(now);
        now
    }

    pub(crate) fn key(&self) -> CallKey {
        self.key.get_or_init(|| self.pipeline.keys.of(self.tool, self.call))
    }

    /// The key of the call's cached response.
    pub(crate) fn copy_key(&self) -> CallKey {
        self.pipeline.keys.of_copy(self.key(), self.tool, self.call)
    }

    /// The key of the call in the ledger: the caller's, or that of the scope within which the call
    /// may be rejoined.
    pub(crate) fn ledger_key(&self) -> CallKey {
        match &self.call.rejoin {
            Some(rejoin) => self.pipeline.keys.scoped(self.key(), &rejoin.scope),
            None => self.key(),
        }
    }

    pub(crate) fn who(&self) -> CallerSession<'a> {
        (&self.call.caller, &self.call.session)
    }

    pub(crate) fn count_attempt(&self) -> u32 {
        self.attempts.next()
    }

    /// Notes a failed attempt at a tool with this effect.
    pub(crate) fn remember(&self, attempt: u32, effect: Effect, failure: &Failure) {
        if failure.may_have_executed(effect) {
            self.may_have_acted.set();
            self.note_cut(effect);
            if failure.cause == Cause::Timeout {
                self.may_still_run.set();
            }
        }
        let line = format!(
            "attempt {attempt}: {} ({})",
            one_line(&failure.message),
            ErrorCode::of(failure.cause).as_str()
        );
        self.causes.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// Notes that an attempt was cut off, so that its result is unknown.
    pub(crate) fn note_cut(&self, effect: Effect) {
        if !effect.is_replayable() {
            self.must_not_act_again.set();
        }
    }

    /// Holds the same call back for a while if this one may have been executed.
    pub(crate) fn note_uncertain(&self) {
        if let (true, Some(lasts)) =
            (self.must_not_act_again(), self.tool.policy.uncertain_write_hold)
        {
            let uncertain = &self.pipeline.gatekeeper.ledger.uncertain;
            let still_runs = self.may_still_run.is_set();
            uncertain.note(
                self.ledger_key(),
                self.who(),
                &self.tool.server.name,
                lasts,
                still_runs,
            );
        }
    }

    /// Holds the same call back for as long as this one waits in the queue; `false` if it was held
    /// back so before, or if the policy holds nothing back.
    pub(crate) fn note_queueing(&self) -> bool {
        let (policy, uncertain) = (&self.tool.policy, &self.pipeline.gatekeeper.ledger.uncertain);
        let lasts = policy.uncertain_write_hold.filter(|_| !policy.effect.is_replayable());
        lasts.is_some_and(|lasts| {
            uncertain.note_queued(self.ledger_key(), self.who(), &self.tool.server.name, lasts)
        })
    }

    /// The call as a queue item.
    pub(crate) fn queued(&self) -> QueuedWrite {
        QueuedWrite {
            server: self.tool.server.name.to_string(),
            tool: self.tool.name.to_string(),
            arguments: (*self.call.arguments).clone(),
            caller: self.call.caller.to_string(),
            principal: self.call.principal.as_deref().map(str::to_owned),
            effect: self.tool.policy.effect,
        }
    }

    pub(crate) fn must_not_act_again(&self) -> bool {
        self.must_not_act_again.is_set()
            || self.continues_a_write() && !self.tool.policy.effect.is_replayable()
    }

    pub(crate) fn may_have_acted(&self) -> bool {
        self.may_have_acted.is_set() || self.continues_a_write()
    }

    /// Whether the server had the write before, and asked its client something: it may have been
    /// executed since, whatever becomes of the client's reply.
    fn continues_a_write(&self) -> bool {
        self.call.rejoin.as_ref().is_some_and(|rejoin| rejoin.continues)
            && self.tool.policy.effect != Effect::ReadOnly
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.get()
    }

    /// One line for each attempt that failed.
    pub(crate) fn causes(&self) -> Vec<String> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Failures that no breaker has counted yet, because the first item of the batch may decide for
    /// them.
    pub(crate) fn spared(&self) -> MutexGuard<'_, Vec<Option<u64>>> {
        self.spared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the end of the call; once.
    pub(crate) fn tell_end(&self, class: &'static str) {
        if !self.is_told.is_set() {
            self.is_told.set();
            let (attempts, elapsed) = (self.attempts(), self.ended().since(self.started));
            self.emit(|server, tool| Event::CallFinished {
                server,
                tool,
                class,
                attempts,
                elapsed,
            });
        }
    }

    pub(crate) fn emit(&self, event: impl FnOnce(String, String) -> Event) {
        self.env()
            .events
            .emit(|| event(self.tool.server.name.to_string(), self.tool.name.to_string()));
    }
}

impl<T> Drop for Run<'_, T> {
    /// A run dropped before its end was cancelled: its caller has left.
    fn drop(&mut self) {
        if !self.is_told.is_set() {
            self.note_uncertain();
        }
        self.tell_end("cancelled");
    }
}
