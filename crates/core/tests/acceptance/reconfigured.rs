//! New settings for a pipeline: what they do not name stays as it was, and what they name is new.

use super::kit::*;
use seawall::*;

const DOWN: u16 = 503;

/// A pipeline with one server and one read tool.
fn pipeline(env: &Env) -> Pipeline<String> {
    let pipeline = Pipeline::new(settings(env)).unwrap();
    pipeline.server("s", ServerPolicy::default()).unwrap();
    pipeline.tool("s", "get_issue", read()).unwrap();
    pipeline
}

fn read() -> Policy {
    Preset::default().policy(&ToolFacts::named("get_issue"), &Tiers::default())
}

fn down() -> Script {
    Script::down(FailureSignals::http(DOWN, "down"))
}

async fn answer(pipeline: &Pipeline<String>, script: &Script) -> Answer<String> {
    let tool = pipeline.find("s", "get_issue").unwrap();
    pipeline.run(&tool, &Call::new(nothing()), script.send()).await
}

fn breaker(pipeline: &Pipeline<String>) -> BreakerSnapshot {
    pipeline.find("s", "get_issue").unwrap().breaker().unwrap().snapshot()
}

#[tokio::test(start_paused = true)]
async fn a_server_that_goes_on_keeps_its_breakers_and_its_cached_responses() {
    let env = env(0.0);
    let before = pipeline(&env);
    answer(&before, &Script::healthy()).await;
    before.set_mode("s", "get_issue", BreakerMode::ForcedOpen).unwrap();
    // Another hint is another policy of the server; its tools are the same.
    let policy = ServerPolicy { hint: Some("ask ops".to_owned()), ..ServerPolicy::default() };
    let after = before.reconfigured(settings(&env), [("s", policy)]).unwrap();
    assert_eq!(breaker(&after).mode, BreakerMode::ForcedOpen);
    let served = answer(&after, &Script::healthy()).await;
    assert_eq!(super::kit::served(&served).by, "cached");
    // One breaker for calls in flight and for those to come.
    after.set_mode("s", "get_issue", BreakerMode::Auto).unwrap();
    assert_eq!(breaker(&before).mode, BreakerMode::Auto);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_left_out_and_comes_back_is_another_one() {
    let env = env(0.0);
    let before = pipeline(&env);
    answer(&before, &Script::healthy()).await;
    before.set_mode("s", "get_issue", BreakerMode::ForcedOpen).unwrap();
    let after = before.reconfigured(settings(&env), []).unwrap();
    assert!(after.find("s", "get_issue").is_none());
    after.server("s", ServerPolicy::default()).unwrap();
    after.tool("s", "get_issue", read()).unwrap();
    assert_eq!(breaker(&after).mode, BreakerMode::Auto);
    let failed = answer(&after, &down()).await;
    assert!(failed.value().is_none(), "another server's response: {failed:?}");
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_write_is_held_back_also_under_new_settings() {
    let env = env(0.0);
    let before = pipeline(&env);
    let write = || Preset::default().policy(&ToolFacts::named("send_mail"), &Tiers::default());
    let tool = before.tool("s", "send_mail", write()).unwrap();
    let call = Call::new(nothing()).by("ann");
    let lost = FailureSignals::text("connection reset").with_sent(Sent::Maybe);
    before.run(&tool, &call, Script::down(lost).send()).await;
    let after = before.reconfigured(settings(&env), [("s", ServerPolicy::default())]).unwrap();
    let script = Script::healthy();
    let tool = after.tool("s", "send_mail", write()).unwrap();
    let refused = after.run(&tool, &call, script.send()).await;
    assert_eq!((script.executions(), report(&refused).code), (0, ErrorCode::WriteUncertain));
}

#[tokio::test(start_paused = true)]
async fn a_caller_keeps_what_it_used_of_its_rate_unless_the_rate_changes() {
    let env = env(0.0);
    let rate =
        |per_second| Settings { caller_rate: Some(Rate::per_second(per_second)), ..settings(&env) };
    let before = Pipeline::new(rate(1)).unwrap();
    before.server("s", ServerPolicy::default()).unwrap();
    before.tool("s", "get_issue", read()).unwrap();
    answer(&before, &Script::healthy()).await;
    let servers = || [("s", ServerPolicy::default())];
    let same = before.reconfigured(rate(1), servers()).unwrap();
    assert_eq!(report(&answer(&same, &Script::healthy()).await).code, ErrorCode::RateLimited);
    let other = same.reconfigured(rate(5), servers()).unwrap();
    assert!(answer(&other, &Script::healthy()).await.value().is_some());
}
