//! Decides what every stage may look at while it works on a call, and what is noted down on the
//! way.

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

/// One call on its way. It is one task, so nobody else changes its notes meanwhile.
pub(crate) struct Run<'a, T> {
    pub(crate) pipeline: &'a Pipeline<T>,
    pub(crate) tool: &'a Tool,
    pub(crate) call: &'a Call,
    /// The end of the call.
    whole: Deadline,
    /// The end of the way to an answer that is being tried: those that lead elsewhere have their
    /// share of the time too.
    share: When,
    pub(crate) timeout: Duration,
    /// Into how many shares the time is split before the tool itself is tried.
    pub(crate) ways: u32,
    pub(crate) started: Moment,
    /// The server's writes when the call began.
    pub(crate) writes: u64,
    attempts: Count,
    /// Some attempt failed and may have been executed all the same.
    may_have_acted: Flag,
    /// … and repeating it would do it again.
    must_not_act_again: Flag,
    /// Its ending was told.
    is_told: Flag,
    /// Time may have passed since it started.
    waited: Flag,
    /// What it failed with says nothing about identical calls.
    own_affair: Flag,
    /// One line for each attempt that failed.
    causes: Mutex<Vec<String>>,
    /// Failures of a whole batch that no breaker has counted yet, each with its incident.
    spared: Mutex<Vec<Option<u64>>>,
    key: KeyCell,
    /// The moment the answer was there; the start of the clock until then.
    ended: When,
}

impl<'a, T> Run<'a, T> {
    /// `own_steps`: how many the caller has.
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

    /// The time now. Asked for the first time by a call that did not wait, it is the time it
    /// started: no need to look again.
    pub(crate) fn now(&self) -> Moment {
        if self.waited.is_set() {
            return self.env().clock.now();
        }
        self.note_wait();
        self.started
    }

    /// Time is about to pass.
    pub(crate) fn note_wait(&self) {
        self.waited.set();
    }

    /// It failed in a way that says nothing about identical calls.
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

    /// The end of the way that is being tried.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::at(self.share.get())
    }

    /// Begins the share of the next of `ways` to an answer.
    pub(crate) fn begin_share(&self, ways: usize) {
        let now = self.env().clock.now();
        let ways = if self.tool.policy.effect.is_replayable() { ways } else { 1 };
        self.share.set(now.plus(self.whole.share(ways, now).remaining_at(now)));
    }

    /// What is left of it.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline().remaining(&self.env().clock)
    }

    /// The moment the answer was there; asked again, the same.
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

    /// Under which key a copy of its answer is kept.
    pub(crate) fn copy_key(&self) -> CallKey {
        self.pipeline.keys.of_copy(self.key(), self.call)
    }

    /// Under which key the ledger knows the call: the caller's, or that of the scope within which
    /// it may be rejoined.
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

    /// Remembers an attempt that failed, at a tool with this effect.
    pub(crate) fn remember(&self, attempt: u32, effect: Effect, failure: &Failure) {
        if failure.may_have_executed(effect) {
            self.may_have_acted.set();
            self.note_cut(effect);
        }
        let line = format!(
            "attempt {attempt}: {} ({})",
            one_line(&failure.message),
            ErrorCode::of(failure.cause).as_str()
        );
        self.causes.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// An attempt was cut off: nobody knows what became of it.
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
            uncertain.note(self.ledger_key(), self.who(), &self.tool.server.name, lasts);
        }
    }

    /// Holds the same call back for as long as this one waits in a queue; `false` if that was so
    /// before.
    pub(crate) fn note_queueing(&self) -> bool {
        let (policy, uncertain) = (&self.tool.policy, &self.pipeline.gatekeeper.ledger.uncertain);
        let lasts = policy.uncertain_write_hold.filter(|_| !policy.effect.is_replayable());
        lasts.is_some_and(|lasts| {
            uncertain.note_queued(self.ledger_key(), self.who(), &self.tool.server.name, lasts)
        })
    }

    /// The call as it waits in a queue.
    pub(crate) fn queued(&self) -> QueuedWrite {
        QueuedWrite {
            server: self.tool.server.name.to_string(),
            tool: self.tool.name.to_string(),
            arguments: (*self.call.arguments).clone(),
            caller: self.call.caller.to_string(),
            effect: self.tool.policy.effect,
        }
    }

    pub(crate) fn must_not_act_again(&self) -> bool {
        self.must_not_act_again.is_set()
    }

    pub(crate) fn may_have_acted(&self) -> bool {
        self.may_have_acted.is_set()
    }

    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.get()
    }

    /// One line for each attempt that failed.
    pub(crate) fn causes(&self) -> Vec<String> {
        self.causes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What no breaker has counted yet, because an item may speak for it.
    pub(crate) fn spared(&self) -> MutexGuard<'_, Vec<Option<u64>>> {
        self.spared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells that the call ended; once.
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
    /// Dropped before its end, the caller has left.
    fn drop(&mut self) {
        if !self.is_told.is_set() {
            self.note_uncertain();
        }
        self.tell_end("cancelled");
    }
}
