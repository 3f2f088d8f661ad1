//! Decides whether the server keeps its promises while GitHub fails: a real process, a real MCP
//! client on stdio, real sockets. `whole.rs` shows HTTP, the operator's side and the queue.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

use std::process::Stdio;
use std::time::Duration;

use rmcp::model::{CallToolRequestParams, CallToolResult};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::{ServiceError, ServiceExt};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStderr, Command};
use tokio::time::Instant;

const GET: &str = "GET /repos/acme/harbour/issues/{number}";
const LIST: &str = "GET /repos/acme/harbour/issues";
const CREATE: &str = "POST /repos/acme/harbour/issues";
const UPDATE: &str = "PATCH /repos/acme/harbour/issues/{number}";
const LABEL: &str = "POST /repos/acme/harbour/issues/{number}/labels";
const SEARCH: &str = "GET /search/issues";

#[tokio::test]
async fn the_seven_tools_are_offered_with_limits_and_hints() {
    let manager = Manager::start().await;

    let tools = manager.client.list_all_tools().await.unwrap();

    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(
        names,
        [
            "list_issues",
            "get_issue",
            "create_issue",
            "update_issue",
            "search_issues",
            "list_issues_paginated",
            "batch_label_issues"
        ]
    );
    let limit = |tool: usize, field: &str, keyword: &str| {
        tools[tool].input_schema["properties"][field][keyword].clone()
    };
    assert_eq!(
        (limit(0, "limit", "maximum"), limit(0, "limit", "default")),
        (json!(100), json!(20))
    );
    assert_eq!(
        (limit(1, "issue_number", "minimum"), limit(2, "title", "maxLength")),
        (json!(1), json!(256))
    );
    assert_eq!(
        (limit(4, "limit", "maximum"), limit(4, "query", "minLength")),
        (json!(50), json!(1))
    );
    assert_eq!(
        (limit(6, "issue_numbers", "maxItems"), limit(6, "labels", "maxItems")),
        (json!(25), json!(10))
    );
    let hint = |tool: usize| {
        tools[tool].annotations.as_ref().map(|hints| (hints.read_only_hint, hints.idempotent_hint))
    };
    assert_eq!(hint(1), Some((Some(true), None)));
    assert_eq!(hint(2), Some((Some(false), Some(false))));
    assert_eq!(hint(3), Some((Some(false), Some(true))));
}

#[tokio::test]
async fn every_tool_answers_while_all_is_well() {
    let manager = Manager::start().await;
    let page =
        json!({"page": 2, "per_page": 2, "sort": "created", "direction": "asc", "state": "all"});
    for (tool, arguments, expected, route) in [
        (
            "get_issue",
            json!({"issue_number": 1}),
            "#1 Crane stops at noon (open, bug)\n\nIt rests for an hour although nobody asked it to.",
            GET,
        ),
        (
            "list_issues",
            json!({"limit": 2}),
            "#3 Paint the north pier (open, chore)\n#2 Lighthouse blinks twice (open, bug)",
            LIST,
        ),
        (
            "search_issues",
            json!({"query": "blinks once"}),
            "#2 Lighthouse blinks twice (open, bug)",
            SEARCH,
        ),
        (
            "create_issue",
            json!({"title": "Gull", "labels": ["bird"]}),
            "Created #4 Gull (open, bird)",
            CREATE,
        ),
        (
            "update_issue",
            json!({"issue_number": 4, "title": "Gulls", "state": "closed"}),
            "Updated #4 Gulls (closed, bird)",
            UPDATE,
        ),
        (
            "batch_label_issues",
            json!({"issue_numbers": [3, 99], "labels": ["old"]}),
            "✅ Succeeded: 1/2\n#99: GitHub API: 404 Not Found",
            LABEL,
        ),
        (
            "list_issues_paginated",
            page,
            "Page 2\n#3 Paint the north pier (open, chore, old)\n#4 Gulls (closed, bird)",
            LIST,
        ),
    ] {
        let result = manager.call(tool, arguments).await;

        assert_eq!(text(&result), expected, "{tool}");
        assert!(is_live(&result), "{tool}");
        assert!(manager.count("executed", route).await > 0, "{tool}");
    }
}

#[tokio::test]
async fn a_rate_limited_read_waits_as_asked_and_answers_live() {
    let manager = Manager::start().await;
    manager.fail(json!({"faults": [{"status": 429, "retry_after": 1}, {"status": 429, "retry_after": 0}]})).await;
    let started = Instant::now();

    let result = manager.get_issue(1).await;

    assert!(is_live(&result) && text(&result).starts_with("#1 Crane stops at noon"), "{result:?}");
    assert_eq!(manager.count("requests", GET).await, 3);
    assert!(
        started.elapsed() >= Duration::from_secs(1),
        "the pause that was asked for was not made"
    );
}

#[tokio::test]
async fn a_burst_of_server_errors_does_not_reach_the_agent() {
    let manager = Manager::start().await;
    manager.fail(json!({"faults": [{"status": 503, "times": 2}]})).await;

    let result = manager.call("search_issues", json!({"query": "crane"})).await;

    assert!(is_live(&result) && text(&result).starts_with("#1 Crane stops at noon"), "{result:?}");
    assert_eq!(manager.count("requests", SEARCH).await, 3);
}

