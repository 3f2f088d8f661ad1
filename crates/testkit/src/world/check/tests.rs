//! Every rule holds where it should, and can be violated.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::world::client::nonce;
use crate::world::notes::Listing;
use crate::world::plan::*;

/// A record of two legacy clients and one server; `c0` intends `i0`.
struct Made {
    begun: Instant,
    record: Record,
}

impl Made {
    fn of(effect: Effect, fates: &[Fate]) -> Self {
        let round =
            Round { times: 1, leaves: None, reconnects: false, reads_slowly: false, hastes: false };
        let (name, fates, rounds) = ("i0".to_owned(), fates.to_vec(), vec![round]);
        let intent = Intent { name, client: 0, twin: None, server: 0, effect, fates, rounds };
        let client = ClientPlan {
            era: Era::Legacy,
            way: Way::Merged,
            has_identity: false,
            manners: Manners::Refuses,
        };
        let (face, era) = (Face::Http, Era::Legacy);
        let server = ServerPlan { face, era, shared: false, slow_start: 0, names_the_call: false };
        let settings =
            SettingsPlan { reconnect: 20, on_abandon: "cancel", store: false, alone: false };
        let steps = vec![Step { at: 0, what: What::Intend(intent) }];
        let history =
            History { seed: 0, settings, servers: vec![server], clients: vec![client; 2], steps };
        let record = Record {
            history,
            executions: Vec::new(),
            requests: Vec::new(),
            listings: Vec::new(),
            strange: Vec::new(),
            unused: Vec::new(),
            left_over: Vec::new(),
            blows: Vec::new(),
            lag: Duration::ZERO,
            bounds_questions: true,
        };
        Self { begun: Instant::now(), record }
    }

    fn at(&self, ms: u64) -> Instant {
        self.begun + Duration::from_millis(ms)
    }

    /// A request of a client, and what it was answered.
    fn asks(mut self, client: usize, tag: &str, sent: u64, answers: &[(u64, Value)]) -> Self {
        let answers = answers.iter().map(|(at, answer)| (self.at(*at), answer.clone())).collect();
        let (tag, intent, caller) = (tag.to_owned(), "i0".to_owned(), format!("session {client}"));
        let (life, sent, left, broke, questions) = (1, self.at(sent), None, None, 0);
        let session = caller.clone();
        let request = Request {
            tag,
            intent,
            client,
            caller,
            life,
            sent,
            left,
            answers,
            broke,
            questions,
            session,
        };
        self.record.requests.push(request);
        self
    }

    /// The last request was left.
    fn left(mut self, at: u64, how: Leave) -> Self {
        let left = Some((self.at(at), how));
        self.record.requests.iter_mut().last().unwrap().left = left;
        self
    }

    fn executed(mut self, tag: &str, at: u64, answered: Option<u64>) -> Self {
        let (at, answered) = (self.at(at), answered.map(|at| self.at(at)));
        let (number, request, intent) =
            (self.record.executions.len() + 1, tag.to_owned(), "i0".to_owned());
        self.record.executions.push(Execution { number, server: 0, intent, request, at, answered });
        self
    }

    fn listed(mut self, at: u64, names: &[&str]) -> Self {
        let names = Ok(names.iter().map(|name| (*name).to_owned()).collect());
        self.record.listings.push(Listing {
            client: 0,
            life: 1,
            sent: self.at(at),
            came: self.at(at + 1),
            names,
        });
        self
    }

    fn violates(&self) -> Vec<Rule> {
        let mut rules: Vec<Rule> =
            check(&self.record).into_iter().map(|violation| violation.rule).collect();
        rules.dedup();
        rules
    }
}

fn done(number: u64) -> Value {
    let text = json!({"execution": number, "intent": "i0", "nonce": nonce("i0")}).to_string();
    json!({"result": {"content": [{"type": "text", "text": text}]}})
}

fn joined(number: u64) -> Value {
    let mut answer = done(number);
    answer["result"]["_meta"] = json!({"seawall/served": {"by": "late"}});
    answer
}

fn failed(may_have_executed: bool) -> Value {
    let message = "it failed";
    let failure =
        json!({"message": message, "mayHaveExecuted": may_have_executed, "retryable": true});
    let content = json!([{"type": "text", "text": message}]);
    json!({"result": {"content": content, "isError": true, "_meta": {"seawall/failure": failure}}})
}

fn write() -> Made {
    Made::of(Effect::Write, &[Fate::Answer])
}

