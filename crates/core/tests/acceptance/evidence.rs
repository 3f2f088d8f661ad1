//! What is evidence against a server, and what is not: when calls began, how long they were given,
//! and how long they took.

use super::kit::*;
use seawall::*;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

fn reads(env: &Env, adjust: impl FnOnce(&mut Policy)) -> Arc<ToolCaller<String>> {
    Arc::new(with_tool(settings(env), "get_x", |policy| {
        policy.retry.attempts = 1;
        policy.fallback = vec![];
        policy.loops = LoopPolicy::OFF;
        adjust(policy);
    }))
}

fn state(caller: &ToolCaller<String>) -> (BreakerStatus, u64) {
    caller.breaker_status("get_x").map(|breaker| (breaker.status, breaker.trips)).unwrap()
}

/// Answers after `time`.
fn takes(
    time: Duration,
) -> impl Fn(Attempt) -> std::pin::Pin<Box<dyn Future<Output = Result<String, FailureSignals>> + Send>>
{
    move |_| {
        Box::pin(async move {
            tokio::time::sleep(time).await;
            Ok("ok".to_owned())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn calls_from_before_an_outage_do_not_hide_it() {
    let caller = reads(&env(0.0), |_| ());
    // Ten long reads begin while all is well, and end one a second.
    let long: Vec<_> = (0..10)
        .map(|k| {
            let caller = caller.clone();
            tokio::spawn(async move {
                caller.call("get_x", json!({ "long": k }), takes(secs(11 + k))).await
            })
        })
        .collect();
    tokio::time::sleep(secs(10)).await;

    // Then the server refuses whatever is new, four times a second.
    let down = Script::down(FailureSignals::transport(TransportFailure::Refused, "refused"));
    for k in 0..40 {
        caller.call("get_x", json!({ "new": k }), down.send()).await;
        tokio::time::sleep(ms(251)).await;
    }

    assert!(down.executions() < 10, "{}", down.executions());
    assert_eq!(state(&caller).0, BreakerStatus::Open);
    for read in long {
        assert!(read.await.unwrap().value().is_some());
    }
}

#[test]
fn of_a_hundred_that_began_together_a_few_failures_open_nothing() {
    let breaker = Breaker::new("b", BreakerPolicy::default(), &env(0.0)).unwrap();
    let permits: Vec<_> = (0..100).map(|_| breaker.admit().unwrap()).collect();

    for (number, permit) in permits.into_iter().enumerate() {
        if number % 10 == 0 { permit.badly() } else { permit.well() }
    }

    assert_eq!((breaker.status(), breaker.snapshot().failures), (BreakerStatus::Closed, 0));
}

#[test]
fn a_success_that_began_since_ends_the_row_and_one_from_before_makes_up_for_one_failure() {
    let breaker = Breaker::new("b", BreakerPolicy::default(), &env(0.0)).unwrap();
    let [before, other] = [(); 2].map(|()| breaker.admit().unwrap());
    (0..3).for_each(|_| breaker.admit().unwrap().badly());

    before.well();
    assert_eq!(breaker.snapshot().failures, 2);
    other.badly();
    assert_eq!(breaker.snapshot().failures, 3, "its failure counts all the same");
    breaker.admit().unwrap().well();
    assert_eq!(breaker.snapshot().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_probe_has_as_much_time_as_its_tool() {
    let caller = reads(&env(0.0), |policy| policy.timeout = secs(600));
    open_breaker(&caller, "get_x").await;
    tokio::time::sleep(secs(30)).await;

    let probe = tokio::spawn({
        let caller = caller.clone();
        async move { caller.call("get_x", json!({ "probe": 1 }), takes(secs(150))).await }
    });
    for k in 0..5 {
        tokio::time::sleep(secs(29)).await;
        let refused = caller.call("get_x", json!({ "other": k }), takes(secs(150))).await;
        assert_eq!(report(&refused).code, ErrorCode::CircuitOpen);
    }

    assert!(probe.await.unwrap().value().is_some());
    assert_eq!(state(&caller), (BreakerStatus::Closed, 1));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_waits_for_a_person_is_not_taken_for_lost() {
    let caller = reads(&env(0.0), |policy| policy.timeout = secs(20));
    open_breaker(&caller, "get_x").await;
    tokio::time::sleep(secs(30)).await;

    let control = Arc::new(CallControl::default());
    let call = Call { control: Some(control.clone()), ..Call::new(json!({ "asks": 1 })) };
    let probe = tokio::spawn({
        let caller = caller.clone();
        async move {
            let asks = |attempt| async {
                let _question = control.question();
                takes(secs(60))(attempt).await
            };
            caller.call("get_x", call, asks).await
        }
    });
    tokio::time::sleep(secs(40)).await;
    caller.call("get_x", json!({ "other": 1 }), takes(ms(1))).await;

    assert!(probe.await.unwrap().value().is_some());
    assert_eq!(state(&caller), (BreakerStatus::Closed, 1));
}

#[tokio::test(start_paused = true)]
async fn an_impatient_probe_does_not_open_a_healthy_server_again() {
    let caller = reads(&env(0.0), |_| ());
    open_breaker(&caller, "get_x").await;
    tokio::time::sleep(secs(30)).await;

    let impatient = tokio::spawn({
        let caller = caller.clone();
        let call = Call::new(json!({ "impatient": 1 })).within(ms(10));
        async move { caller.call("get_x", call, takes(ms(50))).await }
    });
    tokio::task::yield_now().await;
    for k in 0..24 {
        advance(Duration::from_micros(500)).await;
        if let Some(report) =
            caller.call("get_x", json!({ "other": k }), takes(ms(50))).await.report()
        {
            assert!(report.retry_after.unwrap() <= secs(1), "{report:?}");
        }
    }

    assert_eq!(report(&impatient.await.unwrap()).code, ErrorCode::Timeout);
    assert_eq!(state(&caller), (BreakerStatus::Closed, 1));
}

/// Calls that each wait `each` for a server that hangs.
async fn wait_in_vain(
    caller: &Arc<ToolCaller<String>>,
    numbers: std::ops::Range<u32>,
    each: Duration,
) {
    let calls = numbers.map(|k| {
        let (caller, call) = (caller.clone(), Call::new(json!({ "k": k })).within(each));
        async move { caller.call("get_x", call, takes(secs(3600))).await }
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn impatient_callers_find_out_together_that_a_server_hangs() {
    let caller = reads(&env(0.0), |_| ());
    for k in 0..15 {
        assert_eq!(state(&caller).0, BreakerStatus::Closed, "after {k}");
        wait_in_vain(&caller, k..k + 1, secs(25)).await;
    }
    assert_eq!(state(&caller).0, BreakerStatus::Open, "three of 25 s are as good as one of 60 s");
}

#[tokio::test(start_paused = true)]
async fn neither_a_crowd_of_impatient_callers_nor_a_few_now_and_then_are_evidence() {
    let caller = reads(&env(0.0), |_| ());
    wait_in_vain(&caller, 0..1000, ms(50)).await;
    assert_eq!(state(&caller).0, BreakerStatus::Closed);

    for k in 0..100 {
        wait_in_vain(&caller, k..k + 1, ms(50)).await;
        tokio::time::sleep(secs(60)).await;
    }
    assert_eq!(caller.breaker_status("get_x").unwrap().failures, 0);

    // Whoever is answered in between shows that it lives.
    for k in 0..20 {
        wait_in_vain(&caller, k..k + 1, secs(25)).await;
        caller.call("get_x", json!({ "patient": k }), takes(secs(5))).await;
    }
    assert_eq!(caller.breaker_status("get_x").unwrap().failures, 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_probe_does_not_close_what_slowness_opened() {
    let slow = Some(SlowRule { after: secs(1), rate: 0.5 });
    let window = Some(WindowRule { length: secs(60), min_calls: 3, failure_rate: 0.5, slow });
    let caller = reads(&env(0.0), |policy| {
        policy.breaker = Some(BreakerPolicy { window, ..BreakerPolicy::default() })
    });
    for k in 0..3 {
        caller.call("get_x", json!({ "k": k }), takes(secs(2))).await;
    }
    assert_eq!(state(&caller), (BreakerStatus::Open, 1));

    tokio::time::sleep(secs(30)).await;
    caller.call("get_x", json!({ "k": 4 }), takes(secs(2))).await;
    assert_eq!(state(&caller), (BreakerStatus::Open, 2));

    tokio::time::sleep(secs(30)).await;
    caller.call("get_x", json!({ "k": 5 }), takes(ms(20))).await;
    assert_eq!(state(&caller).0, BreakerStatus::Closed);
}

#[tokio::test(start_paused = true)]
async fn our_own_rate_does_not_replace_the_servers_failure() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    let rate = Some(Rate { count: 1, per: secs(100), burst: 1 });
    pipeline.server("s", ServerPolicy { rate, ..ServerPolicy::default() }).unwrap();
    let policy = Preset::Default.policy(&ToolFacts::named("get_x"), &Tiers::default());
    let tool = pipeline.tool("s", "get_x", Policy { fallback: vec![], ..policy }).unwrap();
    let script = Script::down(FailureSignals::http(500, "boom"));

    let answer = pipeline.run(&tool, &Call::new(nothing()), script.send()).await;

    let report = report(&answer);
    assert_eq!(
        (script.executions(), report.code),
        (1, ErrorCode::UpstreamError),
        "{}",
        report.message
    );
}

#[tokio::test(start_paused = true)]
async fn those_who_were_asked_to_wait_equally_long_do_not_come_back_together() {
    for jitter in [Jitter::Full, Jitter::Symmetric(0.5), Jitter::Additive(0.5)] {
        let mut waits = Vec::new();
        for chance in [0.1, 0.4, 0.9] {
            let asked = FailureSignals {
                retry_after: Some(secs(20)),
                ..FailureSignals::http(429, "slow down")
            };
            let script = Script::failing([asked]);
            let policy = RetryPolicy::new(2, Backoff { jitter, ..Backoff::TOOL_CALL });
            let retry = Retry::new(Effect::ReadOnly).env(env(chance)).policy(policy).unwrap();
            let (_, waited) = timed(retry.call(|_| std::future::ready(script.execute()))).await;
            assert!(waited >= secs(20), "{jitter:?}: {waited:?}");
            waits.push(waited);
        }
        waits.dedup();
        assert!(waits.len() > 1, "{jitter:?}: {waits:?}");
    }
}

#[test]
fn the_first_incident_counts_whatever_its_number() {
    let breaker = Breaker::new("b", BreakerPolicy::new(2, secs(30)), &env(0.0)).unwrap();
    breaker.admit().unwrap().blame_incident(Blame::Server, Some(0));
    breaker.admit().unwrap().blame_incident(Blame::Server, Some(0));
    assert_eq!(breaker.snapshot().failures, 1);
}
