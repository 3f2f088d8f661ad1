//! The scripted agents: how often each makes a call again, and how long it waits.

use std::sync::Arc;
use std::time::Duration;

use seawall_demo::client::{ClientAnswer, DemoClient};
use seawall_demo::faults::drawn;
use seawall_demo::faulty::{APPEND, arguments};
use seawall_demo::verdict::{FailureText, Verdict, judge};
use seawall_demo::world::{LedgerEntry, World};
use tokio::time::Instant;

use super::tally::{AGAIN, Tally};

/// How long an agent waits; stands for the 60 seconds of common clients.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// How long the impatient one waits: less than a slow answer takes.
const IMPATIENCE: Duration = Duration::from_millis(250);
/// How long an agent thinks before each call: some seconds, in the scale of the rest.
const THINKING: Duration = Duration::from_millis(100);
/// How often twelve models called a dead tool again (mcp-chaos, 60 runs): so many runs with 0, 1, …
/// 6 more calls.
const HISTOGRAM: [u64; 7] = [9, 11, 6, 7, 12, 12, 3];

/// An agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Agent {
    /// Never calls again.
    Once,
    /// As often as models were seen to.
    Measured,
    /// The same, but it heeds what a failure says: wait, do not repeat, it may have been executed.
    Heedful,
    /// Five times, whatever it is told.
    Blind,
    /// Twenty calls at a time, once.
    Burst,
    /// Gives up early, says so to the server, and makes the same call again, twice.
    Impatient,
    /// The same, but it tells nobody that it gave up, as the Python SDK 1.30.
    Silent,
}

/// All of them.
pub(crate) const ALL: [Agent; 7] = [
    Agent::Once,
    Agent::Measured,
    Agent::Heedful,
    Agent::Blind,
    Agent::Burst,
    Agent::Impatient,
    Agent::Silent,
];

impl Agent {
    fn repeats(self, seed: u64, number: u64) -> u64 {
        match self {
            Agent::Once | Agent::Burst => 0,
            Agent::Blind => 4,
            Agent::Impatient | Agent::Silent => 2,
            Agent::Measured | Agent::Heedful => {
                let mut place = drawn(seed, "repeats", number, 0) % HISTOGRAM.iter().sum::<u64>();
                let found = HISTOGRAM.iter().position(|runs| {
                    let is_here = place < *runs;
                    place = place.saturating_sub(*runs);
                    is_here
                });
                found.unwrap_or(0) as u64
            }
        }
    }

    fn patience(self) -> Duration {
        if matches!(self, Agent::Impatient | Agent::Silent) { IMPATIENCE } else { PATIENCE }
    }
}

/// One thing that an agent wants done, until it is or the agent gives up.
pub(crate) struct Errand<'a> {
    pub(crate) agent: Agent,
    pub(crate) client: &'a Arc<DemoClient>,
    pub(crate) world: &'a World,
    pub(crate) seed: u64,
    /// As the client knows it.
    pub(crate) shown: &'a str,
    pub(crate) tool: &'static str,
    pub(crate) number: u64,
    /// Whether it was done before, so that a copy can exist.
    pub(crate) is_known: bool,
    /// Whether the server says no to it, so that no copy, retry or second attempt may stand in.
    pub(crate) is_refused: bool,
}

