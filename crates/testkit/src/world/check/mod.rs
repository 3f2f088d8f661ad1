//! What must hold after every history, told from the servers' ledger and the clients' notes.
//!
//! Whether something was executed twice, denied or given to somebody else does not depend on how
//! fast the machine is: these are judged by what certainly happened before what. Times are judged
//! with as much slack as the machine itself was late.

mod answers;
mod executions;
mod lists;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use tokio::time::Instant;

use super::ledger::Execution;
use super::notes::Request;
use super::plan::{Intent, Way, What};
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
    /// A joined answer does not say that it is one.
    Unlabelled,
    /// A failure contradicts itself, or lacks what a failure must say.
    SaysWrongly,
    /// A read whose second attempt would have been answered was lost.
    ReadLost,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::ExecutedAgain,
        Self::SaidNotExecuted,
        Self::Unanswered,
        Self::AnsweredWrongly,
        Self::Foreign,
        Self::Unused,
        Self::Vanished,
        Self::SessionLost,
        Self::LeftOver,
        Self::Unlabelled,
        Self::SaysWrongly,
        Self::ReadLost,
    ];

    /// Whether a slow machine alone can be the cause.
    pub fn is_about_time(self) -> bool {
        matches!(self, Self::Unanswered | Self::Unused | Self::LeftOver | Self::ReadLost)
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
    let mut note = |rule, seen: Vec<String>| {
        found.extend(seen.into_iter().map(|seen| Violation { rule, seen }))
    };
    note(Rule::ExecutedAgain, judge.executed_again());
    note(Rule::SaidNotExecuted, judge.said_not_executed());
    note(Rule::Unanswered, judge.unanswered());
    note(Rule::AnsweredWrongly, judge.answered_wrongly());
    note(Rule::Foreign, judge.foreign());
    note(Rule::Unused, record.unused.clone());
    note(Rule::Vanished, judge.vanished());
    note(Rule::SessionLost, judge.sessions_lost());
    note(Rule::LeftOver, record.left_over.clone());
    note(Rule::Unlabelled, judge.unlabelled());
    note(Rule::SaysWrongly, judge.says_wrongly());
    note(Rule::ReadLost, judge.reads_lost());
    found
}

struct Judge<'a> {
    record: &'a Record,
    requests: HashMap<&'a str, &'a Request>,
    intents: BTreeMap<&'a str, &'a Intent>,
}

impl<'a> Judge<'a> {
    fn new(record: &'a Record) -> Self {
        let requests =
            record.requests.iter().map(|request| (request.tag.as_str(), request)).collect();
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
        !self.is_on_pipe(request)
            && self.record.blows.iter().any(|(begin, end)| *begin <= to && from <= *end)
    }

    fn executions(&self, intent: &str) -> Vec<&'a Execution> {
        self.record.executions.iter().filter(|execution| execution.intent == intent).collect()
    }
}
