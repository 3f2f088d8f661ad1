//! Decides the vocabulary of failures: cause × disposition × sent × retry_after.

use std::time::Duration;

use super::effect::Effect;

/// How far the request got; decides whether a write may be sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Sent {
    /// The server certainly did not execute the request.
    Never,
    /// Unknown. The default.
    #[default]
    Maybe,
    /// The server certainly received the request.
    Yes,
}

/// Whether a failed attempt is worth repeating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Disposition {
    /// A later attempt can succeed.
    Transient,
    /// The same attempt fails again.
    Permanent,
    /// Access was denied; never retried, never reported as "starting up".
    Denied,
}

/// Why a call or an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
pub enum Cause {
    /// The server asked for a pause (429), or the local rate limiter did.
    RateLimited,
    /// No answer before the timeout.
    Timeout,
    /// The credentials are missing, expired or revoked.
    AuthExpired,
    /// Access was refused by policy.
    Denied,
    /// The caller's request is wrong and stays wrong.
    InvalidInput,
    /// The server has no tool of that name.
    UnknownTool,
    /// The connection could not be made or was lost.
    Network,
    /// The server no longer knows the session; a new handshake helps.
    SessionLost,
    /// The tool or its server answered with an internal error, or with an unreadable message.
    Misbehaved,
    /// A content policy refused the request.
    Refusal,
    /// The same failing call was repeated too often.
    Loop,
    /// The identical write may have been executed a moment ago, and the caller has not read from
    /// the server since.
    Uncertain,
    /// The identical write waits in the queue.
    Queued,
    /// The circuit breaker is open.
    CircuitOpen,
    /// Too many calls are in flight and the bulkhead's wait line is full.
    Overloaded,
    /// The server is being started.
    Starting,
    /// The server could not be reached; the connection is tried again later.
    Away,
    /// The server is down until a person acts.
    Unavailable,
    /// Reconnecting to the server was given up after the allowed number of attempts.
    GivenUp,
    /// The caller left.
    Cancelled,
}

/// Which party a failure is attributed to, as a circuit breaker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The server: the failure counts against it.
    Server,
    /// The server asked for a pause: counts only if the policy sets `trip_on_429`.
    Throttle,
    /// The caller; the answer proves that the server is alive.
    Alive,
    /// No party: the failure says nothing about the server, or the server was never called.
    Nobody,
}

impl Cause {
    /// The party at fault. Callers' mistakes, denials and local rejections never count against a
    /// server.
    pub fn blame(self) -> Blame {
        match self {
            Cause::Timeout | Cause::Network | Cause::Misbehaved => Blame::Server,
            Cause::RateLimited => Blame::Throttle,
            Cause::InvalidInput | Cause::UnknownTool => Blame::Alive,
            _ => Blame::Nobody,
        }
    }

    /// Whether another tool, a cached response or a simpler query could still help the caller. A
    /// wrong request stays wrong on every fallback, and a denial must not be worked around.
    pub fn allows_fallback(self) -> bool {
        !matches!(
            self,
            Cause::InvalidInput
                | Cause::UnknownTool
                | Cause::Denied
                | Cause::AuthExpired
                | Cause::Refusal
                | Cause::Loop
                | Cause::Uncertain
                | Cause::Queued
                | Cause::Cancelled
        )
    }
}

/// The failure of a call or an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why the attempt failed.
    pub cause: Cause,
    /// Whether a repeat can help.
    pub disposition: Disposition,
    /// How far the request got.
    pub sent: Sent,
    /// How long the server, or the local rate limiter, asks to wait.
    pub retry_after: Option<Duration>,
    /// The HTTP status, if the server answered with one.
    pub status: Option<u16>,
    /// The original text, without credentials.
    pub message: String,
    /// The number of the incident that ended this attempt; other attempts that the same incident
    /// ended carry the same number.
    pub incident: Option<u64>,
    /// The server says that a batch has too many items: smaller batches may succeed.
    pub too_large: bool,
}

/// The end of the message that holds back a write whose server may still execute it.
pub(crate) const MAY_STILL_RUN: &str = "and may still be running";

/// The message when the local rate limiter lets no attempt begin.
pub(crate) const RATE_IS_USED_UP: &str = "the server's rate is used up";
/// The message when a pause that a server asked for lets no attempt begin.
pub(crate) const PAUSE_IS_ASKED: &str = "its server asked for a pause";
/// The message when the queue does not tell whether the identical write waits there.
pub(crate) const QUEUE_IS_SILENT: &str = "the queue cannot tell whether the same call waits there";
/// The end of a refusal by a breaker that slow calls opened.
pub(crate) const TOO_SLOW: &str = " Its calls were too slow.";
/// The message of a breaker that an operator holds open.
const SWITCHED_OFF: &str = "an operator switched it off";

