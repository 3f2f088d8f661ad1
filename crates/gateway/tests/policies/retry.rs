//! Retries: what is tried again, how often, when, and what never is.

use std::time::Duration;

use serde_json::{Value, json};

use super::server::{End, Faulty, QUICK, call, failure, text};

const SLOW_DOWN: End = End::Status("429 Too Many Requests", "", "");

#[tokio::test]
async fn two_429_and_then_the_answer_with_growing_pauses() {
    let server =
        Faulty::start(|_, count, _| if count < 3 { SLOW_DOWN } else { End::Text("success!") })
            .await;
    let served = server.served("[defaults]\nretry = { base = \"100ms\", jitter = 0.0 }").await;
    let session = served.session("/mcp/gh").await;

    let answer = call(&session, "get_issue", json!({})).await;

    assert_eq!((text(&answer), server.calls("get_issue")), ("success!", 3));
    assert!(answer["result"].get("_meta").is_none(), "the server's own result, as it is: {answer}");
    let pauses = server.pauses("get_issue");
    assert!(
        pauses[0] >= Duration::from_millis(100) && pauses[1] >= Duration::from_millis(200),
        "{pauses:?}"
    );
}

#[tokio::test]
async fn what_is_wrong_with_the_request_is_not_tried_again() {
    let server =
        Faulty::start(|_, _, _| End::Status("422 Unprocessable Entity", "", "422 invalid")).await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "get_issue", json!({})).await;
    let failure = failure(&answer);
    assert_eq!((&failure["code"], server.calls("get_issue")), (&json!("VALIDATION_ERROR"), 1));
}

#[tokio::test]
async fn a_server_that_names_a_pause_is_given_it() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("get_issue", 1) => End::Status("503 Service Unavailable", "retry-after: 1\r\n", ""),
        ("list_issues", 1) => {
            End::Error(-32000, "429 rate limit exceeded", json!({"retryAfter": 1}))
        }
        ("search_issues", _) => End::Status("429 Too Many Requests", "retry-after: 3600\r\n", ""),
        _ => End::Text("there"),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    for tool in ["get_issue", "list_issues"] {
        assert_eq!(text(&call(&session, tool, json!({})).await), "there");
        assert!(
            server.pauses(tool)[0] >= Duration::from_secs(1),
            "{tool}: {:?}",
            server.pauses(tool)
        );
    }
    let answer = call(&session, "search_issues", json!({})).await;
    assert_eq!(
        (&failure(&answer)["code"], &failure(&answer)["retryAfter"]),
        (&json!("RATE_LIMITED"), &json!(3600))
    );
    assert_eq!(server.calls("search_issues"), 1, "an hour is not waited for");
}

