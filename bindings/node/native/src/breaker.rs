//! Decides nothing: binds the library's circuit breakers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use napi::Result;
use napi_derive::napi;
use seawall::{BreakerPolicy, BreakerSnapshot, CircuitOpen, Event, GuardedError, Listener};
use serde_json::{Value as Json, json};

use crate::run::{self, Ended, attempt};
use crate::settings::{BreakerSettings, as_millis, env, refused};

/// Circuit breakers by name, under one policy.
#[napi]
pub struct Breakers {
    breakers: Arc<seawall::CircuitBreaker>,
    changes: Changes,
}

#[napi]
impl Breakers {
    /// `listens`: changes of state are kept until they are read.
    #[napi(constructor)]
    pub fn new(settings: BreakerSettings, listens: bool) -> Result<Self> {
        let mut policy = BreakerPolicy::default();
        settings.change(&mut policy)?;
        let env = env();
        let changes = Changes::of(listens.then(|| env.events.subscribe()));
        let breakers = seawall::CircuitBreaker::new(policy, &env).map_err(refused)?;
        Ok(Self { breakers: Arc::new(breakers), changes })
    }

    /// One call under the breaker called `name`, as the run `run`.
    #[napi]
    pub fn start(&self, run: u32, name: String) -> Result<u32> {
        let breaker = self.breakers.breaker(&name);
        run::start(run, async move {
            match breaker.call(|| attempt(0, None)).await {
                Ok(returned) => Ended::Value(returned.attempt),
                Err(GuardedError::Open(open)) => Ended::Told(told_open(&open)),
                Err(GuardedError::Failed(raised)) => Ended::Error(raised.attempt),
            }
        })
    }

    /// The state of one breaker, or nothing if no call has used its name.
    #[napi]
    pub fn status(&self, name: String) -> Option<BreakerState> {
        self.breakers.status(&name).map(|snapshot| BreakerState::of(&snapshot))
    }

    /// The state of every breaker.
    #[napi]
    pub fn all_status(&self) -> HashMap<String, String> {
        let states = self.breakers.all_status().into_iter();
        states.map(|(name, status)| (name.to_string(), status.to_string())).collect()
    }

    /// Closes the breaker called `name`; `false` if there is none.
    #[napi]
    pub fn reset(&self, name: String) -> bool {
        self.breakers.reset(&name)
    }

    /// The changes of state since the last reading: name, from, to; again and again.
    #[napi]
    pub fn changes(&self) -> Vec<String> {
        self.changes.read()
    }
}

impl Breakers {
    pub(crate) fn shared(&self) -> Arc<seawall::CircuitBreaker> {
        Arc::clone(&self.breakers)
    }
}

/// What a call was told that a breaker refused.
pub(crate) fn told_open(open: &CircuitOpen) -> Json {
    json!({"open": open.to_string(), "retryAfterMs": as_millis(open.retry_after)})
}

/// The state of a breaker.
#[napi(object)]
pub struct BreakerState {
    /// `closed`, `open` or `half-open`.
    pub status: String,
    /// Failures in a row.
    pub failures: u32,
    /// How long ago the last one was.
    pub last_failure_ago_ms: Option<f64>,
    /// While open, the time until a probe may pass.
    pub retry_after_ms: Option<f64>,
}

impl BreakerState {
    pub(crate) fn of(snapshot: &BreakerSnapshot) -> Self {
        Self {
            status: snapshot.status.to_string(),
            failures: snapshot.failures,
            last_failure_ago_ms: snapshot.last_failure_ago.map(as_millis),
            retry_after_ms: snapshot.remaining.map(as_millis),
        }
    }
}

/// The changes of breakers that JavaScript has not read yet.
pub(crate) struct Changes(Mutex<Option<Listener>>);

impl Changes {
    pub(crate) fn of(listener: Option<Listener>) -> Self {
        Self(Mutex::new(listener))
    }

    pub(crate) fn read(&self) -> Vec<String> {
        let mut listener = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let events = listener.as_mut().map(Listener::drain).unwrap_or_default();
        let changes = events.iter().filter_map(|event| match &**event {
            Event::BreakerChanged { name, from, to } => {
                Some([name.clone(), from.to_string(), to.to_string()])
            }
            _ => None,
        });
        changes.flatten().collect()
    }
}
