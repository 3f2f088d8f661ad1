//! Reports failures to the library as facts, which its classifier turns into a meaning.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use seawall::{Disposition, FailureSignals, Sent, TransportFailure};

use super::UpstreamFailure;
use crate::protocol::Reject;

impl UpstreamFailure {
    /// The facts of this failure.
    #[expect(
        clippy::disallowed_methods,
        reason = "a server may name the date when it wants to be asked again"
    )]
    pub fn signals(&self) -> FailureSignals {
        match self {
            Self::Unreachable(why) => unreachable(why),
            Self::Impossible(why) => {
                FailureSignals::transport(TransportFailure::Down, why).with_sent(Sent::Never)
            }
            Self::Starting(retry_in) => not_there(TransportFailure::Starting, "", *retry_in),
            Self::Away { reason, retry_in } => not_there(TransportFailure::Away, reason, *retry_in),
            Self::GivenUp(_) => {
                FailureSignals::transport(TransportFailure::GivenUp, given_up(self))
                    .with_sent(Sent::Never)
            }
            Self::SessionLost | Self::NotTaken => {
                FailureSignals::http(404, self.to_string()).with_session().with_sent(Sent::Never)
            }
            Self::Forgetful => {
                FailureSignals::transport(TransportFailure::Forgetful, self.to_string())
                    .with_sent(Sent::Never)
            }
            Self::Lost(why) => FailureSignals::transport(TransportFailure::Lost, why),
            Self::Status { status, text, retry_after } => {
                FailureSignals::http(*status, stated(*status, text))
                    .with_body(text.clone())
                    .with_retry_after(retry_after.as_deref(), SystemTime::now())
            }
            Self::Broken(Reject::Size(_)) => FailureSignals::transport(
                TransportFailure::TooLarge,
                format!("{self}, the most that passes; ask it for less"),
            ),
            Self::Broken(_) => {
                FailureSignals::transport(TransportFailure::Garbage, self.to_string())
            }
            Self::Silent(_) => {
                FailureSignals::transport(TransportFailure::Timeout, self.to_string())
            }
            Self::Handshake(_) => handshake(self.to_string()),
            Self::Struck { incident, failure } => failure.signals().with_incident(*incident),
            Self::NotAsked => FailureSignals::transport(TransportFailure::Left, self.to_string())
                .with_sent(Sent::Never),
            Self::Cancelled => FailureSignals::transport(TransportFailure::Left, self.to_string()),
            Self::Full | Self::NoRoom(_) => {
                FailureSignals::transport(TransportFailure::Busy, self.to_string())
                    .with_sent(Sent::Never)
            }
        }
    }
}

/// The signals of a server that is starting or away, with the time of the next try.
fn not_there(transport: TransportFailure, why: &str, retry_in: Duration) -> FailureSignals {
    let retry_after = Some(retry_in).filter(|wait| !wait.is_zero());
    FailureSignals {
        retry_after,
        ..FailureSignals::transport(transport, why).with_sent(Sent::Never)
    }
}

/// "Maximum reconnection attempts (n) reached", without the words before it.
fn given_up(failure: &UpstreamFailure) -> String {
    let text = failure.to_string();
    text.split_once(": ").map_or(text.as_str(), |(_, words)| words).to_owned()
}

/// `HTTP 503 Service Unavailable`, and the text of the body.
fn stated(status: u16, text: &str) -> String {
    let reason = StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default();
    let said = if text.is_empty() { String::new() } else { format!(": {text}") };
    format!("HTTP {status} {reason}{said}")
}

/// A connection that was not made: its text tells the reason; without a known one, it counts as
/// refused.
fn unreachable(why: &str) -> FailureSignals {
    let said = FailureSignals::text(why).with_sent(Sent::Never);
    // The texts of a connect timeout, hyper's and the gateway's own.
    if why.contains("deadline has elapsed") || why.starts_with("no connection within") {
        return FailureSignals { transport: Some(TransportFailure::ConnectTimeout), ..said };
    }
    if means_nothing(&said) {
        FailureSignals { transport: Some(TransportFailure::Refused), ..said }
    } else {
        said
    }
}

/// A refused handshake is permanent, unless the classifier reads a transient or denied meaning in
/// its text.
fn handshake(text: String) -> FailureSignals {
    let said = FailureSignals::text(text).with_sent(Sent::Never);
    let is_final = seawall::classify(&said).disposition == Disposition::Permanent;
    if is_final { FailureSignals { transport: Some(TransportFailure::Down), ..said } } else { said }
}

