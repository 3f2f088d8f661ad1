//! Tests the meaning of each kind of signal, and the words that must not be mistaken for one.

use std::io;
use std::time::Duration;

use super::*;
use crate::model::failure::Sent;
use crate::model::signals::{ProcessExit, TransportFailure};

fn cause(signals: FailureSignals) -> (Cause, Disposition, Sent) {
    let failure = classify(&signals);
    (failure.cause, failure.disposition, failure.sent)
}

#[test]
fn structured_signals_outrank_what_the_text_says() {
    use Disposition::*;
    for (signals, expected) in [
        (
            FailureSignals::transport(TransportFailure::Refused, "503"),
            (Cause::Network, Transient, Sent::Never),
        ),
        (
            FailureSignals::transport(TransportFailure::Timeout, "HTTP 403"),
            (Cause::Timeout, Transient, Sent::Maybe),
        ),
        (
            FailureSignals::http(422, "timeout must be positive"),
            (Cause::InvalidInput, Permanent, Sent::Maybe),
        ),
        (FailureSignals::http(429, "x"), (Cause::RateLimited, Transient, Sent::Never)),
        (FailureSignals::http(503, "x"), (Cause::Misbehaved, Transient, Sent::Maybe)),
        (FailureSignals::http(504, "x"), (Cause::Timeout, Transient, Sent::Maybe)),
        (FailureSignals::http(444, "x"), (Cause::Cancelled, Transient, Sent::Maybe)),
        (FailureSignals::http(460, "x"), (Cause::Cancelled, Transient, Sent::Maybe)),
        (FailureSignals::http(499, "x"), (Cause::Cancelled, Transient, Sent::Maybe)),
        (FailureSignals::http(498, "x"), (Cause::InvalidInput, Permanent, Sent::Maybe)),
        (FailureSignals::http(401, "x"), (Cause::AuthExpired, Denied, Sent::Never)),
        (
            FailureSignals::rpc(-32602, "HTTP 503 timeout"),
            (Cause::InvalidInput, Permanent, Sent::Never),
        ),
        (
            FailureSignals::rpc(-32602, "Unknown tool: get_timeout"),
            (Cause::UnknownTool, Permanent, Sent::Never),
        ),
        (
            FailureSignals::rpc(-32602, "Tool frob not found"),
            (Cause::UnknownTool, Permanent, Sent::Never),
        ),
        (
            FailureSignals::rpc(-32602, "Issue 7 not found"),
            (Cause::InvalidInput, Permanent, Sent::Never),
        ),
        (
            FailureSignals::rpc(-32602, "Invalid params: 403 Forbidden, rate limit"),
            (Cause::InvalidInput, Permanent, Sent::Never),
        ),
        (FailureSignals::rpc(-32603, "boom"), (Cause::Misbehaved, Transient, Sent::Yes)),
        (
            FailureSignals::rpc(-32603, "GitHub API: 429 Too Many Requests"),
            (Cause::RateLimited, Transient, Sent::Yes),
        ),
        (FailureSignals::rpc(-32001, "Request timed out"), (Cause::Timeout, Transient, Sent::Yes)),
        (FailureSignals::rpc(-32000, "Connection closed"), (Cause::Network, Transient, Sent::Yes)),
        (
            FailureSignals::exited(ProcessExit::Signal(9), "x").with_sent(Sent::Never),
            (Cause::Network, Transient, Sent::Never),
        ),
        (
            FailureSignals::http(404, "x").with_session(),
            (Cause::SessionLost, Transient, Sent::Never),
        ),
        (
            FailureSignals::http(400, "Bad Request: no valid session").with_session(),
            (Cause::InvalidInput, Permanent, Sent::Maybe),
        ),
        (
            FailureSignals::transport(TransportFailure::Forgetful, "x"),
            (Cause::SessionLost, Permanent, Sent::Never),
        ),
    ] {
        assert_eq!(cause(signals.clone()), expected, "{signals:?}");
    }
}

#[test]
fn every_retryable_word_and_status_is_transient() {
    for text in [
        "429",
        "502",
        "503",
        "504",
        "timeout",
        "timed out",
        "rate limit",
        "rate_limit",
        "too many requests",
        "ECONNRESET",
        "ETIMEDOUT",
        "network error",
        "network failure",
        "internal server error",
        "service unavailable",
    ] {
        assert_eq!(classify(&text.into()).disposition, Disposition::Transient, "{text}");
        assert_eq!(
            classify(&text.to_uppercase().as_str().into()).disposition,
            Disposition::Transient,
            "{text}"
        );
    }
}

