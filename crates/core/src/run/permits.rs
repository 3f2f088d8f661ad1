//! Decides which breakers of a tool learn which result of an attempt.

use std::time::Duration;

use crate::attempt::breaker::{Breaker, BreakerRefusal, GRACE, Permit};
use crate::model::failure::{Blame, Cause, Failure, Sent};
use crate::model::policy::Scope;
use crate::model::policy::breaker::BreakerStatus;
use crate::registry::Tool;
use crate::run::attempt::{AttemptFailed, AttemptRole};

/// The longest wait that a breaker of the tool imposes now.
pub(crate) fn wait(tool: &Tool) -> Option<Duration> {
    let connection = tool.server.connection.as_deref().and_then(Breaker::wait);
    connection.max(tool.breaker.as_ref().and_then(|breaker| breaker.wait()))
}

/// Whether every breaker of the tool is closed.
pub(super) fn is_closed(tool: &Tool) -> bool {
    let is_closed = |breaker: &Breaker| breaker.status() == BreakerStatus::Closed;
    tool.server.connection.as_deref().is_none_or(is_closed)
        && tool.breaker.as_deref().is_none_or(is_closed)
}

/// Refuses the tool if one of its breakers would.
pub(super) fn peek(tool: &Tool) -> Result<(), BreakerRefusal<'_>> {
    tool.server.connection.as_deref().map_or(Ok(()), |breaker| breaker.peek())?;
    tool.breaker.as_ref().map_or(Ok(()), |breaker| breaker.peek())
}

/// Permits from every breaker of a tool. Dropped without a report, they decide nothing.
pub(super) struct BreakerPermits<'a> {
    own: Option<Permit<'a>>,
    connection: Option<Permit<'a>>,
}

impl<'a> BreakerPermits<'a> {
    /// The lease of a probe covers the tool's full timeout, however short the caller's own is.
    pub(super) fn take(tool: &'a Tool, limit: Duration) -> Result<Self, BreakerRefusal<'a>> {
        let usual = tool.policy.attempt_timeout.unwrap_or(tool.policy.timeout);
        let lease = limit.max(usual).saturating_add(GRACE);
        let connection = tool
            .server
            .connection
            .as_deref()
            .map(|breaker| breaker.admit_for(lease))
            .transpose()?;
        let own = tool.breaker.as_ref().map(|breaker| breaker.admit_for(lease)).transpose()?;
        Ok(Self { own, connection })
    }

    pub(super) fn extend(&self, by: Duration) {
        self.own.iter().chain(&self.connection).for_each(|permit| permit.extend(by));
    }

    /// Reports the result to each breaker: a tool's own error concerns the tool's breaker only, and
    /// the connection's breaker learns only whether the server was reached.
    pub(super) fn settle<T>(
        self,
        tool: &Tool,
        part: AttemptRole,
        is_spared: impl Fn() -> bool,
        result: &Result<T, AttemptFailed<T>>,
    ) {
        let (own, connection) = match result.as_ref().map_err(|missed| (&missed.0, &missed.1)) {
            Ok(_) => (None, None),
            // An error that an operator's pattern found counts for every tool that shares the
            // breaker; an error that the classifier read out of a tool's text counts only if the
            // breaker is the tool's own.
            Err((failure, Some(words)))
                if words.is_unmarked || tool.policy.scope == Scope::Tool =>
            {
                (Some(failure.cause.blame()), None)
            }
            Err((_, Some(_))) => (None, None),
            Err((failure, None)) => (Some(failure.cause.blame()), reached(failure)),
        };
        let incident = result.as_ref().err().and_then(|missed| missed.0.incident);
        // A probe is not spared on behalf of a batch: its result decides the half-open state.
        let is_probe = self.own.as_ref().is_some_and(Permit::is_probe);
        let own = own.map(|blame| match blame {
            Blame::Server if part == AttemptRole::Again || (!is_probe && is_spared()) => {
                Blame::Nobody
            }
            blame => blame,
        });
        settle(self.own, own, incident);
        settle(self.connection, connection, incident);
    }
}

fn settle(permit: Option<Permit<'_>>, blame: Option<Blame>, incident: Option<u64>) {
    match (permit, blame) {
        (Some(permit), None) => permit.well(),
        (Some(permit), Some(blame)) => permit.blame_incident(blame, incident),
        (None, _) => {}
    }
}

/// The connection's share of the blame; `None`: the server answered, so the connection is fine.
fn reached(failure: &Failure) -> Option<Blame> {
    match failure.cause {
        Cause::Network => Some(Blame::Server),
        // No connection was made in time.
        Cause::Timeout if failure.sent == Sent::Never => Some(Blame::Server),
        Cause::Timeout
        | Cause::Starting
        | Cause::Away
        | Cause::Unavailable
        | Cause::GivenUp
        | Cause::Overloaded
        | Cause::Cancelled
        | Cause::SessionLost => Some(Blame::Nobody),
        _ => None,
    }
}
