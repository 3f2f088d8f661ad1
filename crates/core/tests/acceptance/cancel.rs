//! Dropped at any await, a call leaves nothing taken: no permit, no slot, no token, no flight.

use super::kit::*;
use futures_util::FutureExt;
use futures_util::future::join_all;
use seawall::*;
use serde_json::json;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Polls `work` `times` times with some virtual time between; tells whether it ended.
pub(crate) async fn poll_times<T>(
    mut work: Pin<Box<impl Future<Output = T>>>,
    times: usize,
) -> bool {
    for _ in 0..times {
        let ended = poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_ready())).await;
        if ended {
            return true;
        }
        advance(ms(250)).await;
    }
    false
}

struct World {
    pipeline: Pipeline<String>,
    tool: std::sync::Arc<Tool>,
    /// As many as there are at the start.
    tokens: u64,
    events: Listener,
}

const SAVED: u64 = 5;
/// Retries that are paid from what was saved, and from the floor.
const BUDGETS: [BudgetPolicy; 2] = [
    BudgetPolicy { share: 1.0, floor: 0, saved: SAVED as u32 },
    BudgetPolicy { share: 0.0, floor: 1, saved: 0 },
];

impl World {
    fn new(budget: BudgetPolicy, adjust: impl FnOnce(&mut Policy)) -> Self {
        let env = env(0.0);
        let events = env.events.subscribe();
        let pipeline = Pipeline::new(settings(&env)).unwrap();
        let server = ServerPolicy {
            slots: Some(BulkheadPolicy { concurrency: 1, waiting: 4, patience: secs(30) }),
            rate: Some(Rate { count: 1, per: secs(1), burst: 1 }),
            budget,
            connection: Some(BreakerPolicy::new(1, secs(1))),
            ..ServerPolicy::default()
        };
        let server = pipeline.server("s", server).unwrap();
        (0..SAVED).for_each(|_| server.budget().deposit());
        let mut policy = Preset::Default.policy(&ToolFacts::named("get_a"), &Tiers::default());
        policy.breaker = Some(BreakerPolicy::new(1, secs(1)));
        policy.cache.fresh = Some(secs(30));
        policy.retry.backoff.jitter = Jitter::None;
        adjust(&mut policy);
        let tool = pipeline.tool("s", "get_a", policy).unwrap();
        let tokens = tool.server().budget().saved() + u64::from(budget.floor);
        Self { pipeline, tool, tokens, events }
    }

    /// Puts both breakers where their next call is the one probe.
    async fn make_suspect(&self) {
        for breaker in [self.tool.breaker().unwrap(), self.tool.server().connection().unwrap()] {
            breaker.admit().unwrap().badly();
        }
        advance(secs(1)).await;
    }

    /// A hedge that was sent is load, whoever leaves afterwards: its token is the one thing that
    /// stays spent.
    fn check(&mut self, when: &str) {
        let hedges = self
            .events
            .drain()
            .iter()
            .filter(|event| matches!(***event, Event::Hedged { .. }))
            .count();
        let server = self.tool.server();
        let slots = server.slots().unwrap();
        assert_eq!((slots.in_flight(), slots.waiting()), (0, 0), "slots {when}");
        let in_floor = self.tokens != SAVED && server.budget().withdraw().is_some();
        let left = server.budget().saved() + u64::from(in_floor);
        assert_eq!(left + hedges as u64, self.tokens, "tokens {when}, {hedges} hedges");
        for breaker in [self.tool.breaker().unwrap(), server.connection().unwrap()] {
            assert_eq!(breaker.peek(), Ok(()), "probe of {} {when}", breaker.name());
        }
    }
}

/// Waits a little before and after its work.
async fn slow(fail: bool) -> Result<String, FailureSignals> {
    tokio::task::yield_now().await;
    tokio::time::sleep(ms(300)).await;
    if fail { Err(FailureSignals::http(422, "no")) } else { Ok("ok".into()) }
}

async fn drop_everywhere(
    adjust: fn(&mut Policy),
    suspect: bool,
    send: impl Fn(Attempt) -> Pin<Box<dyn Future<Output = Result<String, FailureSignals>>>>,
) -> usize {
    let [saved, floor] = BUDGETS.map(|budget| drop_at_every_poll(budget, adjust, suspect, &send));
    saved.await.min(floor.await)
}

