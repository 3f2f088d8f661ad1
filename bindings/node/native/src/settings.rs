//! Decides how settings from JavaScript become those of the library, and which error refuses one
//! that cannot work.

use std::sync::LazyLock;
use std::time::Duration;

use napi::{Error, Result, Status};
use napi_derive::napi;
use seawall::{
    Backoff, BreakerPolicy, Cause, Classifier, Disposition, Effect, Env, Invalid, Jitter,
    RetryPolicy, Rule, ToolFacts, Verdict,
};

/// One clock and one source of chance for the process; reading a clock that is new takes long.
static ENV: LazyLock<Env> = LazyLock::new(Env::new);

/// The environment of one object: listeners of its own.
pub(crate) fn env() -> Env {
    Env { events: seawall::Events::new(), ..ENV.clone() }
}

/// How often and how late work is tried again. Absent settings are those of the library.
#[napi(object)]
#[derive(Clone, Default)]
pub struct RetrySettings {
    /// Attempts in all.
    pub max_attempts: Option<f64>,
    /// The first pause.
    pub base_delay_ms: Option<f64>,
    /// The longest pause before jitter.
    pub max_delay_ms: Option<f64>,
    /// The share of the pause that chance adds.
    pub jitter_factor: Option<f64>,
    /// Texts that mean a transient error, beside those that the library knows.
    pub phrases: Option<Vec<String>>,
    /// What a repeat would do.
    pub effect: Option<String>,
    /// The timeout of all attempts and pauses.
    pub timeout_ms: Option<f64>,
    /// The timeout of one attempt.
    pub attempt_timeout_ms: Option<f64>,
}

impl RetrySettings {
    pub(crate) fn change(&self, policy: &mut RetryPolicy) -> Result<()> {
        if let Some(attempts) = self.max_attempts {
            policy.attempts = whole("maxAttempts", attempts)?;
        }
        let backoff = &mut policy.backoff;
        if let Some(max) = self.max_delay_ms {
            backoff.max = millis("maxDelayMs", max)?;
        }
        if let Some(base) = self.base_delay_ms {
            backoff.base = millis("baseDelayMs", base)?;
        }
        // `maxDelayMs` caps every pause, the first included.
        backoff.base = backoff.base.min(backoff.max);
        match self.jitter_factor {
            Some(0.0) => backoff.jitter = Jitter::None,
            Some(share) => backoff.jitter = Jitter::Additive(share),
            None => {}
        }
        policy.validate().map_err(refused)
    }

    pub(crate) fn policy(&self, backoff: Backoff) -> Result<RetryPolicy> {
        let mut policy = RetryPolicy { backoff, ..RetryPolicy::default() };
        self.change(&mut policy)?;
        Ok(policy)
    }

    pub(crate) fn classifier(&self) -> Result<Classifier> {
        classifier(self.phrases.as_deref().unwrap_or_default())
    }

    pub(crate) fn effect_or(&self, default: Effect) -> Result<Effect> {
        self.effect.as_deref().map_or(Ok(default), effect_named)
    }
}

/// The library's rules, and one for the texts that the caller calls transient.
pub(crate) fn classifier(phrases: &[String]) -> Result<Classifier> {
    if phrases.is_empty() {
        return Ok(Classifier::new());
    }
    let transient = Verdict::new(Cause::Misbehaved, Disposition::Transient);
    let rule = Rule::phrases("retryableErrors", phrases.iter().cloned(), transient);
    Classifier::new().with_rule(rule).map_err(refused)
}

/// When a breaker opens and closes.
#[napi(object)]
#[derive(Clone, Default)]
pub struct BreakerSettings {
    /// Failures in a row.
    pub failure_threshold: Option<f64>,
    /// How long it stays open.
    pub cooldown_ms: Option<f64>,
    /// Probes that must succeed.
    pub half_open_max_requests: Option<f64>,
}

impl BreakerSettings {
    pub(crate) fn change(&self, policy: &mut BreakerPolicy) -> Result<()> {
        if let Some(failures) = self.failure_threshold {
            policy.failures = whole("failureThreshold", failures)?;
        }
        if let Some(cooldown) = self.cooldown_ms {
            policy.cooldown = seawall::Cooldown::fixed(millis("cooldownMs", cooldown)?);
        }
        if let Some(successes) = self.half_open_max_requests {
            policy.successes = whole("halfOpenMaxRequests", successes)?;
        }
        policy.validate().map_err(refused)
    }
}

/// The effect that a function's name tells, as it would a tool's.
#[napi]
pub fn effect_by_name(name: String) -> &'static str {
    match ToolFacts::named(&name).effect() {
        Effect::ReadOnly => "read_only",
        Effect::Idempotent => "idempotent",
        Effect::Write => "write",
        Effect::Destructive => "destructive",
    }
}

pub(crate) fn effect_named(name: &str) -> Result<Effect> {
    Ok(match name {
        "read_only" => Effect::ReadOnly,
        "idempotent" => Effect::Idempotent,
        "write" => Effect::Write,
        "destructive" => Effect::Destructive,
        _ => {
            return Err(bad(format!(
                "effect must be read_only, idempotent, write or destructive, not {name:?}"
            )));
        }
    })
}

/// Milliseconds from JavaScript.
pub(crate) fn millis(name: &str, value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value / 1000.0)
        .map_err(|_| bad(format!("{name} must be a time in milliseconds, not {value}")))
}

fn whole(name: &str, value: f64) -> Result<u32> {
    if value.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&value) {
        return Err(bad(format!("{name} must be a whole number, not {value}")));
    }
    Ok(value as u32)
}

/// A setting that the library refuses, as JavaScript throws it.
pub(crate) fn refused(invalid: Invalid) -> Error {
    bad(invalid.to_string())
}

fn bad(message: String) -> Error {
    Error::new(Status::InvalidArg, message)
}

/// A duration as JavaScript counts it.
pub(crate) fn as_millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).floor()
}
