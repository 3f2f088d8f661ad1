//! Decides how events become `tracing` events: their level and fields.
//!
//! Names and fields are those of [`Event`], times in milliseconds. The target is `seawall`.

use std::io;

use tracing::field::debug;
use tracing::{debug, dispatcher, info, warn};

use super::event::{Event, Events};
use crate::time::clock::millis;

impl Events {
    /// Sends every event to the current `tracing` subscriber, from a thread of its own: a slow
    /// subscriber misses events and slows no call. The events are therefore in no span of the
    /// caller's. Failures and state changes are warnings, rejections are information, the rest is
    /// debug output.
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let env = seawall::Env::new();
    /// env.events.trace()?;
    /// let retry = seawall::Retry::new(seawall::Effect::ReadOnly).env(env);
    /// # Ok(()) }
    /// ```
    pub fn trace(&self) -> io::Result<()> {
        // Captured now: the listener's thread has no default subscriber of its own.
        let subscriber = dispatcher::get_default(Clone::clone);
        self.for_each(move |event| dispatcher::with_default(&subscriber, || event.trace()))
    }
}

impl Event {
    /// Sends the event to the current `tracing` subscriber, in the current span: for code with its
    /// own listener, see [`Events::subscribe`].
    pub fn trace(&self) {
        match self {
            Event::RetryScheduled { server, tool, attempt, of, delay, error } => {
                let delay_ms = millis(*delay);
                warn!(target: TARGET, server, tool, attempt, of, delay_ms, error, "retry_scheduled");
            }
            Event::RetryBudgetSpent { server, tool } => {
                warn!(target: TARGET, server, tool, "retry_budget_spent");
            }
            Event::BreakerChanged { name, from, to } => {
                warn!(target: TARGET, name, %from, %to, "breaker_changed");
            }
            Event::FallbackServed { server, tool, step } => {
                warn!(target: TARGET, server, tool, step, "fallback_served");
            }
            Event::Degraded { server, tool } => warn!(target: TARGET, server, tool, "degraded"),
            Event::ServerLoaded { server, failed: Some(failed), attempts, tools } => {
                warn!(target: TARGET, server, ?failed, attempts, tools, "server_loaded");
            }
            Event::ServerLoaded { server, failed: None, attempts, tools } => {
                info!(target: TARGET, server, attempts, tools, "server_loaded");
            }
            Event::BreakerRejected { name, retry_after, shadow } => {
                let retry_after_ms = millis(*retry_after);
                info!(target: TARGET, name, retry_after_ms, shadow, "breaker_rejected");
            }
            Event::Refused { server, tool, cause } => {
                info!(target: TARGET, server, tool, ?cause, "refused");
            }
            Event::CallDenied { server, tool, elapsed, reason } => {
                let elapsed_ms = millis(*elapsed);
                info!(target: TARGET, server, tool, elapsed_ms, reason, "call_denied");
            }
            Event::AuthorizerUnavailable { server, tool, elapsed, reason, retry_after } => {
                let (elapsed_ms, retry_after_ms) = (millis(*elapsed), millis(*retry_after));
                warn!(target: TARGET, server, tool, elapsed_ms, reason, retry_after_ms, "authorizer_unavailable");
            }
            Event::ToolErrorFound { server, tool, counted_only } => {
                info!(target: TARGET, server, tool, counted_only, "tool_error_found");
            }
            often => often.trace_often(),
        }
    }

    /// Events on the path of every call.
    fn trace_often(&self) {
        match self {
            Event::AttemptStarted { server, tool, attempt } => {
                debug!(target: TARGET, server, tool, attempt, "attempt_started");
            }
            Event::AttemptEnded { server, tool, attempt, elapsed, cause } => {
                let (elapsed_ms, cause) = (millis(*elapsed), cause.map(debug));
                debug!(target: TARGET, server, tool, attempt, elapsed_ms, cause, "attempt_ended");
            }
            Event::CallAllowed { server, tool, elapsed, note } => {
                let elapsed_ms = millis(*elapsed);
                debug!(target: TARGET, server, tool, elapsed_ms, note, "call_allowed");
            }
            Event::Hedged { server, tool } => debug!(target: TARGET, server, tool, "hedged"),
            Event::CacheHit { server, tool, shared_flight } => {
                debug!(target: TARGET, server, tool, shared_flight, "cache_hit");
            }
            Event::CallFinished { server, tool, class, attempts, elapsed } => {
                let elapsed_ms = millis(*elapsed);
                debug!(target: TARGET, server, tool, class, attempts, elapsed_ms, "call_finished");
            }
            other => debug!(target: TARGET, event = ?other, "event"),
        }
    }
}

const TARGET: &str = "seawall";
