//! A breaker that has closed lets few through at first and twice as many with each round that goes
//! well; who comes one by one never notices.

use crate::kit::*;
use futures_util::future::join_all;
use seawall::*;
use serde_json::json;
use std::time::Duration;

const CALLERS: usize = 100;

/// A breaker that its probe has just closed, after it was open for `cooldown`.
async fn recovered(policy: BreakerPolicy, env: &Env) -> Breaker {
    let breaker = Breaker::new("flaky", policy, env).unwrap();
    fall_and_recover(&breaker).await;
    breaker
}

async fn fall_and_recover(breaker: &Breaker) {
    while let Ok(permit) = breaker.admit() {
        permit.badly();
    }
    advance(breaker.snapshot().remaining.unwrap()).await;
    breaker.admit().unwrap().well();
    assert_eq!(breaker.status(), BreakerStatus::Closed);
}

fn slow_start(slow_start: u32) -> BreakerPolicy {
    BreakerPolicy { slow_start, ..BreakerPolicy::default() }
}

/// Leave for as many of the callers as get it, at once.
fn storm(breaker: &Breaker) -> Vec<Permit<'_>> {
    (0..CALLERS).filter_map(|_| breaker.admit().ok()).collect()
}

#[tokio::test(start_paused = true)]
async fn of_a_hundred_callers_ten_pass_after_closing_and_twice_as_many_each_round() {
    let env = env(0.0);
    let breaker = recovered(BreakerPolicy::default(), &env).await;
    let mut listener = env.events.subscribe();
    let slow = || async {
        tokio::time::sleep(ms(10)).await;
        Ok::<_, FailureSignals>(())
    };

    for expected in [10, 20, 40, 80, 100] {
        let results = join_all((0..CALLERS).map(|_| breaker.call(slow))).await;

        let passed = results.iter().filter(|result| result.is_ok()).count();
        let refused = results.iter().filter(
            |result| matches!(result, Err(GuardedError::Open(open)) if open.retry_after == secs(1)),
        );
        assert_eq!((passed, refused.count()), (expected, CALLERS - expected));
        let told = listener.drain();
        assert!(
            told.iter()
                .all(|event| matches!(**event, Event::BreakerRejected { shadow: false, .. })),
            "{told:?}"
        );
        assert_eq!(
            (told.len(), breaker.status()),
            (CALLERS - expected, BreakerStatus::Closed),
            "all refusals are told"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_ramp_of_zero_lets_all_pass_at_once() {
    let breaker = recovered(slow_start(0), &env(0.0)).await;

    assert_eq!(storm(&breaker).len(), CALLERS);
}

#[tokio::test(start_paused = true)]
async fn who_comes_one_by_one_never_notices_the_ramp() {
    let breaker = recovered(slow_start(1), &env(0.0)).await;
    for n in 0..CALLERS {
        assert_eq!(breaker.peek(), Ok(()));
        let permit = breaker.admit().unwrap();
        assert!(!permit.is_probe());
        match n % 5 {
            1 => drop(permit),
            4 => permit.well(),
            _ => permit.badly(),
        }
    }

    (0..5).for_each(|_| breaker.admit().unwrap().badly());
    assert_eq!(breaker.status(), BreakerStatus::Open, "failures count as usual");
}

#[tokio::test(start_paused = true)]
async fn every_ending_gives_its_place_back_once_and_only_a_good_one_makes_room() {
    type Ending = (fn(Permit<'_>), usize);
    let endings: [Ending; 8] = [
        (|permit| permit.well(), 2),
        (|permit| permit.blame(Blame::Alive), 2),
        (|permit| permit.badly(), 1),
        (|permit| permit.blame(Blame::Server), 1),
        (|permit| permit.blame(Blame::Throttle), 1),
        (|permit| permit.blame(Blame::Nobody), 1),
        (|permit| permit.blame_incident(Blame::Server, Some(7)), 1),
        (|permit| drop(permit), 1),
    ];
    for (number, (end, room)) in endings.into_iter().enumerate() {
        let breaker = recovered(slow_start(1), &env(0.0)).await;
        let permit = breaker.admit().unwrap();
        assert_eq!(breaker.peek().unwrap_err().retry_after, secs(1));
        assert!(breaker.admit().is_err());

        end(permit);

        assert_eq!(storm(&breaker).len(), room, "ending {number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_from_before_the_closing_neither_takes_nor_makes_room() {
    let breaker = Breaker::new("flaky", slow_start(2), &env(0.0)).unwrap();
    let before: Vec<_> = storm(&breaker);
    fall_and_recover(&breaker).await;

    let under_way = storm(&breaker);
    assert_eq!(under_way.len(), 2);
    for (n, permit) in before.into_iter().enumerate() {
        match n % 3 {
            0 => permit.well(),
            1 => permit.badly(),
            _ => drop(permit),
        }
        assert!(breaker.admit().is_err());
    }
    under_way.into_iter().for_each(Permit::well);
    assert_eq!(storm(&breaker).len(), 4);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_hang_hold_the_ramp_no_longer_than_the_first_cooldown() {
    let cooldown = Cooldown { jitter: 0.0, ..Cooldown::growing(secs(30), secs(300)) };
    let breaker =
        Breaker::new("flaky", BreakerPolicy { cooldown, ..BreakerPolicy::default() }, &env(0.0))
            .unwrap();
    // Its cool-down has grown to a minute by then.
    fall_and_recover(&breaker).await;
    fall_and_recover(&breaker).await;
    let hung = storm(&breaker);
    assert_eq!(hung.len(), 10);

    advance(ms(29_999)).await;
    assert_eq!(breaker.admit().unwrap_err().retry_after, ms(1), "not longer than it lasts");
    advance(ms(1)).await;
    assert_eq!(breaker.peek(), Ok(()));
    let all = storm(&breaker);
    assert_eq!(all.len(), CALLERS);

    drop(hung);
    all.into_iter().for_each(Permit::well);
    assert_eq!(storm(&breaker).len(), CALLERS, "what ends later changes nothing");
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_or_a_restart_closes_takes_all_at_once() {
    type Closing = fn(&Breaker);
    let closings: [Closing; 3] = [
        |breaker| breaker.reset(),
        |breaker| {
            breaker.set_mode(BreakerMode::ForcedOpen);
            breaker.set_mode(BreakerMode::Auto);
        },
        |breaker| breaker.restore(&breaker.snapshot()),
    ];
    for close in closings {
        let breaker = recovered(slow_start(1), &env(0.0)).await;
        let under_way = storm(&breaker);
        assert_eq!(under_way.len(), 1);

        close(&breaker);

        assert_eq!(storm(&breaker).len(), CALLERS);
    }
}

#[tokio::test(start_paused = true)]
async fn in_shadow_the_ramp_is_measured_and_all_pass() {
    let env = env(0.0);
    let breaker = recovered(BreakerPolicy::default(), &env).await;
    breaker.set_mode(BreakerMode::Shadow);
    let mut listener = env.events.subscribe();

    let under_way = storm(&breaker);
    assert_eq!((under_way.len(), breaker.peek()), (CALLERS, Ok(())));
    let told = listener.drain();
    assert!(
        told.iter().all(|event| matches!(**event, Event::BreakerRejected { shadow: true, .. })),
        "{told:?}"
    );
    assert_eq!(told.len(), CALLERS - 10);

    // Who ends while it is disabled has ended all the same.
    breaker.set_mode(BreakerMode::Disabled);
    under_way.into_iter().for_each(drop);
    assert_eq!(storm(&breaker).len(), CALLERS);
    breaker.set_mode(BreakerMode::Shadow);
    let under_way = storm(&breaker);
    assert_eq!(listener.drain().len(), CALLERS - 10, "all ten places are free again");
    breaker.set_mode(BreakerMode::ForcedOpen);
    assert_eq!(storm(&breaker).len(), 0);
    drop(under_way);
}

#[tokio::test(start_paused = true)]
async fn a_ramp_is_not_lost_for_a_strangers_name() {
    let breakers = CircuitBreaker::with_capacity(slow_start(1), &env(0.0), 1).unwrap();
    fall_and_recover(&breakers.breaker("held")).await;
    let gives_way = || breakers.breaker("stranger").name() == "stranger";

    advance(ms(29_999)).await;
    assert!(!gives_way());
    advance(ms(1)).await;
    assert!(gives_way(), "which is over by itself");
}

/// Answers after `took`.
async fn after(took: Duration, script: Script) -> Result<String, FailureSignals> {
    tokio::time::sleep(took).await;
    script.execute()
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_breaker_has_just_closed_is_not_stormed_and_who_is_refused_has_its_fallback() {
    let env = env(0.0);
    let tools = with_tool(settings(&env), "get_issue", |policy| {
        policy.fallback = vec![Fallback::Text("Try later.".to_owned())];
        policy.loops = LoopPolicy::OFF;
    });
    open_breaker(&tools, "get_issue").await;
    advance(secs(30)).await;
    let script = Script::healthy();
    tools.call("get_issue", json!({"probe": 1}), script.send()).await;
    let mut listener = env.events.subscribe();

    for (round, expected) in [10, 20, 40].into_iter().enumerate() {
        let before = script.executions();
        let calls = (0..CALLERS).map(|n| {
            tools.call("get_issue", json!({"round": round, "n": n}), |_| {
                after(ms(10), script.clone())
            })
        });
        let answers = join_all(calls).await;

        assert_eq!(script.executions() - before, expected);
        let stood_in = answers
            .iter()
            .filter(|answer| answer.attempts == 0 && served(answer).note == "Try later.")
            .count();
        assert_eq!(
            stood_in,
            CALLERS - expected as usize,
            "none was tried again, each has its fallback"
        );
        let told = listener.drain();
        let refused = told
            .iter()
            .filter(|event| matches!(***event, Event::BreakerRejected { shadow: false, .. }));
        assert_eq!(refused.count(), stood_in);
    }
    assert_eq!(
        tools.breaker_status("get_issue").map(|breaker| breaker.status),
        Some(BreakerStatus::Closed)
    );
}
