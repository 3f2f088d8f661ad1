//! Keeps AI agents working when their tools fail.
//!
//! A call passes these stages, in this order (`run`); the folders of the same names hold the
//! policies that they apply.
//!
//! 1. `admit`: is the agent going in circles? is there a fresh answer? has the caller used up its
//!    rate?
//! 2. `attempt`: the one retry loop around breaker, slot, rate, permit, deadline and the server
//!    itself.
//! 3. `classify`: what does the failure mean, and may the server have executed the call?
//! 4. `recover`: the first fallback that can answer, labelled as one.
//! 5. `report`: an event for everything, and words for models and people.
//!
//! Four front doors, each usable alone: [`Retry`], [`CircuitBreaker`], [`FallbackChain`], and
//! [`ToolCaller`], which combines them. [`load_tools`] gets an agent its tools at the start;
//! [`Pipeline`] is what a gateway builds on. Without the default features the first three and the
//! policies they are made of remain, with six dependencies.
//!
//! # Retry
//! ```
//! # use seawall::{Effect, Retry};
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let mut calls = 0;
//! let result = Retry::new(Effect::ReadOnly).call(|_| {
//!     calls += 1;
//!     let flaky = if calls < 3 { Err("429 rate limit exceeded") } else { Ok("success!") };
//!     async move { flaky }
//! }).await.unwrap();
//! assert_eq!((result.value, result.attempts), ("success!", 3));
//! # }
//! ```
//!
//! # Circuit breaker
//! ```
//! # use seawall::{BreakerPolicy, CircuitBreaker, Env, GuardedError};
//! # use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), seawall::Invalid> {
//! let breaker = CircuitBreaker::new(BreakerPolicy::new(5, Duration::from_secs(1)), &Env::new())?;
//! for _ in 0..5 {
//!     let _ = breaker.call("flaky", || async { Err::<(), _>("fail") }).await;
//! }
//! let sixth = breaker.call("flaky", || async { Ok::<_, &str>("should not reach") }).await;
//! assert!(matches!(sixth, Err(GuardedError::Open(_))));
//! # Ok(()) }
//! ```
//!
//! # Fallback chain
//! ```
//! # use seawall::{FallbackChain, Step};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), seawall::Invalid> {
//! let chain = FallbackChain::new(vec![
//!     Step::new("primary", || async { Err("503 Service Unavailable".into()) }),
//!     Step::new("backup", || async { Ok("from the backup") }),
//! ])?;
//! let result = chain.run().await.unwrap();
//! assert_eq!((result.value, result.attempts), ("from the backup", 2));
//! assert_eq!(result.final_step, "backup");
//! # Ok(()) }
//! ```
//!
//! # All together
//! ```
//! # use seawall::{Settings, ToolCaller};
//! # use serde_json::json;
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), seawall::Invalid> {
//! let tools = ToolCaller::<String>::new(Settings::default())?;
//! let answer = tools.call("get_issue", json!({"issue_number": 7}), |attempt| async move {
//!     match attempt.number {
//!         1 | 2 => Err("503 Service Unavailable".into()),
//!         _ => Ok("issue 7".to_owned()),
//!     }
//! }).await;
//! assert_eq!((answer.value().map(String::as_str), answer.attempts), (Some("issue 7"), 3));
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
// What a feature leaves out is then used or exported by nobody.
#![cfg_attr(
    not(all(feature = "pipeline", feature = "startup")),
    allow(dead_code, unreachable_pub, reason = "its users are behind a feature")
)]

mod admit;
mod attempt;
#[cfg(feature = "pipeline")]
mod caller;
mod classify;
mod env;
mod model;
#[cfg(feature = "pipeline")]
mod pipeline;
mod recover;
#[cfg(feature = "pipeline")]
mod registry;
mod report;
#[cfg(feature = "pipeline")]
mod run;
#[cfg(feature = "tower")]
mod service;
#[cfg(feature = "startup")]
mod startup;
mod time;

