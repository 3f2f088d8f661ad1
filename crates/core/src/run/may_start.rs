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

/// Everything an attempt holds while it runs; given back when dropped.
pub(super) struct Start<'t> {
    pub(super) permits: BreakerPermits<'t>,
    /// How long the attempt may take.
    pub(super) limit: Duration,
    pub(super) _slots: [Option<BulkheadPermit<'t>>; 2],
}

/// How far an attempt has come on its way to its start.
#[derive(Default)]
pub(super) struct StartProgress<'t> {
    has_peeked: bool,
    has_paused: bool,
    own_slot: Option<BulkheadPermit<'t>>,
    server_slot: Option<BulkheadPermit<'t>>,
    has_turn: bool,
}

/// Why an attempt cannot start now.
pub(super) enum StartBlocked<'t> {
    /// The attempt is refused.
    Refused(Box<Failure>),
    /// The server asked for a pause.
    Pause,
    /// All slots of the tool are taken.
    OwnSlot(&'t Bulkhead),
    /// All slots of the server are taken.
    ServerSlot(&'t Bulkhead),
    /// The server's rate is used up.
    Turn(&'t RateQueue),
}

impl<T: Clone> Run<'_, T> {
    /// Starts an attempt at `tool` if nothing holds it up. Not async: nearly every attempt passes
    /// here at once, and should not carry the waits along.
    #[inline]
    pub(super) fn may_start<'t>(
        &self,
        tool: &'t Tool,
        progress: &mut StartProgress<'t>,
    ) -> Result<Start<'t>, StartBlocked<'t>> {
        let refused = |failure| StartBlocked::Refused(Box::new(failure));
        if !progress.has_peeked {
            peek(tool).map_err(|open| refused(open.failure()))?;
            progress.has_peeked = true;
        }
        if !progress.has_paused && tool.pause.until().is_some() {
            return Err(StartBlocked::Pause);
        }
        // The tool's own slot first: a call that waits for it takes none of the server's.
        if progress.own_slot.is_none() {
            progress.own_slot = free(tool.slots.as_deref()).map_err(StartBlocked::OwnSlot)?;
        }
        if progress.server_slot.is_none() {
            let slots = tool.server.slots.as_deref();
            progress.server_slot = free(slots).map_err(StartBlocked::ServerSlot)?;
        }
        let now = if progress.has_turn { self.env().clock.now() } else { self.now() };
        let rate = tool.server.rate.as_deref().filter(|_| !progress.has_turn);
        if let Some(turns) = rate.filter(|turns| !turns.try_take(now)) {
            return Err(StartBlocked::Turn(turns));
        }
        let longest = tool.policy.attempt_timeout.unwrap_or(Duration::MAX);
        let limit = self.deadline().remaining_at(now).min(longest);
        if limit.is_zero() {
            return Err(refused(self.timed_out()));
        }
        let permits = BreakerPermits::take(tool, limit).map_err(|open| refused(open.failure()))?;
        let _slots = [progress.own_slot.take(), progress.server_slot.take()];
        Ok(Start { permits, limit, _slots })
    }

    /// Waits until an attempt at `tool` may start, one obstacle after the other; fallbacks do not
    /// wait for a pause to end.
    pub(super) async fn wait_to_start<'t>(
        &self,
        tool: &'t Tool,
        part: AttemptRole,
        mut progress: StartProgress<'t>,
        mut blocked: StartBlocked<'t>,
    ) -> Result<Start<'t>, Failure> {
        loop {
            match blocked {
                StartBlocked::Refused(failure) => return Err(*failure),
                StartBlocked::Pause => {
                    self.keep_pause(tool, part == AttemptRole::Call).await?;
                    progress.has_paused = true;
                }
                StartBlocked::OwnSlot(slots) => {
                    progress.own_slot = Some(self.wait_for_slot(slots, OWN_TAKEN).await?);
                }
                StartBlocked::ServerSlot(slots) => {
                    progress.server_slot = Some(self.wait_for_slot(slots, ALL_TAKEN).await?);
                }
                StartBlocked::Turn(turns) => {
                    self.wait_for_turn(turns).await?;
                    progress.has_turn = true;
                }
            }
            match self.may_start(tool, &mut progress) {
                Ok(start) => return Ok(start),
                Err(next) => blocked = next,
            }
        }
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
