//! Decides whether an attempt may start now, and which waits come before it.
//!
//! In this order: a peek at the breakers, so that no call waits for an attempt that would be
//! refused anyway; the pause that the server asked for (`pause`); a permit of the tool's bulkhead,
//! then one of its server's (`bulkhead`); a turn in the server's rate (`rate_queue`); and the
//! breakers' permits last, so that no permit waits in a queue. The sender of the attempt waits for
//! the connection.

use std::time::Duration;

use crate::attempt::rate_queue::RateQueue;
use crate::model::failure::{Cause, Failure, RATE_IS_USED_UP};
use crate::registry::Tool;
use crate::run::context::Run;

use super::permits::{BreakerPermits, peek};
use crate::attempt::bulkhead::{Bulkhead, BulkheadPermit};
use crate::run::attempt::AttemptRole;

/// The refusals for a full bulkhead of the tool or of its server.
const OWN_TAKEN: &str = "all slots of this tool are taken";
const ALL_TAKEN: &str = "all slots are taken";

/// Everything an attempt holds while it runs; released on drop.
pub(super) struct Start<'t> {
    pub(super) permits: BreakerPermits<'t>,
    /// The timeout of the attempt.
    pub(super) limit: Duration,
    pub(super) _slots: [Option<BulkheadPermit<'t>>; 2],
}

impl<T: Clone> Run<'_, T> {
    /// Waits until an attempt at `tool` may start; fallbacks do not wait for a pause to end.
    #[inline]
    pub(super) async fn may_start<'t>(
        &self,
        tool: &'t Tool,
        part: AttemptRole,
    ) -> Result<Start<'t>, Failure> {
        peek(tool).map_err(|open| open.failure())?;
        self.keep_pause(tool, part == AttemptRole::Call).await?;
        // The tool's bulkhead first: a call that waits for it holds no permit of the server's.
        let own_slot = match free(tool.slots.as_deref()) {
            Ok(slot) => slot,
            Err(slots) => Some(Box::pin(self.wait_for_slot(slots, OWN_TAKEN)).await?),
        };
        let server_slot = match free(tool.server.slots.as_ref()) {
            Ok(slot) => slot,
            Err(slots) => Some(self.wait_for_slot(slots, ALL_TAKEN).await?),
        };
        let mut now = self.now();
        if let Some(turns) = tool.server.rate.as_ref().filter(|turns| !turns.try_take(now)) {
            // Boxed: a call that need not wait should not carry the timers of the wait.
            Box::pin(self.wait_for_turn(turns)).await?;
            now = self.env().clock.now();
        }
        let longest = tool.policy.attempt_timeout.unwrap_or(Duration::MAX);
        let limit = self.deadline().remaining_at(now).min(longest);
        if limit.is_zero() {
            return Err(self.timed_out());
        }
        let permits = BreakerPermits::take(tool, limit).map_err(|open| open.failure())?;
        Ok(Start { permits, limit, _slots: [own_slot, server_slot] })
    }

    async fn wait_for_slot<'t>(
        &self,
        slots: &'t Bulkhead,
        words: &str,
    ) -> Result<BulkheadPermit<'t>, Failure> {
        self.note_wait();
        let full = |_| self.refuse(Cause::Overloaded, Some(Duration::from_secs(1)), words);
        slots.take(self.remaining()).await.map_err(full)
    }

    async fn wait_for_turn(&self, turns: &RateQueue) -> Result<(), Failure> {
        let used_up = |wait| self.refuse(Cause::RateLimited, Some(wait), RATE_IS_USED_UP);
        turns.take(self.remaining()).await.map_err(used_up)
    }
}

/// A permit, if one is free now or none is needed; else the bulkhead to wait for.
fn free(slots: Option<&Bulkhead>) -> Result<Option<BulkheadPermit<'_>>, &Bulkhead> {
    slots.map(|slots| slots.try_take().ok_or(slots)).transpose()
}
