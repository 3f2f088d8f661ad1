//! Dropped at any await of a fallback, behind an identical call or on the way into a queue, a call
//! leaves nothing taken.

use super::cancel::poll_times;
use super::kit::*;
use super::queued::{Slow, slow_queue};
use futures_util::poll;
use seawall::*;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

const SAVED: u64 = 20;

/// A tool of server `a` that fails at first, and whatever stands in for it on `b`, whose next call
/// is a probe for both breakers.
struct World {
    pipeline: Pipeline<String>,
    queue: Arc<Slow>,
    tool: Arc<Tool>,
    other: Arc<Tool>,
}

impl World {
    async fn new(effect: Effect, fallback: Fallback, fresh: bool) -> Self {
        let queue = slow_queue(10);
        let pipeline =
            Pipeline::new(Settings { durable: Some(queue.clone()), ..settings(&env(0.0)) })
                .unwrap();
        for name in ["a", "b"] {
            let policy = ServerPolicy {
                slots: Some(BulkheadPolicy { concurrency: 2, waiting: 8, patience: secs(30) }),
                budget: BudgetPolicy { share: 1.0, floor: 0, saved: SAVED as u32 },
                connection: Some(if name == "b" {
                    BreakerPolicy::new(1, secs(1))
                } else {
                    BreakerPolicy::default()
                }),
                ..ServerPolicy::default()
            };
            let server = pipeline.server(name, policy).unwrap();
            (0..SAVED).for_each(|_| server.budget().deposit());
        }
        let facts = ToolFacts { effect: Some(effect), ..ToolFacts::named("do_it") };
        let mut policy = Preset::Default.policy(&facts, &Tiers::default());
        policy.breaker = Some(BreakerPolicy::new(1, secs(1)));
        policy.slots = Some(BulkheadPolicy::new(2));
        let other = pipeline.tool("b", "do_it", policy.clone()).unwrap();
        for breaker in [other.breaker().unwrap(), other.server().connection().unwrap()] {
            breaker.admit().unwrap().badly();
        }
        advance(secs(1)).await;
        policy.breaker = Some(BreakerPolicy::default());
        policy.retry.attempts = 1;
        policy.cache.fresh = fresh.then_some(secs(30));
        let tool =
            pipeline.tool("a", "do_it", Policy { fallback: vec![fallback], ..policy }).unwrap();
        Self { pipeline, queue, tool, other }
    }

    fn check(&self, when: &str) {
        self.check_paid(0, when);
    }

    /// So many tokens of the tool's own server are spent.
    fn check_paid(&self, paid: u64, when: &str) {
        for (tool, paid) in [(&self.tool, paid), (&self.other, 0)] {
            let (server, slots) = (tool.server(), tool.server().slots().unwrap());
            assert_eq!(
                (slots.in_flight(), slots.waiting()),
                (0, 0),
                "slots of {} {when}",
                server.name()
            );
            let own = tool.slots().unwrap();
            assert_eq!(
                (own.in_flight(), own.waiting()),
                (0, 0),
                "own slots at {} {when}",
                server.name()
            );
            assert_eq!(server.budget().saved() + paid, SAVED, "tokens of {} {when}", server.name());
            assert_eq!(tool.breaker().unwrap().peek(), Ok(()), "probe of {} {when}", server.name());
            assert_eq!(
                server.connection().unwrap().peek(),
                Ok(()),
                "connection of {} {when}",
                server.name()
            );
        }
    }
}

/// Fails the call itself slowly; whatever is asked after it works, slowly too.
async fn second_works(attempt: Attempt) -> Result<String, FailureSignals> {
    tokio::task::yield_now().await;
    tokio::time::sleep(ms(1100)).await;
    if attempt.number == 1 { Err(FailureSignals::http(500, "boom")) } else { Ok("ok".into()) }
}

