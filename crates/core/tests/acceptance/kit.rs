//! What the tests share: a scripted tool, surroundings with fixed chances, and a way to look at
//! answers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use seawall::*;
use serde_json::{Value, json};

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Surroundings in which every draw is `chance`.
pub(crate) fn env(chance: f64) -> Env {
    Env::new().with_rng(Rng::fixed(chance))
}

pub(crate) async fn advance(by: Duration) {
    tokio::time::advance(by).await;
}

/// A tool that fails as the script says, attempt by attempt, and then works. Counts its executions.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Inner>);

#[derive(Default)]
struct Inner {
    failures: Vec<FailureSignals>,
    for_ever: bool,
    executions: AtomicU32,
}

impl Script {
    pub(crate) fn failing(failures: impl IntoIterator<Item = impl Into<FailureSignals>>) -> Self {
        Self(Arc::new(Inner {
            failures: failures.into_iter().map(Into::into).collect(),
            ..Inner::default()
        }))
    }

    /// Fails with the same error again and again.
    pub(crate) fn down(failure: impl Into<FailureSignals>) -> Self {
        Self(Arc::new(Inner { failures: vec![failure.into()], for_ever: true, ..Inner::default() }))
    }

    pub(crate) fn healthy() -> Self {
        Self::default()
    }

    pub(crate) fn executions(&self) -> u32 {
        self.0.executions.load(Ordering::SeqCst)
    }

    pub(crate) fn execute(&self) -> Result<String, FailureSignals> {
        let n = self.0.executions.fetch_add(1, Ordering::SeqCst) as usize;
        let index = if self.0.for_ever { 0 } else { n };
        match self.0.failures.get(index) {
            Some(failure) => Err(failure.clone()),
            None => Ok("ok".to_owned()),
        }
    }

    /// As the work of an attempt.
    pub(crate) fn send(
        &self,
    ) -> impl Fn(Attempt) -> std::future::Ready<Result<String, FailureSignals>> + use<> {
        let script = self.clone();
        move |_| std::future::ready(script.execute())
    }
}

pub(crate) fn settings(env: &Env) -> Settings<String> {
    Settings { env: env.clone(), ..Settings::default() }
}

pub(crate) fn caller(env: &Env) -> ToolCaller<String> {
    ToolCaller::new(settings(env)).unwrap()
}

/// A caller with one tool of a policy of its own.
pub(crate) fn with_tool(
    own: Settings<String>,
    tool: &str,
    adjust: impl FnOnce(&mut Policy),
) -> ToolCaller<String> {
    let caller = ToolCaller::new(own).unwrap();
    caller.tool(ToolFacts::named(tool), adjust).unwrap();
    caller
}

/// Calls `tool` until its breaker is open.
pub(crate) async fn open_breaker(caller: &ToolCaller<String>, tool: &str) {
    let down = Script::down(
        FailureSignals::transport(TransportFailure::Lost, "connection reset").with_sent(Sent::Yes),
    );
    for n in 0..10 {
        if caller.breaker_status(tool).is_some_and(|breaker| breaker.status == BreakerStatus::Open)
        {
            return;
        }
        caller.call(tool, json!({ "opening": n }), down.send()).await;
    }
    panic!("the breaker of {tool} does not open");
}

pub(crate) fn report(answer: &Answer<String>) -> &FailureReport {
    answer.report().unwrap_or_else(|| panic!("not a failure: {answer:?}"))
}

pub(crate) fn served(answer: &Answer<String>) -> &FallbackAnswer<String> {
    match &answer.outcome {
        Outcome::Served(served) => served,
        other => panic!("not a fallback's answer: {other:?}"),
    }
}

/// Calls with no interesting arguments.
pub(crate) fn nothing() -> Value {
    json!({})
}

/// Runs `work` and tells how much virtual time it took.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let start = tokio::time::Instant::now();
    let result = work.await;
    (result, start.elapsed())
}
