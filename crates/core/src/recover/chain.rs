//! Decides which of several fallback steps answers: [`FallbackChain`], the entry point to
//! fallbacks.
//!
//! The steps are tried in order, each behind its own breaker. The chain adds no retries of its own;
//! a caller's fault stops it, because it would be a fault on every step. One deadline holds for all
//! steps, and the remaining time is split evenly among the steps to come: a step that hangs takes
//! no other step's share.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::attempt::breaker::CircuitBreaker;
use crate::attempt::budget::RetryBudget;
use crate::attempt::retry::{RetryLoop, try_until};
use crate::attempt::watch::AttemptWatch;
use crate::classify::{Classifier, Describe};
use crate::env::Env;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Failure};
use crate::model::invalid::{self, Invalid};
use crate::model::policy::MOST_STEPS;
use crate::model::policy::breaker::BreakerPolicy;
use crate::model::policy::retry::RetryPolicy;
use crate::model::sanitize::one_line;
use crate::model::signals::FailureSignals;
use crate::report::event::Event;
use crate::time::clock::millis;
use crate::time::deadline::{Deadline, within};

type Running<T> = Pin<Box<dyn Future<Output = Result<T, FailureSignals>> + Send>>;
type Execute<T> = Box<dyn Fn() -> Running<T> + Send + Sync>;
/// The default deadline of a chain: no step can hang for ever.
const TIMEOUT: Duration = Duration::from_secs(60);

type Available = Box<dyn Fn() -> bool + Send + Sync>;

/// One step of a fallback chain.
///
/// ```
/// # use seawall::{FallbackChain, Step};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), seawall::Invalid> {
/// let steps = vec![
///     Step::new("cluster", || async { Ok(1) }).when(|| false),
///     Step::new("laptop", || async { Ok(2) }),
/// ];
/// let result = FallbackChain::new(steps)?.run().await.unwrap();
/// assert_eq!((result.value, &*result.warnings[0]), (2, "cluster: unavailable, skipping"));
/// # Ok(()) }
/// ```
pub struct Step<T> {
    pub(crate) name: String,
    execute: Execute<T>,
    available: Option<Available>,
}

impl<T> Step<T> {
    /// A step called `name` that runs `execute`.
    pub fn new<F>(name: impl Into<String>, execute: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<T, FailureSignals>> + Send + 'static,
    {
        Self { name: name.into(), execute: Box::new(move || Box::pin(execute())), available: None }
    }

    /// Skips the step while `available` returns `false`.
    pub fn when(mut self, available: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.available = Some(Box::new(available));
        self
    }

    pub(crate) fn is_available(&self) -> bool {
        self.available.as_ref().is_none_or(|available| available())
    }

    pub(crate) async fn execute(&self) -> Result<T, FailureSignals> {
        (self.execute)().await
    }
}

impl<T> fmt::Debug for Step<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A value, and the steps that led to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chained<T> {
    /// The value.
    pub value: T,
    /// The step that returned the value.
    pub final_step: String,
    /// Executions over all steps.
    pub attempts: u32,
    /// Time over all steps.
    pub total_duration: Duration,
    /// One line for each earlier step that failed or was skipped.
    pub warnings: Vec<String>,
}

/// Why no step returned a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// Every step was tried or skipped.
    #[error("All fallback steps exhausted. Warnings:\n{}", warnings.join("\n"))]
    Exhausted {
        /// One line for each step.
        warnings: Vec<String>,
        /// Executions over all steps.
        attempts: u32,
        /// Time over all steps.
        total_duration: Duration,
    },
    /// A step failed in a way that no other step can mend.
    #[error("{step}: {}", failure.message)]
    Stopped {
        /// The step that failed.
        step: String,
        /// Its classified failure.
        failure: Failure,
        /// One line for each step so far.
        warnings: Vec<String>,
        /// Executions over all steps.
        attempts: u32,
    },
}

