//! Plays many worlds at once, seed after seed, and tells what was violated, shrunk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::check::{Rule, Violation, check};
use super::generate;
use super::plan::History;
use super::play::{Programs, play};
use super::shrink::shrink;

/// How much is played.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// The first seed.
    pub first: u64,
    /// How many histories at most.
    pub count: u64,
    /// How long at most.
    pub time: Duration,
    /// How many at once.
    pub at_once: usize,
    /// The rules that are judged.
    pub rules: Vec<Rule>,
    /// How many histories are made smaller for each rule.
    pub shrunk: usize,
    /// How many violations of each rule are told as they come.
    pub told: usize,
    /// Whether a violation counts that did not come again when its history was played alone, unless
    /// it is one of time.
    pub is_strict: bool,
}

/// A rule that was violated in a history.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was seen.
    pub violation: Violation,
    /// Of which seed.
    pub seed: u64,
}

/// What came of a campaign.
#[derive(Default)]
pub struct Report {
    /// How many histories were played.
    pub played: u64,
    /// How many calls were made, and executed.
    pub calls: (usize, usize),
    /// How long it took.
    pub took: Duration,
    /// What was violated, by rule.
    pub findings: BTreeMap<Rule, Vec<Finding>>,
    /// The same for a few, made smaller.
    pub shrunk: Vec<(History, Violation)>,
    /// Violations that did not come again when the history was played alone, and are not counted.
    pub load: Vec<Finding>,
    /// Histories that could not be played.
    pub broken: Vec<String>,
}

impl Report {
    /// Whether nothing was violated.
    pub fn is_well(&self) -> bool {
        self.findings.is_empty() && self.broken.is_empty()
    }
}

/// Plays; what is found is told to `tell` as it comes.
pub async fn run(campaign: &Campaign, programs: &Programs, tell: impl Fn(&str)) -> Report {
    let begun = Instant::now();
    let mut report = Report::default();
    let (sender, mut results) = mpsc::channel(campaign.at_once);
    let next = Arc::new(AtomicU64::new(campaign.first));
    let mut players = JoinSet::new();
    for _ in 0..campaign.at_once {
        let (sender, next, programs, campaign) =
            (sender.clone(), Arc::clone(&next), programs.clone(), campaign.clone());
        players.spawn(async move {
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= campaign.first + campaign.count || begun.elapsed() > campaign.time {
                    return;
                }
                let history = generate::history(seed);
                let played = play(&history, &programs).await;
                if sender.send((seed, played)).await.is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    while let Some((seed, played)) = results.recv().await {
        report.played += 1;
        let record = match played {
            Ok(record) => record,
            Err(error) => {
                report.broken.push(format!("seed {seed}: {error}"));
                continue;
            }
        };
        report.calls.0 += record.requests.len();
        report.calls.1 += record.executions.len();
        for violation in
            check(&record).into_iter().filter(|violation| campaign.rules.contains(&violation.rule))
        {
            let seen = report.findings.entry(violation.rule).or_default();
            if seen.len() < campaign.told {
                tell(&format!("seed {seed}: {}: {}", violation.rule, violation.seen));
            }
            seen.push(Finding { violation, seed });
        }
    }
    report.took = begun.elapsed();
    make_smaller(campaign, programs, &mut report, tell).await;
    report
}

/// Plays the first findings of each rule alone, and makes them smaller.
async fn make_smaller(
    campaign: &Campaign,
    programs: &Programs,
    report: &mut Report,
    tell: impl Fn(&str),
) {
    let rules: Vec<Rule> = report.findings.keys().copied().collect();
    for rule in rules {
        let mut found = report.findings.remove(&rule).unwrap_or_default();
        found.dedup_by_key(|finding| finding.seed);
        let (mut shrunk, mut unseen) = (0, Vec::new());
        for finding in found.iter().take(if campaign.shrunk == 0 { 0 } else { 6 }) {
            match shrink(&generate::history(finding.seed), rule, programs).await {
                Some((history, violation)) => {
                    tell(&format!("\n{rule}: {}\n{history}", violation.seen));
                    report.shrunk.push((history, violation));
                    shrunk += 1;
                }
                None => unseen.push(finding.seed),
            }
            if shrunk >= campaign.shrunk {
                break;
            }
        }
        // What a loaded machine did, and no history does by itself, is told and not counted.
        let is_excused = rule.is_about_time() || !campaign.is_strict;
        if is_excused && campaign.shrunk > 0 && shrunk == 0 {
            report.load.append(&mut found);
        } else {
            report.findings.insert(rule, found);
        }
    }
}
