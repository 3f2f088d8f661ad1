//! What a whole call costs on its way through every stage: a read that works at the first attempt.

use std::hint::black_box;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use seawall::{
    BreakerPolicy, BudgetPolicy, BulkheadPolicy, CachePolicy, Call, Env, FailureSignals, Pipeline,
    Policy, Preset, Rate, ServerPolicy, Settings, Tiers, Tool, ToolFacts,
};
use seawall_bench::{Group, Role, Setup, Subject};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};

use super::inner::pausable;

pub(crate) const GROUP: &str = "pipeline, a read-only tool";
pub(crate) const COLD: &str = "all stages, cold cache";
pub(crate) const COLD_AFTER_FAILURE: &str = "all stages, cold cache, after a failure elsewhere";

/// More than the cache keeps, so that each call finds no copy and its own displaces another; and so
/// few that their arguments stay close to the processor, where a caller that has just read them has
/// them.
const DISTINCT: u64 = 1280;
/// Those of one thread and of the other. A thread that the machine stops in the middle of a call
/// must not find another come round to the same arguments: that one would take its answer instead
/// of asking itself.
const APART: [Range<u64>; 2] = [0..DISTINCT, DISTINCT..2 * DISTINCT];
const SAME: [Range<u64>; 2] = [0..1, 0..1];
const KEPT: u64 = 1024;
/// Room for everything.
const PLENTY: u64 = 64 * 1024 * 1024;
const ANSWER: &str = r#"{"title":"it works"}"#;
/// What a copy of the answer weighs in the cache: 64 bytes beside its own.
const WEIGHT: u64 = 84;
/// Shorter than it takes to come round to the same arguments again: a copy that was kept is old by
/// then.
const FRESH: Duration = Duration::from_micros(100);

pub(crate) fn pipelines() -> Setup<Group> {
    let default = |env| Line::new(env, PLENTY, ServerPolicy::default(), preset(), SAME);
    let cold = |env| Line::new(env, KEPT * WEIGHT, bounded_server(), fresh(), APART);
    let after_failure = cold(Env::new())?;
    after_failure.fail_once()?;
    let subjects = vec![
        cold(Env::new())?.subject(COLD),
        after_failure.subject(COLD_AFTER_FAILURE),
        default(Env::new())?.subject("default policy, the same arguments"),
        default(pausable())?.subject("default policy, the same arguments, tokio's clock"),
    ];
    Ok(Group { name: GROUP, subjects })
}

fn preset() -> Policy {
    Preset::Default.policy(&ToolFacts::named("get_issue"), &Tiers::default())
}

fn fresh() -> Policy {
    Policy { cache: CachePolicy { fresh: Some(FRESH), ..CachePolicy::RESCUE }, ..preset() }
}

fn bounded_server() -> ServerPolicy {
    ServerPolicy {
        slots: Some(BulkheadPolicy::new(64)),
        // One per nanosecond: nobody ever waits.
        rate: Some(Rate::per_second(1_000_000_000)),
        budget: BudgetPolicy::DEFAULT,
        connection: Some(BreakerPolicy::default()),
        ..ServerPolicy::default()
    }
}

/// A pipeline, one tool of it, and for each of two threads calls to make in turn.
struct Line {
    pipeline: Pipeline<Arc<str>>,
    tool: Arc<Tool>,
    turns: [Mutex<Turn>; 2],
}

struct Turn {
    calls: Vec<Call>,
    next: usize,
}

impl Turn {
    fn of(numbers: Range<u64>) -> Mutex<Self> {
        let call = |number| Call::new(json!({"owner": "a", "repo": "b", "issue_number": number}));
        let calls = numbers.map(|number| call(number).by("alice").in_session("morning")).collect();
        Mutex::new(Self { calls, next: 0 })
    }
}

impl Line {
    fn new(
        env: Env,
        kept_bytes: u64,
        server: ServerPolicy,
        policy: Policy,
        numbers: [Range<u64>; 2],
    ) -> Setup<Self> {
        let pipeline = Pipeline::new(Settings {
            env,
            kept_bytes,
            ..Settings::new(|answer: &Arc<str>| answer.len())
        })?;
        pipeline.server("github", server)?;
        let tool = pipeline.tool("github", "get_issue", policy)?;
        Ok(Self { pipeline, tool, turns: numbers.map(Turn::of) })
    }

    /// From then on the loop guard has to find out whose failure it was; before, it knows that
    /// there is none.
    fn fail_once(&self) -> Setup<()> {
        let call = Call { retried_outside: true, ..Call::new(json!({})).in_session("yesterday") };
        let send = |_| async { Err::<Arc<str>, _>(FailureSignals::text("401 Unauthorized")) };
        let runtime = Builder::new_current_thread().enable_time().build()?;
        runtime.block_on(self.pipeline.run(&self.tool, &call, send));
        Ok(())
    }

    fn subject(self, name: &'static str) -> Subject {
        Subject::new(Role::Ours, name, move |runtime, calls| self.run(runtime, calls))
    }

    fn run(&self, runtime: &Runtime, calls: u64) -> u64 {
        // Each batch has an answer of its own, as each call of a server has: two threads do not
        // share its count.
        let answer: Arc<str> = Arc::from(ANSWER);
        // Two threads at most, so one of the turns is free.
        let Some(mut turn) = self.turns.iter().find_map(|turn| turn.try_lock().ok()) else {
            return 0;
        };
        let Turn { calls: all, next } = &mut *turn;
        runtime.block_on(async {
            let mut right = 0;
            for _ in 0..calls {
                *next = (*next + 1) % all.len();
                let call = &all[*next];
                let send = |_| async { Ok::<_, FailureSignals>(answer.clone()) };
                let answered = black_box(self.pipeline.run(&self.tool, call, send).await);
                // An answer without an attempt would be one from the cache.
                right += u64::from(answered.attempts == 1 && answered.value().is_some());
            }
            right
        })
    }
}
