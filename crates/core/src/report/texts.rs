//! Decides the texts that models and people read when a call fails or a fallback answers: the
//! message catalogue.
//!
//! Plain style: at most 60 words, declarative, the first sentence stands alone. The text says
//! whether the call may have been executed, gives waits in seconds, promises nothing that will not
//! happen, and quotes servers' words. Classic style: fixed texts that programs may match on.

pub(crate) mod served;

use std::fmt::Write as _;
use std::time::Duration;

use crate::model::duration::{about, age};
use crate::model::effect::{Effect, Kind};
use crate::model::failure::{Cause, Failure, Sent};
use crate::model::policy::Scope;
use crate::model::report::ErrorCode;
use crate::model::sanitize::quote;
use crate::time::clock::whole_seconds;

/// How many words a text may have.
const LONGEST_TEXT: usize = 60;
/// How many words an operator's hint may have; the rest is cut.
const LONGEST_HINT: usize = 16;
/// How many of a server's words are kept beside an operator's hint.
const SHORTEST_QUOTE: usize = 6;
/// A shorter wait is no timeout of our own clock.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
/// How many words of a query are shown.
const LONGEST_QUERY: usize = 24;

/// The facts known when a failure is put into words.
#[derive(Clone, Debug)]
pub(crate) struct Situation<'a> {
    pub(crate) tool: &'a str,
    pub(crate) server: &'a str,
    pub(crate) kind: Option<Kind>,
    pub(crate) effect: Effect,
    pub(crate) failure: &'a Failure,
    pub(crate) attempts: u32,
    /// How long the call took.
    pub(crate) took: Duration,
    /// Which tools share the open breaker.
    pub(crate) breaker: Scope,
    /// A read tool of the same server.
    pub(crate) verify: Option<&'a str>,
    /// The read tool is about the same things, so it can show whether the write took effect.
    pub(crate) verify_is_about: bool,
    /// The operator's hint about this server.
    pub(crate) hint: Option<&'a str>,
    /// How often this identical call has failed in the session.
    pub(crate) repeats: u32,
    /// Some attempt, perhaps an earlier one, may have been executed.
    pub(crate) may_have_acted: bool,
    /// How many of the server's words to leave out, so that the text stays within its limit.
    pub(crate) cut: usize,
}