#[test]
fn numbers_in_ids_ports_and_names_are_not_statuses() {
    for text in [
        "row 4290 not found in table 503_archive",
        "issue 503 is locked",
        "tool timeout_report has no such field",
    ] {
        assert_eq!(classify(&text.into()).disposition, Disposition::Permanent, "{text}");
    }
}

#[test]
fn a_name_in_quotes_or_a_part_of_one_says_nothing() {
    for text in [
        "field `timeout` unknown",
        "Parameter 'timeout' is not allowed here",
        "\"timeout\" is not allowed",
        "No issue titled 'rate limit is too low'",
        "branch 'fix/connection reset' does not exist",
        "non-timeout error",
        "unknown flag --timeout",
    ] {
        assert_eq!(classify(&text.into()).disposition, Disposition::Permanent, "{text}");
    }
    for text in [
        "('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
        "{'error': 'rate limit exceeded'}",
        r#"{"error": "rate limit exceeded"}"#,
        "Tool 'search' exceeded timeout of 60s",
        "the user's request timed out, it's gone",
        "Client error '429 Too Many Requests' for url 'https://x/y'",
        "upstream - timeout",
        "'request timed out'",
    ] {
        assert_eq!(classify(&text.into()).disposition, Disposition::Transient, "{text}");
    }
}

#[test]
fn words_in_a_body_never_prove_that_nothing_ran() {
    let words = [
        "session",
        "session not found",
        "request timeout",
        "rate limit exceeded",
        "upstream call failed",
        "authorization service unavailable",
        "no such tool",
        "invalid params",
        "429 Too Many Requests",
        "connect ECONNREFUSED",
    ];
    for status in 400..=599 {
        let bare = classify(&FailureSignals::http(status, "x"));
        for words in words {
            for signals in [
                FailureSignals::http(status, words),
                FailureSignals::http(status, "x").with_body(words),
            ] {
                for signals in [signals.clone(), signals.with_session()] {
                    let said = classify(&signals);
                    if said.cause == Cause::SessionLost {
                        assert_eq!(status, 404, "{signals:?}");
                        continue;
                    }
                    let is_repeated =
                        |failure: &Failure| failure.may_repeat(crate::model::effect::Effect::Write);
                    assert!(!is_repeated(&said) || is_repeated(&bare), "{signals:?}: {said:?}");
                    assert!(
                        said.sent != Sent::Never || bare.sent == Sent::Never,
                        "{signals:?}: {said:?}"
                    );
                }
            }
        }
    }
    let proving = (400..=599)
        .filter(|status| classify(&FailureSignals::http(*status, "x")).sent == Sent::Never);
    assert_eq!(
        proving.collect::<Vec<_>>(),
        [401, 403, 404, 405, 406, 407, 411, 413, 414, 415, 421, 425, 426, 429, 431]
    );
    let repeated = (400..=599).filter(|status| {
        classify(&FailureSignals::http(*status, "x"))
            .may_repeat(crate::model::effect::Effect::Write)
    });
    assert_eq!(repeated.collect::<Vec<_>>(), [425, 429]);
}

#[test]
fn words_about_a_later_step_do_not_prove_that_nothing_ran() {
    for text in [
        "Issue created; webhook failed: connect ECONNREFUSED",
        "Issue #12 created; adding labels failed: 429 Too Many Requests",
        "row inserted, then getaddrinfo failed",
        "certificate issued, but upload failed",
        "malformed response body from server",
        "Issue #12 created; adding label failed: label not found",
    ] {
        assert_eq!(classify(&text.into()).sent, Sent::Maybe, "{text}");
        assert_eq!(classify(&FailureSignals::rpc(-32000, text)).sent, Sent::Yes, "{text}");
    }
    let second_step =
        FailureSignals::transport(TransportFailure::Refused, "refused").with_sent(Sent::Yes);
    assert_eq!(classify(&second_step).sent, Sent::Yes);
}

#[test]
fn a_text_that_speaks_of_a_rate_limit_does_not_prove_that_nothing_ran() {
    assert_eq!(
        classify(&"created, then hit the rate limit while labelling".into()).sent,
        Sent::Maybe
    );
    assert_eq!(classify(&"429 Too Many Requests".into()).sent, Sent::Never);
}

