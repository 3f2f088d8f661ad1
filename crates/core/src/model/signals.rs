//! Decides which facts of a failed attempt are recorded, before the classifier gives them meaning.

use std::error::Error;
use std::io;
use std::time::{Duration, SystemTime};

use super::failure::Sent;

/// How a connection failed, as the transport saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportFailure {
    /// Nothing listens at the address.
    Refused,
    /// The host name does not exist.
    UnknownHost,
    /// The host name could not be looked up just now.
    LookupFailed,
    /// The network or host cannot be reached.
    Unreachable,
    /// The certificate or the TLS handshake was rejected.
    Tls,
    /// The connection was not made before the timeout.
    ConnectTimeout,
    /// No answer before the timeout.
    Timeout,
    /// The connection broke before an answer came.
    Lost,
    /// The peer broke the protocol.
    Garbage,
    /// The answer is larger than the transport takes; the same request has the same answer again.
    TooLarge,
    /// The server is being started: nothing was sent.
    Starting,
    /// The server could not be reached, and the connection is tried again later: nothing was sent.
    Away,
    /// The server cannot be used until a person changes something: nothing was sent.
    Down,
    /// Reconnecting was given up after the allowed number of attempts: nothing was sent.
    GivenUp,
    /// The server does not know the session that it has just opened, so it has not executed the
    /// request.
    Forgetful,
    /// Too many requests are in flight already: nothing was sent.
    Busy,
    /// The client that made the call has left.
    Left,
}

/// How a server's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessExit {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// The facts of a failed attempt. Fill in the known ones; the classifier ranks them.
///
/// ```
/// # use seawall::{Cause, FailureSignals, Sent, TransportFailure, classify};
/// let lost = FailureSignals::transport(TransportFailure::Lost, "connection reset");
/// assert_eq!(classify(&lost).sent, Sent::Maybe);
/// assert_eq!(classify(&FailureSignals::http(429, "slow down")).cause, Cause::RateLimited);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FailureSignals {
    /// The error text.
    pub message: String,
    /// How far the request got, for a transport that knows it better than the other facts tell. The
    /// classifier believes `Yes` against any status or code: set it for a tool that has acted, not
    /// because bytes were written.
    pub sent: Sent,
    /// How the connection failed.
    pub transport: Option<TransportFailure>,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The response body, as far as it was read.
    pub body: Option<String>,
    /// The JSON-RPC error code.
    pub code: Option<i64>,
    /// How the server's process ended.
    pub exit: Option<ProcessExit>,
    /// How long the server asks to wait; the classifier caps it at a day.
    pub retry_after: Option<Duration>,
    /// The request belonged to a session that the server had issued.
    pub in_session: bool,
    /// The number of the incident that ended this attempt; other attempts that the same incident
    /// ended carry the same number. A later incident has a higher number.
    pub incident: Option<u64>,
}

impl FailureSignals {
    /// The facts of a failure of which only the text is known.
    pub fn text(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// The facts of a transport failure.
    pub fn transport(transport: TransportFailure, message: impl Into<String>) -> Self {
        Self { transport: Some(transport), ..Self::text(message) }
    }

    /// The facts of an HTTP response that is not a success.
    pub fn http(status: u16, message: impl Into<String>) -> Self {
        Self { status: Some(status), ..Self::text(message) }
    }

    /// The facts of a JSON-RPC error.
    pub fn rpc(code: i64, message: impl Into<String>) -> Self {
        Self { code: Some(code), ..Self::text(message) }
    }

    /// The facts of a server process that ended.
    pub fn exited(exit: ProcessExit, message: impl Into<String>) -> Self {
        Self { exit: Some(exit), ..Self::text(message) }
    }

    /// The facts of any error: the texts of its whole chain, and the kind of an [`io::Error`] in
    /// it.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let mut signals = Self::text(error.to_string());
        let mut next = Some(error);
        while let Some(cause) = next {
            let text = cause.to_string();
            // Many errors repeat the text of their source; once is enough.
            if !signals.message.contains(&text) {
                signals.message = format!("{}: {text}", signals.message);
            }
            if let Some(io) = cause.downcast_ref::<io::Error>() {
                // The outermost I/O error with a known kind wins: it is nearest to the failed
                // operation.
                signals.transport =
                    signals.transport.or(transport_of(io.kind())).or(lookup_of(&text));
            }
            next = cause.source();
        }
        signals
    }