#[tokio::test]
async fn create_issue_is_not_repeated_when_it_may_have_run() {
    let manager = Manager::start().await;
    manager.fail(json!({"faults": [{"status": 503, "executes": true}]})).await;

    let result = manager.call("create_issue", json!({"title": "Gull"})).await;

    let failure = failure(&result);
    assert_eq!(
        (&failure["code"], &failure["mayHaveExecuted"]),
        (&json!("UPSTREAM_ERROR"), &json!(true))
    );
    assert!(
        text(&result).contains("list_issues can show whether it took effect"),
        "{}",
        text(&result)
    );
    assert_eq!(manager.count("requests", CREATE).await, 1);
    assert_eq!(
        text(&manager.call("search_issues", json!({"query": "gull"})).await),
        "#4 Gull (open)"
    );
}

#[tokio::test]
async fn create_issue_is_repeated_when_it_certainly_did_not_run() {
    let manager = Manager::start().await;
    manager.fail(json!({"faults": [{"status": 429, "retry_after": 0}]})).await;

    let result = manager.call("create_issue", json!({"title": "Gull"})).await;

    assert!(is_live(&result) && text(&result) == "Created #4 Gull (open)", "{result:?}");
    assert_eq!(
        (manager.count("requests", CREATE).await, manager.count("executed", CREATE).await),
        (2, 1)
    );
}

#[tokio::test]
async fn create_issue_says_that_it_did_not_run_when_github_refused_it() {
    let manager = Manager::start().await;
    manager.fail(json!({"faults": [{"status": 429, "retry_after": 0, "times": 2}]})).await;

    let result = manager.call("create_issue", json!({"title": "Gull"})).await;

    let failure = failure(&result);
    assert_eq!(
        (&failure["code"], &failure["mayHaveExecuted"]),
        (&json!("RATE_LIMITED"), &json!(false))
    );
    assert!(
        text(&result).starts_with("create_issue was not executed: github is at its rate limit"),
        "{}",
        text(&result)
    );
    assert_eq!(
        (manager.count("requests", CREATE).await, manager.count("executed", CREATE).await),
        (2, 0)
    );
}

#[tokio::test]
async fn update_issue_is_repeated_because_it_is_idempotent() {
    let manager = Manager::start().await;
    manager.fail(json!({"faults": [{"status": 503, "executes": true}]})).await;

    let result = manager.call("update_issue", json!({"issue_number": 1, "state": "closed"})).await;

    assert!(
        is_live(&result) && text(&result) == "Updated #1 Crane stops at noon (closed, bug)",
        "{result:?}"
    );
    assert_eq!(manager.count("requests", UPDATE).await, 2);
}

#[tokio::test]
async fn a_batch_that_fails_is_done_item_by_item() {
    let manager = Manager::start().await;
    manager.fail(json!({"faults": [{"status": 503}]})).await;

    let result = manager
        .call("batch_label_issues", json!({"issue_numbers": [1, 2, 3], "labels": ["old"]}))
        .await;

    assert_eq!(meta(&result)["seawall/served"]["by"], "split_batch");
    assert!(text(&result).starts_with("3 of 3 items succeeded one by one"), "{}", text(&result));
    assert_eq!(
        text(&manager.get_issue(3).await).lines().next(),
        Some("#3 Paint the north pier (open, chore, old)")
    );
}

#[tokio::test]
async fn a_batch_with_more_issues_than_the_tool_takes_is_done_item_by_item() {
    let manager = Manager::start().await;
    let numbers: Vec<u32> = (0..26).map(|n| n % 3 + 1).collect();

    let result = manager
        .call("batch_label_issues", json!({"issue_numbers": numbers, "labels": ["old"]}))
        .await;

    assert_eq!(meta(&result)["seawall/served"]["by"], "split_batch");
    assert!(text(&result).starts_with("26 of 26 items succeeded one by one"), "{}", text(&result));
    assert_eq!(manager.count("executed", LABEL).await, 26);
}

#[tokio::test]
async fn a_batch_that_is_throttled_half_way_does_not_claim_that_nothing_was_done() {
    let manager = Manager::start().await;
    let throttled = json!({"status": 429, "retry_after": 400});
    manager.fail(json!({"faults": [{"status": 200, "executes": true}, throttled]})).await;
    let labels = json!({"issue_numbers": [1, 2, 3], "labels": ["old"]});

    let result = manager.call("batch_label_issues", labels.clone()).await;

    assert_eq!(
        (manager.count("requests", LABEL).await, manager.count("executed", LABEL).await),
        (2, 1)
    );
    let half_done = failure(&result);
    assert_eq!(
        (&half_done["code"], &half_done["mayHaveExecuted"]),
        (&json!("RATE_LIMITED"), &json!(true))
    );
    assert!(text(&result).contains("It may have been executed"), "{}", text(&result));

    // Refused at its first item, it was not begun.
    let manager = Manager::start().await;
    manager.fail(json!({"faults": [throttled]})).await;
    let result = manager.call("batch_label_issues", labels).await;
    assert_eq!(failure(&result)["mayHaveExecuted"], false, "{}", text(&result));
}

