//! Decides how the end of a call is reported: a report if it failed, an event in any case.

use std::time::Duration;

use crate::model::answer::{Answer, Outcome, ToolError};
use crate::model::call::Call;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Disposition, Failure, Sent};
use crate::model::policy::Scope;
use crate::model::policy::loops::LoopMode;
use crate::model::report::{DebugDetails, ErrorCode, FailureReport};
use crate::model::sanitize::sanitize;
use crate::pipeline::Pipeline;
use crate::recover::chain::warning;
use crate::registry::Tool;
use crate::report::event::Event;
use crate::report::texts::Situation;
use crate::run::attempt::OwnWords;
use crate::run::context::Run;
use crate::run::permits::wait;
use crate::run::rejoin::Rejoined;
use crate::time::clock::millis;

impl<T> Pipeline<T> {
    /// The report for a call that outlasts its client's patience and runs on.
    pub fn still_running(&self, tool: &Tool, call: &Call) -> FailureReport {
        still_running(format!("{}{}", call.prefix, tool.name), &tool.server.name)
    }

    /// The report for a call that ends because the process that made it does. A read changed
    /// nothing; of anything else nobody knows whether an attempt, or an identical call that this
    /// one had joined, was executed.
    pub fn cut_off(&self, tool: &Tool, prefix: &str) -> FailureReport {
        let (name, server) = (format!("{prefix}{}", tool.name), &*tool.server.name);
        let may_have_executed = tool.policy.effect != Effect::ReadOnly;
        let what = format!("{name} was cut off: Seawall ended while it ran on {server}.");
        let message = match self.reader_beside(tool).filter(|_| may_have_executed) {
            Some((reader, _)) => format!(
                "{what} It may have been executed: check with {prefix}{reader} before you repeat it."
            ),
            None if may_have_executed => {
                format!("{what} It may have been executed: check before you repeat it.")
            }
            None => format!("{what} Repeat it."),
        };
        let failure = Failure::local(Cause::Network, None, message.clone());
        FailureReport {
            code: ErrorCode::of(failure.cause),
            classic: message.clone(),
            message,
            retry_after: None,
            tool: name,
            server: server.to_owned(),
            attempts: 1,
            may_have_executed,
            debug: None,
            is_error: true,
            failure: Failure { sent: Sent::Maybe, ..failure },
        }
    }
}

/// The report for a call that outlasts its client's patience and runs on.
fn still_running(tool: String, server: &str) -> FailureReport {
    let note = format!(
        "{tool} is still running on {server}. Its result is kept: the identical call, made again, waits for it and does not execute it a second time."
    );
    let soon = Some(Duration::from_secs(1));
    FailureReport {
        code: ErrorCode::Timeout,
        message: note.clone(),
        classic: note.clone(),
        retry_after: soon,
        tool,
        server: server.to_owned(),
        attempts: 1,
        may_have_executed: true,
        debug: None,
        is_error: true,
        failure: Failure { sent: Sent::Maybe, ..Failure::local(Cause::Timeout, soon, note) },
    }
}

/// The scope of the breaker that refuses a tool: its own, or its server's connection.
fn open_breaker(tool: &Tool) -> Scope {
    let is_cut_off =
        tool.server.connection.as_deref().is_some_and(|breaker| breaker.wait().is_some());
    if is_cut_off { Scope::Server } else { tool.policy.scope }
}

