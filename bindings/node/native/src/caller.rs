//! Decides nothing: binds the library's tool caller.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use napi::{Error, Result};
use napi_derive::napi;
use seawall::{
    Annotations, Answer, Call, CallerOptions, Describe, FailureReport, Fallback, FallbackBody,
    Outcome, Policy, Rendering, Settings, Step, TextStyle, ToolFacts,
};
use serde_json::{Value as Json, json};

use crate::breaker::{BreakerState, Changes};
use crate::run::{self, Ended, Returned, attempt, is_available};
use crate::settings::{
    BreakerSettings, RetrySettings, as_millis, classifier, effect_named, env, millis, refused,
};

/// How many calls came without arguments: each is different from all others.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// Calls the tools of one server with all policies.
#[napi]
pub struct Caller {
    tools: Arc<seawall::ToolCaller<Value>>,
    changes: Changes,
    dropped: Dropped,
}

/// The numbers of values that the library no longer keeps.
type Dropped = Arc<Mutex<Vec<u32>>>;

/// The settings of one tool that differ from those that its name gives it.
#[napi(object)]
#[derive(Clone, Default)]
pub struct ToolSettings {
    /// How it is retried.
    pub retry: Option<RetrySettings>,
    /// When its breaker opens.
    pub breaker: Option<BreakerSettings>,
    /// The server's hints.
    pub read_only_hint: Option<bool>,
    /// The same.
    pub destructive_hint: Option<bool>,
    /// The same.
    pub idempotent_hint: Option<bool>,
    /// Attempts take their arguments from the library, so that a fallback may change them.
    pub takes_arguments: Option<bool>,
    /// How long an answer is served again without a call.
    pub fresh_ms: Option<f64>,
}

#[napi]
impl Caller {
    /// `phrases`: texts that mean a transient error, beside those that the library knows.
    #[napi(constructor)]
    pub fn new(server: String, phrases: Vec<String>, listens: bool) -> Result<Self> {
        let env = env();
        let changes = Changes::of(listens.then(|| env.events.subscribe()));
        let settings = Settings {
            env,
            classifier: classifier(&phrases)?,
            style: TextStyle::Classic,
            error_text: |value: &Value| value.0.returned.error_text.clone(),
            ..Settings::new(Value::bytes)
        };
        let options = CallerOptions { server, ..CallerOptions::default() };
        let tools = seawall::ToolCaller::with_options(settings, options).map_err(refused)?;
        Ok(Self { tools: Arc::new(tools), changes, dropped: Dropped::default() })
    }

    /// Sets the policy of a tool: what its name and hints tell, then these settings.
    #[napi]
    pub fn tool(&self, name: String, settings: ToolSettings) -> Result<()> {
        let mut facts = ToolFacts::named(&name);
        facts.annotations = Annotations {
            read_only_hint: settings.read_only_hint,
            destructive_hint: settings.destructive_hint,
            idempotent_hint: settings.idempotent_hint,
        };
        if let Some(effect) = settings.retry.as_ref().and_then(|retry| retry.effect.as_deref()) {
            facts.effect = Some(effect_named(effect)?);
        }
        let mut changed = Ok(());
        self.tools.tool(facts, |policy| changed = settings.change(policy)).map_err(refused)?;
        changed
    }

    /// One call, as the run `run`. Without `arguments`, which are JSON, no call is like another.
    /// `steps` are the caller's own fallbacks, of the places 1, 2, and so on.
    #[napi]
    pub fn start(
        &self,
        run: u32,
        tool: String,
        arguments: Option<String>,
        steps: Vec<String>,
        session: Option<String>,
    ) -> Result<u32> {
        let arguments = match arguments {
            Some(text) => serde_json::from_str(&text)
                .map_err(|error| Error::from_reason(format!("args must be JSON: {error}")))?,
            None => json!({"call": CALLS.fetch_add(1, Ordering::Relaxed)}),
        };
        let call = Call::new(arguments).in_session(session.unwrap_or_default());
        let (tools, dropped) = (Arc::clone(&self.tools), Arc::clone(&self.dropped));
        let steps: Vec<_> =
            (1_u8..).zip(steps).map(|(place, name)| own_step(place, name, &dropped)).collect();
        run::start(run, async move {
            let send = |asked: seawall::Attempt| {
                let running = attempt(0, Some((asked.arguments, asked.timeout)));
                value_of(running, Arc::clone(&dropped))
            };
            told(&tools.call_with(&tool, call, &steps, send).await)
        })
    }