fn means_nothing(said: &FailureSignals) -> bool {
    let nothing = seawall::classify(&FailureSignals::text(""));
    let meaning = seawall::classify(said);
    meaning.cause == nothing.cause && meaning.disposition == nothing.disposition
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use seawall::{Cause, Classifier, Disposition, Failure};

    use super::*;

    fn status(status: u16, text: &str, retry_after: Option<&str>) -> UpstreamFailure {
        UpstreamFailure::Status {
            status,
            text: text.to_owned(),
            retry_after: retry_after.map(str::to_owned),
        }
    }

    /// A failure's cause, disposition and whether it was sent, and its disposition while loading.
    type Meaning = (Cause, Disposition, Sent, Disposition);

    fn means<const N: usize>(meanings: [(UpstreamFailure, Meaning); N]) {
        let classifier = Classifier::new();
        for (failure, meaning) in meanings {
            let Failure { cause, disposition, sent, .. } = classifier.classify(&failure.signals());
            let loading = classifier.classify_load(&failure.signals()).disposition;
            assert_eq!((cause, disposition, sent, loading), meaning, "{failure:?}");
        }
    }

    #[test]
    fn a_server_that_was_not_reached_has_executed_nothing() {
        use Cause::{Misbehaved, Network, Timeout, Unavailable};
        use Disposition::{Permanent, Transient};
        use Sent::Never;
        let unreachable = |text: &str| UpstreamFailure::Unreachable(text.to_owned());
        let unknown_name = |why: &str| {
            unreachable(&format!("dns error: failed to lookup address information: {why}"))
        };
        let no_program = UpstreamFailure::Impossible("there is no program \"timeout\"".to_owned());
        let refused = unreachable("tcp connect error: Connection refused (os error 111)");
        let for_now = unknown_name("Temporary failure in name resolution");
        let not_in_time = unreachable("tcp connect error: deadline has elapsed");
        let not_trusted = unreachable("invalid peer certificate: UnknownIssuer");
        let status = unreachable("it answered with HTTP status 503");
        means([
            (refused, (Network, Transient, Never, Permanent)),
            (for_now, (Network, Transient, Never, Transient)),
            (unknown_name("Name or service not known"), (Network, Transient, Never, Permanent)),
            (not_in_time, (Timeout, Transient, Never, Transient)),
            (unreachable("no connection within 10 s"), (Timeout, Transient, Never, Transient)),
            (not_trusted, (Network, Permanent, Never, Permanent)),
            (status, (Misbehaved, Transient, Never, Transient)),
            (no_program, (Unavailable, Permanent, Never, Permanent)),
        ]);
    }

    #[test]
    fn every_failure_has_its_meaning_for_a_call_and_for_a_load() {
        use Cause::*;
        use Disposition::{Denied as Closed, Permanent, Transient};
        use Sent::{Maybe, Never};
        use UpstreamFailure as Of;
        let soon = Duration::from_secs(3);
        let away = Of::Away { reason: "timed out".to_owned(), retry_in: soon };
        let lost = Of::Lost("its process ended (exit status: 1)".to_owned());
        let terminated = Of::Handshake("Session terminated".to_owned());
        let check_error = status(403, "OpenFGA check error", None);
        means([
            (Of::Starting(soon), (Starting, Transient, Never, Transient)),
            (away, (Away, Transient, Never, Transient)),
            (Of::GivenUp(20), (GivenUp, Permanent, Never, Permanent)),
            (Of::SessionLost, (SessionLost, Transient, Never, Transient)),
            (Of::Forgetful, (SessionLost, Permanent, Never, Permanent)),
            (Of::NotTaken, (SessionLost, Transient, Never, Transient)),
            (lost, (Network, Transient, Maybe, Transient)),
            (status(403, "", None), (Denied, Closed, Never, Closed)),
            (check_error, (Misbehaved, Transient, Maybe, Transient)),
            (status(400, "Bad Request", None), (InvalidInput, Permanent, Maybe, Permanent)),
            (status(403, "denied by OpenFGA", None), (Denied, Closed, Never, Closed)),
            (status(401, "", None), (AuthExpired, Closed, Never, Closed)),
            (status(404, "", None), (InvalidInput, Permanent, Never, Permanent)),
            (status(503, "", None), (Misbehaved, Transient, Maybe, Transient)),
            (status(429, "", Some("7")), (RateLimited, Transient, Never, Transient)),
            (Of::Broken(Reject::Shape("x")), (Misbehaved, Transient, Maybe, Transient)),
            (Of::Broken(Reject::Size(16 << 20)), (Misbehaved, Permanent, Maybe, Permanent)),
            (Of::Silent(Duration::from_secs(1)), (Timeout, Transient, Maybe, Transient)),
            (Of::Handshake("no".to_owned()), (Unavailable, Permanent, Never, Permanent)),
            (terminated, (Network, Transient, Never, Transient)),
            (Of::NotAsked, (Cancelled, Transient, Never, Transient)),
            (Of::Cancelled, (Cancelled, Transient, Maybe, Transient)),
            (Of::NoRoom(256), (Overloaded, Transient, Never, Transient)),
            (Of::Full, (Overloaded, Transient, Never, Transient)),
        ]);
    }

    #[test]
    fn a_known_wait_is_passed_on() {
        let wait = |failure: UpstreamFailure| seawall::classify(&failure.signals()).retry_after;
        assert_eq!(wait(status(503, "", Some("7"))), Some(Duration::from_secs(7)));
        let starting = UpstreamFailure::Starting;
        assert_eq!(wait(starting(Duration::from_secs(2))), Some(Duration::from_secs(2)));
        assert_eq!(wait(starting(Duration::ZERO)), None);
    }
}