/// A fallback chain: several steps, tried in order.
///
/// ```
/// # use seawall::{ChainError, FallbackChain, Step};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), seawall::Invalid> {
/// let chain = FallbackChain::<u32>::new(vec![
///     Step::new("live", || async { Err("400 Bad Request: no such field".into()) }),
///     Step::new("copy", || async { Ok(7) }),
/// ])?;
/// // The caller's own fault would be one on every step.
/// assert!(matches!(chain.run().await, Err(ChainError::Stopped { .. })));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FallbackChain<T> {
    steps: Vec<Step<T>>,
    breakers: Arc<CircuitBreaker>,
    retry: RetryPolicy,
    effect: Effect,
    timeout: Duration,
    budget: Option<Arc<RetryBudget>>,
    classifier: Classifier,
    env: Env,
}

impl<T> FallbackChain<T> {
    /// A chain of read-only `steps`, with a deadline of 60 s: 1 to 32 steps, each with a name of
    /// its own. Each step is tried once and has its own breaker (5 failures, 30 s).
    pub fn new(steps: Vec<Step<T>>) -> Result<Self, Invalid> {
        Self::in_env(steps, Env::new())
    }

    /// As [`Self::new`], in another environment.
    pub fn in_env(steps: Vec<Step<T>>, env: Env) -> Result<Self, Invalid> {
        validate(&steps)?;
        let retry = RetryPolicy { attempts: 1, ..RetryPolicy::default() };
        let breakers = Arc::new(CircuitBreaker::new(BreakerPolicy::default(), &env)?);
        let (effect, classifier) = (Effect::ReadOnly, Classifier::new());
        Ok(Self { steps, breakers, retry, effect, timeout: TIMEOUT, budget: None, classifier, env })
    }

    /// Retries each step as `policy` says. The caller states the `effect` of the steps: after a
    /// write that may have been executed, no other step is tried.
    pub fn retry(mut self, policy: RetryPolicy, effect: Effect) -> Result<Self, Invalid> {
        policy.validate().map_err(|error| error.within("retry"))?;
        (self.retry, self.effect) = (policy, effect);
        Ok(self)
    }