#[tokio::test]
async fn an_outage_is_bridged_by_a_labelled_copy_until_the_breaker_ends_the_asking() {
    let manager = Manager::start().await;
    let live = manager.get_issue(1).await;
    manager.fail(json!({"outage": true})).await;

    let copy = manager.get_issue(1).await;
    assert!(text(&copy).starts_with("Cached copy from"), "{}", text(&copy));
    assert_eq!((&copy.content[1..], copy.is_error), (&live.content[..], Some(false)));

    let unread = manager.get_issue(2).await;
    assert_eq!(failure(&unread)["code"], "UPSTREAM_ERROR");
    assert!(text(&unread).contains("GitHub API: 503 Service Unavailable"), "{}", text(&unread));
    // The live read, three failures, and two more: the fifth opened the breaker.
    assert_eq!(manager.count("requests", GET).await, 6);

    let refused = manager.get_issue(3).await;
    assert_eq!(failure(&refused)["code"], "CIRCUIT_OPEN");
    assert!(failure(&refused)["retryAfter"].as_u64() >= Some(1), "{refused:?}");
    assert!(text(&manager.get_issue(1).await).starts_with("Cached copy from"));
    assert_eq!(manager.count("requests", GET).await, 6, "an open breaker let a call through");
}

#[tokio::test]
async fn invalid_input_is_rejected_and_not_retried() {
    let manager = Manager::start().await;
    for (tool, arguments, reason) in [
        ("get_issue", json!({"issue_number": 0}), "issue_number: invalid value"),
        ("list_issues", json!({"limit": 101}), "limit: must be 1 to 100, not 101"),
        ("create_issue", json!({"title": ""}), "title: must be 1 to 256 characters, not 0"),
        ("search_issues", json!({}), "missing field `query`"),
    ] {
        let result = manager.call(tool, arguments).await;

        let failure = failure(&result);
        assert_eq!(
            (&failure["code"], &failure["attempts"]),
            (&json!("VALIDATION_ERROR"), &json!(1)),
            "{tool}"
        );
        assert_eq!(failure["retryable"], false, "{tool}");
        assert!(text(&result).contains(reason), "{}", text(&result));
    }
    assert_eq!(manager.stats().await, json!({"requests": {}, "executed": {}}));
}

#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error() {
    let manager = Manager::start().await;

    let error = manager
        .client
        .call_tool(CallToolRequestParams::new("delete_everything"))
        .await
        .unwrap_err();

    assert!(matches!(&error, ServiceError::McpError(error) if error.code.0 == -32602), "{error}");
}

/// The server in a process of its own, which ends with the test.
struct Manager {
    client: RunningService<RoleClient, ()>,
    http: reqwest::Client,
    api: String,
    /// Held open: a program must not fail because nobody reads its stderr.
    _stderr: BufReader<ChildStderr>,
}

impl Manager {
    async fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_issue-manager"));
        command.args(["--api", "imitation", "--pause", "5ms"]).kill_on_drop(true);
        let (process, stderr) =
            TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(stderr.unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).await.unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let api = told["data"]["api"].as_str().unwrap().to_owned();
        let client = ().serve(process).await.unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { client, http, api, _stderr: stderr }
    }

    async fn call(&self, tool: &'static str, mut arguments: Value) -> CallToolResult {
        let fields = arguments.as_object_mut().unwrap();
        if tool != "search_issues" {
            fields.extend([
                ("owner".to_owned(), json!("acme")),
                ("repo".to_owned(), json!("harbour")),
            ]);
        }
        self.client
            .call_tool(CallToolRequestParams::new(tool).with_arguments(fields.clone()))
            .await
            .unwrap()
    }

    async fn get_issue(&self, number: u32) -> CallToolResult {
        self.call("get_issue", json!({"issue_number": number})).await
    }

    async fn fail(&self, faults: Value) {
        let response =
            self.http.put(format!("{}/_faults", self.api)).json(&faults).send().await.unwrap();
        response.error_for_status().unwrap();
    }

    async fn stats(&self) -> Value {
        self.http.get(format!("{}/_stats", self.api)).send().await.unwrap().json().await.unwrap()
    }

    /// How often a route was asked (`requests`) or did its work (`executed`).
    async fn count(&self, what: &str, route: &str) -> u64 {
        self.stats().await[what][route].as_u64().unwrap_or(0)
    }
}

/// The first text block.
fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

fn is_live(result: &CallToolResult) -> bool {
    result.is_error != Some(true) && result.meta.is_none()
}

fn meta(result: &CallToolResult) -> &serde_json::Map<String, Value> {
    assert_eq!(result.is_error, Some(false), "{result:?}");
    &result.meta.as_ref().unwrap().0
}

fn failure(result: &CallToolResult) -> &Value {
    assert_eq!(result.is_error, Some(true), "{result:?}");
    &result.meta.as_ref().unwrap().0["seawall/failure"]
}
