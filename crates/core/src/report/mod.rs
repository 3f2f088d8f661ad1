//! Decides what is told about a failure: the error contract, for machines and for models.

pub(crate) mod event;
mod listening;
pub(crate) mod readers;
mod render;
mod sanitize;
mod stamp;
pub(crate) mod tell;
mod texts;
pub(crate) mod tool_result;

pub use render::{Format, Rendering};
pub(crate) use sanitize::{beginning, one_line, without_credentials};
pub use sanitize::{is_unseen, quote, sanitize};
pub use stamp::iso;
pub use texts::Style;

use std::sync::atomic;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::failure::{Cause, Failure};
use crate::model::time::{millis, whole_seconds};
use texts::Situation;
pub(crate) use texts::served;

/// What a client can branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum Code {
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

impl Code {
    /// The code of a failure's cause.
    pub fn of(cause: Cause) -> Self {
        match cause {
            Cause::RateLimited => Code::RateLimited,
            Cause::Timeout => Code::Timeout,
            Cause::AuthExpired => Code::AuthRequired,
            Cause::Denied | Cause::Refusal => Code::Denied,
            Cause::InvalidInput => Code::ValidationError,
            Cause::UnknownTool => Code::ToolNotFound,
            Cause::Network | Cause::SessionLost => Code::ConnectionLost,
            Cause::Misbehaved => Code::UpstreamError,
            Cause::Loop => Code::LoopDetected,
            Cause::Uncertain => Code::WriteUncertain,
            Cause::Queued => Code::AlreadyQueued,
            Cause::CircuitOpen => Code::CircuitOpen,
            Cause::Overloaded => Code::Overloaded,
            Cause::Starting => Code::ServerStarting,
            Cause::Away => Code::ConnectionLost,
            Cause::Unavailable => Code::ServerUnavailable,
            Cause::GivenUp => Code::RetryExhausted,
            Cause::Cancelled => Code::InternalError,
        }
    }

    /// Whether the same call can succeed later without anybody doing anything else.
    pub fn is_retryable(self) -> bool {
        !matches!(
            self,
            Code::RetryExhausted
                | Code::AuthRequired
                | Code::Denied
                | Code::ServerUnavailable
                | Code::LoopDetected
                | Code::WriteUncertain
                | Code::AlreadyQueued
                | Code::ValidationError
                | Code::ToolNotFound
        )
    }

    /// As it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Timeout => "TIMEOUT",
            Code::CircuitOpen => "CIRCUIT_OPEN",
            Code::ConnectionLost => "CONNECTION_LOST",
            Code::RetryExhausted => "RETRY_EXHAUSTED",
            Code::RateLimited => "RATE_LIMITED",
            Code::Overloaded => "OVERLOADED",
            Code::AuthRequired => "AUTH_REQUIRED",
            Code::Denied => "DENIED",
            Code::UpstreamError => "UPSTREAM_ERROR",
            Code::ServerStarting => "SERVER_STARTING",
            Code::ServerUnavailable => "SERVER_UNAVAILABLE",
            Code::LoopDetected => "LOOP_DETECTED",
            Code::WriteUncertain => "WRITE_UNCERTAIN",
            Code::AlreadyQueued => "ALREADY_QUEUED",
            Code::ValidationError => "VALIDATION_ERROR",
            Code::ToolNotFound => "TOOL_NOT_FOUND",
            Code::InternalError => "INTERNAL_ERROR",
        }
    }
}

/// Details for people who look for the reason; only on request.
#[derive(Clone, Debug, PartialEq)]
pub struct Debug {
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
pub struct Report {
    /// What a client can branch on.
    pub code: Code,
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
    /// Whether the tool result is marked as an error. All are but one: a loop in the mode [`crate::LoopMode::Calls`] is a warning, as in
    /// the seed.
    pub is_error: bool,
    /// The same message in the seeds' words.
    pub classic: String,
    /// Details, if they were asked for.
    pub debug: Option<Debug>,
}

impl Report {
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
            if let (Some(wait), Some(fields)) = (self.retry_after, object["debug"].as_object_mut()) {
                fields.insert("retryAfterMs".into(), millis(wait).into());
            }
        }
        object
    }

    /// What both objects show on request.
    fn details(&self, debug: &Debug) -> Value {
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
        self.code == Code::CircuitOpen
    }
}