pub use admit::rate_limiter::RateLimiter;
pub use attempt::breaker::{
    Breaker, BreakerMode, BreakerRefusal, BreakerSnapshot, CircuitBreaker, CircuitOpen,
    GuardedError, Permit,
};
pub use attempt::budget::{RetryBudget, RetryToken};
pub use attempt::bulkhead::{Bulkhead, BulkheadFull, BulkheadPermit};
pub use attempt::retry::{GaveUp, LimitedRetry, Retried, Retry};
pub use classify::{
    Classifier, Describe, Phrases, Prepared, Rule, Test, Verdict, built_in, classify,
    classify_load_error, says_too_many_items,
};
pub use env::{Env, ProbeLeases};
pub use model::duration::{parse_duration, parse_env_timeout};
pub use model::effect::{Annotations, Effect, Ground, Kind, ToolFacts};
pub use model::failure::{Blame, Cause, Disposition, Failure, Sent};
pub use model::invalid::Invalid;
pub use model::policy::backoff::{Backoff, Jitter};
pub use model::policy::breaker::{BreakerPolicy, BreakerStatus, Cooldown, SlowRule, WindowRule};
pub use model::policy::budget::BudgetPolicy;
pub use model::policy::bulkhead::BulkheadPolicy;
pub use model::policy::rate::Rate;
pub use model::policy::retry::RetryPolicy;
pub use model::rng::Rng;
pub use model::sanitize::{is_unseen, quote};
pub use model::signals::{FailureSignals, ProcessExit, TransportFailure, parse_retry_after};
pub use recover::chain::{ChainError, Chained, FallbackChain, Step};
pub use report::event::{Event, Events, Listener};
pub use time::clock::{Clock, Moment, whole_seconds};
pub use time::deadline::{Deadline, Elapsed, within};
pub use time::stamp::iso;

#[cfg(feature = "pipeline")]
pub use {
    admit::cache::{ResponseCache, StaleResponse},
    admit::key::{CallKey, Keys},
    admit::ledger::loops::LoopGuard,
    caller::{CallerOptions, ToolCaller},
    model::answer::{Answer, BatchItem, FallbackAnswer, FallbackBody, Outcome, ToolError},
    model::call::{Attempt, Call, Rejoin},
    model::control::{CallControl, Question},
    model::policy::cache::CachePolicy,
    model::policy::hedge::HedgePolicy,
    model::policy::loops::{LoopMode, LoopPolicy},
    model::policy::{Fallback, Policy, Scope, ServerPolicy},
    model::preset::{Preset, Tiers, debug_from_env},
    model::report::{DebugDetails, ErrorCode, FailureReport},
    model::sanitize::sanitize,
    model::siblings::Siblings,
    model::style::TextStyle,
    model::tool_errors::{
        Content, ErrorMatcher, ErrorMode, ErrorPattern, LOOKED_AT, ToolErrors, TransientErrors,
    },
    pipeline::{Pipeline, Settings},
    recover::page::previous_page,
    recover::simplify::simplified,
    recover::split::one_by_one,
    registry::durable::{DurableQueue, EarlierWrite, NotQueued, Promise, QueuedWrite, WriteFate},
    registry::{MemoryQueue, Server, Tool},
    report::{Format, Rendering},
};

#[cfg(feature = "metrics")]
pub use report::metrics::{MetricLabels, Metrics, MetricsText, ToolSamples};
#[cfg(feature = "tower")]
pub use service::{AnyResponse, EffectOf, FailureOf, ResilienceLayer, Resilient};

#[cfg(any(feature = "pipeline", feature = "startup"))]
pub use model::style::DeniedText;
#[cfg(feature = "startup")]
pub use startup::{
    ConnectServer, LoadOptions, LoadReport, ServerOutcome, Warnings, legacy_denied_text, load_each,
    load_step, load_tools,
};

/// The programs of the documents are run too.
#[cfg(all(doctest, feature = "pipeline", feature = "startup"))]
#[doc = include_str!("../../../README.md")]
#[cfg_attr(feature = "metrics", doc = include_str!("../../../docs/library.md"))]
#[doc = include_str!("../../../docs/guide/rust-server.md")]
struct Readme;
