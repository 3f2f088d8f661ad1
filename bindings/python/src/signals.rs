//! Decides how an exception that Python describes becomes facts for the classifier.

use std::time::SystemTime;

use pyo3::prelude::*;
use seawall::{Describe, FailureSignals, Sent, TransportFailure};

/// An exception, and the facts about it.
pub(crate) struct Raised {
    pub(crate) exception: Py<PyAny>,
    pub(crate) signals: FailureSignals,
}

impl Describe for Raised {
    fn signals(&self) -> FailureSignals {
        self.signals.clone()
    }
}

/// The facts as `seawall._signals.Facts` lists them: a named tuple in this order.
#[derive(FromPyObject)]
pub(crate) struct Facts(
    String,
    Option<String>,
    Option<u16>,
    Option<String>,
    Option<i64>,
    Option<String>,
    bool,
);

impl From<Facts> for FailureSignals {
    #[expect(clippy::disallowed_methods, reason = "Retry-After may be a date")]
    fn from(facts: Facts) -> Self {
        let Facts(message, transport, status, body, code, retry_after, executed) = facts;
        let transport = transport.as_deref().and_then(transport_named);
        let sent = if executed { Sent::Yes } else { Sent::default() };
        FailureSignals { transport, status, body, code, sent, ..FailureSignals::text(message) }
            .with_retry_after(retry_after.as_deref(), SystemTime::now())
    }
}

fn transport_named(name: &str) -> Option<TransportFailure> {
    Some(match name {
        "refused" => TransportFailure::Refused,
        "unknown_host" => TransportFailure::UnknownHost,
        "lookup_failed" => TransportFailure::LookupFailed,
        "unreachable" => TransportFailure::Unreachable,
        "tls" => TransportFailure::Tls,
        "connect_timeout" => TransportFailure::ConnectTimeout,
        "timeout" => TransportFailure::Timeout,
        "lost" => TransportFailure::Lost,
        _ => return None,
    })
}