#[test]
fn callers_faults_prove_life_and_denials_blame_nobody() {
    use crate::model::failure::Blame;
    for (blame, texts) in [
        (Blame::Alive, ["422 invalid", "Invalid params: title", "HTTP 404 Not Found"]),
        (Blame::Nobody, ["401 Unauthorized", "403 Forbidden", "blocked by content policy"]),
        (Blame::Server, ["fail", "503", "request timed out"]),
    ] {
        for text in texts {
            assert_eq!(classify(&text.into()).cause.blame(), blame, "{text}");
        }
    }
}

#[test]
fn words_about_wrong_arguments_outrank_what_the_arguments_are_about() {
    for text in [
        "Invalid params: timeout must be positive",
        "validation error: rate limit must be a number",
        "Missing required argument: certificate",
        "malformed request: bad query",
    ] {
        assert_eq!(classify(&text.into()).cause, Cause::InvalidInput, "{text}");
    }
}

#[test]
fn the_words_of_common_clients_are_known() {
    use Disposition::*;
    for (text, cause, disposition) in [
        ("TypeError: fetch failed", Cause::Network, Transient),
        ("APIConnectionError: Connection error.", Cause::Network, Transient),
        ("SocketTimeoutException", Cause::Timeout, Transient),
        ("RequestTimeout: the socket was idle", Cause::Timeout, Transient),
        ("overloaded_error: Overloaded", Cause::Misbehaved, Transient),
        ("EACCES: permission denied, open '/x'", Cause::Denied, Denied),
        ("rpc error: code = PermissionDenied", Cause::Denied, Denied),
        ("you are not authorized to read this", Cause::Denied, Denied),
        ("Unknown tool: set-timeout", Cause::UnknownTool, Permanent),
        ("Tool 'set_timeout' not found", Cause::UnknownTool, Permanent),
    ] {
        let failure = classify(&text.into());
        assert_eq!((failure.cause, failure.disposition), (cause, disposition), "{text}");
    }
    assert_eq!(
        classify_load_error("spawn x: Permission denied (os error 13)", None),
        Permanent,
        "nobody refused us"
    );
}

#[test]
fn what_a_server_did_wrong_is_not_its_callers_fault() {
    for text in ["malformed response from server", "the API key is not configured"] {
        let failure = classify(&text.into());
        assert_eq!(
            (failure.cause, failure.disposition),
            (Cause::Misbehaved, Disposition::Permanent),
            "{text}"
        );
    }
}

#[test]
fn soft_errors_are_plain_upstream_statuses_and_nothing_else() {
    let classifier = Classifier::new();
    for (text, cause) in [
        ("Error: GitHub API: 503 Service Unavailable", Cause::Misbehaved),
        ("GitHub API: 429 Too Many Requests", Cause::RateLimited),
        ("upstream said: 504 Gateway Timeout", Cause::Timeout),
        ("read ECONNRESET", Cause::Network),
    ] {
        assert_eq!(classifier.classify_soft(text).map(|f| f.cause), Some(cause), "{text}");
    }
    for text in [
        "Error: GitHub API: 404 Not Found",
        "invalid timeout value",
        "issue 503 not found",
        "no such user",
        "422 invalid",
        "",
    ] {
        assert_eq!(classifier.classify_soft(text), None, "{text}");
    }
}

#[test]
fn an_operators_rule_is_asked_first() {
    let busy = Verdict::new(Cause::RateLimited, Disposition::Transient);
    let classifier =
        Classifier::new().with_rule(Rule::phrases("busy", ["bank is closed"], busy)).unwrap();

    let failure = classifier.classify(&"400: the bank is closed today".into());

    assert_eq!((failure.cause, failure.disposition), (Cause::RateLimited, Disposition::Transient));
    assert_eq!(classify(&"400: the bank is closed today".into()).cause, Cause::InvalidInput);
}

#[test]
fn a_denial_in_words_outranks_an_operators_rule() {
    let hiccup = Verdict::new(Cause::Misbehaved, Disposition::Transient);
    let classifier =
        Classifier::new().with_rule(Rule::phrases("hiccup", ["gateway hiccup"], hiccup)).unwrap();
    let forbidden = |body: &str| FailureSignals::http(403, "Forbidden").with_body(body);

    assert_eq!(
        classifier.classify(&forbidden("gateway hiccup")).disposition,
        Disposition::Transient
    );
    for body in [
        "gateway hiccup; denied by OpenFGA",
        "denied by Cedar (gateway hiccup)",
        "gateway hiccup: user lacks grant",
    ] {
        assert_eq!(
            classifier.classify(&forbidden(body)).disposition,
            Disposition::Denied,
            "{body}"
        );
        assert_eq!(
            classifier.classify_load(&forbidden(body)).disposition,
            Disposition::Denied,
            "{body}"
        );
        assert_eq!(classifier.classify_soft(&format!("403 Forbidden: {body}")), None, "{body}");
    }
    let expired = FailureSignals::http(401, "Unauthorized")
        .with_body("authorization failed: upstream call timeout");
    assert_eq!(cause(expired), (Cause::AuthExpired, Disposition::Denied, Sent::Never));
}

