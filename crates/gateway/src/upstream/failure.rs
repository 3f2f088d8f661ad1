//! Why a server gave no answer, and whether the request can have reached it.

use std::time::Duration;

use seawall::{Disposition, ErrorCode};
use serde_json::json;

use crate::protocol::Reject;
use crate::protocol::build::{self, RpcError};

/// A failure between the gateway and a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamFailure {
    /// The server could not be started or reached: nothing was sent.
    #[error("could not be reached: {0}")]
    Unreachable(String),
    /// The server can never be started or reached as it is configured: nothing was sent.
    #[error("cannot be started: {0}")]
    Impossible(String),
    /// The server is still starting: nothing was sent.
    #[error("is starting up and not ready yet{}", next_try(*.0))]
    Starting(Duration),
    /// The server could not be reached and will be tried again: nothing was sent.
    #[error("is unavailable: it {reason}{}", next_try(*.retry_in))]
    Away {
        /// The last failure, in words.
        reason: String,
        /// The time until the next reconnection.
        retry_in: Duration,
    },
    /// The server failed as often as the operator allows and is not tried any more: nothing was
    /// sent.
    #[error("is not tried any more: Maximum reconnection attempts ({0}) reached")]
    GivenUp(u32),
    /// The server no longer knows the session: it has not looked at the request.
    #[error("no longer knows the session")]
    SessionLost,
    /// The server does not even know the session that it has just opened: it has not looked at the
    /// request.
    #[error("does not know the session that it has just opened")]
    Forgetful,
    /// The connection ended before the request was written to it: a repeat reaches the next
    /// connection.
    #[error("was lost before the request was sent")]
    NotTaken,
    /// The server was lost while the request was in flight.
    #[error("was lost while it worked on the request: {0}")]
    Lost(String),
    /// The server answered with an HTTP error status and no usable JSON-RPC answer.
    #[error("answered with HTTP status {status}{}", said(.text))]
    Status {
        /// The HTTP status.
        status: u16,
        /// The beginning of the response's text.
        text: String,
        /// The `Retry-After` header, as the server sent it.
        retry_after: Option<String>,
    },
    /// The server sent a message that cannot be read.
    #[error("sent a message that cannot be read: {0}")]
    Broken(#[from] Reject),
    /// The server did not answer in time.
    #[error("did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// The server answers, but refuses the handshake.
    #[error("refused the handshake: {0}")]
    Handshake(String),
    /// The call failed together with everything else in flight: one incident, however many calls it
    /// ended.
    #[error("{failure}")]
    Struck {
        /// The number of the incident.
        incident: u64,
        /// The failure that ended the calls.
        failure: Box<UpstreamFailure>,
    },
    /// The call was cancelled before it was sent.
    #[error("was not asked: the call was cancelled before that")]
    NotAsked,
    /// The call was cancelled; no caller waits for the answer.
    #[error("was not waited for: the call was cancelled")]
    Cancelled,
    /// The limit of server processes is reached: nothing was sent.
    #[error("was not started: {0} server processes are running, as many as this gateway starts")]
    NoRoom(usize),
    /// Too many calls are in flight on this connection.
    #[error("has too many calls under way")]
    Full,
}

/// The most characters of a server's text that are passed on.
const SHOWN: usize = 300;

/// The beginning of a server's text, without invisible characters, fit to be shown to people and
/// models.
pub(crate) fn beginning(text: &str) -> String {
    text.chars().filter(|letter| !seawall::is_unseen(*letter)).take(SHOWN).collect()
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

fn next_try(retry_in: Duration) -> String {
    if retry_in.is_zero() {
        String::new()
    } else {
        format!("; next try in {} s", seconds(retry_in))
    }
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> u64 {
    duration.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX)
}

impl UpstreamFailure {
    /// Whether reconnection makes no sense: a person has to change something.
    pub fn is_final(&self) -> bool {
        // An address that does not answer today may answer tomorrow.
        let is_unreachable = matches!(self, Self::Unreachable(_));
        !is_unreachable && seawall::classify(&self.signals()).disposition != Disposition::Transient
    }

    /// The same failure, seen from a request whose connection could not be opened: the request was
    /// never sent, whatever the server answered to the handshake.
    pub(crate) fn before_sending(self) -> Self {
        if self.was_not_sent() { self } else { Self::Unreachable(format!("it {self}")) }
    }

    /// Whether the request certainly did not reach the server.
    pub(crate) fn was_not_sent(&self) -> bool {
        matches!(
            self,
            Self::Unreachable(_)
                | Self::Impossible(_)
                | Self::Starting(_)
                | Self::Away { .. }
                | Self::GivenUp(_)
                | Self::SessionLost
                | Self::Forgetful
                | Self::NotTaken
                | Self::Handshake(_)
                | Self::NoRoom(_)
                | Self::NotAsked
                | Self::Full
        )
    }

    /// The failure as a JSON-RPC error about `server`.
    pub fn error(&self, server: &str) -> RpcError {
        let code = if matches!(self, Self::Full | Self::NoRoom(_)) {
            build::OVERLOADED
        } else {
            build::SERVER_LOST
        };
        let meaning = seawall::classify(&self.signals());
        let cause = ErrorCode::of(meaning.cause);
        let mut data =
            json!({"code": cause.as_str(), "retryable": cause.is_retryable(), "server": server});
        if let Some(wait) = meaning.retry_after {
            data["retryAfter"] = seconds(wait).max(1).into();
        }
        RpcError::new(code, format!("server {server:?} {self}")).with(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_a_client_can_branch_on() {
        let starting = UpstreamFailure::Starting(Duration::from_millis(2100));
        let data =
            json!({"code": "SERVER_STARTING", "retryable": true, "server": "gh", "retryAfter": 3});
        assert_eq!(starting.error("gh").data, Some(data));
        let denied =
            UpstreamFailure::Status { status: 403, text: String::new(), retry_after: None };
        let data = json!({"code": "DENIED", "retryable": false, "server": "gh"});
        assert_eq!(denied.error("gh").data, Some(data));
    }

    #[test]
    fn what_fails_before_the_request_is_sent_was_not_executed() {
        let refused =
            || UpstreamFailure::Status { status: 401, text: String::new(), retry_after: None };
        assert!(!refused().was_not_sent());
        assert!(refused().before_sending().was_not_sent());
        assert_eq!(
            refused().before_sending().to_string(),
            "could not be reached: it answered with HTTP status 401"
        );
        assert_eq!(UpstreamFailure::Full.before_sending(), UpstreamFailure::Full);
    }
}
