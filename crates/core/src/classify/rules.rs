//! Decides, in order, the meaning of each known signal of a failure. Rules are data: the first rule
//! that fits wins.

use std::borrow::Cow;

use super::text::{Prepared, is_blank};
use super::words::{ANSWERED, OPAQUE, SOFT, WORDS};
use crate::model::failure::{Cause, Disposition, Sent};
use crate::model::invalid::Invalid;
use crate::model::signals::{FailureSignals, TransportFailure};

/// A list of phrases; see [`crate::classify::Prepared::says`].
pub type Phrases = Cow<'static, [Cow<'static, str>]>;

/// One condition of a rule.
#[derive(Clone, Debug)]
pub enum Test {
    /// The transport failed in one of these ways.
    Transport(&'static [TransportFailure]),
    /// The server's process ended.
    Exited,
    /// The HTTP status lies in this range.
    Status(u16, u16),
    /// The JSON-RPC code lies in this range.
    Code(i64, i64),
    /// The request belonged to a session the server had issued.
    InSession,
    /// The server asked for a pause.
    AsksToWait,
    /// The text or the body contains one of these phrases.
    Says(Phrases),
    /// The text or the body contains a phrase of the first list right before a phrase of the
    /// second: `timeout`, `must`.
    SaysOf(Phrases, Phrases),
}

/// The conclusion of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Why the attempt failed.
    pub cause: Cause,
    /// Whether a call may be retried.
    pub disposition: Disposition,
    /// Whether loading a server may be retried, where that differs.
    pub when_loading: Disposition,
    /// The proof about execution, which only facts give, not words; `None` leaves it to the
    /// transport.
    pub sent: Option<Sent>,
}

impl Verdict {
    /// A verdict with the same disposition for calls and loading; leaves `sent` to the transport.
    pub const fn new(cause: Cause, disposition: Disposition) -> Self {
        Self { cause, disposition, when_loading: disposition, sent: None }
    }

    /// Adds that the signal proves that the server did not execute the request.
    pub const fn not_executed(mut self) -> Self {
        self.sent = Some(Sent::Never);
        self
    }

    /// No server at the address: transient for a call, permanent for a load.
    pub(super) const fn nobody_there() -> Self {
        Self { when_loading: Disposition::Permanent, ..transient(Cause::Network).not_executed() }
    }
}

/// One rule: if every test holds, its verdict applies.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The rule's name, for `explain` and tests.
    pub name: Cow<'static, str>,
    /// The conditions; all of them must hold.
    pub tests: Cow<'static, [Test]>,
    /// The conclusion.
    pub verdict: Verdict,
}

impl Rule {
    /// A rule of the operator: a text or body with one of `phrases` means `verdict`.
    pub fn phrases(
        name: impl Into<String>,
        phrases: impl IntoIterator<Item = impl Into<String>>,
        verdict: Verdict,
    ) -> Self {
        let phrases = phrases.into_iter().map(|phrase| Cow::Owned(phrase.into())).collect();
        Self {
            name: Cow::Owned(name.into()),
            tests: Cow::Owned(vec![Test::Says(Cow::Owned(phrases))]),
            verdict,
        }
    }

