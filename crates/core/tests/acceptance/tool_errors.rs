//! Errors that tools dress as success: found by an operator's patterns, retried, counted, never
//! kept, told.

use std::sync::atomic::{AtomicU32, Ordering};

use super::kit::*;
use seawall::*;
use serde_json::json;

/// A caller for tools that write `Error: …` where they fail, and `{"error": …}` where they do not
/// even say so.
fn dressed(adjust: impl FnOnce(&mut Policy), tool: &str) -> (ToolCaller<String>, Listener) {
    let env = env(0.0);
    let error_text = |text: &String| text.starts_with("Error").then(|| text.clone());
    let tools = ToolCaller::new(Settings { error_text, ..settings(&env) }).unwrap();
    let pattern = ErrorPattern {
        find: ErrorMatcher::Json("error".into()),
        transient: TransientErrors::Saying(vec!["retry later".into()]),
        mode: ErrorMode::Fail,
    };
    let errors = ToolErrors { marked: true, patterns: vec![pattern] };
    tools
        .tool(ToolFacts::named(tool), |policy| {
            policy.tool_errors = errors;
            adjust(policy);
        })
        .unwrap();
    let listener = env.events.subscribe();
    (tools, listener)
}

const BUSY: &str = r#"{"error": "a checkpoint is in progress. Please retry later"}"#;
const WRONG: &str = r#"{"error": "no such group"}"#;

async fn saying(
    tools: &ToolCaller<String>,
    tool: &str,
    n: u32,
    said: &str,
) -> (Answer<String>, u32) {
    let asked = AtomicU32::new(0);
    let send = |_| {
        asked.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(said.to_owned()))
    };
    let answer = tools.call(tool, json!({ "n": n }), send).await;
    (answer, asked.into_inner())
}

#[tokio::test(start_paused = true)]
async fn an_error_dressed_as_success_is_retried_counted_and_told() {
    let (tools, mut events) = dressed(|_| (), "get_issue");
    let (answer, executions) = saying(&tools, "get_issue", 1, BUSY).await;
    assert_eq!((executions, tools.breaker_status("get_issue").unwrap().failures), (3, 3));
    let Outcome::ToolError(error) = &answer.outcome else { panic!("{answer:?}") };
    assert_eq!(
        (error.value.as_str(), error.report.code, error.is_told()),
        (BUSY, ErrorCode::UpstreamError, true)
    );
    let found = events
        .drain()
        .iter()
        .filter(|event| matches!(***event, Event::ToolErrorFound { .. }))
        .count();
    assert_eq!(found, 3, "one for each attempt");

    // The caller's own fault: passed on at once, and the server is well.
    let (answer, executions) = saying(&tools, "get_issue", 2, WRONG).await;
    let Outcome::ToolError(error) = &answer.outcome else { panic!("{answer:?}") };
    assert_eq!(
        (executions, error.report.code, error.is_told()),
        (1, ErrorCode::ValidationError, true)
    );
    assert_eq!(tools.breaker_status("get_issue").unwrap().failures, 0, "an answer proves liveness");
}

#[tokio::test(start_paused = true)]
async fn a_write_is_not_repeated_because_its_answer_is_an_error() {
    let (tools, _events) = dressed(|_| (), "create_issue");
    let (answer, executions) = saying(&tools, "create_issue", 1, BUSY).await;
    assert_eq!((executions, answer.value().map(String::as_str)), (1, Some(BUSY)));
    let Outcome::ToolError(error) = &answer.outcome else { panic!("{answer:?}") };
    assert!(error.report.may_have_executed && error.is_told());
}

#[tokio::test(start_paused = true)]
async fn an_error_dressed_as_success_is_never_kept_as_a_copy_and_a_copy_stands_in_for_it() {
    let (tools, _events) = dressed(|_| (), "get_issue");
    saying(&tools, "get_issue", 1, BUSY).await;
    tools.reset_breaker("get_issue");
    let down = tools.call("get_issue", json!({"n": 1}), Script::down("503").send()).await;
    assert_eq!(report(&down).code, ErrorCode::UpstreamError, "an error is no copy");
    tools.reset_breaker("get_issue");

    saying(&tools, "get_issue", 1, "issue 7").await;
    for soft in [BUSY, "Error: GitHub API: 503 Service Unavailable"] {
        let (answer, _) = saying(&tools, "get_issue", 1, soft).await;
        assert_eq!(
            (served(&answer).by.as_str(), answer.value().map(String::as_str)),
            ("cached", Some("issue 7"))
        );
        tools.reset_breaker("get_issue");
    }
    for wrong in [WRONG, "Error: no such issue"] {
        let (answer, _) = saying(&tools, "get_issue", 1, wrong).await;
        assert_eq!(
            answer.value().map(String::as_str),
            Some(wrong),
            "what is no failure of the server is its answer"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pattern_that_only_counts_changes_nothing() {
    let count = |policy: &mut Policy| policy.tool_errors.patterns[0].mode = ErrorMode::Count;
    let (tools, mut events) = dressed(count, "get_issue");
    let (answer, executions) = saying(&tools, "get_issue", 1, BUSY).await;
    assert!(matches!(&answer.outcome, Outcome::Live(value) if value == BUSY), "{answer:?}");
    assert_eq!((executions, tools.breaker_status("get_issue").unwrap().failures), (1, 0));
    let counted = |event: &Event| matches!(event, Event::ToolErrorFound { counted_only: true, .. });
    assert_eq!(events.drain().iter().filter(|event| counted(event)).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_calls_a_failure_counts_for_a_shared_breaker_too() {
    let (tools, _events) = dressed(|policy| policy.scope = Scope::Global, "get_issue");
    for n in 0..5 {
        saying(&tools, "get_issue", n, BUSY).await;
    }
    let (answer, executions) = saying(&tools, "get_issue", 9, BUSY).await;
    assert_eq!((report(&answer).code, executions), (ErrorCode::CircuitOpen, 0));
}
