//! The order of the measurement: every target in turn, so that what disturbs the machine disturbs
//! all of them alike, and the large answers after the small ones, so that memory they leave behind
//! is not counted to these.

use std::time::Duration;

use seawall_bench::{Setup, median};

use super::load::{Round, round};
use super::session::Size;
use super::targets::{DIRECT, Running};

/// How many sessions call at the same time.
pub(crate) const SESSIONS: [usize; 3] = [1, 16, 64];

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Rounds for every row.
    pub(crate) rounds: usize,
    /// How long each is.
    pub(crate) time: Duration,
}

/// One target under one load.
pub(crate) struct Row {
    pub(crate) target: &'static str,
    pub(crate) size: Size,
    pub(crate) sessions: usize,
    /// Memory before any load, in MiB.
    pub(crate) idle: Option<f64>,
    /// Calls that were not answered as they had to be.
    pub(crate) wrong: usize,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Over direct, the median of the differences in each round.
    pub(crate) added_p50: f64,
    pub(crate) added_p99: f64,
    pub(crate) rate: f64,
    /// CPU seconds for 10,000 calls, over all rounds: the clock that counts it ticks every 10 ms.
    pub(crate) cpu: Option<f64>,
    pub(crate) memory: Option<f64>,
}

/// Measures everything.
pub(crate) async fn measure(
    running: &Running,
    plan: Plan,
    mut progress: impl FnMut(),
) -> Setup<Vec<Row>> {
    let targets = &running.targets;
    let mut rows = Vec::new();
    for size in [Size::Small, Size::Large] {
        let mut measured = vec![vec![Vec::new(); targets.len()]; SESSIONS.len()];
        for number in 0..plan.rounds {
            for (sessions, measured) in SESSIONS.into_iter().zip(&mut measured) {
                for place in 0..targets.len() {
                    let place = (place + number) % targets.len();
                    measured[place].push(round(&targets[place], size, sessions, plan.time).await?);
                }
                progress();
            }
        }
        for (sessions, measured) in SESSIONS.into_iter().zip(&measured) {
            let direct = targets
                .iter()
                .position(|target| target.name == DIRECT)
                .map_or(&[][..], |at| &measured[at]);
            for (target, rounds) in targets.iter().zip(measured) {
                let row = Row {
                    idle: target.idle,
                    ..Row::of(target.name, size, sessions, rounds, direct)
                };
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

impl Row {
    fn of(
        target: &'static str,
        size: Size,
        sessions: usize,
        rounds: &[Round],
        direct: &[Round],
    ) -> Self {
        let middle = |values: Vec<f64>| median(&values).unwrap_or(f64::NAN);
        let of = |value: fn(&Round) -> f64| middle(rounds.iter().map(value).collect());
        let added = |value: fn(&Round) -> f64| {
            middle(
                rounds
                    .iter()
                    .zip(direct)
                    .map(|(round, direct)| value(round) - value(direct))
                    .collect(),
            )
        };
        let calls: usize = rounds.iter().map(|round| round.calls).sum();
        let cpu: Option<f64> = rounds.iter().map(|round| round.cpu).sum();
        let memory: Option<Vec<f64>> = rounds.iter().map(|round| round.memory).collect();
        Self {
            target,
            size,
            sessions,
            idle: None,
            wrong: rounds.iter().map(|round| round.wrong).sum(),
            p50: of(|round| round.p50),
            p99: of(|round| round.p99),
            added_p50: added(|round| round.p50),
            added_p99: added(|round| round.p99),
            rate: of(|round| round.rate),
            cpu: cpu.map(|seconds| seconds / calls as f64 * 10_000.0),
            memory: memory.and_then(|memory| median(&memory)),
        }
    }
}
