//! Decides the meaning of a failure: the only place that turns facts of an error into a cause and a
//! disposition.
//!
//! Structured signals come first (transport, process, HTTP status, JSON-RPC code, body), text last.
//! Loading a server and calling a tool use the same rules; their dispositions differ only where
//! [`Verdict::when_loading`] says so.

mod describe;
mod rules;
mod status;
mod text;
mod too_large;
mod words;

pub use describe::Describe;
pub use rules::{Phrases, Rule, Test, Verdict, built_in};
pub use text::Prepared;
pub use too_large::says_too_many_items;

use crate::model::failure::{Cause, Disposition, Failure, Sent};
use crate::model::invalid::Invalid;
use crate::model::sanitize::without_credentials;
use crate::model::signals::{FailureSignals, LONGEST_PAUSE};
#[cfg(feature = "pipeline")]
use crate::model::tool_errors::FoundError;

/// Classifies failures by the operator's rules, then by the built-in ones.
///
/// ```
/// # use seawall::{Cause, Classifier, Disposition, FailureSignals, Rule, Verdict};
/// let busy = Verdict::new(Cause::RateLimited, Disposition::Transient);
/// let classifier = Classifier::new().with_rule(Rule::phrases("busy", ["come back later"], busy))?;
/// let failure = classifier.classify(&FailureSignals::text("please come back later"));
/// assert_eq!((failure.cause, failure.disposition), (Cause::RateLimited, Disposition::Transient));
/// # Ok::<(), seawall::Invalid>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    extra: Vec<Rule>,
}

/// No rule fits the text: the failure is not retried.
const UNKNOWN: Verdict = Verdict::new(Cause::Misbehaved, Disposition::Permanent);

impl Classifier {
    /// A classifier with the built-in rules only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule, tried before the built-in ones and after the rules added earlier. A 401 or 403
    /// that denies in words stays a denial. A rule that fits everything or nothing is rejected.
    pub fn with_rule(mut self, rule: Rule) -> Result<Self, Invalid> {
        rule.validate().map_err(|error| error.within(&format!("rule \"{}\"", rule.name)))?;
        self.extra.push(rule);
        Ok(self)
    }

    /// The meaning of a failed attempt of a call.
    pub fn classify(&self, signals: &FailureSignals) -> Failure {
        let (verdict, status) = self.verdict(signals);
        failure(signals, verdict, verdict.disposition, status)
    }

    /// The meaning of a failed attempt to load a server.
    pub fn classify_load(&self, signals: &FailureSignals) -> Failure {
        let (verdict, status) = self.verdict(signals);
        failure(signals, verdict, verdict.when_loading, status)
    }

    /// The upstream failure that a tool's own error result reports, if it plainly reports a
    /// transient one. Any other error of a tool is an answer, and an answer proves that the server
    /// is alive.
    pub fn classify_soft(&self, text: &str) -> Option<Failure> {
        let signals = FailureSignals::text(text).with_sent(Sent::Yes);
        let prepared = Prepared::new([text]);
        let status = prepared.status();
        let verdict = self.first(rules::soft(), &signals, status, &prepared)?.verdict;
        // A verdict's `not_executed` speaks of a request that its server rejected. Here the tool
        // has run and reports that rejection, so `Sent::Yes` of the signals must stand.
        let verdict = Verdict { sent: None, ..verdict };
        (verdict.disposition == Disposition::Transient)
            .then(|| failure(&signals, verdict, verdict.disposition, status))
    }

    /// The meaning of an error that an operator's pattern found in an answer. A transient error is
    /// retried; any other error is the caller's fault.
    #[cfg(feature = "pipeline")]
    pub(crate) fn classify_found(&self, found: &FoundError<'_>) -> Failure {
        let signals = FailureSignals::text(&found.words).with_sent(Sent::Yes);
        self.classify_soft(&found.words).unwrap_or_else(|| {
            let verdict = match found.may_pass {
                true => Verdict::new(Cause::Misbehaved, Disposition::Transient),
                false => Verdict::new(Cause::InvalidInput, Disposition::Permanent),
            };
            failure(&signals, verdict, verdict.disposition, None)
        })
    }

    /// Whether the text hides the real cause, so that a load should probe once more.
    pub(crate) fn is_opaque(&self, signals: &FailureSignals) -> bool {
        rules::is_opaque(signals, &Prepared::new([signals.message.as_str()]))
    }

