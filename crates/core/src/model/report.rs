//! Decides the fields of a failure report: a code and details for programs, the message in plain
//! and in classic style.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use crate::time::clock::{millis, whole_seconds};
use crate::time::stamp;

/// The error code, which a client can branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ErrorCode {
    /// No answer before the timeout.
    Timeout,
    /// The circuit breaker is open.
    CircuitOpen,
    /// The connection was lost or could not be made.
    ConnectionLost,
    /// Reconnecting to the server was given up.
    RetryExhausted,
    /// A rate limit is used up.
    RateLimited,
    /// Too many calls wait already.
    Overloaded,
    /// The credentials have to be renewed.
    AuthRequired,
    /// Access was refused.
    Denied,
    /// Nobody can say now whether access is allowed.
    AuthzUnavailable,
    /// The tool or its server failed.
    UpstreamError,
    /// The server is being started.
    ServerStarting,
    /// The server is down until a person acts.
    ServerUnavailable,
    /// The same call failed too often.
    LoopDetected,
    /// The identical write may have been executed, and the caller has not read from the server
    /// since.
    WriteUncertain,
    /// The identical write waits in the queue.
    AlreadyQueued,
    /// The arguments are wrong.
    ValidationError,
    /// The server has no such tool.
    ToolNotFound,
    /// Seawall itself failed.
    InternalError,
}

impl ErrorCode {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Timeout,
        Self::CircuitOpen,
        Self::ConnectionLost,
        Self::RetryExhausted,
        Self::RateLimited,
        Self::Overloaded,
        Self::AuthRequired,
        Self::Denied,
        Self::AuthzUnavailable,
        Self::UpstreamError,
        Self::ServerStarting,
        Self::ServerUnavailable,
        Self::LoopDetected,
        Self::WriteUncertain,
        Self::AlreadyQueued,
        Self::ValidationError,
        Self::ToolNotFound,
        Self::InternalError,
    ];

    /// The code for a failure's cause.
    pub fn of(cause: Cause) -> Self {
        match cause {
            Cause::RateLimited => ErrorCode::RateLimited,
            Cause::Timeout => ErrorCode::Timeout,
            Cause::AuthExpired => ErrorCode::AuthRequired,
            Cause::Denied | Cause::Refusal => ErrorCode::Denied,
            Cause::InvalidInput => ErrorCode::ValidationError,
            Cause::UnknownTool => ErrorCode::ToolNotFound,
            Cause::Network | Cause::SessionLost => ErrorCode::ConnectionLost,
            Cause::Misbehaved => ErrorCode::UpstreamError,
            Cause::Loop => ErrorCode::LoopDetected,
            Cause::Uncertain => ErrorCode::WriteUncertain,
            Cause::Queued => ErrorCode::AlreadyQueued,
            Cause::CircuitOpen => ErrorCode::CircuitOpen,
            Cause::Overloaded => ErrorCode::Overloaded,
            Cause::Starting => ErrorCode::ServerStarting,
            Cause::Away => ErrorCode::ConnectionLost,
            Cause::Unavailable => ErrorCode::ServerUnavailable,
            Cause::GivenUp => ErrorCode::RetryExhausted,
            Cause::Cancelled => ErrorCode::InternalError,
        }
    }

    /// Whether the same call can succeed later without anybody acting.
    pub fn is_retryable(self) -> bool {
        !matches!(
            self,
            ErrorCode::RetryExhausted
                | ErrorCode::AuthRequired
                | ErrorCode::Denied
                | ErrorCode::ServerUnavailable
                | ErrorCode::LoopDetected
                | ErrorCode::WriteUncertain
                | ErrorCode::AlreadyQueued
                | ErrorCode::ValidationError
                | ErrorCode::ToolNotFound
        )
    }

    /// The code as it stands on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::Timeout => "TIMEOUT",
            ErrorCode::CircuitOpen => "CIRCUIT_OPEN",
            ErrorCode::ConnectionLost => "CONNECTION_LOST",
            ErrorCode::RetryExhausted => "RETRY_EXHAUSTED",
            ErrorCode::RateLimited => "RATE_LIMITED",
            ErrorCode::Overloaded => "OVERLOADED",
            ErrorCode::AuthRequired => "AUTH_REQUIRED",
            ErrorCode::Denied => "DENIED",
            ErrorCode::AuthzUnavailable => "AUTHZ_UNAVAILABLE",
            ErrorCode::UpstreamError => "UPSTREAM_ERROR",
            ErrorCode::ServerStarting => "SERVER_STARTING",
            ErrorCode::ServerUnavailable => "SERVER_UNAVAILABLE",
            ErrorCode::LoopDetected => "LOOP_DETECTED",
            ErrorCode::WriteUncertain => "WRITE_UNCERTAIN",
            ErrorCode::AlreadyQueued => "ALREADY_QUEUED",
            ErrorCode::ValidationError => "VALIDATION_ERROR",
            ErrorCode::ToolNotFound => "TOOL_NOT_FOUND",
            ErrorCode::InternalError => "INTERNAL_ERROR",
        }
    }
}

