//! What must hold after every history, told from the servers' ledger and the clients' notes.
//!
//! Whether something was executed twice, denied or given to somebody else does not depend on how fast the machine is: these
//! are judged by what certainly happened before what. Times are judged with as much slack as the machine itself was late.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use super::client::{execution, failure, nonce};
use super::config::{DEADLINE, QUESTION_TIME, REJOIN_AFTER};
use super::ledger::Execution;
use super::notes::Request;
use super::plan::{Effect, Fate, Intent, Leave, Manners, Way, What};
use super::play::Record;

/// What was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A write was executed more often than it was intended.
    ExecutedAgain,
    /// "Not executed" was said of what was.
    SaidNotExecuted,
    /// A call was not answered, or not in time.
    Unanswered,
    /// A call was answered twice, or under an id that is not its own.
    AnsweredWrongly,
    /// An answer went to somebody else.
    Foreign,
    /// A server that answers was not used.
    Unused,
    /// A tool was missing from a list.
    Vanished,
    /// A session was not known any more.
    SessionLost,
    /// A process, descriptor or memory was left over.
    LeftOver,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ExecutedAgain,
        Self::SaidNotExecuted,
        Self::Unanswered,
        Self::AnsweredWrongly,
        Self::Foreign,
        Self::Unused,
        Self::Vanished,
        Self::SessionLost,
        Self::LeftOver,
    ];

    /// Whether a slow machine alone can be the cause.
    pub fn is_about_time(self) -> bool {
        matches!(self, Self::Unanswered | Self::Unused | Self::LeftOver)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{self:?}")
    }
}

/// A rule that did not hold, and what was seen.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What was seen.
    pub seen: String,
}

/// All violations of a record.
pub fn check(record: &Record) -> Vec<Violation> {
    let judge = Judge::new(record);
    let mut found = Vec::new();
    let mut note = |rule, seen: Vec<String>| found.extend(seen.into_iter().map(|seen| Violation { rule, seen }));
    note(Rule::ExecutedAgain, judge.executed_again());
    note(Rule::SaidNotExecuted, judge.said_not_executed());
    note(Rule::Unanswered, judge.unanswered());
    note(Rule::AnsweredWrongly, judge.answered_wrongly());
    note(Rule::Foreign, judge.foreign());
    note(Rule::Unused, record.unused.clone());
    note(Rule::Vanished, judge.vanished());
    note(Rule::SessionLost, judge.sessions_lost());
    note(Rule::LeftOver, record.left_over.clone());
    found
}

struct Judge<'a> {
    record: &'a Record,
    requests: HashMap<&'a str, &'a Request>,
    intents: BTreeMap<&'a str, &'a Intent>,
}

impl<'a> Judge<'a> {
    fn new(record: &'a Record) -> Self {
        let requests = record.requests.iter().map(|request| (request.tag.as_str(), request)).collect();
        let intents = record.history.steps.iter().filter_map(|step| match &step.what {
            What::Intend(intent) => Some((intent.name.as_str(), intent)),
            _ => None,
        });
        Self { record, requests, intents: intents.collect() }
    }

    /// Time since the first request, for people.
    fn ms(&self, at: Instant) -> u128 {
        let first = self.record.requests.iter().map(|request| request.sent).min().unwrap_or(at);
        at.saturating_duration_since(first).as_millis()
    }

    fn is_on_pipe(&self, request: &Request) -> bool {
        matches!(self.record.history.clients[request.client].way, Way::Run(_))
    }

    /// Whether the gateway of this request was away at some time in between.
    fn was_hit(&self, request: &Request, from: Instant, to: Instant) -> bool {
        !self.is_on_pipe(request) && self.record.blows.iter().any(|(begin, end)| *begin <= to && from <= *end)
    }

