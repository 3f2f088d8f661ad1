//! Decides how an error that JavaScript describes becomes facts for the classifier.

use std::time::{Duration, SystemTime};

use napi_derive::napi;
use seawall::{
    CircuitOpen, Classifier, Describe, Failure, FailureSignals, GuardedError, TransportFailure,
};

/// What is known of an error, as `facts.ts` finds it.
#[napi(object)]
#[derive(Clone, Default)]
pub struct ErrorFacts {
    /// Its text.
    pub message: String,
    /// How the connection failed.
    pub transport: Option<String>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The body of the response.
    pub body: Option<String>,
    /// The JSON-RPC code.
    pub code: Option<i64>,
    /// The header `Retry-After`.
    pub retry_after: Option<String>,
    /// It is an open circuit's error: the milliseconds until a call may pass.
    pub open_ms: Option<f64>,
}

/// A failed attempt, by its number; its error stays in JavaScript.
pub(crate) struct Raised {
    pub(crate) attempt: u32,
    facts: ErrorFacts,
}

impl Raised {
    pub(crate) fn new(attempt: u32, facts: ErrorFacts) -> Self {
        Self { attempt, facts }
    }

    fn open(&self) -> Option<GuardedError<FailureSignals>> {
        let retry_after = Duration::try_from_secs_f64(self.facts.open_ms? / 1000.0).ok()?;
        let name = self.facts.message.as_str().into();
        Some(GuardedError::Open(CircuitOpen { name, retry_after, forced: false, slow: false }))
    }
}

impl Describe for Raised {
    #[expect(clippy::disallowed_methods, reason = "Retry-After may be a date")]
    fn signals(&self) -> FailureSignals {
        if let Some(open) = self.open() {
            return open.signals();
        }
        let facts = &self.facts;
        FailureSignals {
            transport: facts.transport.as_deref().and_then(transport_named),
            status: facts.status,
            body: facts.body.clone(),
            code: facts.code,
            ..FailureSignals::text(&facts.message)
        }
        .with_retry_after(facts.retry_after.as_deref(), SystemTime::now())
    }

    fn failure(&self, classifier: &Classifier) -> Failure {
        match self.open() {
            Some(open) => open.failure(classifier),
            None => classifier.classify(&self.signals()),
        }
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
