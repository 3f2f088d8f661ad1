//! Whatever hangs takes no other way's turn: the time of a call is split among the ways to its
//! answer.

use super::kit::*;
use seawall::*;
use std::sync::Arc;

/// `search_web` of server `a`, with these fallbacks; the same tool is on server `b`.
fn with_fallback(effect: Effect, fallback: Vec<Fallback>) -> (Pipeline<String>, Arc<Tool>) {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    let facts = ToolFacts { effect: Some(effect), ..ToolFacts::named("search_web") };
    let policy = Preset::Default.policy(&facts, &Tiers::default());
    for name in ["a", "b"] {
        pipeline.server(name, ServerPolicy::default()).unwrap();
    }
    pipeline.tool("b", "search_web", policy.clone()).unwrap();
    let tool = pipeline.tool("a", "search_web", Policy { fallback, ..policy }).unwrap();
    (pipeline, tool)
}

fn to_b() -> Fallback {
    Fallback::Alternate { server: "b".into(), tool: "search_web".into(), map: Default::default() }
}

/// Hangs on the servers named, and answers on others.
fn hanging_on(
    servers: &'static [&'static str],
) -> impl Fn(Attempt) -> Promise<'static, Result<String, FailureSignals>> {
    move |attempt| {
        Box::pin(async move {
            if servers.contains(&attempt.server()) {
                std::future::pending::<()>().await;
            }
            Ok(format!("from {}", attempt.server()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_hangs_leaves_time_for_the_one_that_stands_in() {
    let (pipeline, tool) =
        with_fallback(Effect::ReadOnly, vec![to_b(), Fallback::Text("Search is down.".into())]);
    let answer = pipeline.run(&tool, &Call::new(nothing()), hanging_on(&["a"])).await;
    assert_eq!((answer.value().map(String::as_str), answer.elapsed), (Some("from b"), secs(30)));
    assert_eq!(answer.warnings, ["search_web: Tool 'search_web' exceeded timeout of 30s"]);
    assert_eq!(
        tool.breaker().unwrap().snapshot().failures,
        1,
        "that is all it is ever given, so it proves something"
    );

    let answer = pipeline.run(&tool, &Call::new(nothing()), hanging_on(&["a", "b"])).await;
    assert_eq!(
        (served(&answer).by.as_str(), answer.elapsed),
        ("text", secs(60)),
        "never more than the whole"
    );
}

#[tokio::test(start_paused = true)]
async fn steps_of_the_callers_own_have_their_turn_behind_what_hangs() {
    let (pipeline, tool) = with_fallback(Effect::ReadOnly, vec![to_b()]);
    let own = [
        Step::new("mirror", std::future::pending),
        Step::new("last", || async { Ok("last".to_owned()) }),
    ];
    let answer =
        pipeline.run_with(&tool, &Call::new(nothing()), &own, hanging_on(&["a", "b"])).await;
    assert_eq!(
        (answer.value().map(String::as_str), answer.elapsed, answer.attempts),
        (Some("last"), secs(45), 5)
    );
    let told = [
        "search_web: Tool 'search_web' exceeded timeout of 15s",
        "search_web-alternate: Tool 'search_web' exceeded timeout of 15s",
        "mirror: deadline exceeded",
    ];
    assert_eq!(answer.warnings, told);
}

#[tokio::test(start_paused = true)]
async fn of_a_step_whose_turn_never_came_that_is_said() {
    let (pipeline, tool) = with_fallback(Effect::ReadOnly, vec![to_b()]);
    let own = [Step::new("mirror", || async { Ok("mirror".to_owned()) })];
    // It blocks its thread, so nothing can cut it off in time.
    let blocks = |_| async {
        advance(secs(61)).await;
        Err(FailureSignals::http(500, "boom"))
    };
    let answer = pipeline.run_with(&tool, &Call::new(nothing()), &own, blocks).await;
    let told = [
        "search_web: boom",
        "search_web-alternate: not tried, no time was left",
        "mirror: not tried, no time was left",
    ];
    assert_eq!(answer.warnings, told);
}

#[tokio::test(start_paused = true)]
async fn what_nothing_may_stand_in_for_has_all_the_time() {
    for (effect, fallback) in [
        (Effect::Write, vec![to_b()]),
        (Effect::ReadOnly, vec![]),
        (
            Effect::ReadOnly,
            vec![Fallback::Cached, Fallback::Simplify(None), Fallback::Text("down".into())],
        ),
    ] {
        let (pipeline, tool) = with_fallback(effect, fallback);
        let answer = pipeline.run(&tool, &Call::new(nothing()), hanging_on(&["a"])).await;
        assert_eq!((answer.elapsed, answer.value()), (secs(60), None), "{effect:?}");
    }
}
