//! How often a write was executed, and what was said of it.

use std::time::Duration;

use tokio::time::Instant;

use super::Judge;
use crate::world::client::{execution, failure};
use crate::world::config::REJOIN_AFTER;
use crate::world::ledger::Execution;
use crate::world::notes::Request;
use crate::world::plan::{Effect, Era, Fate, Intent, Leave};

impl Judge<'_> {
    pub(super) fn executed_again(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, intent) in
            self.intents.iter().filter(|(_, intent)| intent.effect == Effect::Write)
        {
            let all = self.executions(name);
            let again = all
                .iter()
                .enumerate()
                .flat_map(|(place, later)| all[..place].iter().map(move |one| (one, later)));
            let worst =
                again.filter(|(one, later)| !self.is_new_intent(intent, one, later)).count();
            if worst > 0 {
                found.push(format!("{name} was executed {} times: {}", all.len(), self.told(&all)));
            }
        }
        found
    }

    fn told(&self, executions: &[&Execution]) -> String {
        let one = |execution: &&Execution| {
            let request = self.requests.get(execution.request.as_str());
            let sent = request.map_or(0, |request| self.ms(request.sent));
            let left = request
                .and_then(|request| request.left)
                .map(|(at, how)| format!(", left {how:?} at {}", self.ms(at)));
            let left = left.unwrap_or_default();
            format!("for {} (sent at {sent}{left}) at {}", execution.request, self.ms(execution.at))
        };
        executions.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Whether a later execution may be for another intent than an earlier one.
    fn is_new_intent(&self, intent: &Intent, earlier: &Execution, later: &Execution) -> bool {
        let (Some(first), Some(second)) = (self.request_of(earlier), self.request_of(later)) else {
            return false;
        };
        if first.tag == second.tag {
            return false;
        }
        let is_hasty = second.sent < earlier.at + Duration::from_millis(REJOIN_AFTER)
            && !first.left.is_some_and(|(at, how)| how == Leave::Cancelling && at <= second.sent);
        first.caller != second.caller
            || intent.fates.iter().any(says_that_it_did_not_act)
            || self.was_asked(intent, first)
            || is_hasty
            || self.may_have_crossed(intent, earlier, first)
            || self.was_delivered(earlier, later.at)
            || self.has_looked(intent, first, second)
    }

    /// A modern client that was asked something, whether or not it still read that, and begins anew
    /// does so knowingly.
    fn was_asked(&self, intent: &Intent, first: &Request) -> bool {
        let asks =
            intent.fates.iter().any(|fate| matches!(fate, Fate::Ask(_) | Fate::AskAndHang(_)));
        asks && self.record.history.clients[first.client].era == Era::Modern
    }

    /// The request that an execution belongs to. What the queue sends names none: it is the request
    /// that was told so.
    fn request_of(&self, execution: &Execution) -> Option<&Request> {
        if !execution.request.is_empty() {
            return self.requests.get(execution.request.as_str()).copied();
        }
        let is_queued = |request: &&Request| {
            let told = |answer: &serde_json::Value| {
                answer["result"]["_meta"]["seawall/served"]["by"] == "queue"
            };
            request.intent == execution.intent
                && request.answers.iter().any(|(_, answer)| told(answer))
        };
        let queued: Vec<&Request> = self.record.requests.iter().filter(is_queued).collect();
        let is_before =
            |other: &&&Execution| other.request.is_empty() && other.number < execution.number;
        let place = self.executions(&execution.intent).iter().filter(is_before).count();
        // A client that left was not told: then it is the first that asked.
        let first =
            || self.record.requests.iter().find(|request| request.intent == execution.intent);
        queued.get(place).or(queued.last()).copied().or_else(first)
    }

    /// Whether the answer may have been on its way to its client when the client left, or lies
    /// before a client that reads slowly: nobody can know what it read.
    fn may_have_crossed(&self, intent: &Intent, earlier: &Execution, first: &Request) -> bool {
        if intent.rounds.iter().any(|round| round.reads_slowly) && earlier.answered.is_some() {
            return true;
        }
        let slack = Duration::from_millis(5) + self.record.lag;
        // It may also have gone to one that joined.
        let crossed = |request: &Request| {
            let left = request.left.filter(|(_, how)| *how != Leave::Silently);
            let is_same = request.intent == earlier.intent && request.caller == first.caller;
            is_same
                && left.zip(earlier.answered).is_some_and(|((left, _), answered)| {
                    request.sent <= answered + slack && answered <= left + slack
                })
        };
        self.record.requests.iter().any(crossed)
    }

    /// Whether an answer of the server reached a client that may have been there, before the later
    /// execution.
    fn was_delivered(&self, earlier: &Execution, before: Instant) -> bool {
        let carries = |answer: &serde_json::Value| {
            execution(answer)
                .is_some_and(|object| object["execution"].as_u64() == Some(earlier.number as u64))
        };
        let of_own = |request: &Request| {
            let own = request.answers.iter().any(|(_, answer)| is_final(answer));
            request.tag == earlier.request && own
        };
        let got = |request: &Request| {
            request.answers.iter().any(|(_, answer)| carries(answer)) || of_own(request)
        };
        earlier.answered.is_some_and(|at| at <= before)
            && self
                .record
                .requests
                .iter()
                .any(|request| request.intent == earlier.intent && got(request))
    }

    /// Whether the client read from the server in between.
    fn has_looked(&self, intent: &Intent, first: &Request, second: &Request) -> bool {
        let reads = |request: &Request| {
            let of = self.intents.get(request.intent.as_str());
            of.is_some_and(|of| of.effect == Effect::Read && of.server == intent.server)
                && request.caller == first.caller
                && request.sent <= second.sent
                && request.answers.iter().any(|(at, _)| *at >= first.sent)
        };
        self.record.requests.iter().any(reads)
    }

    pub(super) fn said_not_executed(&self) -> Vec<String> {
        let mut found = Vec::new();
        for request in &self.record.requests {
            for (at, answer) in &request.answers {
                let said = failure(answer).filter(|failure| failure["mayHaveExecuted"] == false);
                let Some(intent) =
                    self.intents.get(request.intent.as_str()).filter(|_| said.is_some())
                else {
                    continue;
                };
                if intent.effect == Effect::Read
                    || intent.fates.iter().any(says_that_it_did_not_act)
                {
                    continue;
                }
                let all = self.executions(&request.intent);
                let own = all
                    .iter()
                    .filter(|execution| execution.request == request.tag && execution.at < *at);
                let earlier =
                    all.iter().filter(|execution| self.is_of_earlier(intent, execution, request));
                let of: Vec<&Execution> = own.chain(earlier).copied().collect();
                if !of.is_empty() {
                    let text = &answer["result"]["content"][0]["text"];
                    found.push(format!(
                        "{} of {} got {text}, executed {}",
                        request.tag,
                        request.intent,
                        self.told(&of)
                    ));
                }
            }
        }
        found
    }

    /// Whether an execution belongs to the same intent as a request that came after it.
    fn is_of_earlier(&self, intent: &Intent, execution: &Execution, request: &Request) -> bool {
        let Some(first) = self.request_of(execution) else { return false };
        first.tag != request.tag
            && first.caller == request.caller
            && !self.was_asked(intent, first)
            && execution.at + Duration::from_millis(REJOIN_AFTER) <= request.sent
            && !self.was_delivered(execution, request.sent)
            && !self.may_have_crossed(intent, execution, first)
            && !self.has_looked(intent, first, request)
    }
}

/// Whether an answer leaves no doubt: the server's own, or a failure that says that nothing was
/// done. A tool's own error keeps its words when a failure is noted beside them: who asks again has
/// read them.
fn is_final(answer: &serde_json::Value) -> bool {
    let says_itself =
        |failure: &&serde_json::Value| answer["result"]["content"][0]["text"] == failure["message"];
    let is_in_doubt = failure(answer)
        .filter(says_itself)
        .is_some_and(|failure| failure["mayHaveExecuted"] != false);
    !is_in_doubt && execution(answer).is_none()
}

/// Statuses by which a server says that it did not act, though it did here: it may be believed, but
/// not asked twice by us.
fn says_that_it_did_not_act(fate: &Fate) -> bool {
    matches!(fate, Fate::Status(401 | 403 | 409 | 422, _))
}
