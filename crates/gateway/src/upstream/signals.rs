//! What the library is told of a failure: the facts, and what only its type can say.
//!
//! `signals` are facts for the classifier. Where the type of a failure already is its meaning, `failure` says it: that
//! a server is only just starting or can never start, that we are full, that the client left.

use std::time::SystemTime;

use seawall::{Cause, Classifier, Describe, Disposition, Sent, Signals, Transport};

use super::Failure;

impl Failure {
    /// The facts, for the classifier.
    pub fn signals(&self) -> Signals {
        let text = self.to_string();
        match self {
            Self::Unreachable(why) => unreachable(why, text),
            // Nobody will ever be there: final for a load.
            Self::Impossible(_) => Signals::transport(Transport::UnknownHost, text).with_sent(Sent::Never),
            Self::Starting { retry_in, .. } => Signals {
                retry_after: Some(*retry_in).filter(|wait| !wait.is_zero()),
                ..Signals::transport(Transport::LookupFailed, text).with_sent(Sent::Never)
            },
            Self::SessionLost => Signals::http(404, text).with_session().with_sent(Sent::Never),
            Self::Lost(_) => Signals::transport(Transport::Lost, text),
            Self::Status { status, text: said, retry_after } => Signals::http(*status, text)
                .with_body(said.clone())
                .with_retry_after(retry_after.as_deref(), SystemTime::now()),
            Self::Broken(_) => Signals::transport(Transport::Garbage, text),
            Self::Silent(_) => Signals::transport(Transport::Timeout, text),
            Self::Handshake(_) => Signals::text(text).with_sent(Sent::Never),
            Self::Cancelled => Signals::text(text),
            // Too many at once is what 429 says.
            Self::Full => Signals::http(429, text).with_sent(Sent::Never),
        }
    }

    /// What it means for a call.
    fn meaning(&self, classified: seawall::Failure) -> seawall::Failure {
        let local = |cause, wait| seawall::Failure::local(cause, wait, classified.message.clone());
        match self {
            Self::Starting { .. } => local(Cause::Starting, classified.retry_after),
            Self::Impossible(_) => local(Cause::Unavailable, None),
            Self::Handshake(_) if classified.disposition == Disposition::Permanent => local(Cause::Unavailable, None),
            Self::Full => local(Cause::Overloaded, None),
            Self::Cancelled => seawall::Failure { sent: Sent::Maybe, ..local(Cause::Cancelled, None) },
            _ => classified,
        }
    }
}

impl Describe for Failure {
    fn signals(&self) -> Signals {
        Failure::signals(self)
    }

    fn failure(&self, classifier: &Classifier) -> seawall::Failure {
        self.meaning(classifier.classify(&Failure::signals(self)))
    }
}

/// A connection that was not made: its text says why, and if it does not, nobody is there.
fn unreachable(why: &str, text: String) -> Signals {
    let said = Signals::text(text).with_sent(Sent::Never);
    // How the runtime says that time was up while connecting.
    if why.contains("deadline has elapsed") {
        return Signals { transport: Some(Transport::ConnectTimeout), ..said };
    }
    let unknown = seawall::classify(&Signals::text("")).cause;
    let meaning = seawall::classify(&said);
    let says_nothing = meaning.cause == unknown && meaning.disposition == Disposition::Permanent;
    if says_nothing { Signals { transport: Some(Transport::Refused), ..said } } else { said }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::Reject;

    fn status(status: u16, text: &str, retry_after: Option<&str>) -> Failure {
        Failure::Status { status, text: text.to_owned(), retry_after: retry_after.map(str::to_owned) }
    }

    #[test]
    fn every_failure_has_its_meaning_for_a_call_and_for_a_load() {
        use Cause::*;
        use Disposition::{Denied as Closed, Permanent, Transient};
        use Sent::{Maybe, Never};
        let unreachable = |text: &str| Failure::Unreachable(text.to_owned());
        let starting = Failure::Starting { reason: Some("it timed out".to_owned()), retry_in: Duration::from_secs(3) };
        for (failure, cause, disposition, sent, loading) in [
            (unreachable("tcp connect error: Connection refused (os error 111)"), Network, Transient, Never, Permanent),
            (unreachable("over 256 server processes are running"), Network, Transient, Never, Permanent),
            (
                unreachable("dns error: failed to lookup address information: Temporary failure in name resolution"),
                Network,
                Transient,
                Never,
                Transient,
            ),
            (
                unreachable("dns error: failed to lookup address information: Name or service not known"),
                Network,
                Transient,
                Never,
                Permanent,
            ),
            (unreachable("tcp connect error: deadline has elapsed"), Timeout, Transient, Never, Transient),
            (unreachable("invalid peer certificate: UnknownIssuer"), Network, Permanent, Never, Permanent),
            (unreachable("it answered with HTTP status 503"), Misbehaved, Transient, Never, Transient),
            (
                Failure::Impossible("there is no program \"timeout\"".to_owned()),
                Unavailable,
                Permanent,
                Never,
                Permanent,
            ),
            (starting, Starting, Transient, Never, Transient),
            (Failure::SessionLost, SessionLost, Transient, Never, Transient),
            (Failure::Lost("its process ended (exit status: 1)".to_owned()), Network, Transient, Maybe, Transient),
            (status(403, "", None), Denied, Closed, Never, Closed),
            (status(403, "OpenFGA check error", None), Misbehaved, Transient, Never, Transient),
            (status(403, "denied by OpenFGA", None), Denied, Closed, Never, Closed),
            (status(401, "", None), AuthExpired, Closed, Never, Closed),
            (status(404, "", None), InvalidInput, Permanent, Never, Permanent),
            (status(503, "", None), Misbehaved, Transient, Maybe, Transient),
            (status(429, "", Some("7")), RateLimited, Transient, Never, Transient),
            (Failure::Broken(Reject::Shape("x")), Misbehaved, Transient, Maybe, Transient),
            (Failure::Silent(Duration::from_secs(1)), Timeout, Transient, Maybe, Transient),
            (Failure::Handshake("no".to_owned()), Unavailable, Permanent, Never, Permanent),
            (Failure::Handshake("Session terminated".to_owned()), Network, Transient, Never, Transient),
            (Failure::Cancelled, Cancelled, Transient, Maybe, Permanent),
            (Failure::Full, Overloaded, Transient, Never, Transient),
        ] {
            let classifier = Classifier::new();
            let meaning = failure.failure(&classifier);
            assert_eq!((meaning.cause, meaning.disposition, meaning.sent), (cause, disposition, sent), "{failure:?}");
            assert_eq!(classifier.classify_load(&failure.signals()).disposition, loading, "{failure:?}");
        }
    }

    #[test]
    fn a_known_wait_is_passed_on() {
        let wait = |failure: Failure| failure.failure(&Classifier::new()).retry_after;
        assert_eq!(wait(status(503, "", Some("7"))), Some(Duration::from_secs(7)));
        let starting = |retry_in| Failure::Starting { reason: None, retry_in };
        assert_eq!(wait(starting(Duration::from_secs(2))), Some(Duration::from_secs(2)));
        assert_eq!(wait(starting(Duration::ZERO)), None);
    }
}