/// Drops the call at every await until `by` has answered it: dropped earlier, it was on that way
/// too.
async fn drop_everywhere(by: &str, fallback: Fallback, arguments: Value, own: &[Step<String>]) {
    let (mut polls, call) = (0, Call::new(arguments));
    for times in 0.. {
        let world = World::new(Effect::ReadOnly, fallback.clone(), false).await;
        let answer = Mutex::new(None);
        let run = async {
            let answered = world.pipeline.run_with(&world.tool, &call, own, second_works).await;
            *answer.lock().unwrap() = Some(answered);
        };
        polls = times;
        if poll_times(Box::pin(run), times).await {
            let answer = answer.into_inner().unwrap().unwrap();
            assert_eq!(served(&answer).by, by);
            // Only load for the server that failed is paid for although it worked.
            let paid = matches!(fallback, Fallback::Simplify(_) | Fallback::PreviousPage(_))
                && by != "own";
            world.check_paid(u64::from(paid), &format!("after an answer by {by}"));
            break;
        }
        world.check(&format!("after a drop of {fallback:?} at poll {times}"));
        let next =
            world.pipeline.run(&world.tool, &call, |_| async { Ok("next".to_owned()) }).await;
        assert_eq!(
            next.value().map(String::as_str),
            Some("next"),
            "after a drop at poll {times}: {next:?}"
        );
    }
    assert!(polls >= 6, "{polls} polls of {fallback:?} show too little");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_dropped_at_any_await_leaves_nothing_taken() {
    let to_b =
        Fallback::Alternate { server: "b".into(), tool: "do_it".into(), map: Default::default() };
    drop_everywhere("alternate", to_b, json!({}), &[]).await;
    drop_everywhere("simplify", Fallback::Simplify(None), json!({"query": "a b c d"}), &[]).await;
    drop_everywhere("previous_page", Fallback::PreviousPage(None), json!({"page": 3}), &[]).await;
    drop_everywhere(
        "split_batch",
        Fallback::OneByOne(None),
        json!({"ids": [1, 2, 3, 4, 5, 6, 7]}),
        &[],
    )
    .await;
    let own = Step::new("own", || async {
        tokio::time::sleep(ms(900)).await;
        Ok("own".to_owned())
    });
    drop_everywhere("own", Fallback::PreviousPage(None), json!({}), &[own]).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_is_dropped_of_those_who_wait_together_leaves_the_others_their_answer() {
    let call = Call::new(json!({}));
    let slow = |_| async {
        tokio::time::sleep(ms(900)).await;
        Ok("ok".to_owned())
    };
    for drops_the_first in [true, false] {
        for times in 0..5 {
            let world = World::new(Effect::ReadOnly, Fallback::Cached, true).await;
            let run = || Box::pin(world.pipeline.run(&world.tool, &call, slow));
            let (mut first, mut second) = (run(), run());
            for _ in 0..times {
                assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
                advance(ms(200)).await;
            }
            let stays = if drops_the_first {
                drop(first);
                second
            } else {
                drop(second);
                first
            };
            assert_eq!(
                stays.await.value().map(String::as_str),
                Some("ok"),
                "a drop at poll {times}"
            );
            world.check(&format!("after a drop at poll {times}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_dropped_at_any_await_on_its_way_into_the_queue_is_made_once() {
    let call = Call::new(json!({}));
    let began = AtomicU32::new(0);
    let refused = |_| {
        began.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(ms(300)).await;
            Err(FailureSignals::transport(TransportFailure::Refused, "connection refused"))
        }
    };
    let (mut queued, mut doubted) = (0, 0);
    for times in 0.. {
        let world = World::new(Effect::Write, Fallback::Queue, false).await;
        began.store(0, Ordering::SeqCst);
        if poll_times(Box::pin(world.pipeline.run(&world.tool, &call, refused)), times).await {
            break;
        }
        world.check(&format!("after a drop at poll {times}"));
        let waits = u32::from(world.queue.next("a").await.is_some());
        queued += waits;
        let next = Script::healthy();
        world.pipeline.run(&world.tool, &call, next.send()).await;
        let in_doubt = began.load(Ordering::SeqCst);
        assert_eq!(
            next.executions(),
            1 - in_doubt,
            "held back once it began, after a drop at poll {times}"
        );
        doubted += in_doubt - waits;
        // A look shows nothing of an attempt that certainly did not arrive, and ends a doubt about
        // one that may have.
        let reads = Preset::Default.policy(&ToolFacts::named("get_it"), &Tiers::default());
        let reads = world.pipeline.tool("a", "get_it", reads).unwrap();
        world.pipeline.run(&reads, &call, |_| async { Ok("seen".to_owned()) }).await;
        if next.executions() == 0 {
            world.pipeline.run(&world.tool, &call, next.send()).await;
        }
        assert_eq!(next.executions() + waits, 1, "after a drop at poll {times}");
    }
    assert!(
        queued >= 2 && doubted >= 1,
        "{queued} drops while it was queued, {doubted} before, show too little"
    );
}

#[tokio::test(start_paused = true)]
async fn a_chain_dropped_at_any_await_of_a_probe_is_probed_again() {
    let script = Script::failing(["503"; 5]);
    let probed = script.clone();
    let primary = Step::new("primary", move || {
        let result = probed.execute();
        async {
            tokio::task::yield_now().await;
            tokio::time::sleep(ms(300)).await;
            result
        }
    });
    let backup = Step::new("backup", || async { Ok("backup".to_owned()) });
    let chain = FallbackChain::in_env(vec![primary, backup], env(0.0)).unwrap();
    for _ in 0..5 {
        assert_eq!(chain.run().await.unwrap().final_step, "backup");
    }
    assert_eq!(chain.run().await.unwrap().attempts, 1, "its breaker is open");
    advance(secs(30)).await;
    for times in 1..3 {
        assert!(!poll_times(Box::pin(chain.run()), times).await);
    }
    assert_eq!(chain.run().await.unwrap().final_step, "primary");
}
