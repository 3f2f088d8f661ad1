//! Whether every call was answered: in time, once, under its id, to the right client, and truly.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::Judge;
use crate::world::client::http::LOST;
use crate::world::client::{execution, failure, nonce};
use crate::world::config::{DEADLINE, QUESTION_TIME};
use crate::world::notes::Request;
use crate::world::plan::{Effect, Era, Fate, Intent, Manners, Way, What};

impl Judge<'_> {
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

    pub(super) fn unanswered(&self) -> Vec<String> {
        let mut found = Vec::new();
        for request in self.record.requests.iter().filter(|request| request.left.is_none()) {
            let reads_slowly =
                |intent: &Intent| intent.rounds.iter().any(|round| round.reads_slowly);
            if self.intents.get(request.intent.as_str()).is_some_and(|intent| reads_slowly(intent))
            {
                continue;
            }
            let limit = self.deadline(request);
            let ignores = self.record.history.clients[request.client].manners == Manners::Ignores;
            if self.was_hit(request, request.sent, request.sent + limit)
                || (ignores && !self.record.bounds_questions)
            {
                continue;
            }
            let lost = request.broke.as_ref().is_some_and(|(_, why)| why == LOST);
            let of =
                format!("{} of {}, sent at {}", request.tag, request.intent, self.ms(request.sent));
            match request.answers.first() {
                None if lost => {}
                None => found.push(format!(
                    "{of}, was not answered: {:?}",
                    request.broke.as_ref().map(|(_, why)| why)
                )),
                Some((at, answer)) if *at > request.sent + limit => {
                    found.push(format!(
                        "{of}, was answered after {:?}: {answer}",
                        *at - request.sent
                    ));
                }
                Some(_) => {}
            }
        }
        found
    }

    pub(super) fn answered_wrongly(&self) -> Vec<String> {
        let twice = self.record.requests.iter().filter(|request| request.answers.len() > 1);
        let twice = twice
            .map(|request| format!("{} was answered {} times", request.tag, request.answers.len()));
        twice.chain(self.record.strange.iter().cloned()).collect()
    }

    pub(super) fn foreign(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut clients: BTreeMap<u64, HashSet<usize>> = BTreeMap::new();
        for request in &self.record.requests {
            for object in request.answers.iter().filter_map(|(_, answer)| execution(answer)) {
                let own = nonce(&request.intent);
                if object["nonce"] != own.as_str() || object["intent"] != request.intent.as_str() {
                    found.push(format!("{} of {} got {object}", request.tag, request.intent));
                }
                let number = object["execution"].as_u64().unwrap_or_default();
                clients.entry(number).or_default().insert(request.client);
            }
        }
        for (number, clients) in clients.into_iter().filter(|(_, clients)| clients.len() > 1) {
            let of =
                self.record.executions.iter().find(|execution| execution.number as u64 == number);
            let is_read = of
                .and_then(|of| self.intents.get(of.intent.as_str()))
                .is_some_and(|intent| intent.effect == Effect::Read);
            // Reads of clients that nobody can tell apart may be shared.
            if !(is_read && clients.iter().all(|client| self.is_stranger(*client))) {
                found.push(format!("execution {number} was answered to clients {clients:?}"));
            }
        }
        found
    }

    fn is_stranger(&self, client: usize) -> bool {
        let plan = &self.record.history.clients[client];
        plan.era == Era::Modern && plan.way == Way::Merged && !plan.has_identity
    }

    /// Whoever gets the answer to another request than its own is told so.
    pub(super) fn unlabelled(&self) -> Vec<String> {
        let mut found = Vec::new();
        for request in &self.record.requests {
            let is_write = self
                .intents
                .get(request.intent.as_str())
                .is_some_and(|intent| intent.effect == Effect::Write);
            for (_, answer) in request.answers.iter().filter(|_| is_write) {
                let number = execution(answer).and_then(|object| object["execution"].as_u64());
                let of = self
                    .record
                    .executions
                    .iter()
                    .find(|execution| Some(execution.number as u64) == number);
                // Who has answered a question of the call goes on with it, whoever began it.
                let is_joined =
                    of.is_some_and(|of| of.request != request.tag) && request.questions == 0;
                if is_joined && answer["result"]["_meta"].get("seawall/served").is_none() {
                    found.push(format!("{} of {} got {answer}", request.tag, request.intent));
                }
            }
        }
        found
    }

    pub(super) fn says_wrongly(&self) -> Vec<String> {
        let mut found = Vec::new();
        for request in self.record.requests.iter().filter(|request| request.intent != "tools/list")
        {
            for (_, answer) in &request.answers {
                let failure = failure(answer);
                let waits = failure.is_some_and(|said| {
                    said["retryable"] == false && !said["retryAfter"].is_null()
                });
                let nothing = failure.is_some_and(|said| {
                    said["message"].as_str().unwrap_or_default().contains("within 0s")
                });
                let error = answer["error"]["message"].as_str().unwrap_or_default();
                let is_raw = error == "database is locked" || error == "timeout";
                if waits || nothing || is_raw {
                    found.push(format!("{} of {} got {answer}", request.tag, request.intent));
                }
            }
        }
        found
    }

    /// Alone with its server, a read whose first attempt fails and whose second is answered has an
    /// answer.
    pub(super) fn reads_lost(&self) -> Vec<String> {
        let mut found = Vec::new();
        for request in self.record.requests.iter().filter(|request| request.left.is_none()) {
            let Some(intent) = self.intents.get(request.intent.as_str()) else { continue };
            let [first, Fate::Answer] = intent.fates.as_slice() else { continue };
            let fails = matches!(
                first,
                Fate::Hang | Fate::Cut | Fate::Garbage | Fate::Status(500..=599, _)
            );
            let is_alone = self.record.history.steps.iter().all(|step| match &step.what {
                What::Intend(other) => other.name == intent.name || other.server != intent.server,
                What::List(_) | What::Reconnect(_) => true,
                _ => false,
            });
            let is_simple =
                intent.rounds.len() == 1 && intent.rounds[0].times == 1 && intent.twin.is_none();
            let is_read = intent.effect == Effect::Read && fails && is_alone && is_simple;
            if is_read && !request.answers.iter().any(|(_, answer)| execution(answer).is_some()) {
                let got = request
                    .answers
                    .first()
                    .map(|(_, answer)| answer["result"]["content"][0]["text"].to_string());
                found.push(format!("{} of {} got {got:?}", request.tag, request.intent));
            }
        }
        found
    }

    pub(super) fn sessions_lost(&self) -> Vec<String> {
        let lost = self.record.requests.iter().filter(|request| {
            let told = request.broke.as_ref().filter(|(_, why)| why == LOST);
            told.is_some_and(|(at, _)| !self.is_away(request.sent, *at))
        });
        lost.map(|request| format!("{} of {}, {}", request.tag, request.intent, request.caller))
            .collect()
    }

    fn is_away(&self, from: Instant, to: Instant) -> bool {
        self.record.blows.iter().any(|(begin, end)| *begin <= to && from <= *end)
    }
}