    /// Sets one deadline for the whole chain. Each step gets an even share of the time left when it
    /// begins, the last step all of it. Each write gets all of it: after a write that was cut off,
    /// no other step is tried.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, Invalid> {
        invalid::positive("timeout", timeout)?;
        self.timeout = timeout;
        Ok(self)
    }

    /// Puts each step behind the breaker of its name in `breakers`, which other work may share.
    pub fn breakers(mut self, breakers: Arc<CircuitBreaker>) -> Self {
        self.breakers = breakers;
        self
    }

    /// Sets one budget for the retries of all steps, which other work may share.
    pub fn budget(mut self, budget: Arc<RetryBudget>) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Replaces the rules that decide which failures stop the chain, are retried, or count against
    /// a step.
    pub fn classifier(mut self, classifier: Classifier) -> Self {
        self.classifier = classifier;
        self
    }

    /// Runs the steps until one returns a value.
    pub async fn run(&self) -> Result<Chained<T>, ChainError> {
        let start = self.env.clock.now();
        let deadline = Deadline::after(start, self.timeout);
        let (mut warnings, mut attempts) = (Vec::new(), 0);
        if let Some(budget) = &self.budget {
            budget.deposit();
        }
        for (index, step) in self.steps.iter().enumerate() {
            if !step.is_available() {
                warnings.push(skipping(&step.name));
                continue;
            }
            let now = self.env.clock.now();
            if deadline.remaining_at(now).is_zero() {
                warnings.push(not_tried(&step.name));
                continue;
            }
            let ways = if self.effect.is_replayable() { self.steps.len() - index } else { 1 };
            match self.try_step(step, deadline.share(ways, now), &mut attempts).await {
                Ok(value) => {
                    self.tell_served(index);
                    let total_duration = self.env.clock.now().since(start);
                    return Ok(Chained {
                        value,
                        final_step: step.name.clone(),
                        attempts,
                        total_duration,
                        warnings,
                    });
                }
                Err(failure) => {
                    warnings.push(warning(&step.name, &failure));
                    let may_act_twice =
                        failure.may_have_executed(self.effect) && !self.effect.is_replayable();
                    if may_act_twice || !failure.cause.allows_fallback() {
                        return Err(ChainError::Stopped {
                            step: step.name.clone(),
                            failure,
                            warnings,
                            attempts,
                        });
                    }
                }
            }
        }
        Err(ChainError::Exhausted {
            warnings,
            attempts,
            total_duration: self.env.clock.now().since(start),
        })
    }

    /// Emits an event if a later step stood in for the first.
    fn tell_served(&self, index: usize) {
        if let (Some(first), Some(step)) =
            (self.steps.first(), self.steps.get(index).filter(|_| index > 0))
        {
            let (server, tool, step) = (String::new(), first.name.clone(), step.name.clone());
            self.env.events.emit(|| Event::FallbackServed { server, tool, step });
        }
    }

    async fn try_step(
        &self,
        step: &Step<T>,
        deadline: Deadline,
        attempts: &mut u32,
    ) -> Result<T, Failure> {
        let breaker = self.breakers.breaker(&step.name);
        let rules = RetryLoop {
            policy: &self.retry,
            effect: self.effect,
            deadline,
            budget: self.budget.as_deref(),
            env: &self.env,
            names: ("", &step.name),
        };
        let (breaker, names) = (&*breaker, rules.names);
        let attempt = |_| {
            let admitted = breaker.admit().map_err(|refused| Box::new((refused.failure(), ())));
            *attempts += u32::from(admitted.is_ok());
            let number = *attempts;
            async move {
                let permit = admitted?;
                let watch = AttemptWatch::start(&self.env, names, number, false);
                let result = match within(deadline.remaining(&self.env.clock), step.execute()).await
                {
                    Ok(result) => result,
                    Err(elapsed) => Err(elapsed.signals()),
                };
                let result = result.map_err(|signals| self.classifier.classify(&signals));
                watch.stop(result.as_ref().err().map(|failure| failure.cause));
                match result {
                    Ok(value) => {
                        permit.well();
                        Ok(value)
                    }
                    Err(failure) => {
                        permit.blame(failure.cause.blame());
                        Err(Box::new((failure, ())))
                    }
                }
            }
        };
        let tried = try_until(&rules, attempt, |_| breaker.peek().is_err()).await;
        tried.map(|retried| retried.value).map_err(|gave_up| gave_up.failure)
    }
}

/// A step's name is also the name of its breaker and labels its warnings: two steps with one name
/// would open each other's breaker.
fn validate<T>(steps: &[Step<T>]) -> Result<(), Invalid> {
    if steps.is_empty() {
        return Err(Invalid::new("steps", "Fallback chain must have at least one step"));
    }
    if steps.len() > MOST_STEPS {
        return Err(Invalid::new("steps", format!("must not be more than {MOST_STEPS}")));
    }
    for (index, step) in steps.iter().enumerate() {
        if step.name.is_empty() {
            return Err(Invalid::new(format!("steps[{index}]"), "needs a name"));
        }
        if steps[..index].iter().any(|before| before.name == step.name) {
            let problem = format!(
                "is called \"{}\" like one before it; give each step its own name",
                step.name
            );
            return Err(Invalid::new(format!("steps[{index}]"), problem));
        }
    }
    Ok(())
}

/// The warning about a step that failed.
pub(crate) fn warning(step: &str, failure: &Failure) -> String {
    match (failure.cause, failure.retry_after) {
        (Cause::CircuitOpen, Some(wait)) => {
            format!("{step}: circuit open (retry in {}ms)", millis(wait))
        }
        _ => format!("{step}: {}", one_line(&failure.message)),
    }
}

/// The warning about a step that is not available.
pub(crate) fn skipping(step: &str) -> String {
    format!("{step}: unavailable, skipping")
}

/// The warning about a step that was never started.
pub(crate) fn not_tried(step: &str) -> String {
    format!("{step}: not tried, no time was left")
}