impl Failure {
    /// A failure that never left this process: no server was called.
    pub fn local(cause: Cause, retry_after: Option<Duration>, message: impl Into<String>) -> Self {
        let disposition = match cause {
            Cause::Denied => Disposition::Denied,
            Cause::Loop
            | Cause::Uncertain
            | Cause::Queued
            | Cause::InvalidInput
            | Cause::UnknownTool
            | Cause::Unavailable
            | Cause::GivenUp => Disposition::Permanent,
            _ => Disposition::Transient,
        };
        Self {
            cause,
            disposition,
            sent: Sent::Never,
            retry_after,
            status: None,
            message: message.into(),
            incident: None,
            too_large: false,
        }
    }

    /// The failure of a call whose breaker an operator holds open.
    pub(crate) fn switched_off() -> Self {
        Self::local(Cause::Unavailable, None, SWITCHED_OFF)
    }

    /// Whether the call is held back for an identical write that its server may still execute.
    pub(crate) fn waits_for_a_running_write(&self) -> bool {
        self.cause == Cause::Uncertain && self.message.ends_with(MAY_STILL_RUN)
    }

    /// Whether an operator, not the server, ended the call.
    pub(crate) fn is_switched_off(&self) -> bool {
        self.cause == Cause::Unavailable && self.sent == Sent::Never && self.message == SWITCHED_OFF
    }

    /// Whether the breaker that refused the call opened because calls were too slow.
    pub(crate) fn is_of_slowness(&self) -> bool {
        self.cause == Cause::CircuitOpen && self.message.ends_with(TOO_SLOW)
    }

    /// Whether the call was not sent because the queue did not reply.
    pub(crate) fn is_silent_queue(&self) -> bool {
        self.cause == Cause::Overloaded && self.message.starts_with(QUEUE_IS_SILENT)
    }

    /// Whether a local rate limiter or a pause kept here let no attempt begin.
    pub(crate) fn is_own_pause(&self) -> bool {
        let says = |text| self.message == text;
        self.cause == Cause::RateLimited && (says(RATE_IS_USED_UP) || says(PAUSE_IS_ASKED))
    }

    /// Whether the attempt can be sent again unchanged without risking a second execution.
    pub fn may_repeat(&self, effect: Effect) -> bool {
        // A repeat would meet the same local rejection. The pipeline has already waited for a
        // server that is starting or away, as long as waiting makes sense.
        let rejected_here = matches!(
            self.cause,
            Cause::CircuitOpen
                | Cause::Loop
                | Cause::Uncertain
                | Cause::Queued
                | Cause::Cancelled
                | Cause::Starting
                | Cause::Away
                | Cause::Unavailable
                | Cause::GivenUp
        );
        self.disposition == Disposition::Transient
            && !rejected_here
            && (self.sent == Sent::Never || effect.is_replayable())
    }

    /// The pause that the server asks for, after a 429 or a 503. Local waits, such as a breaker's
    /// cool-down, do not count.
    pub(crate) fn asked_pause(&self) -> Option<Duration> {
        let is_asked = self.cause == Cause::RateLimited || self.status == Some(503);
        self.retry_after.filter(|pause| is_asked && !pause.is_zero())
    }

    /// Whether the call may have changed something although it failed.
    pub fn may_have_executed(&self, effect: Effect) -> bool {
        effect != Effect::ReadOnly && self.sent != Sent::Never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(cause: Cause, sent: Sent) -> Failure {
        Failure { sent, ..Failure::local(cause, None, "x") }
    }

    #[test]
    fn writes_repeat_only_when_the_server_was_certainly_not_reached() {
        for effect in [Effect::Write, Effect::Destructive] {
            assert!(failure(Cause::Network, Sent::Never).may_repeat(effect));
            assert!(!failure(Cause::Network, Sent::Maybe).may_repeat(effect));
            assert!(!failure(Cause::Network, Sent::Yes).may_repeat(effect));
        }
        for effect in [Effect::ReadOnly, Effect::Idempotent] {
            assert!(failure(Cause::Timeout, Sent::Yes).may_repeat(effect));
        }
    }

    #[test]
    fn rejections_denials_and_cancellations_never_repeat() {
        for cause in [
            Cause::CircuitOpen,
            Cause::Loop,
            Cause::Cancelled,
            Cause::Denied,
            Cause::InvalidInput,
            Cause::Starting,
            Cause::Away,
            Cause::GivenUp,
        ] {
            assert!(!failure(cause, Sent::Never).may_repeat(Effect::ReadOnly), "{cause:?}");
        }
    }

    #[test]
    fn only_what_certainly_never_arrived_was_not_executed() {
        assert!(failure(Cause::Timeout, Sent::Maybe).may_have_executed(Effect::Idempotent));
        assert!(!failure(Cause::Timeout, Sent::Maybe).may_have_executed(Effect::ReadOnly));
        assert!(failure(Cause::InvalidInput, Sent::Yes).may_have_executed(Effect::Write));
        assert!(!failure(Cause::InvalidInput, Sent::Never).may_have_executed(Effect::Write));
    }
}