    /// Checks that the rule has conditions, and that some failure can meet them.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.tests.is_empty() {
            return Err(Invalid::new("tests", "must not be empty, or it would fit everything"));
        }
        let is_empty = |test: &Test| match test {
            Test::Transport(kinds) => kinds.is_empty(),
            Test::Status(low, high) => low > high,
            Test::Code(low, high) => low > high,
            Test::Says(phrases) => phrases.is_empty(),
            Test::SaysOf(first, second) => first.is_empty() || second.is_empty(),
            Test::Exited | Test::InSession | Test::AsksToWait => false,
        };
        if let Some(test) = self.tests.iter().find(|test| is_empty(test)) {
            return Err(Invalid::new("tests", format!("{test:?} fits nothing")));
        }
        let phrases = self.tests.iter().flat_map(|test| match test {
            Test::Says(phrases) => [&**phrases, &[]],
            Test::SaysOf(first, second) => [&**first, &**second],
            _ => [&[][..], &[]],
        });
        match phrases.flatten().find(|phrase| is_blank(phrase)) {
            Some(phrase) => Err(Invalid::new("phrases", format!("\"{phrase}\" has no word in it"))),
            None => Ok(()),
        }
    }

    /// Whether every test holds. `status` is the explicit status or the one in the text.
    pub fn fits(&self, signals: &FailureSignals, status: Option<u16>, text: &Prepared) -> bool {
        self.tests.iter().all(|test| match test {
            Test::Transport(kinds) => signals.transport.is_some_and(|kind| kinds.contains(&kind)),
            Test::Exited => signals.exit.is_some(),
            Test::Status(low, high) => {
                status.is_some_and(|status| (*low..=*high).contains(&status))
            }
            Test::Code(low, high) => {
                signals.code.is_some_and(|code| (*low..=*high).contains(&code))
            }
            Test::InSession => signals.in_session,
            Test::AsksToWait => signals.retry_after.is_some(),
            Test::Says(phrases) => phrases.iter().any(|phrase| text.says(phrase)),
            Test::SaysOf(first, second) => first.iter().any(|first| text.says_of(first, second)),
        })
    }
}

pub(super) const fn transient(cause: Cause) -> Verdict {
    Verdict::new(cause, Disposition::Transient)
}

pub(super) const fn permanent(cause: Cause) -> Verdict {
    Verdict::new(cause, Disposition::Permanent)
}

pub(super) const fn denied(cause: Cause) -> Verdict {
    Verdict::new(cause, Disposition::Denied)
}

pub(super) const fn rule(name: &'static str, tests: &'static [Test], verdict: Verdict) -> Rule {
    Rule { name: Cow::Borrowed(name), tests: Cow::Borrowed(tests), verdict }
}

macro_rules! phrases {
    ($($phrase:literal),+ $(,)?) => { Cow::Borrowed(&[$(Cow::Borrowed($phrase)),+]) };
}
pub(super) use phrases;

macro_rules! says {
    ($($phrase:literal),+ $(,)?) => { Test::Says(phrases!($($phrase),+)) };
}
pub(super) use says;

/// Facts of the transport and of the process outrank every text.
const FACTS: &[Rule] = &[
    rule(
        "nobody there",
        &[Test::Transport(&[
            TransportFailure::Refused,
            TransportFailure::UnknownHost,
            TransportFailure::Unreachable,
        ])],
        Verdict::nobody_there(),
    ),
    rule(
        "lookup failed",
        &[Test::Transport(&[TransportFailure::LookupFailed])],
        transient(Cause::Network).not_executed(),
    ),
    rule(
        "tls",
        &[Test::Transport(&[TransportFailure::Tls])],
        permanent(Cause::Network).not_executed(),
    ),
    rule(
        "connect timeout",
        &[Test::Transport(&[TransportFailure::ConnectTimeout])],
        transient(Cause::Timeout).not_executed(),
    ),
    rule("no answer", &[Test::Transport(&[TransportFailure::Timeout])], transient(Cause::Timeout)),
    rule(
        "connection lost",
        &[Test::Transport(&[TransportFailure::Lost])],
        transient(Cause::Network),
    ),
    rule("garbage", &[Test::Transport(&[TransportFailure::Garbage])], transient(Cause::Misbehaved)),
    rule(
        "too large an answer",
        &[Test::Transport(&[TransportFailure::TooLarge])],
        permanent(Cause::Misbehaved),
    ),
    rule(
        "starting",
        &[Test::Transport(&[TransportFailure::Starting])],
        transient(Cause::Starting).not_executed(),
    ),
    rule(
        "away",
        &[Test::Transport(&[TransportFailure::Away])],
        transient(Cause::Away).not_executed(),
    ),
    rule(
        "down",
        &[Test::Transport(&[TransportFailure::Down])],
        permanent(Cause::Unavailable).not_executed(),
    ),
    rule(
        "given up",
        &[Test::Transport(&[TransportFailure::GivenUp])],
        permanent(Cause::GivenUp).not_executed(),
    ),
    rule(
        "session lost again",
        &[Test::Transport(&[TransportFailure::Forgetful])],
        permanent(Cause::SessionLost).not_executed(),
    ),
    rule(
        "busy",
        &[Test::Transport(&[TransportFailure::Busy])],
        transient(Cause::Overloaded).not_executed(),
    ),
    rule("left", &[Test::Transport(&[TransportFailure::Left])], transient(Cause::Cancelled)),
    rule("exited", &[Test::Exited], transient(Cause::Network)),
];