impl Errand<'_> {
    /// Does it.
    pub(crate) async fn run(&self) -> Tally {
        let reads = u64::from(self.is_known);
        let mut tally =
            Tally { wanted: 1, reads, answerable: u64::from(self.can_exist()), ..Tally::default() };
        let executed = self.world.count(LedgerEntry::Done, self.tool, self.number);
        let (mut last, mut told) = (Verdict::Dark, ClientAnswer::Silence);
        let (begun, mut history) = (Instant::now(), Vec::new());
        for _ in 0..=self.agent.repeats(self.seed, self.number) {
            let asked = begun.elapsed();
            (last, told) = self.call(&mut tally).await;
            let executions = self.world.count(LedgerEntry::Done, self.tool, self.number);
            history.push(format!(
                "{asked:?} to {:?}, executed {executions}: {}",
                begun.elapsed(),
                short(&told)
            ));
            let is_over = match &last {
                Verdict::Failed(failed) => {
                    self.agent == Agent::Heedful && !is_worth_repeating(failed)
                }
                Verdict::Dark => false,
                _ => true,
            };
            if is_over {
                break;
            }
        }
        match last {
            Verdict::Useful { .. } => tally.useful = 1,
            Verdict::Queued => {
                tally.queued = 1;
                tally.waits.push((self.tool, self.number));
            }
            Verdict::Failed(_) => tally.failed = 1,
            Verdict::Dark => tally.dark = 1,
            Verdict::Wrong(text) => {
                tally.wrong = 1;
                tally.note(format!("false answer to {} {}: {text}", self.tool, self.number));
            }
        }
        if tally.useful + tally.queued == 0 {
            tally.note(format!("{:?} had nothing of {}: {}", self.agent, self.tool, short(&told)));
        }
        tally.useful_reads = if self.is_known { tally.useful } else { 0 };
        tally.useful_answerable = if self.can_exist() { tally.useful } else { 0 };
        let executions = self.world.count(LedgerEntry::Done, self.tool, self.number) - executed;
        if self.tool == APPEND {
            tally.own_duplicates =
                u64::from(executions.saturating_sub(1)) * u64::from(tally.calls == 1);
            tally.histories.push((
                self.number,
                format!("{:?} {AGAIN} again: {}", self.agent, history.join(" | ")),
            ));
        }
        tally
    }

    /// Whether it reads something, and an answer can exist.
    fn can_exist(&self) -> bool {
        self.is_known && !self.is_refused
    }

    async fn call(&self, tally: &mut Tally) -> (Verdict, ClientAnswer) {
        let count = |entry| self.world.count(entry, self.tool, self.number);
        let (seen, done) = (count(LedgerEntry::Seen), count(LedgerEntry::Done));
        if self.agent != Agent::Burst {
            tokio::time::sleep(THINKING).await;
        }
        let begun = Instant::now();
        let (arguments, patience) = (arguments(self.tool, self.number), self.agent.patience());
        let told = match self.agent {
            Agent::Silent => self.client.call_and_leave(self.shown, &arguments, patience).await,
            _ => self.client.call(self.shown, &arguments, patience).await,
        };
        tally.calls += 1;
        tally.took.push(begun.elapsed());
        let verdict = judge(&told, self.tool, self.number);
        if self.tool == APPEND {
            self.check_claims(
                &verdict,
                &told,
                count(LedgerEntry::Seen) > seen,
                count(LedgerEntry::Done) > done,
                tally,
            );
        }
        (verdict, told)
    }

    /// Holds what is said about a write against the ledger.
    fn check_claims(
        &self,
        verdict: &Verdict,
        told: &ClientAnswer,
        arrived: bool,
        executed: bool,
        tally: &mut Tally,
    ) {
        let Verdict::Failed(failed) = verdict else { return };
        match failed.may_have_executed {
            Some(false) if executed => {
                tally.false_claims += 1;
                tally.note(format!(
                    "said not to be executed, but was: {}: {}",
                    self.tool,
                    short(told)
                ));
            }
            Some(true) if !arrived => {
                tally.needless_doubts += 1;
                tally.note(format!("never arrived, but in doubt: {}: {}", self.tool, short(told)));
            }
            _ => {}
        }
    }
}

/// What was told, for those who look for the reason.
fn short(told: &ClientAnswer) -> String {
    match told {
        ClientAnswer::Message(message) if message["result"]["content"][0]["text"].is_string() => {
            message["result"]["content"][0]["text"].to_string()
        }
        other => format!("{other:?}").chars().take(300).collect(),
    }
}

fn is_worth_repeating(failed: &FailureText) -> bool {
    failed.may_have_executed != Some(true)
        && failed.is_retryable != Some(false)
        && failed.retry_after.is_none()
}