#[test]
fn a_silent_repeat_of_an_unanswered_write_is_the_same_intent_and_a_quick_one_or_one_after_the_answer_is_not()
 {
    let abandoned =
        || write().asks(0, "a", 0, &[]).left(100, Leave::Silently).executed("a", 10, None);
    let again = abandoned().asks(0, "b", 300, &[(400, done(2))]).executed("b", 310, Some(390));
    assert_eq!(again.violates(), [Rule::ExecutedAgain]);
    let quick = abandoned().asks(0, "b", 50, &[(400, done(2))]).executed("b", 60, Some(390));
    assert_eq!(quick.violates(), []);
    let other = abandoned().asks(1, "b", 300, &[(400, done(2))]).executed("b", 310, Some(390));
    assert_eq!(other.violates(), [], "another caller");
    let delivered = write().asks(0, "a", 0, &[(200, done(1))]).left(100, Leave::Silently).executed(
        "a",
        10,
        Some(190),
    );
    let delivered = delivered.asks(0, "b", 300, &[(400, done(2))]).executed("b", 310, Some(390));
    assert_eq!(delivered.violates(), []);
    let cancelled =
        write().asks(0, "a", 0, &[]).left(20, Leave::Cancelling).executed("a", 10, None);
    let cancelled = cancelled.asks(0, "b", 30, &[(400, done(2))]).executed("b", 40, Some(390));
    assert_eq!(cancelled.violates(), [Rule::ExecutedAgain], "a cancel is certain at once");
}

#[test]
fn who_asks_again_after_the_servers_own_error_means_it_and_after_a_failure_of_ours_does_not() {
    let again = |answer: Value| {
        let first = write().asks(0, "a", 0, &[(20, answer)]).executed("a", 10, Some(15));
        first.asks(0, "b", 300, &[(400, done(2))]).executed("b", 310, Some(390)).violates()
    };
    assert_eq!(again(failed(true)), [Rule::ExecutedAgain]);
    let mut own = failed(true);
    own["result"]["content"] = json!([{"type": "text", "text": "GitHub API: 503"}]);
    assert_eq!(again(own), []);
}

#[test]
fn a_request_that_is_executed_twice_is_never_excused() {
    let twice = write().asks(0, "a", 0, &[(50, done(2))]).executed("a", 10, Some(20)).executed(
        "a",
        30,
        Some(40),
    );
    assert_eq!(twice.violates(), [Rule::ExecutedAgain]);
}

#[test]
fn not_executed_may_be_said_only_of_what_was_not() {
    assert_eq!(write().asks(0, "a", 0, &[(50, failed(false))]).violates(), []);
    let executed = |may| write().asks(0, "a", 0, &[(50, failed(may))]).executed("a", 10, None);
    assert_eq!(executed(true).violates(), []);
    assert_eq!(executed(false).violates(), [Rule::SaidNotExecuted]);
    let abandoned = write().asks(0, "a", 0, &[]).left(100, Leave::Silently).executed("a", 10, None);
    let refused = abandoned.asks(0, "b", 300, &[(310, failed(false))]);
    assert_eq!(refused.violates(), [Rule::SaidNotExecuted], "of the same intent");
}

#[test]
fn an_answer_comes_in_time_once_and_to_its_own_client_who_is_told_if_it_was_anothers_request() {
    assert_eq!(write().asks(0, "a", 0, &[]).violates(), [Rule::Unanswered]);
    let answered =
        |at, answers: &[(u64, Value)]| write().asks(0, "a", 0, answers).executed("a", 10, Some(at));
    assert_eq!(answered(1_900, &[(1_990, done(1))]).violates(), []);
    assert_eq!(answered(1_900, &[(2_100, done(1))]).violates(), [Rule::Unanswered]);
    assert_eq!(answered(20, &[(30, done(1)), (40, done(1))]).violates(), [Rule::AnsweredWrongly]);
    assert_eq!(
        answered(20, &[(30, done(1))]).asks(1, "b", 0, &[(30, joined(1))]).violates(),
        [Rule::Foreign]
    );
    assert_eq!(answered(20, &[(30, done(1))]).asks(0, "b", 0, &[(30, joined(1))]).violates(), []);
    assert_eq!(
        answered(20, &[(30, done(1))]).asks(0, "b", 0, &[(30, done(1))]).violates(),
        [Rule::Unlabelled]
    );
    let mut foreign = done(1);
    foreign["result"]["content"][0]["text"] =
        json!(r#"{"execution": 1, "intent": "i1", "nonce": "n-i1"}"#);
    assert_eq!(answered(20, &[(30, foreign)]).violates(), [Rule::Foreign]);
}

#[test]
fn a_read_that_a_second_attempt_saves_is_not_lost_and_a_listed_tool_does_not_vanish() {
    let read = |answer| {
        Made::of(Effect::Read, &[Fate::Hang, Fate::Answer]).asks(0, "a", 0, &[(900, answer)])
    };
    assert_eq!(read(done(1)).violates(), []);
    assert_eq!(read(failed(true)).violates(), [Rule::ReadLost]);
    assert_eq!(write().listed(0, &["s0__a"]).listed(10, &["s0__a", "s0__b"]).violates(), []);
    assert_eq!(
        write().listed(0, &["s0__a", "s0__b"]).listed(10, &["s0__a"]).violates(),
        [Rule::Vanished]
    );
}

#[test]
fn a_failure_does_not_contradict_itself() {
    let mut failure = failed(true);
    failure["result"]["_meta"]["seawall/failure"]["retryable"] = json!(false);
    assert_eq!(write().asks(0, "a", 0, &[(50, failure.clone())]).violates(), []);
    failure["result"]["_meta"]["seawall/failure"]["retryAfter"] = json!(58);
    assert_eq!(write().asks(0, "a", 0, &[(50, failure)]).violates(), [Rule::SaysWrongly]);
}
