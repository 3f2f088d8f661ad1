//! Decides how long a call that waits is kept from its server by breakers, and when to look again.

use std::time::Duration;

use seawall::{Breaker, BreakerMode, BreakerSnapshot};
use tokio::sync::watch;

use super::PolicyRegistry;

impl PolicyRegistry {
    /// How long breakers keep calls of this tool from its server: its own, which it may share, and
    /// that of the connection. For ever, if an operator holds one open. Zero if none does, also
    /// when a cool-down is over: whoever comes next is the probe.
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

    /// Changes when a breaker has changed.
    pub(crate) fn breaker_changes(&self) -> watch::Receiver<u64> {
        self.breaker_changes.subscribe()
    }
}
