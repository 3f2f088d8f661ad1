//! Decides how a call that may not be made is told: as a denial, or as an outage of whoever
//! decides; over HTTP, in JSON-RPC and as the failure of a tool.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use seawall::{Cause, ErrorCode, Failure, FailureReport, FailureSignals, Sent, TransportFailure};

use crate::protocol::build::{self, RpcError};

/// Words of an authorizer that are passed on, at most.
const WORDS: usize = 500;

/// Headers that frame an answer, or belong to a connection or a session: an authorizer's own say
/// nothing about this one.
const OURS: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "date",
    "keep-alive",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "vary",
];

/// Why a call may not be made.
#[derive(Clone, Debug)]
pub(crate) enum AuthzRefusal {
    /// Whoever decides said no.
    Denied {
        /// The HTTP status that goes with it.
        status: StatusCode,
        /// Headers for the client, as the authorizer set them.
        headers: HeaderMap,
        /// The reason in the authorizer's own words.
        words: String,
    },
    /// Nobody can say now.
    Unavailable {
        /// The HTTP status that goes with it: 503, or 403 where the operator wants that.
        status: StatusCode,
        /// What happened.
        reason: String,
        /// When the authorizer is asked again.
        retry_after: Duration,
    },
    /// The request is larger than what the authorizer takes.
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The largest one in bytes.
        limit: usize,
    },
}

/// How HTTP tells a refusal, outside a session.
#[derive(Clone, Debug)]
pub(crate) struct HttpRefusal {
    /// The status.
    pub status: StatusCode,
    /// Headers to set.
    pub headers: HeaderMap,
}

impl AuthzRefusal {
    /// A denial with a reason.
    pub(crate) fn denied(status: u16, words: impl Into<String>) -> Self {
        let status = StatusCode::from_u16(status)
            .ok()
            .filter(|status| status.is_client_error() || status.is_server_error());
        Self::Denied {
            status: status.unwrap_or(StatusCode::FORBIDDEN),
            headers: HeaderMap::new(),
            words: plain(&words.into()),
        }
    }

    /// A denial for want of scopes: a client that can get a token with more scopes is told which.
    pub(crate) fn scopes(all: &[String], missing: &[&str]) -> Self {
        let mut denied =
            Self::denied(403, format!("the token lacks the scope {}", missing.join(" ")));
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", all.join(" "));
        if let (Self::Denied { headers, .. }, Ok(value)) =
            (&mut denied, HeaderValue::from_str(&challenge))
        {
            headers.insert(http::header::WWW_AUTHENTICATE, value);
        }
        denied
    }

    /// An outage; whole seconds, rounded up, at least one.
    pub(crate) fn unavailable(status: u16, reason: String, retry_after: Duration) -> Self {
        Self::Unavailable {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
            reason: plain(&reason),
            retry_after: Duration::from_secs(retry_after.as_millis().div_ceil(1000).max(1) as u64),
        }
    }