    fn executions(&self, intent: &str) -> Vec<&'a Execution> {
        self.record.executions.iter().filter(|execution| execution.intent == intent).collect()
    }

    fn executed_again(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, intent) in self.intents.iter().filter(|(_, intent)| intent.effect == Effect::Write) {
            let all = self.executions(name);
            let again =
                all.iter().enumerate().flat_map(|(place, later)| all[..place].iter().map(move |one| (one, later)));
            let worst = again.filter(|(one, later)| !self.is_new_intent(intent, one, later)).count();
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
            let left =
                request.and_then(|request| request.left).map(|(at, how)| format!(", left {how:?} at {}", self.ms(at)));
            let left = left.unwrap_or_default();
            format!("for {} (sent at {sent}{left}) at {}", execution.request, self.ms(execution.at))
        };
        executions.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    /// Whether a later execution may be for another intent than an earlier one.
    fn is_new_intent(&self, intent: &Intent, earlier: &Execution, later: &Execution) -> bool {
        let tags = (earlier.request.as_str(), later.request.as_str());
        let (Some(first), Some(second)) = (self.requests.get(tags.0), self.requests.get(tags.1)) else { return false };
        if first.tag == second.tag {
            return false;
        }
        let is_hasty = second.sent < earlier.at + Duration::from_millis(REJOIN_AFTER)
            && !first.left.is_some_and(|(at, how)| how == Leave::Cancelling && at <= second.sent);
        first.caller != second.caller
            || self.was_hit(second, first.sent, later.at)
            || is_hasty
            || self.was_delivered(earlier, later.at)
            || self.has_looked(intent, first, second)
    }

    /// Whether an answer of the server reached a client that may have been there, before the later execution.
    fn was_delivered(&self, earlier: &Execution, before: Instant) -> bool {
        let carries = |answer: &serde_json::Value| {
            execution(answer).is_some_and(|object| object["execution"].as_u64() == Some(earlier.number as u64))
        };
        let of_own = |request: &Request| {
            let own =
                request.answers.iter().any(|(_, answer)| failure(answer).is_none() && execution(answer).is_none());
            request.tag == earlier.request && own
        };
        let got = |request: &Request| request.answers.iter().any(|(_, answer)| carries(answer)) || of_own(request);
        earlier.answered.is_some_and(|at| at <= before)
            && self.record.requests.iter().any(|request| request.intent == earlier.intent && got(request))
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

    fn said_not_executed(&self) -> Vec<String> {
        let mut found = Vec::new();
        for request in &self.record.requests {
            for (at, answer) in &request.answers {
                let said = failure(answer).filter(|failure| failure["mayHaveExecuted"] == false);
                let Some(intent) = self.intents.get(request.intent.as_str()).filter(|_| said.is_some()) else {
                    continue;
                };
                // These statuses are how a server says by the protocol that it did not act.
                let lies = |fate: &Fate| matches!(fate, Fate::Status(401 | 403, _));
                if intent.effect == Effect::Read || intent.fates.iter().any(lies) {
                    continue;
                }
                let all = self.executions(&request.intent);
                let own = all.iter().filter(|execution| execution.request == request.tag && execution.at < *at);
                let earlier = all.iter().filter(|execution| self.is_of_earlier(execution, request));
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
    fn is_of_earlier(&self, execution: &Execution, request: &Request) -> bool {
        let Some(first) = self.requests.get(execution.request.as_str()) else { return false };
        first.tag != request.tag
            && first.caller == request.caller
            && execution.at + Duration::from_millis(REJOIN_AFTER) <= request.sent
            && !self.was_hit(request, first.sent, request.sent)
            && !self.was_delivered(execution, request.sent)
    }

    /// When a request must be over at the latest.
    fn deadline(&self, request: &Request) -> Duration {
        let intent = self.intents.get(request.intent.as_str());
        let asks = |fate: &Fate| matches!(fate, Fate::Ask(_) | Fate::AskAndHang(_));
        let is_asked = intent.is_some_and(|intent| intent.fates.iter().any(asks));
        let questions = match self.record.history.clients[request.client].manners {
            _ if !is_asked => 0,
            // Each attempt may ask once.
            Manners::Answers(time) => 3 * time,
            Manners::Refuses => 0,
            Manners::Ignores => QUESTION_TIME,
        };
        Duration::from_millis(DEADLINE + questions + 1_000) + self.record.lag * 4
    }

    fn unanswered(&self) -> Vec<String> {
        let mut found = Vec::new();
        for request in self.record.requests.iter().filter(|request| request.left.is_none()) {
            let limit = self.deadline(request);
            let ignores = self.record.history.clients[request.client].manners == Manners::Ignores;
            if self.was_hit(request, request.sent, request.sent + limit) || (ignores && !self.record.bounds_questions) {
                continue;
            }
            let lost = request.broke.as_ref().is_some_and(|(_, why)| why.contains("HTTP 404"));
            let of = format!("{} of {}, sent at {}", request.tag, request.intent, self.ms(request.sent));
            match request.answers.first() {
                None if lost => {}
                None => found.push(format!("{of}, was not answered: {:?}", request.broke.as_ref().map(|(_, why)| why))),
                Some((at, answer)) if *at > request.sent + limit => {
                    found.push(format!("{of}, was answered after {:?}: {answer}", *at - request.sent));
                }
                Some(_) => {}
            }
        }
        found
    }

    fn answered_wrongly(&self) -> Vec<String> {
        let twice = self.record.requests.iter().filter(|request| request.answers.len() > 1);
        let twice = twice.map(|request| format!("{} was answered {} times", request.tag, request.answers.len()));
        twice.chain(self.record.strange.iter().cloned()).collect()
    }

    fn foreign(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut clients: BTreeMap<u64, HashSet<usize>> = BTreeMap::new();
        for request in &self.record.requests {
            for object in request.answers.iter().filter_map(|(_, answer)| execution(answer)) {
                let own = nonce(request.client, &request.intent);
                if object["nonce"] != own.as_str() || object["intent"] != request.intent.as_str() {
                    found.push(format!("{} of {} got {object}", request.tag, request.intent));
                }
                let number = object["execution"].as_u64().unwrap_or_default();
                clients.entry(number).or_default().insert(request.client);
            }
        }
        let shared = clients.into_iter().filter(|(_, clients)| clients.len() > 1);
        found.extend(shared.map(|(number, clients)| format!("execution {number} was answered to clients {clients:?}")));
        found
    }

    /// A tool that was once listed to somebody is in every later list, unless its server takes it away.
    fn vanished(&self) -> Vec<String> {
        let mut found = Vec::new();
        let listings = &self.record.listings;
        for later in listings {
            let client = &self.record.history.clients[later.client];
            let before = |earlier: &&super::notes::Listing| {
                let same_place = self.record.history.clients[earlier.client].way == client.way;
                let life = earlier.life == later.life || client.way != Way::Merged;
                earlier.came <= later.sent && same_place && life
            };
            let known: HashSet<&String> =
                listings.iter().filter(before).flat_map(|one| one.names.iter().flatten()).collect();
            let missing = |name: &&&String| {
                !name.ends_with("extra") && !later.names.iter().flatten().any(|there| there == **name)
            };
            let was_hit = client.way == Way::Merged
                && self.record.blows.iter().any(|(begin, end)| *begin <= later.came && later.sent <= *end);
            let missing: Vec<_> = known.iter().filter(missing).filter(|name| self.is_asked(later, name)).collect();
            if !missing.is_empty() && !was_hit {
                let instead = later.names.as_ref().err();
                let at = self.ms(later.sent);
                found.push(format!("c{} did not find {missing:?} at {at}; it got {instead:?}", later.client));
            }
        }
        found
    }

    /// Whether a list that was asked for should have this tool at all.
    fn is_asked(&self, later: &super::notes::Listing, name: &str) -> bool {
        if !self.record.history.settings.alone {
            return true;
        }
        // A server's own list has only its own.
        later.names.iter().flatten().all(|there| there.split("__").next() == name.split("__").next())
            && later.names.as_ref().is_ok_and(|names| !names.is_empty())
    }

    fn sessions_lost(&self) -> Vec<String> {
        let lost = self.record.requests.iter().filter(|request| {
            let told = request.broke.as_ref().filter(|(_, why)| why.contains("HTTP 404"));
            told.is_some_and(|(at, _)| !self.is_away(request.sent, *at))
        });
        lost.map(|request| format!("{} of {}, {}", request.tag, request.intent, request.caller)).collect()
    }

    fn is_away(&self, from: Instant, to: Instant) -> bool {
        self.record.blows.iter().any(|(begin, end)| *begin <= to && from <= *end)
    }
}
