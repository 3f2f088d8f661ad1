//! What a fallback must not do: something else than was asked, more than is left to do, or for
//! nothing.

use super::kit::*;
use seawall::*;
use serde_json::{Value, json};
use std::future::{Ready, ready};
use std::sync::Arc;

#[test]
fn only_what_reads_is_asked_with_other_arguments() {
    for (name, fallback) in
        [("simplify", Fallback::Simplify(None)), ("previous_page", Fallback::PreviousPage(None))]
    {
        for effect in [Effect::Idempotent, Effect::Write, Effect::Destructive] {
            let facts = ToolFacts { effect: Some(effect), ..ToolFacts::named("purge_page") };
            let error = caller(&env(0.0))
                .tool(facts, |policy| policy.fallback = vec![fallback.clone()])
                .err()
                .unwrap();
            let told = format!(
                "\"{name}\" is for read-only tools; a write with other arguments does something else"
            );
            assert_eq!(
                (error.field.as_str(), error.problem),
                ("purge_page.fallback", told),
                "{effect:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_or_a_callers_fault_ends_the_search_with_simpler_queries() {
    for (status, code) in [
        (403, ErrorCode::Denied),
        (401, ErrorCode::AuthRequired),
        (422, ErrorCode::ValidationError),
    ] {
        let down = || FailureSignals::http(500, "boom");
        let script = Script::failing([down(), down(), down(), FailureSignals::http(status, "no")]);

        let call = json!({"query": "\"a b\" AND is:open c d e"});
        let answer = caller(&env(0.0)).call("search_issues", call, script.send()).await;

        assert_eq!(
            (report(&answer).code, script.executions()),
            (code, 3 + 1),
            "{:?}",
            answer.warnings
        );
    }
}

/// A call that is told with its `last` attempt that no other follows.
fn ending_at(
    last: u32,
    arguments: Value,
) -> (Call, impl Fn(Attempt) -> Ready<Result<String, FailureSignals>>) {
    let held = Arc::new(CallControl::default());
    let call = Call { control: Some(held.clone()), ..Call::new(arguments) };
    let send = move |attempt: Attempt| {
        if attempt.number >= last {
            held.make_last();
        }
        ready(Err(FailureSignals::http(500, "boom")))
    };
    (call, send)
}

#[tokio::test(start_paused = true)]
async fn no_fallback_sends_anything_after_the_last_attempt() {
    let query = || json!({"query": "a b c d"});
    let own = [Step::new("backup", || async { Ok("sent".to_owned()) })];
    for last in [1, 4] {
        let (call, send) = ending_at(last, query());
        let answer = caller(&env(0.0)).call_with("search_issues", call, &own, send).await;
        assert_eq!(
            (answer.attempts, report(&answer).code),
            (last, ErrorCode::UpstreamError),
            "{:?}",
            answer.warnings
        );
    }
    let tools = caller(&env(0.0));
    tools.call("search_issues", query(), Script::healthy().send()).await;
    let (call, send) = ending_at(1, query());
    assert_eq!(
        served(&tools.call("search_issues", call, send).await).by,
        "cached",
        "a copy needs no attempt"
    );

    let batch = |last| {
        let (call, send) = ending_at(last, json!({"ids": [1, 2, 3]}));
        let first_works = move |attempt: Attempt| {
            let is_first = attempt.number == 2;
            let ended = send(attempt);
            if is_first { ready(Ok("done".to_owned())) } else { ended }
        };
        (call, first_works)
    };
    let tools =
        with_tool(settings(&env(0.0)), "batch_label", |policy| policy.effect = Effect::Idempotent);
    let (call, send) = batch(2);
    let answer = tools.call("batch_label", call, send).await;
    let FallbackBody::Items(items) = &served(&answer).body else { panic!("no items") };
    assert_eq!((answer.attempts, items[0].result.is_ok()), (2, true));
    let second = items[1].result.as_ref().unwrap_err();
    assert_eq!(second.message, "not sent, because the call was ended before it");
}

fn served_by(budget: BudgetPolicy, slots: Option<BulkheadPolicy>) -> Pipeline<String> {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    pipeline.server("s", ServerPolicy { budget, slots, ..ServerPolicy::default() }).unwrap();
    pipeline
}

#[tokio::test(start_paused = true)]
async fn what_a_server_in_trouble_has_to_do_beside_is_paid_for_good_even_if_it_works() {
    for budget in [
        BudgetPolicy { share: 0.0, floor: 10, saved: 10 },
        BudgetPolicy { share: 0.02, floor: 0, saved: 10 },
    ] {
        let pipeline = served_by(budget, None);
        let mut policy = Preset::Default.policy(&ToolFacts::named("search_x"), &Tiers::default());
        (policy.retry.attempts, policy.breaker) = (1, None);
        policy.fallback = vec![Fallback::Simplify(None)];
        let tool = pipeline.tool("s", "search_x", policy).unwrap();
        let mut attempts = 0;
        for n in 0..500 {
            let call = Call::new(json!({"query": format!("a{n} b c")}));
            let simpler_work = |attempt: Attempt| {
                let is_full = attempt.number == 1;
                ready(if is_full {
                    Err(FailureSignals::http(500, "boom"))
                } else {
                    Ok("found".to_owned())
                })
            };
            attempts += pipeline.run(&tool, &call, simpler_work).await.attempts;
        }
        assert_eq!(attempts, 500 + 10, "{budget:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_that_is_refused_here_costs_nothing() {
    let slots = |concurrency| Some(BulkheadPolicy { concurrency, waiting: 0, patience: secs(1) });
    for (slots, left) in [(slots(1), 10), (slots(2), 0)] {
        let pipeline = served_by(BudgetPolicy { share: 1.0, floor: 0, saved: 10 }, slots);
        let policy = Preset::Default.policy(&ToolFacts::named("get_x"), &Tiers::default());
        let tool = pipeline
            .tool("s", "get_x", Policy { hedge: Some(HedgePolicy::After(ms(100))), ..policy })
            .unwrap();
        let slow = |_| async {
            tokio::time::sleep(ms(200)).await;
            Ok("x".to_owned())
        };
        for n in 0..10 {
            assert!(
                pipeline.run(&tool, &Call::new(json!({ "n": n })), slow).await.value().is_some()
            );
        }
        assert_eq!(tool.server().budget().saved(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_that_was_sent_stays_paid_whoever_leaves() {
    for (leaves_after, left) in [(ms(50), 1), (ms(150), 0)] {
        let pipeline = served_by(BudgetPolicy { share: 1.0, floor: 0, saved: 10 }, None);
        let policy = Preset::Default.policy(&ToolFacts::named("get_x"), &Tiers::default());
        let tool = pipeline
            .tool("s", "get_x", Policy { hedge: Some(HedgePolicy::After(ms(100))), ..policy })
            .unwrap();
        let call = Call::new(nothing());
        let hangs = |_| std::future::pending::<Result<String, FailureSignals>>();
        assert!(
            tokio::time::timeout(leaves_after, pipeline.run(&tool, &call, hangs)).await.is_err()
        );
        assert_eq!(tool.server().budget().saved(), left);
    }
}

#[tokio::test(start_paused = true)]
async fn a_fallback_that_is_refused_here_costs_nothing() {
    let pipeline = served_by(BudgetPolicy { share: 1.0, floor: 0, saved: 10 }, None);
    pipeline.server("other", ServerPolicy::default()).unwrap();
    let once = |name: &str| {
        let policy = Preset::Default.policy(&ToolFacts::named(name), &Tiers::default());
        Policy {
            retry: RetryPolicy { attempts: 1, ..policy.retry },
            fallback: Vec::new(),
            ..policy
        }
    };
    let open = pipeline.tool("s", "get_x", once("get_x")).unwrap();
    let to_open = Fallback::Alternate { server: "s".into(), tool: "get_x".into(), map: [].into() };
    let failing = Policy { fallback: vec![to_open], ..once("get_y") };
    let failing = pipeline.tool("other", "get_y", failing).unwrap();
    let down = Script::down(FailureSignals::http(500, "boom"));
    for tool in [&open, &failing] {
        for n in 0..5 {
            pipeline.run(tool, &Call::new(json!({ "n": n })), down.send()).await;
        }
    }
    assert_eq!(
        (down.executions(), open.server().budget().saved()),
        (5 + 5, 5),
        "five calls, none of them sent again"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_says_to_a_fallback_is_quoted_without_credentials() {
    let own = Settings {
        error_text: |text: &String| text.starts_with("Error").then(|| text.clone()),
        debug: true,
        ..settings(&env(0.0))
    };
    let tools =
        with_tool(own, "search_issues", |policy| policy.fallback = vec![Fallback::Simplify(None)]);
    let leaks = |attempt: Attempt| {
        let words = "Error: cannot reach https://me:hunter2@db/x\nwith token=sesame42";
        ready(if attempt.number <= 3 {
            Err(FailureSignals::http(500, "boom"))
        } else {
            Ok(words.to_owned())
        })
    };
    let answer = tools.call("search_issues", json!({"query": "a b c"}), leaks).await;
    let causes = &report(&answer).debug.as_ref().unwrap().causes;
    let told = format!("{:?} {causes:?}", answer.warnings);
    assert!(told.contains("Error: cannot reach") && causes.len() == 5, "{told}");
    assert!(!told.contains("hunter2") && !told.contains("sesame42"), "{told}");
}