impl<T: Clone> Run<'_, T> {
    /// Turns a failure into a report.
    pub(crate) fn fail(&self, failure: Failure) -> Outcome<T> {
        if failure.cause == Cause::CircuitOpen {
            self.emit(|server, tool| Event::Degraded { server, tool });
        }
        Outcome::Failed(Box::new(self.report(failure)))
    }

    /// Passes a tool's own error on, with its classification.
    pub(crate) fn pass_on_error(&self, failure: Failure, words: OwnWords<T>) -> Outcome<T> {
        let report = self.report(failure);
        Outcome::ToolError(Box::new(ToolError {
            value: words.value,
            report,
            is_unmarked: words.is_unmarked,
        }))
    }

    fn report(&self, mut failure: Failure) -> FailureReport {
        let tool = self.tool;
        // A breaker that opened on the way knows when the same call makes sense again.
        if failure.retry_after.is_none() && failure.disposition == Disposition::Transient {
            failure.retry_after = wait(tool);
        }
        let repeats = self.repeats(&failure);
        let reader = self.pipeline.reader_beside(tool);
        let (reader, is_about) = reader.map_or((None, false), |(reader, is_about)| {
            (Some(format!("{}{reader}", self.call.prefix)), is_about)
        });
        let shown = self.shown_name();
        let situation = Situation {
            tool: &shown,
            server: &tool.server.name,
            kind: tool.policy.kind,
            effect: tool.policy.effect,
            failure: &failure,
            attempts: self.attempts(),
            took: self.env().clock.now().since(self.started),
            breaker: open_breaker(tool),
            verify: reader.as_deref(),
            verify_is_about: is_about,
            hint: tool.server.hint.as_deref(),
            repeats,
            may_have_acted: self.may_have_acted(),
            cut: 0,
        };
        FailureReport {
            code: ErrorCode::of(failure.cause),
            message: situation.plain(),
            classic: situation.classic(),
            // No `retry_after` for an error after which the client must not repeat the call.
            retry_after: failure
                .retry_after
                .filter(|_| ErrorCode::of(failure.cause).is_retryable()),
            tool: shown,
            server: tool.server.name.to_string(),
            attempts: self.attempts(),
            may_have_executed: self.may_have_acted()
                || failure.may_have_executed(tool.policy.effect),
            debug: self.debug(),
            is_error: !(failure.cause == Cause::Loop && tool.policy.loops.mode == LoopMode::Calls),
            failure,
        }
    }

    /// The tool's name as the client knows it.
    pub(crate) fn shown_name(&self) -> String {
        format!("{}{}", self.call.prefix, self.tool.name)
    }

    /// How often this very call has failed, this time included. A call that only has to wait is no
    /// loop: the client was told to repeat it later. Nor is a call that its client cancelled.
    fn repeats(&self, failure: &Failure) -> u32 {
        let (loops, policy) = (&self.pipeline.gatekeeper.ledger.loops, &self.tool.policy.loops);
        match failure.cause {
            Cause::CircuitOpen
            | Cause::Overloaded
            | Cause::Starting
            | Cause::Away
            | Cause::RateLimited
            | Cause::Loop
            | Cause::Uncertain
            | Cause::Queued
            | Cause::Cancelled => 1,
            _ => loops.failed(policy, &self.call.session, || self.key()),
        }
    }

    fn debug(&self) -> Option<DebugDetails> {
        self.pipeline.shows_debug(self.call.debug).then(|| DebugDetails {
            at: self.pipeline.wall_clock.map(|now| now()),
            arguments: sanitize(&self.call.arguments),
            timeout: self.timeout,
            attempt: self.attempts(),
            causes: self.causes(),
        })
    }

    pub(crate) fn finish(&self, outcome: Outcome<T>, warnings: Vec<String>) -> Answer<T> {
        self.learn(&outcome);
        let class = match &outcome {
            Outcome::Live(value) if self.error_text(value).is_some() => "tool_error",
            Outcome::ToolError(_) => "tool_error",
            Outcome::Live(_) => "ok",
            Outcome::Served(_) => "fallback",
            Outcome::Failed(report) => report.code.as_str(),
        };
        self.tell_end(class);
        let elapsed = self.ended().since(self.started);
        Answer {
            outcome,
            tool: self.tool.name.clone(),
            attempts: self.attempts(),
            elapsed,
            warnings,
            rejoined: None,
        }
    }

    /// Finishes a call that was answered with the outcome of an identical one and was not sent.
    pub(crate) fn finish_rejoined(&self, rejoined: Rejoined<T>) -> Answer<T> {
        let answer = self.finish(rejoined.outcome, Vec::new());
        Answer { rejoined: rejoined.age, ..answer }
    }

    /// The outcome for a client that cannot wait any longer while the identical call still runs.
    pub(crate) fn still_running(&self) -> Outcome<T> {
        Outcome::Failed(Box::new(still_running(self.shown_name(), &self.tool.server.name)))
    }

    /// Updates the uncertain writes: this call may be a new one, or a read that checks earlier
    /// ones.
    fn learn(&self, outcome: &Outcome<T>) {
        let uncertain = &self.pipeline.gatekeeper.ledger.uncertain;
        match outcome {
            Outcome::Live(value) => {
                // An answer that no client is there to read shows nobody anything.
                let is_read = !self.call.control.as_ref().is_some_and(|call| call.has_left());
                let is_look = self.tool.policy.effect == Effect::ReadOnly && self.attempts() > 0;
                let has_looked = is_look && is_read;
                if !uncertain.is_empty() && has_looked && self.error_text(value).is_none() {
                    uncertain.looked(self.who(), &self.tool.server.name, self.started);
                }
            }
            Outcome::Served(_) | Outcome::Failed(_) => self.note_uncertain(),
            // The server has answered: a client that repeats the call has read the result.
            Outcome::ToolError(_) => {}
        }
    }

    /// The warning about a tool that failed; it has another form if the tool has no fallback.
    pub(crate) fn first_warning(&self, failure: &Failure) -> String {
        match failure.retry_after {
            Some(wait)
                if failure.cause == Cause::CircuitOpen && self.tool.policy.fallback.is_empty() =>
            {
                format!("{}: circuit open for {}ms", self.tool.name, millis(wait))
            }
            _ => warning(&self.tool.name, failure),
        }
    }
}
