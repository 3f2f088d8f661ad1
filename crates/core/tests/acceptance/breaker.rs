//! Circuit breakers: when one opens, whom it lets through, and what closes it.

use super::kit::*;
use futures_util::future::join_all;
use seawall::*;
use serde_json::json;
use std::time::Duration;

fn breaker(policy: BreakerPolicy) -> (Breaker, Env) {
    let env = env(0.0);
    (Breaker::new("flaky", policy, &env).unwrap(), env)
}

async fn call(
    breaker: &Breaker,
    result: Result<(), &'static str>,
) -> Result<(), GuardedError<&'static str>> {
    breaker.call(|| async { result }).await
}

async fn fail(breaker: &Breaker, times: u32) {
    for _ in 0..times {
        call(breaker, Err("fail")).await.unwrap_err();
    }
}

fn retry_after(result: Result<(), GuardedError<&'static str>>) -> Duration {
    match result {
        Err(GuardedError::Open(open)) => open.retry_after,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn five_failures_open_and_thirty_seconds_later_one_of_fifty_probes() {
    let (breaker, _) = breaker(BreakerPolicy::default());
    fail(&breaker, 5).await;

    let script = Script::healthy();
    let sixth = breaker.call(|| std::future::ready(script.execute())).await;
    assert_eq!(
        sixth.unwrap_err().to_string(),
        "Circuit breaker open for \"flaky\". Retry in 30000ms."
    );
    assert_eq!(script.executions(), 0);

    advance(ms(29_999)).await;
    assert_eq!(whole_seconds(retry_after(call(&breaker, Ok(())).await)), 1);

    advance(ms(1)).await;
    let slow = || async {
        script.execute()?;
        tokio::time::sleep(ms(10)).await;
        Ok::<_, FailureSignals>(())
    };
    let results = join_all((0..50).map(|_| breaker.call(slow))).await;
    assert_eq!(script.executions(), 1);
    assert_eq!(
        results
            .iter()
            .filter(|result| matches!(result, Err(GuardedError::Open(open)) if open.retry_after >= secs(1)))
            .count(),
        49
    );
    assert_eq!(
        breaker.snapshot(),
        BreakerSnapshot { last_failure_ago: breaker.snapshot().last_failure_ago, ..closed(1, 1) }
    );
}

fn closed(trips: u64, level: u32) -> BreakerSnapshot {
    BreakerSnapshot {
        status: BreakerStatus::Closed,
        mode: BreakerMode::Auto,
        failures: 0,
        last_failure_ago: None,
        remaining: None,
        trips,
        level,
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_opens_for_the_full_time_again() {
    let (breaker, _) = breaker(BreakerPolicy::default());
    fail(&breaker, 5).await;
    advance(secs(30)).await;

    fail(&breaker, 1).await;

    assert_eq!(retry_after(call(&breaker, Ok(())).await), secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_success_between_failures_starts_the_count_again() {
    let (breaker, _) = breaker(BreakerPolicy::default());
    fail(&breaker, 4).await;
    call(&breaker, Ok(())).await.unwrap();
    fail(&breaker, 4).await;

    assert_eq!(breaker.status(), BreakerStatus::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_gives_its_place_back() {
    let (breaker, _) = breaker(BreakerPolicy::default());
    fail(&breaker, 5).await;
    advance(secs(30)).await;

    let dropped =
        tokio::time::timeout(ms(10), breaker.call(std::future::pending::<Result<(), &str>>)).await;
    assert!(dropped.is_err());

    assert_eq!(breaker.status(), BreakerStatus::HalfOpen, "a cancelled probe decides nothing");
    assert_eq!(call(&breaker, Ok(())).await, Ok(()));
    assert_eq!(breaker.status(), BreakerStatus::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_hangs_has_failed_when_its_lease_ends() {
    let (breaker, _) = breaker(BreakerPolicy { lease: secs(10), ..BreakerPolicy::default() });
    fail(&breaker, 5).await;
    advance(secs(30)).await;
    let hung = breaker.admit().unwrap();

    advance(ms(9_999)).await;
    assert!(breaker.admit().is_err());
    advance(ms(2_001)).await;
    assert_eq!(breaker.peek(), Ok(()), "whoever comes next finds the lease over");
    assert_eq!(
        breaker.admit().unwrap_err().retry_after,
        secs(28),
        "which opened it again two seconds ago"
    );

    hung.well();
    assert_eq!(breaker.status(), BreakerStatus::Open, "what came too late does not close it");
    advance(secs(30)).await;
    assert_eq!(call(&breaker, Ok(())).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn calls_from_before_the_opening_neither_extend_nor_close_it() {
    let (breaker, _) = breaker(BreakerPolicy::default());
    let (late_failure, late_success) = (breaker.admit().unwrap(), breaker.admit().unwrap());
    let [later_success, very_late @ ..] = [(); 6].map(|()| breaker.admit().unwrap());
    fail(&breaker, 5).await;

    advance(secs(10)).await;
    late_failure.badly();
    assert_eq!(breaker.admit().unwrap_err().retry_after, secs(20));
    assert_eq!(breaker.snapshot().last_failure_ago, Some(secs(10)));
    late_success.well();
    assert_eq!(breaker.admit().unwrap_err().retry_after, secs(20));

    // Nor do they decide the probe, once there is one.
    let stale = breaker.admit();
    assert!(stale.is_err());
    advance(secs(20)).await;
    let probe = breaker.admit().unwrap();
    assert_eq!(breaker.status(), BreakerStatus::HalfOpen);
    probe.well();
    assert_eq!(breaker.status(), BreakerStatus::Closed);

    // Nor do they count for it, or end a row, once it is closed again.
    very_late.into_iter().for_each(Permit::badly);
    assert_eq!((breaker.status(), breaker.snapshot().failures), (BreakerStatus::Closed, 0));
    fail(&breaker, 4).await;
    later_success.well();
    fail(&breaker, 1).await;
    assert_eq!(breaker.status(), BreakerStatus::Open);
}

#[tokio::test(start_paused = true)]
async fn successes_count_anew_in_every_half_open() {
    let (breaker, _) = breaker(BreakerPolicy { successes: 2, ..BreakerPolicy::default() });
    fail(&breaker, 5).await;
    advance(secs(30)).await;
    call(&breaker, Ok(())).await.unwrap();
    fail(&breaker, 1).await;
    advance(secs(30)).await;

    call(&breaker, Ok(())).await.unwrap();
    assert_eq!(breaker.status(), BreakerStatus::HalfOpen);
    call(&breaker, Ok(())).await.unwrap();
    assert_eq!(breaker.status(), BreakerStatus::Closed);
}

#[tokio::test(start_paused = true)]
async fn only_the_servers_faults_count() {
    // Each by itself: one that proves the server alive would end a row that another had begun.
    for fault in ["422 invalid title", "HTTP 403 Forbidden", "HTTP 401 Unauthorized", "cancelled"] {
        let (breaker, _) = breaker(BreakerPolicy::default());
        for _ in 0..100 {
            match fault {
                "cancelled" => drop(breaker.admit().unwrap()),
                _ => drop(call(&breaker, Err(fault)).await.unwrap_err()),
            }
        }
        assert_eq!(
            (breaker.status(), breaker.snapshot().failures),
            (BreakerStatus::Closed, 0),
            "{fault}"
        );
    }

    let (breaker, _) = breaker(BreakerPolicy::default());
    for _ in 0..5 {
        call(&breaker, Err("request timed out")).await.unwrap_err();
    }
    assert_eq!(breaker.status(), BreakerStatus::Open);
}

#[tokio::test(start_paused = true)]
async fn throttling_counts_only_if_the_policy_says_so() {
    for (trip_on_429, status) in [(true, BreakerStatus::Open), (false, BreakerStatus::Closed)] {
        let (breaker, _) = breaker(BreakerPolicy { trip_on_429, ..BreakerPolicy::default() });
        for _ in 0..5 {
            let _ = call(&breaker, Err("429 Too Many Requests")).await;
        }
        assert_eq!(breaker.status(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn writes_open_at_three_for_a_minute_and_batches_at_two_for_two() {
    for (tool, failures, cooldown) in
        [("create_issue", 3, secs(60)), ("batch_label", 2, secs(120)), ("get_issue", 5, secs(30))]
    {
        let caller = caller(&env(0.0));
        let down = Script::down(
            FailureSignals::transport(TransportFailure::Lost, "reset").with_sent(Sent::Yes),
        );
        for n in 0..10 {
            if caller
                .breaker_status(tool)
                .is_none_or(|breaker| breaker.status == BreakerStatus::Closed)
            {
                caller.call(tool, json!({ "n": n }), down.send()).await;
            }
        }

        assert_eq!(down.executions(), failures, "{tool}");
        assert_eq!(caller.breaker_status(tool).unwrap().remaining, Some(cooldown), "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_never_retried() {
    let script = Script::failing([FailureSignals::http(429, "slow down"); 1]);
    let answer = caller(&env(0.0)).call("batch_label", nothing(), script.send()).await;

    assert_eq!((answer.attempts, script.executions()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn every_transition_is_told_once() {
    let (breaker, env) = breaker(BreakerPolicy::default());
    let mut listener = env.events.subscribe();
    let mut transitions = || -> Vec<String> {
        let events = listener.drain();
        events
            .iter()
            .filter(|event| matches!(***event, Event::BreakerChanged { .. }))
            .map(|event| event.to_string())
            .collect()
    };

    breaker.reset();
    fail(&breaker, 3).await;
    breaker.reset();
    assert_eq!(transitions(), [""; 0], "resetting a closed breaker is no transition");

    fail(&breaker, 5).await;
    assert_eq!(transitions(), ["[CircuitBreaker] flaky: closed → open"], "the count was cleared");
    advance(secs(30)).await;
    call(&breaker, Ok(())).await.unwrap();
    assert_eq!(
        transitions(),
        ["[CircuitBreaker] flaky: open → half-open", "[CircuitBreaker] flaky: half-open → closed"]
    );
    fail(&breaker, 5).await;
    breaker.reset();
    assert_eq!(
        transitions(),
        ["[CircuitBreaker] flaky: closed → open", "[CircuitBreaker] flaky: open → closed"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_every_other_time_opens_by_rate() {
    let window = WindowRule { length: secs(10), min_calls: 10, failure_rate: 0.5, slow: None };
    let (breaker, _) = breaker(BreakerPolicy { window: Some(window), ..BreakerPolicy::default() });

    for n in 0..10 {
        assert_eq!(breaker.status(), BreakerStatus::Closed, "after {n} calls");
        let _ = call(&breaker, if n % 2 == 0 { Ok(()) } else { Err("fail") }).await;
    }

    assert_eq!(breaker.status(), BreakerStatus::Open);
}

#[tokio::test(start_paused = true)]
async fn a_share_is_judged_at_the_success_that_completes_the_least_number_of_calls() {
    for calls in [[true, false, false, true], [false, false, true, true]] {
        let window = WindowRule { length: secs(10), min_calls: 4, failure_rate: 0.5, slow: None };
        let policy = BreakerPolicy { failures: 0, window: Some(window), ..Default::default() };
        let (breaker, _) = breaker(policy);
        for is_good in calls {
            assert_eq!(breaker.status(), BreakerStatus::Closed, "{calls:?}");
            let _ = call(&breaker, if is_good { Ok(()) } else { Err("fail") }).await;
        }
        assert_eq!(breaker.status(), BreakerStatus::Open, "{calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_answers_slowly_opens_by_slowness() {
    let slow = SlowRule { after: secs(5), rate: 0.5 };
    let window =
        WindowRule { length: secs(600), min_calls: 4, failure_rate: 1.0, slow: Some(slow) };
    let (breaker, _) = breaker(BreakerPolicy { window: Some(window), ..BreakerPolicy::default() });

    for took in [1, 1, 6, 6] {
        let permit = breaker.admit().unwrap();
        advance(secs(took)).await;
        permit.well();
    }

    assert_eq!(breaker.status(), BreakerStatus::Open);
}

#[tokio::test(start_paused = true)]
async fn a_row_of_failures_is_forgotten_after_a_long_silence() {
    let (breaker, _) = breaker(BreakerPolicy::default());
    fail(&breaker, 4).await;
    advance(secs(601)).await;
    fail(&breaker, 1).await;

    assert_eq!((breaker.status(), breaker.snapshot().failures), (BreakerStatus::Closed, 1));
}

#[tokio::test(start_paused = true)]
async fn a_growing_cooldown_grows_in_a_row_and_shrinks_with_health() {
    let cooldown = Cooldown { jitter: 0.0, ..Cooldown::growing(secs(30), secs(300)) };
    let (breaker, _) = breaker(BreakerPolicy { cooldown, ..BreakerPolicy::default() });
    let remaining = || breaker.snapshot().remaining.unwrap();

    fail(&breaker, 5).await;
    for expected in [30, 60, 120, 240, 300, 300] {
        assert_eq!(remaining(), secs(expected));
        advance(secs(expected)).await;
        fail(&breaker, 1).await;
    }

    advance(secs(300)).await;
    call(&breaker, Ok(())).await.unwrap();
    advance(secs(5 * 30)).await;
    fail(&breaker, 5).await;
    assert_eq!(remaining(), secs(120), "five healthy periods undid five of seven steps");
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_are_what_was_seen_also_while_open() {
    let window = WindowRule { length: secs(10), min_calls: 4, failure_rate: 0.5, slow: None };
    let (breaker, _) = breaker(BreakerPolicy { window: Some(window), ..BreakerPolicy::default() });
    call(&breaker, Ok(())).await.unwrap();
    call(&breaker, Ok(())).await.unwrap();
    fail(&breaker, 2).await;

    let snapshot = breaker.snapshot();
    assert_eq!(
        (snapshot.status, snapshot.failures),
        (BreakerStatus::Open, 2),
        "opened by the rate, not by five in a row"
    );

    breaker.restore(&snapshot);
    advance(secs(30)).await;
    fail(&breaker, 1).await;
    assert_eq!(
        (breaker.status(), breaker.snapshot().failures),
        (BreakerStatus::Open, 3),
        "its probe failed too"
    );
}

#[tokio::test(start_paused = true)]
async fn an_operator_can_force_disable_and_shadow() {
    let (breaker, env) = breaker(BreakerPolicy::default());
    breaker.set_mode(BreakerMode::ForcedOpen);
    assert_eq!(breaker.status(), BreakerStatus::Open);
    assert_eq!(retry_after(call(&breaker, Ok(())).await), secs(30));
    advance(secs(31)).await;
    assert!(call(&breaker, Ok(())).await.is_err(), "for ever");

    breaker.set_mode(BreakerMode::Disabled);
    fail(&breaker, 20).await;
    assert_eq!((breaker.status(), breaker.snapshot().failures), (BreakerStatus::Closed, 0));

    breaker.set_mode(BreakerMode::Auto);
    breaker.set_mode(BreakerMode::Shadow);
    let mut listener = env.events.subscribe();
    fail(&breaker, 20).await;
    let events = listener.drain();
    let would_reject = events
        .iter()
        .filter(|event| matches!(***event, Event::BreakerRejected { shadow: true, .. }))
        .count();
    assert_eq!(
        (breaker.status(), would_reject),
        (BreakerStatus::Open, 15),
        "measured, and every call passed"
    );

    breaker.set_mode(BreakerMode::Auto);
    assert_eq!(call(&breaker, Ok(())).await, Ok(()), "back to automatic starts closed");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_keeps_what_remains_not_a_date() {
    let (before, _) = breaker(BreakerPolicy::default());
    fail(&before, 5).await;
    advance(secs(10)).await;
    let stored = serde_json::to_string(&before.snapshot()).unwrap();

    advance(secs(3600)).await;
    let (after, _) = breaker(BreakerPolicy::default());
    after.restore(&serde_json::from_str(&stored).unwrap());

    assert_eq!(after.admit().unwrap_err().retry_after, secs(20));
    advance(secs(20)).await;
    assert_eq!(call(&after, Ok(())).await, Ok(()));

    let (counting, _) = breaker(BreakerPolicy::default());
    fail(&counting, 3).await;
    let (restored, _) = breaker(BreakerPolicy::default());
    restored.restore(&counting.snapshot());
    fail(&restored, 2).await;
    assert_eq!(restored.status(), BreakerStatus::Open);
}

#[tokio::test(start_paused = true)]
async fn strangers_names_cannot_fill_the_registry_or_evict_an_open_breaker() {
    let breakers = CircuitBreaker::with_capacity(BreakerPolicy::default(), &env(0.0), 10).unwrap();
    for _ in 0..5 {
        breakers.call("important", || async { Err::<(), _>("fail") }).await.unwrap_err();
    }

    for n in 0..1000 {
        let _ = breakers.call(&format!("invented-{n}"), || async { Err::<(), _>("fail") }).await;
    }

    assert!(breakers.all_status().len() <= 10);
    assert_eq!(breakers.all_status().get("important"), Some(&BreakerStatus::Open));
    assert_eq!(breakers.status("never-called"), None, "asking does not make a name known");
    assert!(!breakers.reset("never-called"));
    assert!(breakers.reset("important"));
    assert_eq!(breakers.status("important").unwrap().status, BreakerStatus::Closed);
}

#[tokio::test(start_paused = true)]
async fn strangers_names_cannot_make_a_breaker_forget_its_window_or_its_cooldown() {
    let window = Some(WindowRule { length: secs(10), min_calls: 4, failure_rate: 0.5, slow: None });
    let cooldown = Cooldown { jitter: 0.0, ..Cooldown::growing(secs(30), secs(300)) };
    let policy = BreakerPolicy { failures: 0, window, cooldown, ..BreakerPolicy::default() };
    let breakers = CircuitBreaker::with_capacity(policy, &env(0.0), 1).unwrap();
    let fail = async |times| {
        for _ in 0..times {
            let _ = breakers.call("important", || async { Err::<(), _>("fail") }).await;
        }
    };
    let stranger =
        async || breakers.call("invented", || async { Ok::<_, &str>(()) }).await.unwrap();

    fail(3).await;
    stranger().await;
    fail(1).await;
    assert_eq!(
        breakers.status("important").map(|breaker| breaker.status),
        Some(BreakerStatus::Open)
    );

    advance(secs(30)).await;
    breakers.call("important", || async { Ok::<_, &str>(()) }).await.unwrap();
    stranger().await;
    fail(4).await;
    assert_eq!(
        breakers.status("important").and_then(|breaker| breaker.remaining),
        Some(secs(60)),
        "twice as long"
    );

    advance(secs(60)).await;
    breakers.call("important", || async { Ok::<_, &str>(()) }).await.unwrap();
    advance(secs(300)).await;
    stranger().await;
    assert_eq!(breakers.status("important"), None, "long at rest, it makes room");
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_the_successes_of_the_window_too() {
    let window = Some(WindowRule { length: secs(10), min_calls: 4, failure_rate: 0.5, slow: None });
    let (breaker, _) = breaker(BreakerPolicy { failures: 0, window, ..BreakerPolicy::default() });
    for _ in 0..100 {
        call(&breaker, Ok(())).await.unwrap();
    }

    breaker.reset();
    fail(&breaker, 4).await;

    assert_eq!(breaker.status(), BreakerStatus::Open);
}
