//! Decides nothing: binds the library's fallback chain.

use std::sync::Arc;

use napi::Result;
use napi_derive::napi;
use seawall::{Backoff, ChainError, Describe, Effect, Step};
use serde_json::json;

use crate::breaker::Breakers;
use crate::run::{self, Ended, attempt, is_available};
use crate::settings::{RetrySettings, env, millis, refused};

/// Steps that are tried in order, each behind its own breaker.
#[napi]
pub struct Chain(Arc<seawall::FallbackChain<u32>>);

#[napi]
impl Chain {
    /// A chain of these steps. Without breakers it has its own.
    #[napi(constructor)]
    pub fn new(
        steps: Vec<String>,
        settings: RetrySettings,
        breakers: Option<&Breakers>,
    ) -> Result<Self> {
        let steps = (0_u8..).zip(steps).map(|(place, name)| chained(place, name)).collect();
        let mut chain = seawall::FallbackChain::in_env(steps, env()).map_err(refused)?;
        if let Some(breakers) = breakers {
            chain = chain.breakers(breakers.shared());
        }
        if let Some(timeout) = settings.timeout_ms {
            chain = chain.timeout(millis("timeoutMs", timeout)?).map_err(refused)?;
        }
        let policy = settings.policy(Backoff::FALLBACK)?;
        let chain = chain
            .classifier(settings.classifier()?)
            .retry(policy, settings.effect_or(Effect::ReadOnly)?)
            .map_err(refused)?;
        Ok(Self(Arc::new(chain)))
    }

    /// One call, as the run `run`.
    #[napi]
    pub fn start(&self, run: u32) -> Result<u32> {
        let chain = Arc::clone(&self.0);
        run::start(run, async move {
            Ended::Told(match chain.run().await {
                Ok(chained) => json!({
                    "value": chained.value,
                    "finalStep": chained.final_step,
                    "attempts": chained.attempts,
                    "warnings": chained.warnings,
                }),
                Err(error) => failed(&error),
            })
        })
    }
}

fn failed(error: &ChainError) -> serde_json::Value {
    let message = error.to_string();
    match error {
        ChainError::Exhausted { warnings, .. } => {
            json!({"exhausted": message, "warnings": warnings})
        }
        ChainError::Stopped { step, warnings, .. } => {
            json!({"exhausted": message, "warnings": warnings, "stoppedAt": step})
        }
    }
}

/// A step that JavaScript makes; its value is the number of its attempt.
fn chained(place: u8, name: String) -> Step<u32> {
    Step::new(name, move || {
        let running = attempt(place, None);
        async move {
            running.await.map(|returned| returned.attempt).map_err(|raised| raised.signals())
        }
    })
    .when(move || is_available(place))
}