/// A server that forgot the session did not execute the request.
const SESSION: &[Rule] = &[rule(
    "session gone",
    &[Test::Status(404, 404), Test::InSession],
    transient(Cause::SessionLost).not_executed(),
)];

/// Phrases of a denial.
const SAYS_NO: Test = says!(
    "external authorization failed",
    "authorization failed",
    "denied by",
    "lacks",
    "missing authenticated subject",
    "missing or invalid signed agent context"
);

/// A 401 or 403 with a phrase of denial is a denial, regardless of the rest of its text; operators'
/// rules are not tried.
const DENIED: &[Rule] = &[
    rule(
        "unauthorized in words",
        &[Test::Status(401, 401), SAYS_NO],
        denied(Cause::AuthExpired).not_executed(),
    ),
    rule(
        "denied in words",
        &[Test::Status(403, 403), SAYS_NO],
        denied(Cause::Denied).not_executed(),
    ),
];

/// Other 401 and 403 are denials, unless the text plainly says that the authorizer itself failed.
const AUTHORIZATION: &[Rule] = &[
    rule(
        "authorizer failed",
        &[
            Test::Status(401, 403),
            says!(
                "authorization service unavailable",
                "authorization service timeout",
                "openfga check error",
                "upstream call timeout",
                "upstream call failed",
                "request timeout",
                "no healthy backends",
                "dns resolution which failed",
            ),
        ],
        transient(Cause::Misbehaved),
    ),
    // Before the plain 403: GitHub, for one, throttles with a 403 and `Retry-After`.
    rule(
        "throttled as forbidden",
        &[Test::Status(403, 403), Test::AsksToWait],
        transient(Cause::RateLimited).not_executed(),
    ),
    rule(
        "rate limit as forbidden",
        &[Test::Status(403, 403), says!("rate limit*")],
        transient(Cause::RateLimited),
    ),
    rule("unauthorized", &[Test::Status(401, 401)], denied(Cause::AuthExpired).not_executed()),
    rule("forbidden", &[Test::Status(403, 403)], denied(Cause::Denied).not_executed()),
];

/// JSON-RPC codes that the protocol defines as the caller's fault.
const CALLERS_FAULT: &[Rule] = &[
    rule(
        "unknown tool",
        &[Test::Code(-32602, -32600), says!("unknown tool*", "no such tool*")],
        permanent(Cause::UnknownTool).not_executed(),
    ),
    // The words of the official TypeScript SDK.
    rule(
        "tool not found",
        &[Test::Code(-32602, -32602), says!("tool"), says!("not found")],
        permanent(Cause::UnknownTool).not_executed(),
    ),
    rule(
        "parse error",
        &[Test::Code(-32700, -32700)],
        permanent(Cause::InvalidInput).not_executed(),
    ),
    rule(
        "invalid request, method or params",
        &[Test::Code(-32602, -32600)],
        permanent(Cause::InvalidInput).not_executed(),
    ),
    rule(
        "headers, capabilities or version",
        &[Test::Code(-32022, -32020)],
        permanent(Cause::InvalidInput).not_executed(),
    ),
    rule(
        "resource not found",
        &[Test::Code(-32002, -32002)],
        permanent(Cause::InvalidInput).not_executed(),
    ),
];

