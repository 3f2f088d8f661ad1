//! Names that strangers invent: what is at rest makes room, what is not stays, and nobody's tool
//! pays for it.

use crate::kit::*;
use futures_util::future::join_all;
use futures_util::poll;
use seawall::*;
use serde_json::json;
use std::time::Duration;

/// As many as are remembered.
const NAMES: u32 = 1024;

async fn fail(breakers: &CircuitBreaker, name: &str) {
    let _ = breakers.call(name, || async { Err::<(), _>("fail") }).await;
}

async fn work(breakers: &CircuitBreaker, name: &str) {
    let _ = breakers.call(name, || async { Ok::<_, &str>(()) }).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_forgotten_does_not_keep_a_breaker_in_memory() {
    let breakers = CircuitBreaker::new(BreakerPolicy::default(), &env(0.0)).unwrap();
    for n in 0..NAMES {
        fail(&breakers, &format!("invented-{n}")).await;
    }
    assert_eq!(breakers.breaker("get_issue").name(), "others", "all of them are remembered");

    advance(secs(600)).await;
    assert_eq!(breakers.breaker("get_issue").name(), "others", "they still are");
    advance(ms(1)).await;
    work(&breakers, "get_issue").await;
    for n in 0..5 {
        fail(&breakers, &format!("new-{n}")).await;
    }

    assert_eq!(breakers.breaker("get_issue").name(), "get_issue");
    assert_eq!(breakers.all_status().len(), NAMES as usize);
}

#[tokio::test(start_paused = true)]
async fn of_the_breakers_at_rest_the_least_recently_used_makes_room() {
    let breakers = CircuitBreaker::with_capacity(BreakerPolicy::default(), &env(0.0), 3).unwrap();
    for name in ["a", "b", "c", "a"] {
        work(&breakers, name).await;
    }

    work(&breakers, "d").await;
    assert!(
        breakers.status("b").is_none() && breakers.status("a").is_some(),
        "b was used before c and a"
    );
    work(&breakers, "e").await;
    assert!(breakers.status("c").is_none() && breakers.status("a").is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_open_forced_or_under_way_makes_no_room() {
    let breakers = CircuitBreaker::with_capacity(BreakerPolicy::default(), &env(0.0), 3).unwrap();
    for _ in 0..5 {
        fail(&breakers, "open").await;
    }
    breakers.breaker("forced").set_mode(BreakerMode::ForcedOpen);
    let mut under_way = Box::pin(breakers.call("busy", std::future::pending::<Result<(), &str>>));
    assert!(poll!(under_way.as_mut()).is_pending());

    advance(secs(30 + 600)).await;
    for n in 0..100 {
        work(&breakers, &format!("invented-{n}")).await;
    }
    let mut known: Vec<_> = breakers.all_status().into_keys().collect();
    known.sort();
    assert_eq!(known, ["busy", "forced", "open"].map(Into::into));

    drop(under_way);
    work(&breakers, "invented").await;
    assert!(breakers.status("busy").is_none() && breakers.status("invented").is_some());
}

async fn fail_open(breakers: &CircuitBreaker, names: impl Iterator<Item = String>) {
    for name in names {
        for _ in 0..5 {
            fail(breakers, &name).await;
        }
        assert_eq!(breakers.status(&name).map(|breaker| breaker.status), Some(BreakerStatus::Open));
    }
}

fn invented() -> impl Iterator<Item = String> {
    (0..NAMES).map(|n| format!("invented-{n}"))
}

#[tokio::test(start_paused = true)]
async fn what_was_failed_open_and_left_makes_room_when_its_time_is_over_and_not_before() {
    let breakers = CircuitBreaker::new(BreakerPolicy::default(), &env(0.0)).unwrap();
    fail_open(&breakers, invented()).await;

    advance(secs(30 + 600)).await;
    for n in 0..NAMES {
        assert_eq!(
            breakers.breaker(&format!("new-{n}")).name(),
            "others",
            "all others are remembered"
        );
    }
    assert!(invented().all(|name| breakers.status(&name).is_some()), "none is lost");

    advance(ms(1)).await;
    fail_open(&breakers, (0..NAMES).map(|n| format!("new-{n}"))).await;
    assert_eq!(breakers.all_status().len(), NAMES as usize);
    assert!(invented().all(|name| breakers.status(&name).is_none()), "each made room for one");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_its_owner_declared_has_its_own_breaker_however_many_strangers_come() {
    let breakers = CircuitBreaker::new(BreakerPolicy::default(), &env(0.0)).unwrap();
    for _ in 0..4 {
        fail(&breakers, "get_issue").await;
    }
    let breakers = breakers.known(["get_issue", "get_user"]);
    fail_open(&breakers, ["get_issue".to_owned()].into_iter().chain(invented())).await;
    assert_eq!(breakers.breaker("stranger").name(), "others", "there is no room");
    assert_eq!(
        breakers.all_status().len(),
        NAMES as usize + 2,
        "what is declared takes no stranger's place"
    );
    assert_eq!(breakers.breaker("get_user").name(), "get_user");

    advance(secs(7 * 86_400)).await;
    for n in 0..3 * NAMES {
        work(&breakers, &format!("new-{n}")).await;
    }
    assert_eq!(
        breakers.status("get_issue").map(|breaker| breaker.status),
        Some(BreakerStatus::Open),
        "for good"
    );
    assert_eq!(breakers.breaker("get_user").name(), "get_user");
}

/// One place, which a name holds; whether a stranger gets it is asked at each moment.
async fn gives_way(breakers: &CircuitBreaker, after: [Duration; 2]) -> [bool; 2] {
    let mut gave_way = [false; 2];
    for (gave_way, after) in gave_way.iter_mut().zip(after) {
        advance(after).await;
        *gave_way = breakers.breaker("stranger").name() == "stranger";
    }
    gave_way
}

fn one_place(policy: BreakerPolicy) -> CircuitBreaker {
    CircuitBreaker::with_capacity(policy, &env(1.0), 1).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_grown_or_restored_cooldown_counts_in_full_before_a_breaker_makes_room() {
    let cooldown = Cooldown::growing(secs(1000), secs(4000));
    let breakers = one_place(BreakerPolicy { cooldown, ..BreakerPolicy::default() });
    fail_open(&breakers, ["held".to_owned()].into_iter()).await;
    advance(secs(1100)).await;
    fail(&breakers, "held").await;
    assert_eq!(gives_way(&breakers, [secs(2200 + 600), ms(1)]).await, [false, true]);

    let breakers = one_place(BreakerPolicy::default());
    let mut stored = breakers.breaker("held").snapshot();
    stored = BreakerSnapshot {
        status: BreakerStatus::Open,
        remaining: Some(secs(20)),
        last_failure_ago: Some(secs(86_400)),
        ..stored
    };
    breakers.breaker("held").restore(&stored);
    assert_eq!(gives_way(&breakers, [secs(20 + 600), ms(1)]).await, [false, true]);

    let breakers = one_place(BreakerPolicy::default());
    breakers.breaker("held").restore(&BreakerSnapshot { mode: BreakerMode::Shadow, ..stored });
    assert_eq!(
        gives_way(&breakers, [secs(86_400), secs(86_400)]).await,
        [false, false],
        "an operator's wish stays"
    );
}

#[tokio::test(start_paused = true)]
async fn a_half_open_breaker_makes_room_when_nobody_has_asked_it_for_long() {
    let policy = BreakerPolicy { successes: 2, ..BreakerPolicy::default() };
    let breakers = one_place(policy.clone());
    fail_open(&breakers, ["held".to_owned()].into_iter()).await;
    advance(secs(30 + 600)).await;
    drop(breakers.breaker("held").admit().unwrap());
    advance(secs(600)).await;
    work(&breakers, "held").await;
    assert_eq!(
        breakers.status("held").map(|breaker| breaker.status),
        Some(BreakerStatus::HalfOpen)
    );
    assert_eq!(gives_way(&breakers, [secs(600), ms(1)]).await, [false, true]);

    // A probe that was lost has failed after two minutes, which opens it for half a minute more.
    let breakers = one_place(policy);
    fail_open(&breakers, ["held".to_owned()].into_iter()).await;
    advance(secs(30)).await;
    std::mem::forget(breakers.breaker("held").admit().unwrap());
    assert_eq!(gives_way(&breakers, [secs(120 + 30 + 600), ms(1)]).await, [false, true]);
}

#[tokio::test(start_paused = true)]
async fn tools_that_strangers_failed_open_and_left_make_room_for_tools() {
    let tools = caller(&env(0.0));
    // All at once: to be tried again takes time.
    join_all((0..NAMES).map(async |n| open_breaker(&tools, &format!("get_invented_{n}")).await))
        .await;

    advance(secs(30 + 500)).await;
    tools.call("get_issue", nothing(), Script::healthy().send()).await;
    assert_eq!(tools.breaker_status("get_issue"), None, "there is no room");

    advance(secs(2 * 600)).await;
    tools.call("get_issue", json!({"n": 2}), Script::healthy().send()).await;
    assert!(tools.breaker_status("get_issue").is_some());
    assert_eq!(tools.all_breaker_status().len(), NAMES as usize);
}

#[tokio::test(start_paused = true)]
async fn invented_names_do_not_take_a_tools_own_policy_and_breaker() {
    for answer in [Ok("x".to_owned()), Err(FailureSignals::text("Unknown tool"))] {
        let tools = caller(&env(0.0));
        for n in 0..NAMES {
            tools.call(&format!("get_invented_{n}"), nothing(), |_| async { answer.clone() }).await;
        }

        let script = Script::down("503 Service Unavailable");
        let told = tools.call("get_issue", json!({"n": 1}), script.send()).await;
        open_breaker(&tools, "stranger").await;
        let live = tools.call("get_issue", json!({"n": 2}), Script::healthy().send()).await;

        assert_eq!((told.attempts, script.executions()), (3, 3), "it reads, so it is tried again");
        assert!(live.value().is_some(), "strangers cannot open its breaker: {live:?}");
        assert_eq!(tools.all_breaker_status().len(), NAMES as usize);
        assert!(
            tools.pipeline().tools().len() <= NAMES as usize + 1,
            "what is forgotten is forgotten everywhere"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_pauses_or_was_made_known_is_not_forgotten_for_strangers() {
    let tools = caller(&env(0.0));
    tools.tool(ToolFacts::named("made_known"), |policy| policy.retry.attempts = 1).unwrap();
    open_breaker(&tools, "get_open").await;
    let limited =
        FailureSignals { retry_after: Some(secs(3600)), ..FailureSignals::http(429, "slow down") };
    tools.call("get_paused", nothing(), Script::down(limited).send()).await;
    let mut under_way =
        Box::pin(tools.call("get_slow", nothing(), |_| {
            std::future::pending::<Result<String, FailureSignals>>()
        }));
    assert!(poll!(under_way.as_mut()).is_pending());

    for n in 0..3 * NAMES {
        tools.call(&format!("get_invented_{n}"), nothing(), Script::healthy().send()).await;
    }

    for kept in ["made_known", "get_open", "get_paused", "get_slow"] {
        assert!(tools.breaker_status(kept).is_some(), "{kept}");
    }
    let once = Script::down("503");
    tools.call("made_known", nothing(), once.send()).await;
    assert_eq!(once.executions(), 1);
    let paused = Script::healthy();
    tools.call("get_paused", json!({"n": 2}), paused.send()).await;
    assert_eq!(paused.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_name_past_the_bound_shares_a_breaker_but_is_treated_as_what_it_is() {
    let tools = caller(&env(0.0));
    let all_fail = (0..NAMES).map(async |n| {
        tools
            .call(
                &format!("get_invented_{n}"),
                nothing(),
                Script::down(FailureSignals::http(500, "boom")).send(),
            )
            .await
    });
    join_all(all_fail).await;

    let script = Script::down("503 Service Unavailable");
    let told = tools.call("get_issue", nothing(), script.send()).await;

    assert_eq!(tools.breaker_status("get_issue"), None, "there is no room");
    assert_eq!((told.attempts, script.executions()), (3, 3), "it reads, so it is tried again");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_no_tool_has_is_not_remembered_however_much_room_there_is() {
    let (tools, breakers) =
        (caller(&env(0.0)), CircuitBreaker::new(BreakerPolicy::default(), &env(0.0)).unwrap());
    for n in 0..20 {
        let long = format!("get_{n}_{}", "x".repeat(100_000));
        assert!(tools.call(&long, nothing(), Script::healthy().send()).await.value().is_some());
        work(&breakers, &long).await;
        assert_eq!(breakers.breaker(&long).name(), "others");
    }
    assert_eq!(tools.all_breaker_status().len() + breakers.all_status().len(), 0);
    assert_eq!(tools.pipeline().tools().len(), 1, "the one for all others");

    let longest = "x".repeat(256);
    tools.call(&longest, nothing(), Script::healthy().send()).await;
    assert!(tools.breaker_status(&longest).is_some());
    // Who gives a tool a policy means it, whatever its name.
    let meant = "y".repeat(257);
    tools.tool(ToolFacts::named(&meant), |_| ()).unwrap();
    assert!(tools.breaker_status(&meant).is_some());
}
