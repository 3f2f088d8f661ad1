//! Decides how long breakers keep a queued call from its server, and signals when to check again.

use std::time::Duration;

use seawall::{Breaker, BreakerMode, BreakerSnapshot};
use tokio::sync::watch;

use super::PolicyRegistry;

impl PolicyRegistry {
    /// How long breakers keep calls of this tool from its server: the tool's own breaker, which may
    /// be shared, and the breaker of the connection. For ever, if an operator holds one open. Zero
    /// if neither does, and also when a cooldown is over: the next call is the probe.
    pub(crate) fn kept_back(&self, server: &str, name: &str) -> Duration {
        let cools_down = |breaker: &Breaker| match breaker.snapshot() {
            BreakerSnapshot { mode: BreakerMode::ForcedOpen, .. } => Duration::MAX,
            BreakerSnapshot { mode: BreakerMode::Auto, remaining, .. } => {
                remaining.unwrap_or_default()
            }
            _ => Duration::ZERO,
        };
        let Some(policy) = self.tool(server, name) else { return Duration::ZERO };
        let breakers = [policy.tool.breaker(), policy.tool.server().connection()];
        breakers.into_iter().flatten().map(cools_down).max().unwrap_or_default()
    }

    /// Changes whenever a breaker has changed.
    pub(crate) fn breaker_changes(&self) -> watch::Receiver<u64> {
        self.shared.breaker_changes.subscribe()
    }
}