impl Situation<'_> {
    /// The text in the plain style.
    pub(crate) fn plain(&self) -> String {
        let text = self.at_length();
        // Only the quotation can be shortened, so a text that is too long is written a second time.
        match text.split_whitespace().count().saturating_sub(LONGEST_TEXT) {
            0 => text,
            cut => Situation { cut, ..self.clone() }.at_length(),
        }
    }

    fn at_length(&self) -> String {
        let mut text = if self.repeats > 1 { self.again() } else { self.first_time() };
        // No fallback had an answer: the label of the tool's kind says how that affects the user. A
        // call that may have acted needs other advice.
        if let (Cause::CircuitOpen, Some(kind), false) =
            (self.failure.cause, self.kind, self.may_have_acted)
        {
            let _ = write!(text, " {}.", kind.label());
        }
        if self.may_have_acted && !text.contains("may have been executed") {
            let earlier = !self.failure.may_have_executed(self.effect);
            text.push_str(if earlier {
                " An earlier attempt may have been executed."
            } else {
                " It may have been executed."
            });
        }
        if let Some(hint) = self.hint() {
            text.push(' ');
            text.push_str(&hint.join(" "));
            if !text.ends_with(['.', '?', '…']) {
                text.push('.');
            }
        }
        text
    }

    /// The text in the classic style.
    pub(crate) fn classic(&self) -> String {
        match self.failure.cause {
            Cause::CircuitOpen => {
                let why = match self.failure.is_of_slowness() {
                    true => "because its calls were too slow",
                    false => "due to repeated failures",
                };
                degradation(self.tool, why, self.failure.retry_after.unwrap_or_default())
            }
            Cause::Uncertain | Cause::Queued => self.plain(),
            Cause::Loop => format!(
                "⚠️ Loop detected: \"{}\" was called repeatedly with the same inputs. Try a different query or break this into smaller steps.",
                self.tool
            ),
            _ => format!(
                "❌ Failed after multiple attempts.\n\nError: {}{}",
                self.failure.message,
                self.doubt()
            ),
        }
    }

    /// The warning that a write may have been executed, which the classic texts leave out.
    fn doubt(&self) -> String {
        if self.may_have_acted {
            format!(". It may have been executed. {}", self.verify())
        } else {
            String::new()
        }
    }

    fn first_time(&self) -> String {
        self.not_asked().unwrap_or_else(|| self.answered_badly())
    }

    /// The open breaker by name: a shared breaker is not the tool's own.
    fn breaker(&self) -> String {
        match self.breaker {
            Scope::Tool => "its circuit breaker".to_owned(),
            Scope::Server => format!("the circuit breaker of {}", self.server()),
            Scope::Global => "the circuit breaker of all tools".to_owned(),
        }
    }

    /// The text for a local rejection or a server that asks for patience: the call was not
    /// executed, and why.
    fn not_asked(&self) -> Option<String> {
        let (tool, server, message) = (self.tool, self.server(), &self.failure.message);
        let again = || self.in_seconds(" The same call can be repeated in", ".");
        Some(match self.failure.cause {
            Cause::CircuitOpen => format!(
                "{tool} is temporarily unavailable: {} opened {}. The call was not executed.{} The task can continue without it or be reported as blocked on it.",
                if self.failure.is_of_slowness() {
                    "calls that were too slow"
                } else {
                    "repeated failures"
                },
                self.breaker(),
                self.in_seconds(" The next real try is possible in", ".")
            ),
            Cause::RateLimited if self.is_local() => {
                format!("{tool} was not executed: {message}.{}", again())
            }
            Cause::RateLimited if self.failure.sent == Sent::Never => format!(
                "{tool} was not executed: {server} is at its rate limit{}. The same call can be repeated later.",
                self.in_seconds(" and asks for a pause of", "")
            ),
            Cause::Overloaded if self.failure.is_silent_queue() => {
                format!("{tool} was not sent: {message}.{}", again())
            }
            Cause::Overloaded => {
                format!(
                    "{tool} was not executed: {server} takes no more calls now ({}).{}",
                    self.quoted(),
                    again()
                )
            }
            Cause::Starting | Cause::Away => {
                let held_up =
                    if self.failure.sent == Sent::Never { "executed" } else { "sent again" };
                let state =
                    if self.failure.cause == Cause::Away { "unavailable now" } else { "starting" };
                format!(
                    "{tool} was not {held_up}: {server} is {state}{}.{}",
                    self.because(),
                    again()
                )
            }
            Cause::Unavailable if self.failure.is_switched_off() => {
                format!(
                    "{tool} was not executed: {message}. It stays off until a person switches it on."
                )
            }
            Cause::Unavailable | Cause::GivenUp if self.failure.sent == Sent::Never => {
                format!(
                    "{tool} was not executed: {server} is down ({}). It stays down until a person acts.",
                    self.quoted()
                )
            }
            Cause::Loop => format!(
                "{tool} was not executed: this identical call {message} recently. The input has not changed; different arguments or another tool are likelier to help."
            ),
            Cause::Queued => {
                format!("{tool} was not sent: {message}. It will be tried from there.")
            }
            Cause::Uncertain if self.failure.sent == Sent::Yes => format!(
                "{tool} was not sent: {message}.{}",
                self.in_seconds(
                    " To execute it once more, the same call can be made again in",
                    "."
                )
            ),
            Cause::Uncertain => self.uncertain(),
            _ => return None,
        })
    }

    /// An uncertain write that is not sent again yet: how to verify it, and until when it is held
    /// back.
    fn uncertain(&self) -> String {
        let look = match self.verify {
            Some(reader) if self.verify_is_about => {
                format!("{reader} can show whether it took effect; after such a look, or in")
            }
            Some(reader) => format!(
                "After a read of the same server, for example with {reader}, that shows whether it took effect, or in"
            ),
            None => {
                "A read of the same server shows whether it took effect; after it, or in".into()
            }
        };
        let left = whole_seconds(self.failure.retry_after.unwrap_or_default());
        let (tool, message) = (self.tool, &self.failure.message);
        if self.failure.waits_for_a_running_write() {
            let reader = self.verify.unwrap_or("A read of the same server");
            return format!(
                "{tool} was not sent: {message}. {reader} can show whether it took effect, once it has ended. In {left}s it is sent again."
            );
        }
        format!("{tool} was not sent: {message}. {look} {left}s, it is sent again.")
    }

    /// The text for a failure of the server or of the connection to it.
    fn answered_badly(&self) -> String {
        let (tool, server, quoted) = (self.tool, self.server(), self.quoted());
        let (status, tried, fate) = (self.status(), self.tried(), self.fate());
        match self.failure.cause {
            Cause::Timeout => self.timed_out(),
            Cause::RateLimited => {
                let pause = self.in_seconds(" and asks for a pause of", "");
                format!("{tool} failed: {server} is at its rate limit{pause}. {fate}")
            }
            Cause::AuthExpired => format!(
                "{tool} failed: {server} rejected the credentials{status}. A person has to renew them; repeating the call cannot succeed before that."
            ),
            Cause::Denied => format!(
                "{tool} was denied by {server}{status}: {quoted}. Access is decided there; repeating the call gives the same answer."
            ),
            Cause::Refusal => {
                format!(
                    "{tool} was refused by a content policy: {quoted}. A differently worded request may pass."
                )
            }
            Cause::UnknownTool => {
                format!(
                    "{tool} failed: {server} has no such tool ({quoted}). Its list of tools shows what it has now."
                )
            }
            Cause::InvalidInput if matches!(self.failure.status, Some(404 | 410)) => format!(
                "{tool} found nothing there{status}: {quoted}. The same arguments give the same answer until that changes."
            ),
            Cause::InvalidInput => {
                format!(
                    "{tool} did not accept the request: {quoted}. The same arguments fail again."
                )
            }
            Cause::Network | Cause::SessionLost => format!(
                "{tool} failed: the connection to {server} was lost or could not be made ({quoted}).{tried} {fate}"
            ),
            Cause::Cancelled => format!("{tool} was cancelled. {fate}"),
            _ => format!("{tool} failed on {server}{status}: {quoted}.{tried} {fate}"),
        }
    }

    /// The same failure once more: shorter, with the count and one thing to do differently.
    fn again(&self) -> String {
        let step = match self.failure.cause {
            Cause::Loop | Cause::Uncertain | Cause::Queued => return self.first_time(),
            _ if self.failure.may_have_executed(self.effect) => self.fate(),
            Cause::UnknownTool => "The list of tools shows what there is.".to_owned(),
            Cause::InvalidInput | Cause::Refusal => {
                "The input has not changed, so the outcome will not.".to_owned()
            }
            Cause::AuthExpired | Cause::Denied | Cause::Unavailable | Cause::GivenUp => {
                "Only a person can change that.".to_owned()
            }
            _ if self.failure.retry_after.is_some() => {
                self.in_seconds("The next real try is possible in", ".")
            }
            _ => "A pause or another tool is likelier to help than another repeat.".to_owned(),
        };
        let code = code_words(ErrorCode::of(self.failure.cause));
        format!(
            "{} failed {} times with the same arguments (now: {code}, {}). {step}",
            self.tool,
            self.repeats,
            self.quoted()
        )
    }

    /// Whether a server or proxy reported the timeout, and not our own clock: its answer is quoted,
    /// and no duration is given.
    fn is_told_timeout(&self) -> bool {
        let has_answer = self.failure.status.is_some() || self.failure.sent == Sent::Yes;
        has_answer || (self.attempts > 0 && self.took < SHORTEST_WAIT)
    }

    fn timed_out(&self) -> String {
        let (tool, took) = (self.tool, about(self.took));
        if self.is_told_timeout() {
            let (server, status, quoted) = (self.server(), self.status(), self.quoted());
            let (tried, fate) = (self.tried(), self.fate());
            return format!(
                "{tool} failed: {server} answered that time was up{status}: {quoted}.{tried} {fate}"
            );
        }
        if self.failure.may_have_executed(self.effect) {
            let repeated =
                if self.attempts > 1 { self.tried() } else { " It was not repeated.".to_owned() };
            return format!(
                "{tool} did not answer within {took} and may have been executed.{repeated} {}",
                self.verify()
            );
        }
        // A read may have waited for the answer of an identical call in flight; a read that took no
        // time has waited for nothing.
        if self.attempts == 0 && (self.effect != Effect::ReadOnly || self.took.as_millis() == 0) {
            let server = self.server();
            return format!(
                "{tool} was not executed: its time was up before {server} was asked. Repeating is safe."
            );
        }
        if self.effect == Effect::ReadOnly {
            return format!(
                "{tool} timed out after {took}{}. It changes nothing, so repeating is safe; a narrower request may finish sooner.",
                self.attempts_in_brackets()
            );
        }
        format!(
            "{tool} was not executed: {} could not be reached within {took}. Repeating is safe.",
            self.server()
        )
    }

    /// Whether the call was executed, as far as is known.
    fn fate(&self) -> String {
        match self.effect {
            Effect::ReadOnly => "It changes nothing, so repeating is safe.".to_owned(),
            Effect::Idempotent if self.failure.may_have_executed(self.effect) => {
                "It may have been executed; repeating it changes nothing more.".to_owned()
            }
            _ if self.failure.may_have_executed(self.effect) => {
                format!("It may have been executed. {}", self.verify())
            }
            _ => "It was not executed, so repeating is safe.".to_owned(),
        }
    }

    fn verify(&self) -> String {
        match (self.effect, self.verify) {
            (Effect::Idempotent, _) => "Repeating it changes nothing more.".to_owned(),
            (_, Some(reader)) if self.verify_is_about => {
                format!("{reader} can show whether it took effect before another attempt.")
            }
            (_, Some(reader)) => format!(
                "Looking at the current state before another attempt, for example with {reader}, avoids doing it twice."
            ),
            (_, None) => {
                "Looking at the current state before another attempt avoids doing it twice."
                    .to_owned()
            }
        }
    }

    /// The known wait between two texts; empty if no wait is known.
    fn in_seconds(&self, before: &str, after: &str) -> String {
        self.failure
            .retry_after
            .map(|wait| format!("{before} {}s{after}", whole_seconds(wait)))
            .unwrap_or_default()
    }

    /// The earlier failure in brackets, if it is known.
    fn because(&self) -> String {
        if self.failure.message.is_empty() {
            String::new()
        } else {
            format!(" ({})", self.quoted())
        }
    }

    /// Whether this process rejected the call and no server did.
    fn is_local(&self) -> bool {
        self.failure.sent == Sent::Never && self.failure.status.is_none() && self.attempts == 0
    }

    fn tried(&self) -> String {
        if self.attempts > 1 {
            format!(" {} attempts were made.", self.attempts)
        } else {
            String::new()
        }
    }

    fn attempts_in_brackets(&self) -> String {
        if self.attempts > 1 { format!(" ({} attempts)", self.attempts) } else { String::new() }
    }

    fn status(&self) -> String {
        self.failure.status.map(|status| format!(" ({status})")).unwrap_or_default()
    }

    fn server(&self) -> &str {
        if self.server.is_empty() { "its server" } else { self.server }
    }

    /// The words of the operator's hint.
    fn hint(&self) -> Option<Vec<String>> {
        self.hint.map(|hint| shortened(&quote(hint), LONGEST_HINT))
    }

    /// The server's words. The model needs those about a wrong request, so more of them are kept;
    /// an operator's hint takes its words from this room.
    fn quoted(&self) -> String {
        let most: usize = match self.failure.cause {
            Cause::InvalidInput => 32,
            // How a process ended, and its last words.
            Cause::Network | Cause::Misbehaved => 24,
            _ => 14,
        };
        let taken = self.hint().map_or(0, |hint| hint.len());
        let room = most.saturating_sub(taken).max(SHORTEST_QUOTE).saturating_sub(self.cut);
        let quoted = shortened(&quote(&self.failure.message), room).join(" ");
        if quoted.is_empty() {
            "no reason given".to_owned()
        } else {
            format!("\"{}\"", quoted.trim_end_matches('.'))
        }
    }
}

/// The first words of a text, and an ellipsis if there were more.
fn shortened(text: &str, most: usize) -> Vec<String> {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    if words.len() > most {
        words.truncate(most);
        words.push("…".to_owned());
    }
    words
}

fn code_words(code: ErrorCode) -> String {
    code.as_str().to_lowercase().replace('_', " ")
}

/// The classic text when an open breaker leaves no other answer.
fn degradation(tool: &str, why: &str, retry_after: Duration) -> String {
    format!(
        "⚠️ The \"{tool}\" tool is temporarily unavailable {why}.\n\n\
         This usually means:\n\
         - The external API (GitHub, database, etc.) is down or rate limiting\n\
         - There's a network issue between the agent and the service\n\n\
         ⏱️ The system will automatically retry in {} seconds.\n\
         Try again in a moment, or rephrase your request to use a different tool.\n\n\
         _If this persists, contact your administrator._",
        whole_seconds(retry_after)
    )
}

#[cfg(test)]
mod tests;