/// Details for people who debug a failure; only on request.
#[derive(Clone, Debug, PartialEq)]
pub struct DebugDetails {
    /// When the call failed, if a clock is set: see [`crate::Settings::wall_clock`].
    pub at: Option<SystemTime>,
    /// The arguments, with secrets removed.
    pub arguments: Value,
    /// The timeout of the call.
    pub timeout: Duration,
    /// The number of the last failed attempt.
    pub attempt: u32,
    /// One line for each attempt that failed.
    pub causes: Vec<String>,
}

/// The report of a call that has no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureReport {
    /// The error code, which a client can branch on.
    pub code: ErrorCode,
    /// The message in plain style, for a model or a person.
    pub message: String,
    /// How long to wait before the same call makes sense.
    pub retry_after: Option<Duration>,
    /// The tool.
    pub tool: String,
    /// The tool's server.
    pub server: String,
    /// Attempts that were made for the call, fallbacks included.
    pub attempts: u32,
    /// Whether the call may have changed something although it failed.
    pub may_have_executed: bool,
    /// The failure itself.
    pub failure: Failure,
    /// Whether the tool result is marked as an error. Every report is, except a loop in the mode
    /// [`crate::LoopMode::Calls`], which is a warning.
    pub is_error: bool,
    /// The same message in the classic style.
    pub classic: String,
    /// Details, if the client asked for them.
    pub debug: Option<DebugDetails>,
}

impl FailureReport {
    /// The value of `_meta["seawall/failure"]`.
    pub fn object(&self) -> Value {
        let mut object = json!({
            "code": self.code.as_str(),
            "message": self.message,
            "retryable": self.code.is_retryable(),
            "tool": self.tool,
            "server": self.server,
            "attempts": self.attempts,
            "mayHaveExecuted": self.may_have_executed,
        });
        if let Some(wait) = self.retry_after {
            object["retryAfter"] = whole_seconds(wait).into();
        }
        if let Some(debug) = &self.debug {
            object["debug"] = self.details(debug);
            object["debug"]["causes"] = json!(debug.causes);
            if let (Some(wait), Some(fields)) = (self.retry_after, object["debug"].as_object_mut())
            {
                fields.insert("retryAfterMs".into(), millis(wait).into());
            }
        }
        object
    }

    /// The details, which both error objects show on request.
    pub(crate) fn details(&self, debug: &DebugDetails) -> Value {
        let mut details = json!({
            "tool": self.tool,
            "arguments": debug.arguments,
            "timeoutMs": millis(debug.timeout),
            "attempt": debug.attempt,
        });
        if let Some(at) = debug.at {
            details["timestamp"] = stamp::iso(at).into();
        }
        details
    }

    /// Whether an open breaker left only this explanation as an answer.
    pub fn is_degradation(&self) -> bool {
        self.code == ErrorCode::CircuitOpen
    }
}