    /// Adds the response body.
    pub fn with_body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets how far the request got.
    pub fn with_sent(mut self, sent: Sent) -> Self {
        self.sent = sent;
        self
    }

    /// Adds the server's `Retry-After` header, if there is one: seconds, or an HTTP date read
    /// against `now`. An unreadable or negative value is dropped.
    pub fn with_retry_after(mut self, header: Option<&str>, now: SystemTime) -> Self {
        self.retry_after = header.and_then(|header| parse_retry_after(header, now));
        self
    }

    /// Sets the incident, such as the death of a process, that ended this attempt.
    pub fn with_incident(mut self, incident: u64) -> Self {
        self.incident = Some(incident);
        self
    }

    /// How far the request got when nothing proves otherwise: an error with a code comes from a
    /// server that received the request.
    pub(crate) fn heard(&self) -> Sent {
        if self.code.is_some() && self.sent == Sent::Maybe { Sent::Yes } else { self.sent }
    }

    /// Notes that the request belonged to a session that the server had issued.
    pub fn with_session(mut self) -> Self {
        self.in_session = true;
        self
    }
}

impl From<&str> for FailureSignals {
    fn from(message: &str) -> Self {
        Self::text(message)
    }
}

impl From<String> for FailureSignals {
    fn from(message: String) -> Self {
        Self::text(message)
    }
}

impl From<io::Error> for FailureSignals {
    fn from(error: io::Error) -> Self {
        Self::from_error(&error)
    }
}

/// The transport failure behind a failed lookup, which the standard library reports only as text.
fn lookup_of(text: &str) -> Option<TransportFailure> {
    let is_temporary = text.contains("Temporary failure");
    let kind =
        if is_temporary { TransportFailure::LookupFailed } else { TransportFailure::UnknownHost };
    text.starts_with("failed to lookup address information").then_some(kind)
}

/// The transport failure behind an I/O error. A refusal can only come from connecting. An
/// unreachable host or a timeout can also happen while an answer is read: a transport that knows
/// that connecting failed says so with [`FailureSignals::with_sent`].
fn transport_of(kind: io::ErrorKind) -> Option<TransportFailure> {
    Some(match kind {
        io::ErrorKind::ConnectionRefused => TransportFailure::Refused,
        io::ErrorKind::TimedOut => TransportFailure::Timeout,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::NotConnected
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => TransportFailure::Lost,
        io::ErrorKind::InvalidData => TransportFailure::Garbage,
        _ => return None,
    })
}

/// The longest pause that a server may ask for; a longer one is cut to a day.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// Reads a `Retry-After` header: whole or decimal seconds, or an HTTP date. Clamped to a day;
/// `None` for a negative or unreadable value. A date in the past means no wait.
pub fn parse_retry_after(header: &str, now: SystemTime) -> Option<Duration> {
    let header = header.trim();
    let wait = match header.parse::<f64>() {
        // `f64` also parses `nan` and `inf`: the first is dropped here, the second is out of range
        // below and becomes the longest pause.
        Ok(seconds) if seconds.is_nan() || seconds < 0.0 => return None,
        Ok(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST_PAUSE),
        Err(_) => httpdate::parse_http_date(header).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(LONGEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_read_in_both_forms_and_clamped() {
        let now = httpdate::parse_http_date("Sun, 15 Nov 2026 20:00:00 GMT").unwrap();
        for (header, wait) in [
            ("120", Some(Duration::from_secs(120))),
            ("1.5", Some(Duration::from_millis(1500))),
            ("0", Some(Duration::ZERO)),
            ("1e12", Some(LONGEST_PAUSE)),
            ("inf", Some(LONGEST_PAUSE)),
            ("Sun, 15 Nov 2026 20:00:42 GMT", Some(Duration::from_secs(42))),
            ("Sun, 15 Nov 2026 19:00:00 GMT", Some(Duration::ZERO)),
            ("-1", None),
            ("NaN", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(parse_retry_after(header, now), wait, "{header}");
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("request failed")]
    struct Wrapped(#[source] io::Error);

    #[test]
    fn an_io_error_deep_in_the_chain_is_found() {
        let signals = FailureSignals::from_error(&Wrapped(io::ErrorKind::ConnectionRefused.into()));

        assert_eq!(signals.transport, Some(TransportFailure::Refused));
        assert_eq!(signals.message, "request failed: connection refused");
    }
}