/// HTTP statuses.
const STATUS: &[Rule] = &[
    rule(
        "too many requests",
        &[Test::Status(429, 429)],
        transient(Cause::RateLimited).not_executed(),
    ),
    rule("request timeout", &[Test::Status(408, 408)], transient(Cause::Timeout)),
    rule("too early", &[Test::Status(425, 425)], transient(Cause::Misbehaved).not_executed()),
    // Written by a proxy whose client or server hung up: the fate of the request is unknown.
    rule("closed without an answer", &[Test::Status(444, 444)], transient(Cause::Cancelled)),
    rule("left the balancer", &[Test::Status(460, 460)], transient(Cause::Cancelled)),
    rule("left the proxy", &[Test::Status(499, 499)], transient(Cause::Cancelled)),
    // Sent before the server looks at the content of a request: its place, method, size or form is
    // wrong.
    rule("not here", &[Test::Status(404, 407)], permanent(Cause::InvalidInput).not_executed()),
    rule("no length", &[Test::Status(411, 411)], permanent(Cause::InvalidInput).not_executed()),
    rule(
        "too large or of another form",
        &[Test::Status(413, 415)],
        permanent(Cause::InvalidInput).not_executed(),
    ),
    rule(
        "not for this server",
        &[Test::Status(421, 421)],
        permanent(Cause::InvalidInput).not_executed(),
    ),
    rule(
        "another protocol",
        &[Test::Status(426, 426)],
        permanent(Cause::InvalidInput).not_executed(),
    ),
    rule(
        "headers too large",
        &[Test::Status(431, 431)],
        permanent(Cause::InvalidInput).not_executed(),
    ),
    // 400, 409, 422 and the like can also come after work was begun.
    rule("client error", &[Test::Status(400, 499)], permanent(Cause::InvalidInput)),
    rule("gateway timeout", &[Test::Status(504, 504)], transient(Cause::Timeout)),
    rule("server error", &[Test::Status(500, 599)], transient(Cause::Misbehaved)),
];

/// JSON-RPC codes that blame the server, where the text has no status.
const CODES: &[Rule] = &[
    rule(
        "local timeout of an SDK",
        &[Test::Code(-32001, -32001), says!("timed out", "timeout*")],
        transient(Cause::Timeout),
    ),
    rule("internal error", &[Test::Code(-32603, -32603)], transient(Cause::Misbehaved)),
];

/// The built-in rules, in the order in which they are tried.
pub fn built_in<'a>() -> impl Iterator<Item = &'a Rule> {
    [FACTS, SESSION, DENIED, AUTHORIZATION, CALLERS_FAULT, STATUS, CODES, WORDS, ANSWERED]
        .into_iter()
        .flatten()
}

/// The rules for a tool's own error result: its status, else the soft phrases.
pub(crate) fn soft<'a>() -> impl Iterator<Item = &'a Rule> {
    [STATUS, SOFT].into_iter().flatten()
}

/// Whether a JSON-RPC code itself says that the caller is at fault.
pub(crate) fn is_callers_fault(signals: &FailureSignals, text: &Prepared) -> bool {
    CALLERS_FAULT.iter().any(|rule| rule.fits(signals, None, text))
}

/// Whether a 401 or 403 is a denial in words.
pub(crate) fn is_denied(signals: &FailureSignals, status: Option<u16>, text: &Prepared) -> bool {
    DENIED.iter().any(|rule| rule.fits(signals, status, text))
}

/// Whether a text hides the real cause, so that a probe should ask again.
pub(crate) fn is_opaque(signals: &FailureSignals, text: &Prepared) -> bool {
    let bare = signals.status.is_none() && signals.transport.is_none();
    bare && OPAQUE
        .iter()
        .all(|test| matches!(test, Test::Says(phrases) if phrases.iter().any(|phrase| text.says(phrase))))
}
