//! Decides the order of a call's stages: the page to read first.
//!
//! deadline[ rejoin → uncertain write → loop guard → fresh cached response → caller's rate →
//! recover[ retry(budget)[ breaker peek → pause → bulkhead → rate → permit[ attempt ]]]]. `rejoin`,
//! `admit`, `attempt` (with `may_start`, `judge` and `permits`), `recover` (with `items`), `ended`
//! and `tell` are the stages; this file decides their order only. Recovery is boxed: its future is
//! large and rarely needed, and a call that succeeds should not carry it.

mod admit;
mod attempt;
mod context;
mod ended;
mod items;
mod judge;
mod may_start;
mod pause;
mod permits;
mod recover;
mod rejoin;
mod tell;
mod write_in_progress;

use std::future::Future;

use crate::admit::ledger::in_flight::Entered;
use crate::model::answer::{Answer, Outcome};
use crate::model::call::{Attempt, Call};
use crate::model::signals::FailureSignals;
use crate::pipeline::Pipeline;
use crate::recover::chain::Step;
use crate::registry::Tool;
use admit::Admitted;
use context::Run;

impl<T: Clone> Pipeline<T> {
    /// Answers a call of `tool`. `send` makes one attempt and is called again for each retry and
    /// fallback.
    ///
    /// Dropping the future cancels the call and releases everything it held.
    #[inline]
    pub fn run<F>(
        &self,
        tool: &Tool,
        call: &Call,
        send: impl Fn(Attempt) -> F,
    ) -> impl Future<Output = Answer<T>>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        self.through_all_stages(tool, call, [], send)
    }

    /// As [`Self::run`], with fallback steps of the caller after the tool's own.
    #[inline]
    pub fn run_with<F>(
        &self,
        tool: &Tool,
        call: &Call,
        own_steps: &[Step<T>],
        send: impl Fn(Attempt) -> F,
    ) -> impl Future<Output = Answer<T>>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        self.through_all_stages(tool, call, own_steps, send)
    }

    async fn through_all_stages<F>(
        &self,
        tool: &Tool,
        call: &Call,
        own_steps: impl AsRef<[Step<T>]>,
        send: impl Fn(Attempt) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        // Declared before the run, so that it is dropped after it: a cancelled call notes its
        // uncertain write before an identical call that waits for it goes on.
        let mut leading = None;
        let run = Run::start(self, tool, call, own_steps.as_ref().len());
        if call.rejoin.is_some() {
            let ledger = &self.gatekeeper.ledger;
            match ledger.enter(&run) {
                Entered::Lead(lead) => leading = Some(lead),
                Entered::Alone => {}
                met => match Box::pin(ledger.rejoin(&run, met)).await {
                    Ok(entered) => leading = entered,
                    Err(rejoined) => return run.finish_rejoined(*rejoined),
                },
            }
        }
        let mut warnings = Vec::new();
        let admitted = match self.gatekeeper.admit(&run) {
            Ok(admitted) => admitted,
            Err(held_up) => self.gatekeeper.wait_for(&run, held_up).await,
        };
        let outcome = match admitted {
            Admitted::Answered(value) => Outcome::Live(value),
            Admitted::Shared(outcome) => *outcome,
            Admitted::Refused(failure) => run.fail(*failure),
            Admitted::Go(sharing) => {
                leading = leading.or(sharing);
                match run.attempt(&send).await {
                    Ok(value) => run.pass_on(value),
                    Err(missed) => {
                        let (failure, own_words) = *missed;
                        run.give_up(&failure);
                        Box::pin(run.recover(
                            failure,
                            own_words,
                            own_steps.as_ref(),
                            &send,
                            &mut warnings,
                        ))
                        .await
                    }
                }
            }
        };
        let answer = run.finish(outcome, warnings);
        run.land(leading, &answer.outcome);
        answer
    }
}
