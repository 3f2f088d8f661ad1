//! The stages together: order, scopes, limits, hedges, events.

use super::kit::*;
use futures_util::future::join_all;
use seawall::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn pipeline(env: &Env) -> Pipeline<String> {
    Pipeline::new(settings(env)).unwrap()
}

fn default_policy(tool: &str) -> Policy {
    Preset::Default.policy(&ToolFacts::named(tool), &Tiers::default())
}

async fn run(pipeline: &Pipeline<String>, tool: &Tool, script: &Script) -> Answer<String> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // No two calls are the same, so that none is taken for a loop.
    let call = Call::new(json!({"n": CALLS.fetch_add(1, Ordering::Relaxed)}));
    pipeline.run(tool, &call, script.send()).await
}

fn lost() -> FailureSignals {
    FailureSignals::transport(TransportFailure::Lost, "connection reset").with_sent(Sent::Yes)
}

#[tokio::test(start_paused = true)]
async fn a_breaker_is_shared_as_its_scope_says() {
    for (scope, same_server, other_server) in
        [(Scope::Tool, true, true), (Scope::Server, false, true), (Scope::Global, false, false)]
    {
        let pipeline = pipeline(&env(0.0));
        let tool = |server: &str, name: &str| {
            pipeline.server(server, ServerPolicy::default()).unwrap();
            pipeline.tool(server, name, Policy { scope, ..default_policy(name) }).unwrap()
        };
        let (a, b, c) = (tool("one", "get_a"), tool("one", "get_b"), tool("two", "get_a"));
        for _ in 0..5 {
            run(&pipeline, &a, &Script::down(lost())).await;
        }
        assert_eq!(a.breaker().unwrap().status(), BreakerStatus::Open);

        let passes = |answer: Answer<String>| answer.value().is_some();
        assert_eq!(passes(run(&pipeline, &b, &Script::healthy()).await), same_server, "{scope:?}");
        assert_eq!(passes(run(&pipeline, &c, &Script::healthy()).await), other_server, "{scope:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn refused_connections_open_the_server_for_all_its_tools() {
    let pipeline = pipeline(&env(0.0));
    let connection = Some(BreakerPolicy::new(3, secs(10)));
    pipeline.server("s", ServerPolicy { connection, ..ServerPolicy::default() }).unwrap();
    let (a, b) = (
        pipeline.tool("s", "get_a", default_policy("get_a")).unwrap(),
        pipeline.tool("s", "get_b", default_policy("get_b")).unwrap(),
    );
    let connection = || a.server().connection().unwrap().status();

    for failure in [
        FailureSignals::http(500, "boom"),
        FailureSignals::http(422, "no"),
        FailureSignals::transport(TransportFailure::Timeout, "slow"),
    ] {
        run(&pipeline, &b, &Script::down(failure)).await;
    }
    assert_eq!(
        connection(),
        BreakerStatus::Closed,
        "whoever answers is there, and slowness is the tool's own affair"
    );

    let refused = Script::down(FailureSignals::transport(TransportFailure::Refused, "refused"));
    run(&pipeline, &a, &refused).await;
    assert_eq!((connection(), refused.executions()), (BreakerStatus::Open, 3));
    let script = Script::healthy();
    assert_eq!(report(&run(&pipeline, &b, &script).await).code, ErrorCode::CircuitOpen);
    assert_eq!(script.executions(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_retry_is_begun_once_the_breaker_has_opened() {
    let caller = caller(&env(0.0));
    let down = Script::down(lost());

    let (first, elapsed) = timed(caller.call("get_issue", nothing(), down.send())).await;
    assert_eq!((first.attempts, elapsed), (3, secs(3)));
    let (second, elapsed) = timed(caller.call("get_issue", json!({"n": 2}), down.send())).await;

    assert_eq!(
        (second.attempts, elapsed),
        (2, secs(1)),
        "the fifth failure opened it; no pause follows"
    );
}

#[tokio::test(start_paused = true)]
async fn the_whole_call_ends_at_its_deadline() {
    let hangs = |_| std::future::pending::<Result<String, FailureSignals>>();
    let caller = with_tool(settings(&env(0.0)), "get_issue", |policy| {
        policy.attempt_timeout = Some(secs(25))
    });

    let (answer, elapsed) = timed(caller.call("get_issue", nothing(), hangs)).await;
    assert_eq!(
        (answer.attempts, elapsed),
        (3, secs(60)),
        "25 s + 1 s + 25 s + 2 s + the 7 s that are left"
    );
    assert_eq!(report(&answer).code, ErrorCode::Timeout);

    let (_, elapsed) =
        timed(caller.call("get_issue", Call::new(nothing()).within(secs(4)), hangs)).await;
    assert_eq!(elapsed, secs(4), "the client's own limit, if it is shorter");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_retries_itself_is_not_retried_for() {
    let script = Script::down("503");
    let call = Call { retried_outside: true, ..Call::new(nothing()) };

    let answer = caller(&env(0.0)).call("get_issue", call, script.send()).await;

    assert_eq!((answer.attempts, script.executions()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn soft_errors_are_retried_for_reads_counted_for_the_tool_and_passed_on() {
    let (down, busy) =
        ("Error: GitHub API: 503 Service Unavailable", "Error: GitHub API: 429 Too Many Requests");
    let own = || Settings {
        error_text: |text: &String| text.starts_with("Error").then(|| text.clone()),
        ..settings(&env(0.0))
    };
    for (tool, soft, executions, counted) in
        [("get_issue", down, 3, 3), ("create_issue", down, 1, 1), ("create_issue", busy, 1, 0)]
    {
        let tools = ToolCaller::new(own()).unwrap();
        let asked = AtomicU32::new(0);
        let answer = tools
            .call(tool, nothing(), |_| {
                asked.fetch_add(1, Ordering::SeqCst);
                std::future::ready(Ok(soft.to_owned()))
            })
            .await;

        assert_eq!(answer.value().map(String::as_str), Some(soft), "the server's own words");
        let Outcome::ToolError(error) = &answer.outcome else { panic!("{answer:?}") };
        assert_eq!(
            (error.is_unmarked, error.is_told()),
            (false, executions > 1),
            "told where attempts were spent"
        );
        assert_eq!(
            (asked.into_inner(), tools.breaker_status(tool).unwrap().failures),
            (executions, counted)
        );
    }

    let tools = ToolCaller::new(own()).unwrap();
    for n in 0..10 {
        tools
            .call("get_issue", json!({ "n": n }), |_| async {
                Ok("Error: no such issue".to_owned())
            })
            .await;
    }
    assert_eq!(tools.breaker_status("get_issue").unwrap().failures, 0, "an answer proves liveness");
}

#[tokio::test(start_paused = true)]
async fn a_tools_own_error_never_counts_against_its_server() {
    let error_text = |text: &String| text.starts_with("Error").then(|| text.clone());
    let pipeline = Pipeline::new(Settings { error_text, ..settings(&env(0.0)) }).unwrap();
    let connection = Some(BreakerPolicy::new(1, secs(10)));
    pipeline.server("s", ServerPolicy { connection, ..ServerPolicy::default() }).unwrap();
    let shared = Policy { scope: Scope::Server, ..default_policy("get_a") };
    let tool = pipeline.tool("s", "get_a", shared).unwrap();

    let soft = |_| async { Ok("Error: GitHub API: 503 Service Unavailable".to_owned()) };
    pipeline.run(&tool, &Call::new(nothing()), soft).await;

    assert_eq!(tool.breaker().unwrap().snapshot().failures, 0);
    assert_eq!(tool.server().connection().unwrap().status(), BreakerStatus::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_full_server_refuses_without_blaming_it() {
    let pipeline = pipeline(&env(0.0));
    let slots = Some(BulkheadPolicy { concurrency: 2, waiting: 1, patience: secs(5) });
    pipeline.server("s", ServerPolicy { slots, ..ServerPolicy::default() }).unwrap();
    let once = |mut policy: Policy| {
        policy.retry.attempts = 1;
        policy
    };
    let tool = pipeline.tool("s", "get_a", once(default_policy("get_a"))).unwrap();
    let running = AtomicU32::new(0);
    let most = AtomicU32::new(0);
    let slow = |_| async {
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(secs(1)).await;
        running.fetch_sub(1, Ordering::SeqCst);
        Ok("ok".to_owned())
    };

    let calls: Vec<Call> = (0..5).map(|n| Call::new(json!({ "n": n }))).collect();
    let answers = join_all(calls.iter().map(|call| pipeline.run(&tool, call, slow))).await;

    assert_eq!(most.into_inner(), 2);
    assert_eq!(answers.iter().filter(|answer| answer.value().is_some()).count(), 3);
    assert_eq!(
        answers
            .iter()
            .filter(|answer| answer
                .report()
                .is_some_and(|report| report.code == ErrorCode::Overloaded))
            .count(),
        2
    );
    assert_eq!(tool.breaker().unwrap().snapshot().failures, 0);
    assert_eq!(
        (tool.server().slots().unwrap().in_flight(), tool.server().slots().unwrap().waiting()),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_wait_for_the_servers_rate_within_their_deadline() {
    let pipeline = pipeline(&env(0.0));
    let rate = Some(Rate { count: 1, per: secs(10), burst: 1 });
    pipeline.server("s", ServerPolicy { rate, ..ServerPolicy::default() }).unwrap();
    let mut policy = default_policy("get_a");
    (policy.timeout, policy.retry.attempts) = (secs(25), 1);
    let tool = pipeline.tool("s", "get_a", policy).unwrap();
    let script = Script::healthy();

    let calls: Vec<Call> = (0..4).map(|n| Call::new(json!({ "n": n }))).collect();
    let answers = join_all(calls.iter().map(|call| pipeline.run(&tool, call, script.send()))).await;

    let elapsed: Vec<u64> = answers.iter().map(|answer| answer.elapsed.as_secs()).collect();
    assert_eq!(elapsed, [0, 10, 20, 0]);
    assert_eq!(report(&answers[3]).code, ErrorCode::RateLimited);
    assert_eq!(report(&answers[3]).retry_after, Some(secs(30)));
    assert_eq!(script.executions(), 3);
}

#[tokio::test(start_paused = true)]
async fn whoever_is_refused_by_a_full_line_or_a_rate_is_told_of() {
    let env = env(0.0);
    let pipeline = pipeline(&env);
    let slots = Some(BulkheadPolicy { concurrency: 1, waiting: 0, patience: secs(5) });
    let rate = Some(Rate { count: 1, per: secs(100), burst: 1 });
    pipeline.server("s", ServerPolicy { slots, rate, ..ServerPolicy::default() }).unwrap();
    let tool = pipeline.tool("s", "get_a", default_policy("get_a")).unwrap();
    let mut listener = env.events.subscribe();
    let slow = |_| async {
        tokio::time::sleep(secs(1)).await;
        Ok("ok".to_owned())
    };
    let call = |n: u32| Call { retried_outside: true, ..Call::new(json!({ "n": n })) };

    let (first, second) = (call(1), call(2));
    tokio::join!(pipeline.run(&tool, &first, slow), pipeline.run(&tool, &second, slow));
    pipeline.run(&tool, &call(3), slow).await;

    let refused: Vec<Cause> = listener
        .drain()
        .iter()
        .filter_map(|event| match &**event {
            Event::Refused { cause, .. } => Some(*cause),
            _ => None,
        })
        .collect();
    assert_eq!(refused, [Cause::Overloaded, Cause::RateLimited]);
}

#[tokio::test(start_paused = true)]
async fn one_callers_rate_does_not_touch_another() {
    let own = Settings { caller_rate: Some(Rate::per_second(2)), ..settings(&env(0.0)) };
    let tools = ToolCaller::new(own).unwrap();
    let ask = |caller: &'static str| {
        tools.call("get_issue", Call::new(nothing()).by(caller), |_| async { Ok(String::new()) })
    };

    for _ in 0..2 {
        assert!(ask("greedy").await.value().is_some());
    }
    assert_eq!(report(&ask("greedy").await).code, ErrorCode::RateLimited);
    assert!(ask("modest").await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_slow_read_is_hedged_once_and_the_loser_blames_nobody() {
    let hedged = |policy: &mut Policy| policy.hedge = Some(HedgePolicy::After(ms(100)));
    let tools = with_tool(settings(&env(0.0)), "get_issue", hedged);
    let slow_first = |attempt: Attempt| async move {
        if attempt.number == 1 {
            std::future::pending::<()>().await;
        }
        Ok(format!("attempt {}", attempt.number))
    };

    let (answer, elapsed) = timed(tools.call("get_issue", nothing(), slow_first)).await;

    assert_eq!(
        (answer.value().map(String::as_str), answer.attempts, elapsed),
        (Some("attempt 2"), 2, ms(100))
    );
    assert_eq!(tools.breaker_status("get_issue").unwrap().failures, 0);

    let refused = caller(&env(0.0)).tool(ToolFacts::named("create_issue"), hedged).unwrap_err();
    assert_eq!(refused.field, "create_issue.hedge");
}

#[tokio::test(start_paused = true)]
async fn every_call_that_began_is_told_to_have_ended_exactly_once() {
    let env = env(0.0);
    let mut listener = env.events.subscribe();
    let tools = caller(&env);
    for (tool, script) in [
        ("get_issue", Script::healthy()),
        ("get_issue", Script::failing(["503"; 1])),
        ("get_user", Script::down("422 invalid")),
        ("create_issue", Script::down(lost())),
    ] {
        tools.call(tool, json!({"tool": tool}), script.send()).await;
    }

    let events = listener.drain();
    let classes: Vec<&str> = events
        .iter()
        .filter_map(|event| match &**event {
            Event::CallFinished { class, .. } => Some(*class),
            _ => None,
        })
        .collect();
    assert_eq!(classes, ["ok", "ok", "VALIDATION_ERROR", "CONNECTION_LOST"]);
    let started =
        events.iter().filter(|event| matches!(***event, Event::AttemptStarted { .. })).count();
    let ended =
        events.iter().filter(|event| matches!(***event, Event::AttemptEnded { .. })).count();
    assert_eq!((started, ended), (5, 5));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_of_calls_to_a_dead_server_is_not_multiplied() {
    let tools = caller(&env(0.0));
    let down = Script::down(lost());

    join_all((0..1000).map(|n| tools.call("get_issue", json!({ "n": n }), down.send()))).await;

    assert!(
        down.executions() <= 1000,
        "the breaker opens on the first calls, so none is retried: {}",
        down.executions()
    );
}

#[test]
fn bad_policies_name_their_field() {
    let pipeline = Pipeline::<String>::new(Settings::default()).unwrap();
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let field = |adjust: fn(&mut Policy)| {
        let mut policy = default_policy("create_issue");
        adjust(&mut policy);
        pipeline.tool("s", "create_issue", policy).unwrap_err().field
    };
    assert_eq!(field(|policy| policy.timeout = secs(0)), "timeout");
    assert_eq!(field(|policy| policy.attempt_timeout = Some(secs(0))), "attempt_timeout");
    assert_eq!(field(|policy| policy.retry.attempts = 0), "retry.attempts");
    assert_eq!(
        field(
            |policy| policy.breaker = Some(BreakerPolicy { probes: 0, ..BreakerPolicy::default() })
        ),
        "breaker.probes"
    );
    assert_eq!(field(|policy| policy.cache.fresh = Some(secs(0))), "cache.ttl");
    assert_eq!(field(|policy| policy.loops.repeats = 0), "loop.repeats");
    assert_eq!(
        field(|policy| policy.loops.window = 2),
        "loop.repeats",
        "three of the last two never come"
    );
    assert_eq!(field(|policy| policy.hedge = Some(HedgePolicy::Quantile(0.0))), "hedge.quantile");
    assert_eq!(field(|policy| policy.fallback = vec![Fallback::Cached]), "fallback");
    assert_eq!(field(|policy| policy.effect = Effect::Destructive), "fallback");
    assert_eq!(field(|policy| policy.fallback = vec![Fallback::Text(" ".into())]), "fallback");
    let nameless =
        Fallback::Alternate { server: "s".into(), tool: String::new(), map: BTreeMap::new() };
    let nobody = Policy { fallback: vec![nameless], ..default_policy("t") };
    assert_eq!(pipeline.tool("s", "t", nobody).unwrap_err().field, "fallback");
    assert_eq!(pipeline.tool("nowhere", "t", default_policy("t")).unwrap_err().field, "server");

    let server = |policy: ServerPolicy| pipeline.server("new", policy).unwrap_err().field;
    let good = ServerPolicy::default();
    assert_eq!(
        server(ServerPolicy { slots: Some(BulkheadPolicy::new(0)), ..good.clone() }),
        "concurrency"
    );
    assert_eq!(
        server(ServerPolicy { rate: Some(Rate::per_second(0)), ..good.clone() }),
        "rate.count"
    );
    assert_eq!(
        server(ServerPolicy {
            budget: BudgetPolicy { share: 7.0, ..BudgetPolicy::DEFAULT },
            ..good.clone()
        }),
        "budget.share"
    );
    assert_eq!(
        server(ServerPolicy {
            budget: BudgetPolicy { floor: u32::MAX, ..BudgetPolicy::DEFAULT },
            ..good
        }),
        "budget.floor"
    );
    let rate = Settings::<String> { caller_rate: Some(Rate::per_second(0)), ..Settings::default() };
    assert_eq!(Pipeline::new(rate).unwrap_err().field, "caller_rate.count");
}

#[test]
fn limits_of_nothing_are_refused_before_a_tool_needs_them() {
    let field = |tiers: Tiers| {
        let options = CallerOptions { tiers, ..CallerOptions::default() };
        ToolCaller::<String>::with_options(Settings::default(), options).unwrap_err().field
    };

    assert_eq!(field(Tiers { quick: secs(0), ..Tiers::default() }), "tiers.quick");
    assert_eq!(field(Tiers { heavy: secs(0), ..Tiers::default() }), "tiers.heavy");
    assert_eq!(field(Tiers { heavy: Duration::MAX, ..Tiers::default() }), "tiers.heavy");
}

#[tokio::test(start_paused = true)]
async fn a_tool_keeps_its_breaker_while_its_policy_stands() {
    let pipeline = pipeline(&env(0.0));
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let tool = pipeline.tool("s", "get_a", default_policy("get_a")).unwrap();

    assert!(Arc::ptr_eq(&tool, &pipeline.tool("s", "get_a", default_policy("get_a")).unwrap()));
    assert!(Arc::ptr_eq(&tool, &pipeline.find("s", "get_a").unwrap()));
    assert!(pipeline.find("s", "get_b").is_none());
    assert_eq!(pipeline.tools().len(), 1);
}

#[test]
fn a_read_with_a_key_stays_a_read() {
    let pipeline = pipeline(&env(0.0));
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let keyed = |name: &str| {
        pipeline.tool("s", name, default_policy(name)).unwrap().idempotent().policy().effect
    };

    assert_eq!((keyed("get_issue"), keyed("create_issue")), (Effect::ReadOnly, Effect::Idempotent));
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_server_asked_for_holds_however_a_call_is_treated() {
    let pipeline = pipeline(&env(0.0));
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let tool = pipeline.tool("s", "create_issue", default_policy("create_issue")).unwrap();
    let slow_down =
        FailureSignals { retry_after: Some(secs(120)), ..FailureSignals::http(429, "slow down") };
    run(&pipeline, &tool.once(Effect::Write), &Script::down(slow_down)).await;

    for treated in [tool.idempotent(), tool.renamed("create_label"), tool.once(Effect::Write)] {
        let script = Script::healthy();
        let answer = run(&pipeline, &treated, &script).await;
        assert_eq!((report(&answer).code, script.executions()), (ErrorCode::RateLimited, 0));
    }
    tokio::time::advance(secs(121)).await;
    assert!(run(&pipeline, &tool, &Script::healthy()).await.value().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_made_once_is_tried_once_as_often_as_somebody_makes_it_and_counts() {
    let pipeline = pipeline(&env(0.0));
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let tool = pipeline.tool("s", "update_issue", default_policy("update_issue")).unwrap();
    let (once, call, script) =
        (tool.once(Effect::Idempotent), Call::new(json!({"same": true})), Script::down(lost()));

    // The breaker of a write opens after three, and not the guard against loops, nor that against a
    // write in doubt.
    let code = async || report(&pipeline.run(&once, &call, script.send()).await).code;
    for _ in 0..3 {
        assert_eq!(code().await, ErrorCode::ConnectionLost);
    }
    assert_eq!((code().await, script.executions()), (ErrorCode::CircuitOpen, 3));
    assert!(tool.breaker().is_some_and(|breaker| breaker.status() == BreakerStatus::Open));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_made_once_is_meant_also_after_one_that_may_have_run() {
    let pipeline = pipeline(&env(0.0));
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let tool = pipeline.tool("s", "create_issue", default_policy("create_issue")).unwrap();
    let call = Call::new(json!({"title": "x"}));
    pipeline.run(&tool, &call, Script::down(lost()).send()).await;
    let script = Script::healthy();

    assert_eq!(
        report(&pipeline.run(&tool, &call, script.send()).await).code,
        ErrorCode::WriteUncertain
    );
    assert!(pipeline.run(&tool.once(Effect::Write), &call, script.send()).await.value().is_some());
    assert_eq!(script.executions(), 1);
}

#[tokio::test(start_paused = true)]
async fn invented_tool_names_stay_within_a_bound_and_the_oldest_make_room() {
    let tools = caller(&env(0.0));
    for n in 0..2000 {
        tools.call(&format!("invented_{n}"), nothing(), Script::healthy().send()).await;
    }

    assert!(tools.all_breaker_status().len() <= 1024);
    assert_eq!(tools.breaker_status("invented_1"), None);
    assert!(tools.reset_breaker("invented_1999") && !tools.reset_breaker("unheard_of"));
}
