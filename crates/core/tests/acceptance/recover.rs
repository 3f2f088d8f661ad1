//! Every fallback: when it answers, what it says about itself, and when it must not be tried.

use super::kit::*;
use futures_util::future::join_all;
use seawall::*;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A caller whose tool has these fallbacks only.
fn with_fallback(
    tool: &'static str,
    fallback: Vec<Fallback>,
    own: Settings<String>,
) -> ToolCaller<String> {
    with_tool(own, tool, |policy| policy.fallback = fallback)
}

/// Fails for the arguments of the call itself and answers with any other arguments as a text.
fn only_others(
    call: &Value,
) -> impl Fn(Attempt) -> std::future::Ready<Result<String, FailureSignals>> {
    let call = call.clone();
    move |attempt: Attempt| {
        std::future::ready(if *attempt.arguments == call {
            Err("503 Service Unavailable".into())
        } else {
            Ok(attempt.arguments.to_string())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_answered_from_its_last_good_copy_with_its_age() {
    let tools = caller(&env(0.0));
    tools.call("get_issue", json!({"n": 1}), Script::healthy().send()).await;
    advance(secs(14 * 60)).await;

    let answer = tools
        .call("get_issue", json!({"n": 1}), Script::down("503 Service Unavailable").send())
        .await;

    let served = served(&answer);
    assert_eq!(
        (answer.final_step().as_str(), answer.value().map(String::as_str)),
        ("get_issue-cached", Some("ok"))
    );
    assert_eq!(served.note, "Cached copy from 14 min ago; live read failed (503).");
    assert_eq!(served.age, Some(secs(14 * 60 + 3)));

    tools.call("create_issue", nothing(), Script::healthy().send()).await;
    let answer = tools.call("get_issue", json!({"n": 1}), Script::down("503").send()).await;
    assert!(
        self::served(&answer).note.ends_with("Calls made since may have changed what it shows.")
    );

    tools.reset_breaker("get_issue");
    let other = tools.call("get_issue", json!({"n": 2}), Script::down("422 invalid").send()).await;
    assert_eq!(
        report(&other).code,
        ErrorCode::ValidationError,
        "nothing is served for another question"
    );
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_too_old_is_not_served() {
    let tools = caller(&env(0.0));
    tools.call("get_issue", nothing(), Script::healthy().send()).await;
    advance(secs(3601)).await;

    let answer = tools.call("get_issue", nothing(), Script::down("503").send()).await;

    assert_eq!(report(&answer).code, ErrorCode::UpstreamError);
}

#[tokio::test(start_paused = true)]
async fn the_classic_words_introduce_a_cached_copy() {
    let tools =
        ToolCaller::new(Settings { style: TextStyle::Classic, ..settings(&env(0.0)) }).unwrap();
    tools.call("get_issue", nothing(), Script::healthy().send()).await;

    let answer = tools.call("get_issue", nothing(), Script::down("503").send()).await;

    assert_eq!(
        served(&answer).note,
        "⚠️ Live data unavailable. Showing cached information may be stale."
    );
}

#[tokio::test(start_paused = true)]
async fn denials_and_callers_faults_are_not_worked_around() {
    let tools = caller(&env(0.0));
    tools.call("get_issue", nothing(), Script::healthy().send()).await;

    for (text, code) in [
        ("403 Forbidden", ErrorCode::Denied),
        ("401 Unauthorized", ErrorCode::AuthRequired),
        ("422 invalid", ErrorCode::ValidationError),
    ] {
        let own = [Step::new("backup", || async { Ok("leaked".to_owned()) })];
        let answer = tools.call_with("get_issue", nothing(), &own, Script::down(text).send()).await;
        assert_eq!((report(&answer).code, answer.attempts), (code, 1), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_search_is_tried_with_simpler_queries() {
    let tools = with_fallback("search_issues", vec![Fallback::Simplify(None)], settings(&env(0.0)));
    let call = json!({"query": "\"memory leak\" is:open", "limit": 5});

    let answer = tools.call("search_issues", call.clone(), only_others(&call)).await;

    assert_eq!(answer.final_step(), "search_issues-simplify");
    assert_eq!(
        served(&answer).note,
        "Results for the simpler query \"memory leak is:open\"; the full search failed (503)."
    );
    assert_eq!(answer.attempts, 4);
}

#[tokio::test(start_paused = true)]
async fn simpler_queries_that_fail_too_are_no_further_evidence() {
    let tools = caller(&env(0.0));
    let down = Script::down("503 Service Unavailable");

    tools.call("search_issues", json!({"query": "a b c d"}), down.send()).await;

    let breaker = tools.breaker_status("search_issues").unwrap();
    assert_eq!(
        (down.executions(), breaker.failures, breaker.status),
        (3 + 2, 3, BreakerStatus::Closed)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_page_is_answered_with_the_one_before() {
    let tools = caller(&env(0.0));
    let call = json!({"page": 3});

    let answer = tools.call("list_issues", call.clone(), only_others(&call)).await;

    assert_eq!(answer.value().map(String::as_str), Some(r#"{"page":2}"#));
    let note = "This is the page before the one asked for; the page asked for failed (503).";
    assert_eq!((served(&answer).note.as_str(), served(&answer).age), (note, None));
}

#[tokio::test(start_paused = true)]
async fn a_failed_page_is_answered_with_the_copy_of_the_one_before_also_behind_an_open_breaker() {
    let tools = caller(&env(0.0));
    tools.call("list_issues", json!({"page": 2}), Script::healthy().send()).await;
    let down = Script::down("503");
    for _ in 0..4 {
        advance(secs(1)).await;
        let answer = tools.call("list_issues", json!({"page": 3}), down.send()).await;
        assert_eq!(
            (served(&answer).by.as_str(), answer.value().map(String::as_str)),
            ("previous_page", Some("ok"))
        );
        assert!(
            served(&answer).age.is_some() && served(&answer).note.contains("a copy from"),
            "{answer:?}"
        );
    }
    assert_eq!(tools.breaker_status("list_issues").unwrap().status, BreakerStatus::Open);
    assert_eq!(
        down.executions(),
        5,
        "each call its attempts until the breaker opened, and none for the page before"
    );

    let other = Call::new(json!({"page": 3})).by("somebody else");
    let answer = tools.call("list_issues", other, down.send()).await;
    assert_eq!(report(&answer).code, ErrorCode::CircuitOpen, "a copy is its caller's own");
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_is_done_one_by_one_only_if_it_did_not_run() {
    let tools = caller(&env(0.0));
    let call = json!({"issue_numbers": [1, 2, 3], "labels": ["bug"]});
    let seen = Mutex::new(Vec::new());
    let send = |failure: FailureSignals| {
        let seen = &seen;
        move |attempt: Attempt| {
            let items = attempt.arguments["issue_numbers"].as_array().unwrap().clone();
            seen.lock().unwrap().push(items.len());
            std::future::ready(match items.as_slice() {
                [one] if *one == json!(2) => Err(FailureSignals::http(404, "no such issue")),
                [one] => Ok(one.to_string()),
                _ => Err(failure.clone()),
            })
        }
    };

    // Of the items before it a status says nothing: that none was done is said by whoever knows.
    let not_begun = FailureSignals::http(429, "slow down").with_sent(Sent::Never);
    let (answer, elapsed) = timed(tools.call("batch_label", call.clone(), send(not_begun))).await;
    assert_eq!(elapsed, secs(1), "a server at its limit is not asked again at once");
    let served = served(&answer);
    assert_eq!(
        served.note,
        "2 of 3 items succeeded one by one; the batch failed (429). The other one is listed with its reason."
    );
    let FallbackBody::Items(items) = &served.body else { panic!("no items") };
    assert_eq!(
        items.iter().map(|item| item.result.is_ok()).collect::<Vec<_>>(),
        [true, false, true]
    );
    assert_eq!(answer.attempts, 4);

    seen.lock().unwrap().clear();
    let answer =
        tools.call("batch_label", call, send(FailureSignals::http(500, "half done"))).await;
    assert!(report(&answer).may_have_executed);
    assert_eq!(*seen.lock().unwrap(), [3], "a batch that may have run in part is not run again");
}

/// Does a batch of these items, which is answered with `failure`; its items are answered by `item`.
/// What was sent, in order.
async fn batch(
    tools: &ToolCaller<String>,
    items: Value,
    failure: FailureSignals,
    item: impl Fn(u64) -> Result<String, FailureSignals>,
) -> (Answer<String>, Vec<Value>) {
    let (seen, in_flight) = (Mutex::new(Vec::new()), AtomicU32::new(0));
    let send = async |attempt: Attempt| {
        let ids = attempt.arguments["ids"].clone();
        seen.lock().unwrap().push(ids.clone());
        if ids.as_array().unwrap().len() > 1 {
            return Err(failure.clone());
        }
        let is_throttled = failure.status == Some(429);
        let others = in_flight.fetch_add(1, Ordering::SeqCst);
        assert!(!is_throttled || others == 0, "one at a time after a 429");
        tokio::time::sleep(ms(1)).await;
        in_flight.fetch_sub(1, Ordering::SeqCst);
        item(ids[0].as_u64().unwrap())
    };
    let answer = tools.call("batch_label", json!({ "ids": items }), send).await;
    let seen = seen.into_inner().unwrap();
    (answer, seen)
}

fn slow_down(seconds: u64) -> FailureSignals {
    FailureSignals { retry_after: Some(secs(seconds)), ..FailureSignals::http(429, "slow down") }
}

#[tokio::test(start_paused = true)]
async fn the_items_of_a_throttled_batch_wait_go_one_at_a_time_and_stop_at_the_next_429() {
    let tools =
        with_tool(settings(&env(0.0)), "batch_label", |policy| policy.effect = Effect::Idempotent);
    let second_is_refused = |id| if id == 2 { Err(slow_down(9)) } else { Ok(format!("{id} done")) };

    let ((answer, seen), elapsed) =
        timed(batch(&tools, json!([1, 2, 3, 4]), slow_down(5), second_is_refused)).await;

    assert_eq!(elapsed, secs(5) + ms(2));
    assert_eq!(seen, [json!([1, 2, 3, 4]), json!([1]), json!([2])]);
    let FallbackBody::Items(items) = &served(&answer).body else { panic!("no items") };
    let fates: Vec<Result<&str, &str>> = items
        .iter()
        .map(|item| {
            item.result.as_ref().map(String::as_str).map_err(|failure| failure.message.as_str())
        })
        .collect();
    let not_sent = Err("not sent, because an item before it failed: slow down");
    assert_eq!(fates, [Ok("1 done"), Err("slow down"), not_sent, not_sent]);
    assert!(items.iter().all(|item| !item.may_have_executed));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_has_no_time_for_the_pause_says_so() {
    let tools = caller(&env(0.0));

    let ((answer, seen), elapsed) =
        timed(batch(&tools, json!([1, 2]), slow_down(60), |_| Ok("ok".into()))).await;

    assert_eq!((elapsed, seen.len()), (secs(0), 1));
    assert_eq!(
        (report(&answer).code, report(&answer).retry_after),
        (ErrorCode::RateLimited, Some(secs(60)))
    );
}

#[tokio::test(start_paused = true)]
async fn one_batch_however_large_is_one_failure_and_its_first_item_tries_for_all() {
    let tools =
        with_tool(settings(&env(0.0)), "batch_label", |policy| policy.effect = Effect::Idempotent);
    let down = || FailureSignals::http(503, "down");

    let (answer, seen) = batch(&tools, json!([1, 2, 3, 4, 5]), down(), |_| Err(down())).await;

    assert_eq!(report(&answer).code, ErrorCode::UpstreamError);
    assert_eq!(seen.len(), 2, "the batch, and one item to see whether it was the batch");
    let breaker = tools.breaker_status("batch_label").unwrap();
    assert_eq!((breaker.status, breaker.failures), (BreakerStatus::Closed, 1));

    batch(&tools, json!([6, 7]), down(), |_| Err(down())).await;
    assert_eq!(
        tools.breaker_status("batch_label").unwrap().status,
        BreakerStatus::Open,
        "two batches in a row open it"
    );
}

#[tokio::test(start_paused = true)]
async fn batches_whose_items_work_say_nothing_against_the_server() {
    let tools =
        with_tool(settings(&env(0.0)), "batch_label", |policy| policy.effect = Effect::Idempotent);
    let large = || async {
        batch(&tools, json!([1, 2, 3]), FailureSignals::http(503, "too large"), |_| Ok("ok".into()))
            .await
    };

    let answers = join_all((0..3).map(|_| large())).await;

    assert!(
        answers.iter().all(|(answer, seen)| served(answer).by == "split_batch" && seen.len() == 4)
    );
    assert_eq!(tools.breaker_status("batch_label").unwrap().trips, 0);

    // A probe is not spared: what comes of the batch itself decides.
    open_breaker(&tools, "batch_label").await;
    advance(secs(120)).await;
    let (answer, seen) = large().await;
    assert_eq!((report(&answer).code, seen.len()), (ErrorCode::UpstreamError, 1));
    assert_eq!(tools.breaker_status("batch_label").unwrap().status, BreakerStatus::Open);
}

#[tokio::test(start_paused = true)]
async fn items_that_work_or_are_wrong_cost_the_retry_budget_nothing() {
    let tools =
        with_tool(settings(&env(0.0)), "batch_label", |policy| policy.effect = Effect::Idempotent);
    let all: Vec<u64> = (1..=100).collect();
    let odd_are_wrong =
        |id| if id % 2 == 1 { Err("422 no such issue".into()) } else { Ok("done".to_owned()) };

    let (answer, seen) =
        batch(&tools, json!(all), FailureSignals::http(503, "too large"), odd_are_wrong).await;

    assert_eq!(seen.len(), 1 + 100);
    assert!(
        served(&answer).note.starts_with("50 of 100 items succeeded"),
        "{}",
        served(&answer).note
    );
}

#[tokio::test(start_paused = true)]
async fn items_that_a_server_fails_are_sent_only_as_long_as_its_retry_budget_pays() {
    let budget = BudgetPolicy { share: 1.0, floor: 0, saved: 3 };
    let policy = ServerPolicy { budget, ..ServerPolicy::default() };
    let options = CallerOptions { policy, ..CallerOptions::default() };
    let tools = ToolCaller::with_options(settings(&env(0.0)), options).unwrap();
    tools
        .tool(ToolFacts::named("batch_label"), |policy| policy.effect = Effect::Idempotent)
        .unwrap();
    for n in 0..3 {
        tools.call("get_issue", json!({ "n": n }), Script::healthy().send()).await;
    }
    let down = || FailureSignals::http(503, "down");
    let only_the_first_works = |id| if id == 1 { Ok("done".to_owned()) } else { Err(down()) };

    let all: Vec<u64> = (1..=100).collect();
    let (answer, seen) = batch(&tools, json!(all), down(), only_the_first_works).await;

    assert_eq!(
        seen.len(),
        1 + 1 + 4,
        "the batch, the first item, and four at a time until three tokens are spent"
    );
    let FallbackBody::Items(items) = &served(&answer).body else { panic!("no items") };
    let last = items[99].result.as_ref().unwrap_err();
    assert_eq!(
        last.message,
        "not sent, because an item before it failed: the retry budget of the server is spent"
    );
}

#[tokio::test(start_paused = true)]
async fn what_a_tool_says_of_one_item_does_not_keep_the_others_from_being_sent() {
    let own = Settings {
        error_text: |text: &String| text.starts_with("Error").then(|| text.clone()),
        ..settings(&env(0.0))
    };
    let tools = with_tool(own, "batch_label", |policy| policy.effect = Effect::Idempotent);
    let first_is_wrong =
        |id| Ok(if id == 1 { "Error: no such issue".to_owned() } else { format!("{id} done") });

    let (answer, seen) =
        batch(&tools, json!([1, 2, 3]), FailureSignals::http(503, "down"), first_is_wrong).await;

    assert_eq!(seen.len(), 4);
    assert!(
        served(&answer).note.starts_with("2 of 3 items succeeded one by one"),
        "{}",
        served(&answer).note
    );
}

#[tokio::test(start_paused = true)]
async fn another_tool_answers_with_mapped_arguments() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    let policy = |name: &str| Preset::Default.policy(&ToolFacts::named(name), &Tiers::default());
    for server in ["search", "web"] {
        pipeline.server(server, ServerPolicy::default()).unwrap();
    }
    pipeline.tool("web", "find_pages", policy("find_pages")).unwrap();
    let map = [("q".to_owned(), "query".to_owned())].into();
    let alternate = Fallback::Alternate { server: "web".into(), tool: "find_pages".into(), map };
    let tool = pipeline
        .tool(
            "search",
            "search_docs",
            Policy { fallback: vec![alternate], ..policy("search_docs") },
        )
        .unwrap();

    let send = |attempt: Attempt| async move {
        match attempt.server() {
            "search" => Err("503".into()),
            _ => Ok(format!("{}/{} {}", attempt.server(), attempt.tool(), attempt.arguments)),
        }
    };
    let answer = pipeline.run(&tool, &Call::new(json!({"query": "x", "limit": 3})), send).await;

    assert_eq!(answer.value().map(String::as_str), Some(r#"web/find_pages {"q":"x"}"#));
    assert_eq!(
        served(&answer).note,
        "Answered by find_pages of web because search_docs failed (503)."
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_does_not_stand_in_for_itself() {
    let pipeline = Pipeline::new(settings(&env(0.0))).unwrap();
    pipeline.server("web", ServerPolicy::default()).unwrap();
    let itself =
        Fallback::Alternate { server: "web".into(), tool: "find_pages".into(), map: [].into() };
    let policy = Preset::Default.policy(&ToolFacts::named("find_pages"), &Tiers::default());
    let tool =
        pipeline.tool("web", "find_pages", Policy { fallback: vec![itself], ..policy }).unwrap();

    let answer = pipeline
        .run(&tool, &Call::new(json!({})), |_| async { Err::<String, _>("503".into()) })
        .await;

    assert_eq!((answer.attempts, answer.value()), (3, None));
    assert_eq!(answer.warnings, ["find_pages: 503", "find_pages-alternate: unavailable, skipping"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_is_queued_only_if_it_certainly_did_not_run() {
    let queue = Arc::new(MemoryQueue::new(10));
    let own = Settings { durable: Some(queue.clone()), ..settings(&env(0.0)) };
    let tools = ToolCaller::new(own).unwrap();
    let refused =
        Script::down(FailureSignals::transport(TransportFailure::Refused, "connection refused"));

    let answer = tools.call("create_issue", json!({"title": "t"}), refused.send()).await;
    let served = served(&answer);
    assert_eq!(served.id.as_deref(), Some("q1"));
    assert_eq!(
        served.note,
        "create_issue was not executed yet. It is queued as q1 and will be tried when its server answers again. In this session the same call is not sent again while it waits."
    );
    assert_eq!(queue.next("").await.unwrap().1.arguments, json!({"title": "t"}));

    let ambiguous = Script::down(FailureSignals::transport(TransportFailure::Timeout, "no answer"));
    let answer = tools.call("create_issue", json!({"title": "u"}), ambiguous.send()).await;
    assert!(report(&answer).may_have_executed);
    assert!(queue.remove("q1").await);
    assert_eq!(queue.next("").await, None, "nothing is queued whose fate is unknown");
}

#[tokio::test(start_paused = true)]
async fn no_step_of_the_callers_own_hides_a_write_that_may_have_run() {
    let backup = [Step::new("backup", || async { Ok("done elsewhere".to_owned()) })];
    let tools = caller(&env(0.0));

    let ambiguous = Script::down(FailureSignals::transport(TransportFailure::Timeout, "no answer"));
    let answer = tools.call_with("create_issue", nothing(), &backup, ambiguous.send()).await;
    assert!(report(&answer).may_have_executed);

    let refused = Script::down(FailureSignals::transport(TransportFailure::Refused, "refused"));
    let answer = tools.call_with("create_issue", json!({"n": 2}), &backup, refused.send()).await;
    assert_eq!(answer.value().map(String::as_str), Some("done elsewhere"));
}

#[tokio::test(start_paused = true)]
async fn without_a_store_nothing_is_queued() {
    let refused =
        Script::down(FailureSignals::transport(TransportFailure::Refused, "connection refused"));
    let answer = caller(&env(0.0)).call("create_issue", nothing(), refused.send()).await;

    assert_eq!(report(&answer).code, ErrorCode::ConnectionLost);
    assert!(!report(&answer).may_have_executed);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_text_is_the_last_resort_but_never_hides_a_write() {
    let text = vec![Fallback::Text("Search is down.".into())];
    let tools = with_fallback("search_issues", text.clone(), settings(&env(0.0)));
    let answer = tools.call("search_issues", nothing(), Script::down("503").send()).await;
    assert_eq!(served(&answer).note, "Search is down.");

    let tools = with_fallback("create_issue", text, settings(&env(0.0)));
    let answer = tools.call("create_issue", nothing(), Script::down("503").send()).await;
    assert!(report(&answer).may_have_executed);
}

#[tokio::test(start_paused = true)]
async fn fallbacks_share_the_deadline_and_pay_from_the_budget() {
    let hangs = |_| std::future::pending::<Result<String, FailureSignals>>();
    let tools = caller(&env(0.0));
    let (answer, elapsed) =
        timed(tools.call("search_issues", json!({"query": "a b c d"}), hangs)).await;
    assert_eq!((elapsed, answer.attempts), (secs(60), 2), "no time is left for simpler queries");

    let none = ServerPolicy {
        budget: BudgetPolicy { share: 0.0, floor: 0, saved: 0 },
        ..ServerPolicy::default()
    };
    let options =
        CallerOptions { server: "github".into(), policy: none, ..CallerOptions::default() };
    let tools = ToolCaller::with_options(settings(&env(0.0)), options).unwrap();
    let down = Script::down("503");
    let answer = tools.call("search_issues", json!({"query": "a b c d"}), down.send()).await;
    assert_eq!(down.executions(), 1);
    assert_eq!(
        answer.warnings[2],
        "search_issues-simplify: the retry budget of the server is spent"
    );
}

#[tokio::test(start_paused = true)]
async fn a_fallbacks_answer_is_a_labelled_tool_result() {
    let own = Settings::<Value> { env: env(0.0), ..Settings::default() };
    let tools = ToolCaller::new(own).unwrap();
    let good = json!({"content": [{"type": "text", "text": "issue 1"}], "_meta": {"etag": "x"}});
    tools.call("get_issue", nothing(), |_| std::future::ready(Ok(good.clone()))).await;

    let live = tools.call("get_issue", nothing(), |_| std::future::ready(Ok(good.clone()))).await;
    assert_eq!(
        live.to_tool_result(Rendering::default()),
        good,
        "the server's own answer is passed on as it is"
    );

    let down = |_| std::future::ready(Err(FailureSignals::http(503, "Service Unavailable")));
    let result =
        tools.call("get_issue", nothing(), down).await.to_tool_result(Rendering::default());
    assert_eq!(
        result,
        json!({
            "content": [{"type": "text", "text": "Cached copy from 3 s ago; live read failed (503)."}, {"type": "text", "text": "issue 1"}],
            "isError": false,
            "_meta": {"etag": "x", "seawall/served": {"by": "cached", "age": 3, "warnings": ["get_issue: Service Unavailable"]}},
        })
    );
    let parsed: rmcp::model::CallToolResult = serde_json::from_value(result.clone()).unwrap();
    assert_eq!(serde_json::to_value(&parsed).unwrap(), result);
}

#[tokio::test(start_paused = true)]
async fn arguments_that_could_not_be_read_exactly_are_never_written_anew() {
    let own = Settings { durable: Some(Arc::new(MemoryQueue::new(9))), ..settings(&env(0.0)) };
    let pipeline = Pipeline::new(own).unwrap();
    pipeline.server("s", ServerPolicy::default()).unwrap();
    let down =
        Script::down(FailureSignals::transport(TransportFailure::Refused, "connection refused"));
    for name in ["create_issue", "search_issues", "list_issues", "batch_label"] {
        let policy = Preset::Default.policy(&ToolFacts::named(name), &Tiers::default());
        let tool = pipeline.tool("s", name, policy).unwrap();
        let read = Call::new(json!({"query": "a b c", "page": 2, "ids": [1.0, 2.0]}));
        let written = Call { written: Some("what was really meant".into()), ..read.clone() };
        let send = |attempt: Attempt| {
            assert_eq!(attempt.arguments, written.arguments, "{name}");
            std::future::ready(down.execute())
        };
        assert!(pipeline.run(&tool, &written, send).await.report().is_some(), "{name}");
        let healthy = Script::healthy();
        let live = pipeline.run(&tool, &read, healthy.send()).await;
        assert_eq!(
            (live.value().is_some(), healthy.executions()),
            (true, 1),
            "another call: {name}"
        );
    }
}