    fn verdict(&self, signals: &FailureSignals) -> (Verdict, Option<u16>) {
        let text =
            Prepared::new([signals.message.as_str(), signals.body.as_deref().unwrap_or_default()]);
        // A JSON-RPC code that blames the caller is a fact; a status in its text is not.
        let is_callers_fault = || rules::is_callers_fault(signals, &text);
        let status = signals.status.or_else(|| text.status().filter(|_| !is_callers_fault()));
        let rule = self.first(built_in(), signals, status, &text);
        let mut verdict = rule.map_or(UNKNOWN, |rule| rule.verdict);
        verdict.sent = rule.and_then(|rule| proven(rule, signals, status, &text));
        (verdict, status)
    }

    /// The first rule that fits: of the operator's, unless the text is a denial, then of `rules`.
    fn first<'a>(
        &'a self,
        rules: impl Iterator<Item = &'a Rule>,
        signals: &FailureSignals,
        status: Option<u16>,
        text: &Prepared,
    ) -> Option<&'a Rule> {
        let own = if rules::is_denied(signals, status, text) { &[][..] } else { &self.extra };
        own.iter().chain(rules).find(|rule| rule.fits(signals, status, text))
    }
}

/// The proof that the facts give about execution. Words in an error can speak of a later step of a
/// tool that has already acted, so words prove nothing. Where words explain a rejection, the status
/// or code proves it without them. Where words make an attempt retryable that its status or code
/// alone would not, nothing is proven any more. Nor is anything proven against a transport that
/// knows that the server acted.
fn proven(
    rule: &Rule,
    signals: &FailureSignals,
    status: Option<u16>,
    text: &Prepared,
) -> Option<Sent> {
    if signals.sent == Sent::Yes {
        return None;
    }
    let is_factual = |rule: &&Rule| rule.tests.iter().all(|test| is_fact(test, signals));
    match is_factual(&rule) {
        true => rule.verdict.sent,
        false if rule.verdict.disposition == Disposition::Transient => None,
        false => {
            built_in()
                .filter(is_factual)
                .find(|rule| rule.fits(signals, status, text))?
                .verdict
                .sent
        }
    }
}

/// Whether a test looks at a fact and not at words. A text is a fact only if it consists of its
/// status.
fn is_fact(test: &Test, signals: &FailureSignals) -> bool {
    match test {
        Test::Status(..) => signals.status.is_some() || consists_of_status(signals),
        Test::Transport(_) | Test::Code(..) | Test::Exited | Test::InSession | Test::AsksToWait => {
            true
        }
        Test::Says(_) | Test::SaysOf(..) => false,
    }
}

/// Whether the message, as it came, is nothing but a status: an address or a name in it would say
/// more than the status does.
fn consists_of_status(signals: &FailureSignals) -> bool {
    let is_read_whole = signals.message.len() <= text::READ;
    signals.code.is_none()
        && signals.body.is_none()
        && is_read_whole
        && status::is_all(&signals.message)
}

fn failure(
    signals: &FailureSignals,
    verdict: Verdict,
    disposition: Disposition,
    status: Option<u16>,
) -> Failure {
    Failure {
        cause: verdict.cause,
        disposition,
        sent: verdict.sent.unwrap_or(signals.heard()),
        retry_after: signals.retry_after.map(|asked| asked.min(LONGEST_PAUSE)),
        status,
        message: told(signals),
        incident: signals.incident,
        too_large: false,
    }
}

/// The text of a failure, without credentials. Where the text is empty and no transport failure
/// explains it, a fixed text stands in.
fn told(signals: &FailureSignals) -> String {
    let is_silent = signals.message.chars().all(|c| c.is_whitespace() || c.is_control());
    if is_silent && signals.transport.is_none() {
        return "no reason given".to_owned();
    }
    without_credentials(&signals.message)
}

/// The meaning of a failed attempt, by the built-in rules.
pub fn classify(signals: &FailureSignals) -> Failure {
    Classifier::new().classify(signals)
}

/// Whether a server that failed to load with this text is starting, broken or denies access. An
/// explicit `status` outranks a status in the text; an ambiguous 403 is a denial.
pub fn classify_load_error(message: &str, status: Option<u16>) -> Disposition {
    let signals = FailureSignals { status, ..FailureSignals::text(message) };
    Classifier::new().classify_load(&signals).disposition
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod texts;