#[test]
fn nobody_is_believed_who_asks_for_more_than_a_day() {
    let day = Duration::from_secs(24 * 3600);
    for (asked, believed) in
        [(Duration::MAX, day), (day, day), (Duration::from_secs(1), Duration::from_secs(1))]
    {
        let signals = FailureSignals { retry_after: Some(asked), ..FailureSignals::http(429, "x") };
        assert_eq!(classify(&signals).retry_after, Some(believed));
    }
}

#[test]
fn github_throttling_dressed_as_403_is_a_rate_limit() {
    let asks_to_wait = FailureSignals {
        retry_after: Some(Duration::from_secs(60)),
        ..FailureSignals::http(403, "Forbidden")
    };
    assert_eq!(classify(&asks_to_wait).cause, Cause::RateLimited);

    let in_words = FailureSignals::http(403, "Forbidden")
        .with_body("You have exceeded a secondary rate limit");
    assert_eq!(classify(&in_words).cause, Cause::RateLimited);
}

#[test]
fn every_rule_has_its_own_name_and_can_fire() {
    let mut names: Vec<_> = built_in().map(|rule| rule.name.clone()).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);

    for rule in built_in() {
        let mut signals = FailureSignals::default();
        for test in rule.tests.iter() {
            match test {
                Test::Transport(kinds) => signals.transport = kinds.first().copied(),
                Test::Exited => signals.exit = Some(ProcessExit::Code(1)),
                Test::Status(low, _) => signals.status = Some(*low),
                Test::Code(low, _) => signals.code = Some(*low),
                Test::InSession => signals.in_session = true,
                Test::AsksToWait => signals.retry_after = Some(Duration::from_secs(1)),
                Test::Says(phrases) => {
                    signals.message += &format!(" {}", phrases[0].trim_end_matches('*'))
                }
                Test::SaysOf(first, second) => {
                    signals.message = format!("{} {}", first[0], second[0])
                }
            }
        }
        let text = Prepared::new([signals.message.as_str()]);
        let first = built_in().find(|candidate| candidate.fits(&signals, signals.status, &text));
        // The test compares verdicts, not names: an earlier rule with the same verdict may fit
        // first.
        assert!(rule.fits(&signals, signals.status, &text), "{} never fits", rule.name);
        assert_eq!(first.map(|rule| rule.verdict), Some(rule.verdict), "{} is shadowed", rule.name);
    }
}

#[derive(Debug, thiserror::Error)]
#[error("request failed")]
struct Wrapped(#[source] io::Error);

#[test]
fn an_io_kind_proves_no_more_than_it_says() {
    use io::ErrorKind::*;
    for (kind, cause, sent) in [
        (ConnectionRefused, Cause::Network, Sent::Never),
        (HostUnreachable, Cause::Network, Sent::Maybe),
        (NetworkUnreachable, Cause::Network, Sent::Maybe),
        (ConnectionReset, Cause::Network, Sent::Maybe),
        (NotConnected, Cause::Network, Sent::Maybe),
        (BrokenPipe, Cause::Network, Sent::Maybe),
        (TimedOut, Cause::Timeout, Sent::Maybe),
    ] {
        let signals = FailureSignals::from_error(&io::Error::from(kind));
        let failure = classify(&signals);
        assert_eq!((failure.cause, failure.sent), (cause, sent), "{kind:?}");
        assert_eq!(
            classify(&signals.with_sent(Sent::Never)).sent,
            Sent::Never,
            "{kind:?} while connecting"
        );
    }
    assert_eq!(
        classify(&FailureSignals::from_error(&io::Error::from(AddrNotAvailable))).sent,
        Sent::Maybe
    );
    let no_route = FailureSignals::text("No route to host (os error 113)");
    assert_eq!(Classifier::new().classify_load(&no_route).disposition, Disposition::Permanent);
}

#[test]
fn what_only_the_source_says_is_heard() {
    let dns = io::Error::other("failed to lookup address information: Name or service not known");
    let failure = classify(&FailureSignals::from_error(&Wrapped(dns)));

    assert_eq!((failure.cause, failure.sent), (Cause::Network, Sent::Never));
}