async fn drop_at_every_poll(
    budget: BudgetPolicy,
    adjust: fn(&mut Policy),
    suspect: bool,
    send: impl Fn(Attempt) -> Pin<Box<dyn Future<Output = Result<String, FailureSignals>>>>,
) -> usize {
    for times in 0..500 {
        let mut world = World::new(budget, adjust);
        if suspect {
            world.make_suspect().await;
        }
        let call = Call::new(json!({"n": 1}));
        let ended =
            poll_times(Box::pin(world.pipeline.run(&world.tool, &call, &send)), times).await;
        if ended {
            return times;
        }
        world.check(&format!("after a drop at poll {times}"));

        // Nobody waits for a leader that is gone, and the next call gets through.
        let next =
            world.pipeline.run(&world.tool, &call, |_| async { Ok("next".to_owned()) }).await;
        assert_eq!(
            next.value().map(String::as_str),
            Some("next"),
            "after a drop at poll {times}: {next:?}"
        );
    }
    panic!("the call never ended");
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_await_leaves_nothing_taken() {
    let polls = drop_everywhere(|_| (), true, |_| Box::pin(slow(false))).await;
    assert!(polls >= 3, "{polls} polls show too little");
}

#[tokio::test(start_paused = true)]
async fn a_retried_call_dropped_at_any_await_leaves_nothing_taken() {
    let tough = |policy: &mut Policy| {
        policy.breaker = Some(BreakerPolicy { trip_on_429: false, ..BreakerPolicy::default() })
    };
    let polls = drop_everywhere(tough, false, |attempt| {
        Box::pin(async move {
            let answer = slow(false).await;
            if attempt.number < 2 { Err(FailureSignals::http(429, "slow down")) } else { answer }
        })
    })
    .await;
    assert!(polls >= 6, "{polls} polls show too little");
}

#[tokio::test(start_paused = true)]
async fn a_retry_dropped_in_its_pause_gives_back_its_token_of_the_floor_too() {
    let env = env(0.0);
    let policy = BudgetPolicy { share: 0.0, floor: 3, saved: 100 };
    let budget = std::sync::Arc::new(RetryBudget::new(policy, &env.clock).unwrap());
    let retry = Retry::new(Effect::ReadOnly).env(env).budget(budget);
    let paused = || {
        let mut call = Box::pin(retry.call(|_| async { Err::<(), _>("503") }));
        call.as_mut().now_or_never().is_none().then_some(call)
    };

    for _ in 0..10 {
        assert!(paused().is_some(), "each of them is dropped in its pause");
    }
    let held = [(); 4].map(|()| paused());

    assert_eq!(
        held.map(|call| call.is_some()),
        [true, true, true, false],
        "there are three a second, and no more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hedged_call_dropped_at_any_await_leaves_nothing_taken() {
    let hedged = |policy: &mut Policy| policy.hedge = Some(HedgePolicy::After(ms(100)));
    let polls = drop_everywhere(hedged, false, |_| Box::pin(slow(false))).await;
    assert!(polls >= 3, "{polls} polls show too little");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_panics_leaves_nothing_taken() {
    let mut world = World::new(BUDGETS[0], |_| ());
    world.make_suspect().await;
    let call = Call::new(json!({"n": 1}));
    let panics = |_| async { if true { panic!("tool") } else { Ok(String::new()) } };

    let caught = std::panic::AssertUnwindSafe(world.pipeline.run(&world.tool, &call, panics));
    let result = caught.catch_unwind().await;

    assert!(result.is_err());
    world.check("after a panic");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_waiting_for_the_servers_rate_takes_no_turn_along() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    let rate = Some(Rate { count: 1, per: secs(1), burst: 1 });
    pipeline.server("s", ServerPolicy { rate, ..ServerPolicy::default() }).unwrap();
    let policy = Preset::Default.policy(&ToolFacts::named("get_a"), &Tiers::default());
    let tool = pipeline.tool("s", "get_a", policy).unwrap();
    let script = Script::healthy();
    let calls: Vec<Call> = (0..32).map(|n| Call::new(json!({ "n": n }))).collect();
    let run = |n: usize| pipeline.run(&tool, &calls[n], script.send());

    let (_, stays, late) = tokio::join!(
        tokio::time::timeout(ms(500), join_all((0..30).map(run))),
        timed(run(30)),
        async {
            tokio::time::sleep(ms(700)).await;
            timed(run(31)).await
        }
    );

    assert_eq!((stays.0.value().is_some(), stays.1), (true, secs(1)), "29 before it have left");
    assert_eq!((late.0.value().is_some(), late.1), (true, ms(1300)), "first come, first served");
    assert_eq!(script.executions(), 3);
}