    /// The numbers of values that are no longer kept, since the last reading.
    #[napi]
    pub fn dropped(&self) -> Vec<u32> {
        std::mem::take(&mut self.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state of a tool's breaker, or nothing if the tool is not known.
    #[napi]
    pub fn breaker_status(&self, tool: String) -> Option<BreakerState> {
        self.tools.breaker_status(&tool).map(|snapshot| BreakerState::of(&snapshot))
    }

    /// The state of every known tool's breaker.
    #[napi]
    pub fn all_breaker_status(&self) -> HashMap<String, String> {
        let states = self.tools.all_breaker_status().into_iter();
        states.map(|(name, status)| (name.to_string(), status.to_string())).collect()
    }

    /// Closes a tool's breaker; `false` if there is none.
    #[napi]
    pub fn reset_breaker(&self, tool: String) -> bool {
        self.tools.reset_breaker(&tool)
    }

    /// The changes of breakers since the last reading: name, from, to; again and again.
    #[napi]
    pub fn changes(&self) -> Vec<String> {
        self.changes.read()
    }
}

impl ToolSettings {
    fn change(&self, policy: &mut Policy) -> Result<()> {
        if let Some(retry) = &self.retry {
            retry.change(&mut policy.retry)?;
            if let Some(timeout) = retry.timeout_ms {
                policy.timeout = millis("timeoutMs", timeout)?;
            }
            if let Some(timeout) = retry.attempt_timeout_ms {
                policy.attempt_timeout = Some(millis("attemptTimeoutMs", timeout)?);
            }
        }
        if let (Some(settings), Some(breaker)) = (&self.breaker, &mut policy.breaker) {
            settings.change(breaker)?;
        }
        if let Some(fresh) = self.fresh_ms {
            policy.cache.fresh = Some(millis("freshMs", fresh)?);
        }
        let takes_arguments = self.takes_arguments == Some(true);
        policy.fallback.retain(|fallback| match fallback {
            Fallback::Cached => true,
            Fallback::Simplify(_) | Fallback::PreviousPage(_) => takes_arguments,
            _ => false,
        });
        Ok(())
    }
}

/// A value that stays in JavaScript; dropped, its number is.
#[derive(Clone)]
struct Value(Arc<HeldValue>);

impl Value {
    /// A value that JavaScript does not keep is too heavy for the cache.
    fn bytes(&self) -> usize {
        let Returned { kept, bytes, .. } = self.0.returned;
        if kept == 0 { u32::MAX as usize } else { bytes as usize }
    }
}

struct HeldValue {
    returned: Returned,
    dropped: Dropped,
}

impl Drop for HeldValue {
    fn drop(&mut self) {
        if self.returned.kept != 0 {
            let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
            dropped.push(self.returned.kept);
        }
    }
}

async fn value_of(
    running: run::Attempt,
    dropped: Dropped,
) -> std::result::Result<Value, seawall::FailureSignals> {
    match running.await {
        Ok(returned) => Ok(Value(Arc::new(HeldValue { returned, dropped }))),
        Err(raised) => Err(raised.signals()),
    }
}

fn own_step(place: u8, name: String, dropped: &Dropped) -> Step<Value> {
    let dropped = Arc::clone(dropped);
    Step::new(name, move || value_of(attempt(place, None), Arc::clone(&dropped)))
        .when(move || is_available(place))
}

/// An answer as `caller.ts` reads it.
fn told(answer: &Answer<Value>) -> Ended {
    let plain = answer.attempts == 1 && answer.warnings.is_empty();
    if let (true, Outcome::Live(value)) = (plain, &answer.outcome)
        && value.0.returned.kept == 0
    {
        return Ended::Value(value.0.returned.attempt);
    }
    let mut told = json!({
        "attempts": answer.attempts,
        "warnings": answer.warnings,
        "finalStep": answer.final_step(),
    });
    if let Some(Value(held)) = answer.value() {
        told["value"] = held.returned.attempt.into();
        told["kept"] = held.returned.kept.into();
    }
    match &answer.outcome {
        Outcome::Live(_) => {}
        Outcome::ToolError(error) => told["report"] = reported(&error.report),
        Outcome::Served(served) => {
            told["servedBy"] = served.by.as_str().into();
            told["note"] = served.note.as_str().into();
            told["ageMs"] = served.age.map(as_millis).into();
            if let FallbackBody::Nothing = served.body {
                told["nothing"] = true.into();
            }
        }
        Outcome::Failed(report) => told["report"] = reported(report),
    }
    Ended::Told(told)
}

fn reported(report: &FailureReport) -> Json {
    let rendering = Rendering { style: TextStyle::Classic, ..Rendering::default() };
    json!({
        "code": report.code.as_str(),
        "message": report.message,
        "classic": report.classic,
        "retryable": report.code.is_retryable(),
        "retryAfterMs": report.retry_after.map(as_millis),
        "mayHaveExecuted": report.may_have_executed,
        "isDegradation": report.is_degradation(),
        "result": report.to_tool_result(rendering),
    })
}
