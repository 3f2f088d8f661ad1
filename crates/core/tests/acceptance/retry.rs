//! Retries: when and how long to wait, and when not at all.

use super::kit::*;
use seawall::*;
use std::sync::Arc;
use std::time::Duration;

fn retry(env: &Env) -> Retry {
    Retry::new(Effect::ReadOnly).env(env.clone())
}

async fn delays(chance: f64, attempts: u32) -> Vec<u64> {
    let env = env(chance);
    let mut listener = env.events.subscribe();
    let policy = RetryPolicy { attempts, ..RetryPolicy::default() };
    let script = Script::down("503");
    retry(&env)
        .policy(policy)
        .unwrap()
        .call(|_| std::future::ready(script.execute()))
        .await
        .unwrap_err();
    listener
        .drain()
        .iter()
        .filter_map(|event| match &**event {
            Event::RetryScheduled { delay, .. } => Some(delay.as_millis() as u64),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn delays_double_with_up_to_a_fifth_on_top() {
    assert_eq!(delays(0.0, 3).await, [1000, 2000]);
    assert_eq!(delays(1.0, 3).await, [1199, 2399]);
    assert_eq!(delays(0.0, 8).await, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
}

#[tokio::test(start_paused = true)]
async fn two_rate_limits_then_success_take_three_attempts() {
    for chance in [0.0, 0.5, 1.0] {
        let script = Script::failing(["429 rate limit exceeded"; 2]);

        let (result, elapsed) =
            timed(retry(&env(chance)).call(|_| std::future::ready(script.execute()))).await;

        let result = result.unwrap();
        assert_eq!((result.value.as_str(), result.attempts), ("ok", 3));
        assert!((ms(3000)..=ms(3598)).contains(&result.total_delay), "{:?}", result.total_delay);
        assert_eq!(elapsed, result.total_delay);
    }
}

#[tokio::test(start_paused = true)]
async fn a_callers_fault_is_tried_once_and_returned_unchanged() {
    for text in ["422 invalid", "row 4290 not found in table 503_archive", "401 Unauthorized"] {
        let script = Script::down(text);

        let (result, elapsed) =
            timed(retry(&env(0.0)).call(|_| std::future::ready(script.execute()))).await;

        let gave_up = result.unwrap_err();
        assert_eq!(
            (script.executions(), gave_up.attempts, elapsed),
            (1, 1, Duration::ZERO),
            "{text}"
        );
        assert_eq!(gave_up.error, FailureSignals::text(text));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_attempt_does_not_sleep() {
    let script = Script::down("503");

    let (result, elapsed) =
        timed(retry(&env(0.0)).call(|_| std::future::ready(script.execute()))).await;

    assert_eq!(result.unwrap_err().attempts, 3);
    assert_eq!(elapsed, secs(3));
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_inside_a_retry_is_asked_once() {
    for name in ["get_issue", "timeout_report"] {
        let env = env(0.0);
        let breaker = CircuitBreaker::new(BreakerPolicy::default(), &env).unwrap();
        for _ in 0..5 {
            breaker.call(name, || async { Err::<(), _>("fail") }).await.unwrap_err();
        }
        // Every remaining millisecond: 240 of these texts contain 429, 502, 503 or 504.
        for _ in 1..=30_000 {
            let script = Script::healthy();
            let mut asked = 0;
            let (result, elapsed) = timed(retry(&env).call(|_| {
                asked += 1;
                breaker.call(name, || std::future::ready(script.execute()))
            }))
            .await;

            let gave_up = result.unwrap_err();
            assert!(matches!(gave_up.error, GuardedError::Open(_)), "{:?}", gave_up.error);
            assert_eq!((asked, script.executions(), elapsed), (1, 0, Duration::ZERO), "{gave_up}");
            advance(ms(1)).await;
        }
        assert_eq!(breaker.call(name, || async { Ok::<_, &str>(()) }).await, Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_waited_for_if_it_fits_and_told_if_not() {
    let wait = |seconds| FailureSignals {
        retry_after: Some(secs(seconds)),
        ..FailureSignals::http(429, "slow down")
    };

    let (_, elapsed) =
        timed(retry(&env(0.0)).call(|_| std::future::ready(Script::failing([wait(7)]).execute())))
            .await;
    assert_eq!(elapsed, secs(7 + 7), "longer than the backoff of 1 s and 2 s");

    let script = Script::failing([wait(7)]);
    let (_, elapsed) = timed(retry(&env(1.0)).call(|_| std::future::ready(script.execute()))).await;
    assert_eq!(elapsed, ms(7_199), "with the jitter of the backoff on top");

    let script = Script::failing([wait(7)]);
    let within = retry(&env(0.0)).timeout(secs(7)).unwrap();
    let (result, elapsed) = timed(within.call(|_| std::future::ready(script.execute()))).await;
    assert_eq!(elapsed, Duration::ZERO, "a pause that leaves no time for an attempt is not begun");
    assert_eq!(result.unwrap_err().failure.retry_after, Some(secs(7)));

    let script = Script::failing([wait(301)]);
    let result = retry(&env(0.0)).call(|_| std::future::ready(script.execute())).await;
    assert_eq!(result.unwrap_err().attempts, 1, "no server is waited for longer than 300 s");
}

#[tokio::test(start_paused = true)]
async fn write_is_not_retried_when_it_may_have_run() {
    let write = Retry::new(Effect::Write).env(env(0.0));
    for (signals, attempts) in [
        (FailureSignals::transport(TransportFailure::Timeout, "no answer"), 1),
        (FailureSignals::transport(TransportFailure::Lost, "reset"), 1),
        (FailureSignals::http(500, "boom"), 1),
        (FailureSignals::http(503, "boom"), 1),
        (FailureSignals::text("request timed out"), 1),
        (FailureSignals::transport(TransportFailure::Refused, "refused"), 3),
        (FailureSignals::transport(TransportFailure::UnknownHost, "dns"), 3),
        (FailureSignals::transport(TransportFailure::ConnectTimeout, "connect"), 3),
        (FailureSignals::http(429, "slow down"), 3),
    ] {
        let script = Script::down(signals.clone());
        let gave_up = write.call(|_| std::future::ready(script.execute())).await.unwrap_err();
        assert_eq!((gave_up.attempts, script.executions()), (attempts, attempts), "{signals:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_earlier_attempt_may_have_done_is_not_forgotten() {
    let refused = || FailureSignals::transport(TransportFailure::Refused, "refused");
    let script = Script::failing([
        FailureSignals::transport(TransportFailure::Lost, "reset"),
        refused(),
        refused(),
    ]);

    let gave_up = Retry::new(Effect::Idempotent)
        .env(env(0.0))
        .call(|_| std::future::ready(script.execute()))
        .await;

    assert_eq!(gave_up.unwrap_err().failure.sent, Sent::Maybe);
}

#[tokio::test(start_paused = true)]
async fn a_breaker_that_opens_during_a_pause_does_not_replace_the_failure() {
    let env = env(0.0);
    let breaker = Breaker::new("b", BreakerPolicy::new(2, secs(30)), &env).unwrap();
    let work = async {
        retry(&env)
            .call(|_| breaker.call(|| async { Err::<(), _>(FailureSignals::http(503, "down")) }))
            .await
            .unwrap_err()
    };

    let (gave_up, ()) = tokio::join!(work, async {
        advance(ms(500)).await;
        breaker.admit().unwrap().badly();
    });

    assert_eq!((gave_up.failure.cause, gave_up.failure.status), (Cause::Misbehaved, Some(503)));
    assert_eq!(gave_up.failure.retry_after, Some(ms(29_500)));
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_paid_when_it_is_scheduled_not_when_it_is_sent() {
    let env = env(0.0);
    let none = BudgetPolicy { share: 0.0, floor: 3, saved: 100 };
    let budget = Arc::new(RetryBudget::new(none, &env.clock).unwrap());
    let retry = retry(&env).budget(budget);

    // A thousand calls fail at once; their retries sleep at the same time.
    let script = Script::down("503");
    let calls = (0..1000).map(|_| retry.call(|_| std::future::ready(script.execute())));
    futures_util::future::join_all(calls).await;

    // Three a second while they sleep: 3 at 0 s, 3 more at 1 s, and one saved place each time a
    // token is spent.
    assert!((1003..=1009).contains(&script.executions()), "{}", script.executions());
}

#[tokio::test(start_paused = true)]
async fn a_failed_retry_is_spent_and_a_successful_one_costs_nothing() {
    let env = env(0.0);
    let all = BudgetPolicy { share: 1.0, floor: 0, saved: 2 };
    let budget = Arc::new(RetryBudget::new(all, &env.clock).unwrap());
    let retry = retry(&env).budget(budget.clone());
    budget.deposit();

    let flaky = Script::failing(["503"]);
    retry.call(|_| std::future::ready(flaky.execute())).await.unwrap();
    assert_eq!(budget.saved(), 2);

    let down = Script::down("503");
    assert_eq!(retry.call(|_| std::future::ready(down.execute())).await.unwrap_err().attempts, 3);
    assert_eq!(budget.saved(), 0);
    assert_eq!(
        retry.call(|_| std::future::ready(down.execute())).await.unwrap_err().attempts,
        2,
        "its own deposit pays one"
    );
}

/// Hangs `times` times, then answers.
fn hanging(
    times: u32,
) -> impl Fn(u32) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, FailureSignals>>>> {
    move |number| match number <= times {
        true => Box::pin(std::future::pending()),
        false => Box::pin(std::future::ready(Ok(number))),
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_ends_with_the_time() {
    let (result, elapsed) =
        timed(retry(&env(0.0)).timeout(secs(7)).unwrap().call(hanging(9))).await;

    let gave_up = result.unwrap_err();
    assert_eq!((elapsed, gave_up.attempts, &gave_up.error), (secs(7), 1, &None));
    assert_eq!((gave_up.failure.cause, gave_up.failure.sent), (Cause::Timeout, Sent::Maybe));
    assert_eq!(gave_up.to_string(), "no answer within 7s");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_leaves_time_for_another() {
    let limited = retry(&env(0.0)).timeout(secs(10)).unwrap().attempt_timeout(secs(2)).unwrap();

    let (result, elapsed) = timed(limited.call(hanging(1))).await;
    assert_eq!((result.unwrap().value, elapsed), (2, secs(2 + 1)));

    let (result, elapsed) = timed(limited.call(hanging(9))).await;
    assert_eq!((result.unwrap_err().attempts, elapsed), (3, secs(2 + 1 + 2 + 2 + 2)));

    let short = retry(&env(0.0)).timeout(secs(4)).unwrap().attempt_timeout(secs(2)).unwrap();
    let (result, elapsed) = timed(short.call(hanging(9))).await;
    assert_eq!(
        (result.unwrap_err().attempts, elapsed),
        (2, secs(4)),
        "the second has what is left"
    );
}

#[tokio::test(start_paused = true)]
async fn a_write_that_hangs_is_not_sent_again() {
    let write = Retry::new(Effect::Write).env(env(0.0)).attempt_timeout(secs(2)).unwrap();

    let (result, elapsed) = timed(write.call(hanging(1))).await;

    assert_eq!((result.unwrap_err().attempts, elapsed), (1, secs(2)));
}

fn with_breaker(env: &Env, failures: u32) -> (LimitedRetry, Arc<Breaker>) {
    let breaker = Arc::new(Breaker::new("b", BreakerPolicy::new(failures, secs(30)), env).unwrap());
    (retry(env).breaker(breaker.clone()), breaker)
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_breaker_that_his_own_failure_opened() {
    let env = env(0.0);
    let (retry, breaker) = with_breaker(&env, 2);
    let script = Script::down(FailureSignals::http(503, "down"));

    let (result, elapsed) = timed(retry.call(|_| std::future::ready(script.execute()))).await;

    let gave_up = result.unwrap_err();
    assert_eq!(
        (script.executions(), gave_up.attempts, elapsed),
        (2, 2, secs(1)),
        "no pause after the second"
    );
    assert_eq!((breaker.status(), gave_up.failure.status), (BreakerStatus::Open, Some(503)));

    let (result, elapsed) = timed(retry.call(|_| std::future::ready(script.execute()))).await;
    let gave_up = result.unwrap_err();
    assert_eq!(
        (script.executions(), gave_up.error, elapsed),
        (2, None, Duration::ZERO),
        "refused before it began"
    );
    assert_eq!(gave_up.attempts, 0);
    assert_eq!(
        (gave_up.failure.cause, gave_up.failure.retry_after),
        (Cause::CircuitOpen, Some(secs(30)))
    );
}

#[tokio::test(start_paused = true)]
async fn what_ended_well_or_by_the_callers_fault_opens_no_breaker() {
    let env = env(0.0);
    let (retry, breaker) = with_breaker(&env, 1);

    retry.call(|_| async { Ok::<_, &str>(()) }).await.unwrap();
    retry.call(|_| async { Err::<(), _>("422 invalid") }).await.unwrap_err();
    retry.clone().timeout(secs(5)).unwrap().call(|_| async { Ok::<_, &str>(()) }).await.unwrap();

    assert_eq!((breaker.status(), breaker.snapshot().failures), (BreakerStatus::Closed, 0));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_hangs_counts_unless_it_was_hurried() {
    let env = env(0.0);
    let (retry, breaker) = with_breaker(&env, 9);
    let limited = retry.timeout(ms(6500)).unwrap().attempt_timeout(secs(5)).unwrap();

    // Five seconds for the first, a pause of one, and half a second for the second.
    let (result, elapsed) = timed(limited.call(hanging(9))).await;

    assert_eq!((result.unwrap_err().attempts, elapsed), (2, ms(6500)));
    assert_eq!(breaker.snapshot().failures, 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_dropped_gives_its_probe_back() {
    let env = env(0.0);
    let (retry, breaker) = with_breaker(&env, 1);
    breaker.admit().unwrap().badly();
    advance(secs(30)).await;

    let gone = tokio::time::timeout(secs(1), retry.call(hanging(9))).await;

    assert!(gone.is_err());
    assert_eq!(breaker.status(), BreakerStatus::HalfOpen);
    breaker.admit().unwrap().well();
    assert_eq!(breaker.status(), BreakerStatus::Closed);
}

#[test]
fn bad_settings_name_their_field() {
    let good = RetryPolicy::default();
    for (policy, field) in [
        (RetryPolicy { attempts: 0, ..good }, "attempts"),
        (RetryPolicy { longest_pause: Duration::MAX, ..good }, "longest_pause"),
        (RetryPolicy { backoff: Backoff { base: Duration::MAX, ..good.backoff }, ..good }, "base"),
    ] {
        assert_eq!(Retry::new(Effect::Write).policy(policy).unwrap_err().field, field);
    }
    assert_eq!(Retry::new(Effect::Write).timeout(Duration::ZERO).unwrap_err().field, "timeout");
    let (long, short) = (secs(10), secs(5));
    for bad in [
        Retry::new(Effect::Write).attempt_timeout(Duration::ZERO),
        Retry::new(Effect::Write).timeout(short).unwrap().attempt_timeout(long),
        Retry::new(Effect::Write).attempt_timeout(long).unwrap().timeout(short),
    ] {
        assert_eq!(bad.unwrap_err().field, "attempt_timeout");
    }
}