#[tokio::test]
async fn a_status_means_the_same_with_an_error_of_the_protocol_behind_it() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("get_issue", 1) => {
            End::Refused("503 Service Unavailable", "retry-after: 1\r\n", -32000, "Overloaded")
        }
        ("create_issue", 1) => End::Refused("429 Too Many Requests", "", -32000, "Slow down"),
        ("search_issues", _) => {
            End::Refused("429 Too Many Requests", "retry-after: 3600\r\n", -32000, "Slow down")
        }
        ("list_issues", _) => End::Refused("400 Bad Request", "", -32000, "No such thing"),
        ("batch_label_issues", _) => {
            End::Refused("500 Internal Server Error", "", -32602, "targets is required")
        }
        _ => End::Text("there"),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    for tool in ["get_issue", "create_issue"] {
        let answer = call(&session, tool, json!({})).await;
        assert_eq!(
            (&answer["result"]["content"][0]["text"], server.calls(tool)),
            (&json!("there"), 2),
            "{answer}"
        );
    }
    assert!(server.pauses("get_issue")[0] >= Duration::from_secs(1));
    let answer = call(&session, "search_issues", json!({})).await;
    assert_eq!(
        (&failure(&answer)["code"], &failure(&answer)["retryAfter"]),
        (&json!("RATE_LIMITED"), &json!(3600))
    );
    // What is wrong with the request is told in the server's own words.
    for (tool, words) in
        [("list_issues", "No such thing"), ("batch_label_issues", "targets is required")]
    {
        let answer = call(&session, tool, json!({})).await;
        assert_eq!(
            (&answer["error"]["message"], server.calls(tool)),
            (&json!(words), 1),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn what_a_server_asks_for_holds_for_the_calls_after_it_too() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("create_issue", _) => End::Status("429 Too Many Requests", "retry-after: 3600\r\n", ""),
        ("get_issue", 2) => End::Status("429 Too Many Requests", "retry-after: 30\r\n", ""),
        _ => End::Text("there"),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    for number in 0..4 {
        let answer = call(&session, "create_issue", json!({"n": number})).await;
        assert_eq!(failure(&answer)["code"], "RATE_LIMITED", "{answer}");
        assert!(failure(&answer)["retryAfter"].as_u64().unwrap() >= 290, "{answer}");
    }
    assert_eq!(server.calls("create_issue"), 1, "the others were not sent to be refused");

    call(&session, "get_issue", json!({})).await;
    for _ in 0..3 {
        let answer = call(&session, "get_issue", json!({})).await;
        assert_eq!(answer["result"]["_meta"]["seawall/served"]["by"], "cached", "{answer}");
    }
    assert_eq!(server.calls("get_issue"), 2, "a copy is there, so nobody waits");
}

#[tokio::test]
async fn a_throttled_batch_waits_before_its_items_and_stops_at_the_next_refusal() {
    let server = Faulty::start(|_, count, _| match count {
        1 | 3 => End::Status("429 Too Many Requests", "retry-after: 1\r\n", ""),
        _ => End::Text("labelled"),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;

    let answer = call(&session, "batch_label_issues", json!({"targets": [1, 2, 3]})).await;

    assert_eq!(server.calls("batch_label_issues"), 3, "the batch and two items");
    assert!(server.pauses("batch_label_issues")[0] >= Duration::from_secs(1));
    let lines: Vec<&str> = answer["result"]["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect();
    assert!(
        lines[0].starts_with("1 of 3 items succeeded one by one; the batch failed (429)."),
        "{lines:?}"
    );
    assert_eq!(lines[1], "1: ok");
    assert!(
        lines[3].starts_with("2: failed") && lines[4].starts_with("3: failed (not sent, "),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_write_is_repeated_only_if_it_certainly_did_not_run() {
    let server = Faulty::start(|tool, count, with| match (with["how"].as_str(), tool, count) {
        (Some("429"), _, 1) => SLOW_DOWN,
        (Some("reset"), ..) => End::Reset,
        (Some("503"), ..) => End::Status("503 Service Unavailable", "", ""),
        _ => End::Text("made"),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;

    assert_eq!(text(&call(&session, "create_issue", json!({"how": "429"})).await), "made");
    assert_eq!(server.calls("create_issue"), 2);
    for how in ["reset", "503"] {
        let before = server.calls("create_issue");
        let answer = call(&session, "create_issue", json!({"how": how})).await;
        let failure = failure(&answer);
        assert_eq!(
            (&failure["mayHaveExecuted"], &failure["attempts"]),
            (&json!(true), &json!(1)),
            "{answer}"
        );
        assert_eq!(server.calls("create_issue"), before + 1, "{how}");
        let told = "It may have been executed. list_issues can show whether it took effect before another attempt.";
        assert!(text(&answer).ends_with(told), "{answer}");
    }
    let answer = call(&session, "update_issue", json!({"how": "503"})).await;
    assert_eq!(
        (&failure(&answer)["attempts"], server.calls("update_issue")),
        (&json!(2), 2),
        "{answer}"
    );
}

#[tokio::test]
async fn a_tools_own_error_is_its_answer_and_one_that_carries_a_status_is_tried_again() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("get_issue", 1) => End::ToolError("Error: GitHub API: 503 Service Unavailable"),
        ("list_issues", _) => End::ToolError("GitHub API: 502 Bad Gateway"),
        ("search_issues", _) => End::ToolError("no such repository"),
        ("create_issue", _) => End::ToolError("GitHub API: 503 Service Unavailable"),
        _ => End::Text("there"),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "there");
    for (tool, words, calls) in [
        ("list_issues", "GitHub API: 502 Bad Gateway", 2),
        ("search_issues", "no such repository", 1),
        ("create_issue", "GitHub API: 503 Service Unavailable", 1),
    ] {
        let answer = call(&session, tool, json!({})).await;
        assert_eq!((text(&answer), server.calls(tool)), (words, calls));
        let spent = &answer["result"]["_meta"]["seawall/failure"]["attempts"];
        assert_eq!(
            *spent,
            if calls > 1 { json!(calls) } else { Value::Null },
            "what was spent on it: {answer}"
        );
    }
}

#[tokio::test]
async fn a_permanent_error_of_a_server_stays_its_answer_and_one_that_may_pass_is_told_as_a_failure()
{
    let server = Faulty::start(|tool, _, _| match tool {
        "get_issue" => End::Error(-32602, "Unknown tool: get_issue", json!({"why": 1})),
        _ => End::Error(-32603, "Internal error", json!(null)),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "get_issue", json!({})).await;
    let error = json!({"code": -32602, "message": "Unknown tool: get_issue", "data": {"why": 1}});
    assert_eq!((&answer["error"], server.calls("get_issue")), (&error, 1));
    let answer = call(&session, "create_issue", json!({})).await;
    let told = failure(&answer);
    assert_eq!(
        (&told["code"], &told["attempts"], server.calls("create_issue")),
        (&json!("UPSTREAM_ERROR"), &json!(1), 1)
    );
    assert_eq!((&told["retryable"], &told["mayHaveExecuted"]), (&json!(true), &json!(true)));
    assert!(text(&answer).contains("\"Internal error\""), "it is quoted: {answer}");
    let answer = call(&session, "list_issues", json!({})).await;
    assert_eq!((&failure(&answer)["attempts"], server.calls("list_issues")), (&json!(2), 2));
}

#[tokio::test]
async fn an_error_that_will_not_pass_is_never_hidden_behind_an_old_copy() {
    let server = Faulty::start(|_, count, _| match count {
        1 => End::Text("issue 7"),
        2 => End::Error(-32000, "Issue 7 was deleted", json!(null)),
        3 => End::Status("410 Gone", "", ""),
        _ => End::ToolError("Issue 7 was deleted"),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "issue 7");
    let answer = call(&session, "get_issue", json!({})).await;
    assert_eq!(
        (&answer["error"]["message"], server.calls("get_issue")),
        (&json!("Issue 7 was deleted"), 2),
        "{answer}"
    );
    assert_eq!(failure(&call(&session, "get_issue", json!({})).await)["code"], "VALIDATION_ERROR");
    let answer = call(&session, "get_issue", json!({})).await;
    assert_eq!(
        (text(&answer), &answer["result"]["isError"]),
        ("Issue 7 was deleted", &json!(true))
    );
}

#[tokio::test]
async fn a_call_of_a_tool_that_nobody_listed_is_a_read_by_its_annotation() {
    // `timeout_report` reads like nothing in particular; the server says that it only reads, and is
    // asked for that first.
    let server =
        Faulty::start(|_, count, _| if count < 3 { SLOW_DOWN } else { End::Text("there") }).await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    assert_eq!(text(&call(&session, "timeout_report", json!({})).await), "there");
}

#[tokio::test]
async fn calls_to_a_server_that_bears_one_at_a_time_wait_for_their_turn() {
    let server = Faulty::start(|_, _, _| End::After(200, "done")).await;
    let settings =
        format!("\n[servers.one]\nurl = \"{}\"\ntype = \"http\"\nconcurrency = 1\n", server.url);
    let served = super::kit::Served::with(&settings).await;
    let session = served.session("/mcp/one").await;
    session.ask(1, "tools/list", json!({})).await;
    let ask =
        |id| session.ask(id, "tools/call", json!({"name": "get_issue", "arguments": {"id": id}}));
    let answers = futures_util::future::join_all((10..14).map(ask)).await;
    assert!(answers.iter().all(|answer| text(answer) == "done"), "{answers:?}");
    let pauses = server.pauses("get_issue");
    assert!(
        pauses.len() == 3 && pauses.iter().all(|pause| *pause >= Duration::from_millis(190)),
        "{pauses:?}"
    );
}

#[tokio::test]
async fn an_agent_that_repeats_a_write_in_doubt_does_not_execute_it_twice() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("create_issue", 1) => End::Reset,
        _ => End::Text("made"),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    let create = || call(&session, "create_issue", json!({"title": "x"}));
    assert_eq!(failure(&create().await)["mayHaveExecuted"], true);
    for _ in 0..5 {
        // Clients list tools whenever they like: that shows nothing.
        session.ask(1, "tools/list", json!({})).await;
        let answer = create().await;
        let told = failure(&answer);
        assert_eq!(
            (&told["code"], &told["mayHaveExecuted"], &told["retryable"]),
            (&json!("WRITE_UNCERTAIN"), &json!(true), &json!(false))
        );
        assert!(
            text(&answer)
                .starts_with("create_issue was not sent: the same call may have been executed "),
            "{answer}"
        );
    }
    assert_eq!(server.calls("create_issue"), 1);
    // An agent that looked knows what it does.
    call(&session, "list_issues", json!({})).await;
    assert_eq!((text(&create().await), server.calls("create_issue")), ("made", 2));
}

#[tokio::test]
async fn lists_are_tried_again_and_end_in_time_like_all_that_reads() {
    let server = Faulty::answering(|_, name, count, _| match (name, count) {
        ("tools/list", 1) => Some(End::Status("503 Service Unavailable", "", "")),
        ("prompts/list", _) => Some(End::Hang),
        ("resources/list", _) => Some(End::Status("503 Service Unavailable", "", "")),
        _ => None,
    })
    .await;
    let served = server.served(&format!("{QUICK}timeout = \"5s\"\n")).await;
    let session = served.session("/mcp/gh").await;
    let list = session.ask(1, "tools/list", json!({})).await;
    assert_eq!(
        (list["result"]["tools"].as_array().map(Vec::len), server.calls("tools/list")),
        (Some(9), 2),
        "{list}"
    );
    let hung = session.ask(2, "prompts/list", json!({})).await;
    assert_eq!(
        (&hung["error"]["data"]["code"], server.calls("prompts/list")),
        (&json!("TIMEOUT"), 2),
        "{hung}"
    );
    // Its breaker opens, and it is left alone.
    for _ in 0..5 {
        assert!(session.ask(3, "resources/list", json!({})).await["error"].is_object());
    }
    assert_eq!(server.calls("resources/list"), 5);
}

#[tokio::test]
async fn what_sets_something_is_tried_again_and_ends_in_time_too() {
    let server = Faulty::answering(|_, name, count, _| match (name, count) {
        ("logging/setLevel", _) => Some(End::Hang),
        ("resources/subscribe", 1) => Some(End::Reset),
        ("resources/subscribe", _) => Some(End::Result(json!({}))),
        _ => None,
    })
    .await;
    let served = server.served(&format!("{QUICK}timeout = \"5s\"\n")).await;
    let session = served.session("/mcp/gh").await;
    let hung = session.ask(1, "logging/setLevel", json!({"level": "debug"})).await;
    assert_eq!(hung["error"]["data"]["code"], "TIMEOUT", "{hung}");
    let answer = session.ask(2, "resources/subscribe", json!({"uri": "a://b"})).await;
    assert_eq!(
        (&answer["result"], server.calls("resources/subscribe")),
        (&json!({}), 2),
        "{answer}"
    );
}

#[tokio::test]
async fn a_write_with_a_key_by_which_its_server_knows_it_is_sent_again_with_the_same_key() {
    let server = Faulty::start(
        |_, count, _| if count % 2 == 1 { End::Reset } else { End::Text("made once") },
    )
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    let keyed = json!({"title": "x", "idempotency_key": "k-1"});
    assert_eq!(text(&call(&session, "create_issue", keyed.clone()).await), "made once");
    assert_eq!(server.arguments("create_issue"), [keyed.clone(), keyed]);
    // Without one nothing tells a repeat from a second wish; nor where the operator says what it
    // is.
    let answer = call(&session, "create_issue", json!({"title": "x", "idempotency_key": ""})).await;
    assert_eq!(
        (&failure(&answer)["mayHaveExecuted"], server.calls("create_issue")),
        (&json!(true), 3)
    );
    let served =
        server.served(&format!("{QUICK}[tools.\"gh/create_issue\"]\neffect = \"write\"\n")).await;
    let session = served.session("/mcp/gh").await;
    call(&session, "create_issue", json!({"idempotency_key": "k-2"})).await;
    let answer = call(&session, "create_issue", json!({"idempotency_key": "k-3"})).await;
    assert_eq!(
        (&failure(&answer)["mayHaveExecuted"], server.calls("create_issue")),
        (&json!(true), 5)
    );
}