    /// The reason, for operators.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Denied { words: reason, .. } | Self::Unavailable { reason, .. } => reason.clone(),
            Self::TooLarge { bytes, limit } => too_large(*bytes, *limit),
        }
    }

    /// The failure as the load of a server's tools has it.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Unavailable { reason, retry_after, .. } => {
                let text = format!("authorization service unavailable: {reason}");
                Failure::local(Cause::Away, Some(*retry_after), text)
            }
            Self::Denied { .. } | Self::TooLarge { .. } => {
                Failure::local(Cause::Denied, None, self.reason())
            }
        }
    }

    /// The failure as an attempt of another call has it.
    pub(crate) fn signals(&self) -> FailureSignals {
        // Not as a denial: that would be told of the server whose tool the client called.
        FailureSignals::transport(TransportFailure::Away, self.failure().message)
            .with_sent(Sent::Never)
    }

    /// Whether nobody can say now.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// How HTTP tells it.
    pub(crate) fn http(&self) -> HttpRefusal {
        match self {
            Self::Denied { status, headers, .. } => {
                let mut headers = headers.clone();
                OURS.iter().for_each(|name| drop(headers.remove(*name)));
                HttpRefusal { status: *status, headers }
            }
            Self::Unavailable { status, retry_after, .. } => {
                let mut headers = HeaderMap::new();
                headers.insert(http::header::RETRY_AFTER, retry_after.as_secs().into());
                HttpRefusal { status: *status, headers }
            }
            Self::TooLarge { .. } => {
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                HttpRefusal { status, headers: HeaderMap::new() }
            }
        }
    }

    /// The JSON-RPC error. It begins with the HTTP status in words: some clients show nothing else
    /// of it, and others only the status.
    pub(crate) fn error(&self, server: &str) -> RpcError {
        let http = self.http();
        let reason = http.status.canonical_reason().unwrap_or("Error");
        let text = match self {
            Self::Denied { words, .. } => words.clone(),
            Self::Unavailable { reason, .. } => {
                format!("authorization service unavailable: {reason}")
            }
            Self::TooLarge { bytes, limit } => too_large(*bytes, *limit),
        };
        let message = format!("HTTP {} {reason}: {text}", http.status.as_u16());
        let code = match self {
            Self::Unavailable { .. } => build::AUTHZ_UNAVAILABLE,
            Self::Denied { .. } | Self::TooLarge { .. } => build::DENIED,
        };
        RpcError::new(code, message).with(self.report(server, "").object())
    }

    /// The failure of a tool call that repeats one which may have been executed.
    pub(crate) fn after_an_earlier(&self, server: &str, tool: &str) -> FailureReport {
        let why = match self {
            Self::Denied { words, .. } => format!("was denied: {words}"),
            Self::Unavailable { reason, .. } => {
                format!("could not be decided: the authorization service is unavailable ({reason})")
            }
            Self::TooLarge { bytes, limit } => {
                format!("was refused: {}", too_large(*bytes, *limit))
            }
        };
        let message = format!(
            "{} {why}. This call was not sent, but the same call was made before and may have been executed: check \
             before you repeat it.",
            seawall::quote(tool)
        );
        let report = self.report(server, tool);
        FailureReport { classic: message.clone(), message, may_have_executed: true, ..report }
    }

    /// The failure of a tool call, for the model that made it.
    pub(crate) fn report(&self, server: &str, tool: &str) -> FailureReport {
        let what = if tool.is_empty() { "The request".to_owned() } else { seawall::quote(tool) };
        let (code, cause, retry_after, message) = match self {
            Self::Denied { words, .. } => (
                ErrorCode::Denied,
                Cause::Denied,
                None,
                format!(
                    "{what} was denied: {words}. It was not executed. Repeating it gives the same answer; \
                     whoever runs this gateway can allow it."
                ),
            ),
            Self::Unavailable { reason, retry_after, .. } => (
                ErrorCode::AuthzUnavailable,
                Cause::Away,
                Some(*retry_after),
                format!(
                    "{what} was not executed: the authorization service is unavailable ({reason}), so nobody can say \
                     whether it is allowed. Try again in {} s.",
                    retry_after.as_secs()
                ),
            ),
            Self::TooLarge { bytes, limit } => (
                ErrorCode::ValidationError,
                Cause::InvalidInput,
                None,
                format!(
                    "{what} was not executed: {}. Make it smaller, or split it.",
                    too_large(*bytes, *limit)
                ),
            ),
        };
        FailureReport {
            code,
            classic: message.clone(),
            failure: Failure::local(cause, retry_after, message.clone()),
            message,
            retry_after,
            tool: tool.to_owned(),
            server: server.to_owned(),
            attempts: 0,
            may_have_executed: false,
            debug: None,
            is_error: true,
        }
    }
}

fn too_large(bytes: usize, limit: usize) -> String {
    format!("the request has {bytes} bytes, and the authorizer is sent at most {limit}")
}

/// Words of another program in one line, without control characters, cut to a bounded length, and
/// without the full stop that the sentence around them sets.
fn plain(words: &str) -> String {
    let spaced: String =
        words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WORDS).collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    line.trim_end_matches('.').to_owned()
}
