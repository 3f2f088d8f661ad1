//! Decides what each breaker that watches a tool learns from an attempt.

use std::time::Duration;

use crate::attempt::breaker::{Breaker, BreakerRefusal, GRACE, Permit};
use crate::model::failure::{Blame, Cause, Failure, Sent};
use crate::model::policy::Scope;
use crate::model::policy::breaker::BreakerStatus;
use crate::registry::Tool;
use crate::run::attempt::{AttemptFailed, AttemptRole};

/// How long a breaker would make the tool wait now.
pub(crate) fn wait(tool: &Tool) -> Option<Duration> {
    let connection = tool.server.connection.as_ref().and_then(Breaker::wait);
    connection.max(tool.breaker.as_ref().and_then(|breaker| breaker.wait()))
}

/// Whether every breaker of the tool is closed.
pub(super) fn is_closed(tool: &Tool) -> bool {
    let is_closed = |breaker: &Breaker| breaker.status() == BreakerStatus::Closed;
    tool.server.connection.as_ref().is_none_or(is_closed)
        && tool.breaker.as_deref().is_none_or(is_closed)
}

/// Refuses the tool if a breaker would.
pub(super) fn peek(tool: &Tool) -> Result<(), BreakerRefusal<'_>> {
    tool.server.connection.as_ref().map_or(Ok(()), |breaker| breaker.peek())?;
    tool.breaker.as_ref().map_or(Ok(()), |breaker| breaker.peek())
}

/// Leave from every breaker that watches a tool. Dropped in silence, none of them concludes
/// anything.
pub(super) struct BreakerPermits<'a> {
    own: Option<Permit<'a>>,
    connection: Option<Permit<'a>>,
}

impl<'a> BreakerPermits<'a> {
    /// A probe is waited for as long as its tool may take, however impatient its caller is.
    pub(super) fn take(tool: &'a Tool, limit: Duration) -> Result<Self, BreakerRefusal<'a>> {
        let usual = tool.policy.attempt_timeout.unwrap_or(tool.policy.timeout);
        let lease = limit.max(usual).saturating_add(GRACE);
        let connection =
            tool.server.connection.as_ref().map(|breaker| breaker.admit_for(lease)).transpose()?;
        let own = tool.breaker.as_ref().map(|breaker| breaker.admit_for(lease)).transpose()?;
        Ok(Self { own, connection })
    }

    pub(super) fn extend(&self, by: Duration) {
        self.own.iter().chain(&self.connection).for_each(|permit| permit.extend(by));
    }

    /// Tells each breaker what concerns it: a tool's own error concerns the tool's breaker only,
    /// and the connection's breaker learns only whether the server could be reached.
    pub(super) fn settle<T>(
        self,
        tool: &Tool,
        part: AttemptRole,
        is_spared: impl Fn() -> bool,
        result: &Result<T, AttemptFailed<T>>,
    ) {
        let (own, connection) = match result.as_ref().map_err(|missed| (&missed.0, &missed.1)) {
            Ok(_) => (None, None),
            // What an operator calls a failure counts for whoever shares the breaker; what we take
            // for one, for its tool only.
            Err((failure, Some(words)))
                if words.is_unmarked || tool.policy.scope == Scope::Tool =>
            {
                (Some(failure.cause.blame()), None)
            }
            Err((_, Some(_))) => (None, None),
            Err((failure, None)) => (Some(failure.cause.blame()), reached(failure)),
        };
        let incident = result.as_ref().err().and_then(|missed| missed.0.incident);
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

/// What a failure says about the connection; `None`: the server answered, so it is fine.
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
