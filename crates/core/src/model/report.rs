//! What is told of a failure: a code and fields for programs, in one of two styles.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};

use super::failure::{Cause, Failure};
use crate::time::clock::{millis, whole_seconds};
use crate::time::stamp;

/// What a client can branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ErrorCode {
    /// No answer in time.
    Timeout,
    /// The breaker is open.
    CircuitOpen,
    /// The connection was lost or could not be made.
    ConnectionLost,
    /// Reconnecting was given up.
    RetryExhausted,
    /// A rate is used up.
    RateLimited,
    /// Too many calls wait already.
    Overloaded,
    /// The credentials have to be renewed.
    AuthRequired,
    /// Access was refused.
    Denied,
    /// The tool or its server failed.
    UpstreamError,
    /// The server is being started.
    ServerStarting,
    /// The server is down until somebody acts.
    ServerUnavailable,
    /// The same call failed too often.
    LoopDetected,
    /// The same write may have been executed, and nobody has looked since.
    WriteUncertain,
    /// The same write waits in the queue.
    AlreadyQueued,
    /// The arguments are wrong.
    ValidationError,
    /// The server has no such tool.
    ToolNotFound,
    /// Seawall itself failed.
    InternalError,
}

impl ErrorCode {
    /// The code of a failure's cause.
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

    /// Whether the same call can succeed later without anybody doing anything else.
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

    /// As it is written on the wire.
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

/// Details for people who look for the reason; only on request.
#[derive(Clone, Debug, PartialEq)]
pub struct DebugDetails {
    /// When it failed, if anybody knows: see [`crate::Settings::wall_clock`].
    pub at: Option<SystemTime>,
    /// The arguments, with secrets removed.
    pub arguments: Value,
    /// The limit of the call.
    pub timeout: Duration,
    /// The attempt that failed last.
    pub attempt: u32,
    /// One line for each attempt that failed.
    pub causes: Vec<String>,
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq)]
pub struct FailureReport {
    /// What a client can branch on.
    pub code: ErrorCode,
    /// What a model or a person reads.
    pub message: String,
    /// How long to wait before the same call makes sense.
    pub retry_after: Option<Duration>,
    /// The tool.
    pub tool: String,
    /// Its server.
    pub server: String,
    /// How often a tool was really executed.
    pub attempts: u32,
    /// Whether the call may have changed something although it failed.
    pub may_have_executed: bool,
    /// What is known about the failure itself.
    pub failure: Failure,
    /// Whether the tool result is marked as an error. All are but one: a loop in the mode
    /// [`crate::LoopMode::Calls`] is a warning.
    pub is_error: bool,
    /// The same message in the classic words.
    pub classic: String,
    /// Details, if they were asked for.
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

    /// What both objects show on request.
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

    /// Whether nothing but an explanation was left to give.
    pub fn is_degradation(&self) -> bool {
        self.code == ErrorCode::CircuitOpen
    }
}
