//! Decides what is worth knowing about a failed attempt: the facts, before anybody gives them
//! meaning.

use std::error::Error;
use std::io;
use std::time::{Duration, SystemTime};

use super::failure::Sent;

/// How a connection failed, as the transport saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportFailure {
    /// Nothing listens there.
    Refused,
    /// The name does not exist.
    UnknownHost,
    /// The name could not be looked up just now.
    LookupFailed,
    /// The network or host cannot be reached.
    Unreachable,
    /// The certificate or the handshake was not acceptable.
    Tls,
    /// The connection was not made in time.
    ConnectTimeout,
    /// No answer in time.
    Timeout,
    /// The connection broke before an answer came.
    Lost,
    /// The peer broke the protocol.
    Garbage,
    /// The server is being started: nothing was sent.
    Starting,
    /// The server could not be reached, and is tried again later: nothing was sent.
    Away,
    /// The server cannot be used until a person changes something: nothing was sent.
    Down,
    /// Connecting again was tried as often as is allowed: nothing was sent.
    GivenUp,
    /// The server does not know the session that it has just opened: it has not looked at the
    /// request.
    Forgetful,
    /// Too much is under way already: nothing was sent.
    Busy,
    /// Whoever asked has left.
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

/// The facts of a failed attempt. Fill in what is known; the classifier ranks it.
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
    /// How far the request got, for those who know it better than the rest tells. `Yes` is believed
    /// against any status or code: say it of a tool that has acted, not because bytes went out.
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
    /// How long the server asks to wait. It is not believed for more than a day.
    pub retry_after: Option<Duration>,
    /// The request belonged to a session the server had issued.
    pub in_session: bool,
    /// What ended this attempt ended others too, and they carry the same number; a later incident
    /// has a higher one.
    pub incident: Option<u64>,
}

impl FailureSignals {
    /// Only a text is known.
    pub fn text(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    /// The transport failed.
    pub fn transport(transport: TransportFailure, message: impl Into<String>) -> Self {
        Self { transport: Some(transport), ..Self::text(message) }
    }

    /// An HTTP answer that is not a success.
    pub fn http(status: u16, message: impl Into<String>) -> Self {
        Self { status: Some(status), ..Self::text(message) }
    }

    /// A JSON-RPC error.
    pub fn rpc(code: i64, message: impl Into<String>) -> Self {
        Self { code: Some(code), ..Self::text(message) }
    }

    /// The server's process ended.
    pub fn exited(exit: ProcessExit, message: impl Into<String>) -> Self {
        Self { exit: Some(exit), ..Self::text(message) }
    }

    /// Any error: the texts of its whole chain, and what an [`io::Error`] in it tells.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        let mut signals = Self::text(error.to_string());
        let mut next = Some(error);
        while let Some(cause) = next {
            let text = cause.to_string();
            // Many errors repeat the text of their source; saying it once is enough.
            if !signals.message.contains(&text) {
                signals.message = format!("{}: {text}", signals.message);
            }
            if let Some(io) = cause.downcast_ref::<io::Error>() {
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

    /// Says how far the request got.
    pub fn with_sent(mut self, sent: Sent) -> Self {
        self.sent = sent;
        self
    }

    /// Adds the server's `Retry-After` header, if there is one: seconds, or an HTTP date read
    /// against `now`. A value that makes no sense is dropped.
    pub fn with_retry_after(mut self, header: Option<&str>, now: SystemTime) -> Self {
        self.retry_after = header.and_then(|header| parse_retry_after(header, now));
        self
    }

    /// Says that what ended this attempt, such as the death of a process, is this incident.
    pub fn with_incident(mut self, incident: u64) -> Self {
        self.incident = Some(incident);
        self
    }

    /// How far the request got when nothing proves otherwise: an answer with a code comes from who
    /// received it.
    pub(crate) fn heard(&self) -> Sent {
        if self.code.is_some() && self.sent == Sent::Maybe { Sent::Yes } else { self.sent }
    }

    /// Says that the request belonged to a session the server had issued.
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

/// The standard library tells a failed lookup only by its text.
fn lookup_of(text: &str) -> Option<TransportFailure> {
    let is_temporary = text.contains("Temporary failure");
    let kind =
        if is_temporary { TransportFailure::LookupFailed } else { TransportFailure::UnknownHost };
    text.starts_with("failed to lookup address information").then_some(kind)
}

/// Only connecting is refused. A host can become unreachable, and time run out, while an answer is
/// read too: whoever knows that it was the connecting that failed says so with
/// [`Signals::with_sent`].
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

/// No server is believed that asks for more than a day.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// Reads a `Retry-After` header: whole or decimal seconds, or an HTTP date. Clamped to a day;
/// `None` for a negative or unreadable value. A date in the past is no wait at all.
pub fn parse_retry_after(header: &str, now: SystemTime) -> Option<Duration> {
    let header = header.trim();
    let wait = match header.parse::<f64>() {
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
