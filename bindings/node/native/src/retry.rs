//! Decides nothing: binds the library's retry.

use napi::Result;
use napi_derive::napi;
use seawall::{Backoff, Cause, Effect, GaveUp, LimitedRetry};
use serde_json::json;

use crate::facts::Raised;
use crate::run::{self, Ended, attempt};
use crate::settings::{RetrySettings, as_millis, env, millis, refused};

/// How work of one effect is retried.
#[napi]
pub struct Retry(LimitedRetry);

#[napi]
impl Retry {
    /// The library's retry with these settings.
    #[napi(constructor)]
    pub fn new(settings: RetrySettings) -> Result<Self> {
        let policy = settings.policy(Backoff::TOOL_CALL)?;
        let retry = seawall::Retry::new(settings.effect_or(Effect::Write)?)
            .env(env())
            .classifier(settings.classifier()?)
            .policy(policy)
            .map_err(refused)?;
        let mut limited = LimitedRetry::from(retry);
        if let Some(timeout) = settings.timeout_ms {
            limited = limited.timeout(millis("timeoutMs", timeout)?).map_err(refused)?;
        }
        if let Some(timeout) = settings.attempt_timeout_ms {
            let timeout = millis("attemptTimeoutMs", timeout)?;
            limited = limited.attempt_timeout(timeout).map_err(refused)?;
        }
        Ok(Self(limited))
    }

    /// One call, as the run `run`.
    #[napi]
    pub fn start(&self, run: u32) -> Result<u32> {
        let retry = self.0.clone();
        run::start(run, async move {
            match retry.call(|_| attempt(0, None)).await {
                Ok(retried) if retried.attempts == 1 => Ended::Value(retried.value.attempt),
                Ok(retried) => Ended::Told(json!({
                    "value": retried.value.attempt,
                    "attempts": retried.attempts,
                    "totalDelayMs": as_millis(retried.total_delay),
                })),
                Err(gave_up) => failed(&gave_up),
            }
        })
    }
}

/// The last error itself where an attempt threw one.
fn failed(gave_up: &GaveUp<Option<Raised>>) -> Ended {
    let failure = &gave_up.failure;
    match (&gave_up.error, failure.cause) {
        (Some(raised), _) => Ended::Error(raised.attempt),
        (None, Cause::CircuitOpen | Cause::Unavailable) => Ended::Told(json!({
            "open": failure.message,
            "retryAfterMs": failure.retry_after.map(as_millis),
        })),
        (None, _) => Ended::Told(json!({"timeout": failure.message})),
    }
}
