//! Names that strangers invent: what is at rest makes room, what is not stays, and nobody's tool pays for it.

use crate::kit::*;
use futures_util::future::join_all;
use futures_util::poll;
use seawall::*;
use serde_json::json;

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
    assert!(breakers.status("b").is_none() && breakers.status("a").is_some(), "b was used before c and a");
    work(&breakers, "e").await;
    assert!(breakers.status("c").is_none() && breakers.status("a").is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_open_forced_or_under_way_makes_no_room() {
    let breakers = CircuitBreaker::with_capacity(BreakerPolicy::default(), &env(0.0), 3).unwrap();
    for _ in 0..5 {
        fail(&breakers, "open").await;
    }
    breakers.breaker("forced").set_mode(Mode::ForcedOpen);
    let mut under_way = Box::pin(breakers.call("busy", std::future::pending::<Result<(), &str>>));
    assert!(poll!(under_way.as_mut()).is_pending());

    advance(secs(7 * 86_400)).await;
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

#[tokio::test(start_paused = true)]
async fn invented_names_do_not_take_a_tools_own_policy_and_breaker() {
    for answer in [Ok("x".to_owned()), Err(Signals::text("Unknown tool"))] {
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
        assert!(tools.pipeline().tools().len() <= NAMES as usize + 1, "what is forgotten is forgotten everywhere");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_fails_pauses_or_was_made_known_is_not_forgotten_for_strangers() {
    let tools = caller(&env(0.0));
    tools.tool(ToolFacts::named("made_known"), |policy| policy.retry.attempts = 1).unwrap();
    open_breaker(&tools, "get_open").await;
    let limited = Signals { retry_after: Some(secs(3600)), ..Signals::http(429, "slow down") };
    tools.call("get_paused", nothing(), Script::down(limited).send()).await;
    let mut under_way =
        Box::pin(tools.call("get_slow", nothing(), |_| std::future::pending::<Result<String, Signals>>()));
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
        tools.call(&format!("get_invented_{n}"), nothing(), Script::down(Signals::http(500, "boom")).send()).await
    });
    join_all(all_fail).await;

    let script = Script::down("503 Service Unavailable");
    let told = tools.call("get_issue", nothing(), script.send()).await;

    assert_eq!(tools.breaker_status("get_issue"), None, "there is no room");
    assert_eq!((told.attempts, script.executions()), (3, 3), "it reads, so it is tried again");
}
