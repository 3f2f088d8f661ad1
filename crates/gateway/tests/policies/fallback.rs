//! Fallbacks: what is answered when the tool itself cannot, and how it is labelled.

use serde_json::{Value, json};

use super::server::{End, Faulty, QUICK, call, failure, text};

const DOWN: End = End::Status("503 Service Unavailable", "", "");

fn served_by(answer: &Value) -> &Value {
    assert_eq!(answer["result"]["isError"], false, "{answer}");
    &answer["result"]["_meta"]["seawall/served"]
}

#[tokio::test]
async fn a_read_that_fails_is_answered_with_its_last_good_copy_and_says_so() {
    let server =
        Faulty::start(|_, count, _| if count == 1 { End::Text("issue 7") } else { DOWN }).await;
    let served = server.served(QUICK).await;
    let (one, two) = (served.session("/mcp/gh").await, served.session("/mcp/gh").await);
    assert_eq!(text(&call(&one, "get_issue", json!({"n": 7})).await), "issue 7");
    let answer = call(&one, "get_issue", json!({"n": 7})).await;
    assert_eq!(served_by(&answer)["by"], "cached");
    assert!(
        text(&answer).starts_with("Cached copy from ")
            && text(&answer).ends_with("live read failed (503)."),
        "{answer}"
    );
    assert_eq!(answer["result"]["content"][1]["text"], "issue 7");
    assert!(served_by(&answer)["age"].is_u64(), "{answer}");
    assert_eq!(server.calls("get_issue"), 1 + 3, "tried three times before");
    // A copy is nobody else's.
    assert_eq!(failure(&call(&two, "get_issue", json!({"n": 7})).await)["mayHaveExecuted"], false);
    assert_eq!(failure(&call(&one, "get_issue", json!({"n": 8})).await)["mayHaveExecuted"], false);
}

#[tokio::test]
async fn a_fresh_copy_answers_without_asking_until_something_is_written() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("list_issues", 1) => End::ToolError("no such repository"),
        ("create_issue", _) => End::Text("made"),
        _ => End::Text("there"),
    })
    .await;
    let served = server.served("[tools.\"gh/*_issue*\"]\ncache = { ttl = \"1h\" }\n").await;
    let session = served.session("/mcp/gh").await;
    for _ in 0..3 {
        assert_eq!(text(&call(&session, "get_issue", json!({"a": 1, "b": 2})).await), "there");
    }
    assert_eq!(text(&call(&session, "get_issue", json!({"b": 2, "a": 1})).await), "there");
    assert_eq!(server.calls("get_issue"), 1);
    // An error is no copy.
    call(&session, "list_issues", json!({})).await;
    assert_eq!(text(&call(&session, "list_issues", json!({})).await), "there");
    call(&session, "create_issue", json!({})).await;
    for tool in ["get_issue", "list_issues"] {
        let before = server.calls(tool);
        call(&session, tool, json!({"a": 1, "b": 2})).await;
        assert_eq!(server.calls(tool), before + 1, "{tool}");
    }
    // Numbers that only look the same when they are read are not the same.
    for id in ["123456789012345678901", "123456789012345678902"] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{{"name":"get_issue","arguments":{{"id":{id}}}}}}}"#
        );
        session.raw(&body).await;
    }
    assert_eq!(server.calls("get_issue"), 2 + 2);
}

#[tokio::test]
async fn a_search_that_fails_is_tried_with_a_simpler_query() {
    let server = Faulty::start(|_, _, with| match with["query"].as_str() {
        Some("login bug") => End::Text("3 found"),
        _ => DOWN,
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    let answer =
        call(&session, "search_issues", json!({"query": "\"login bug\" is:open", "limit": 3}))
            .await;
    assert_eq!(served_by(&answer)["by"], "simplify", "{answer}");
    assert_eq!(
        text(&answer),
        "Results for the simpler query \"login bug\"; the full search failed (503)."
    );
    assert_eq!(
        server.arguments("search_issues").last().unwrap(),
        &json!({"query": "login bug", "limit": 3})
    );
}

#[tokio::test]
async fn a_page_that_fails_is_answered_with_the_one_before() {
    let server =
        Faulty::start(|_, _, with| if with["page"] == 2 { End::Text("page two") } else { DOWN })
            .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "list_issues", json!({"page": 3, "per_page": 10})).await;
    assert_eq!(
        (&served_by(&answer)["by"], &answer["result"]["content"][1]["text"]),
        (&json!("previous_page"), &json!("page two"))
    );
}

#[tokio::test]
async fn a_batch_that_fails_is_done_item_by_item_as_its_schema_says_with_a_report() {
    let server = Faulty::start(|_, _, with| match with["targets"].as_array().map(Vec::as_slice) {
        Some([one]) if one == 2 => End::ToolError("issue 2 is locked"),
        Some([_]) => End::Text("labelled"),
        _ => DOWN,
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(
        &session,
        "batch_label_issues",
        json!({"targets": [1, 2, 3], "labels": ["bug", "ui"]}),
    )
    .await;
    assert_eq!(served_by(&answer)["by"], "split_batch", "{answer}");
    let texts: Vec<&str> = answer["result"]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["text"].as_str().unwrap())
        .collect();
    assert!(
        texts[0].starts_with("2 of 3 items succeeded one by one; the batch failed (503)."),
        "{texts:?}"
    );
    assert!(
        texts.contains(&"1: ok")
            && texts.iter().any(|line| line.starts_with("2: failed (issue 2 is locked")),
        "{texts:?}"
    );
    assert_eq!(server.calls("batch_label_issues"), 4);
}

#[tokio::test]
async fn what_a_server_says_to_a_fallback_is_no_answer_to_the_call() {
    let server =
        Faulty::start(|tool, _, with| match (tool, with["targets"].as_array().map(Vec::len)) {
            ("web_search", _) | ("batch_label_issues", Some(1)) => {
                End::Error(-32603, "broken", json!(null))
            }
            ("batch_label_issues", _) => End::Status("429 Too Many Requests", "", ""),
            _ => DOWN,
        })
        .await;
    let policies = "[tools.\"gh/search_issues\"]\nfallback = [{ tool = \"gh/web_search\" }]\n\
                    [tools.\"gh/batch_label_issues\"]\neffect = \"write\"\n";
    let served = server.served(&format!("{QUICK}{policies}")).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "search_issues", json!({"query": "x"})).await;
    assert!(text(&answer).starts_with("search_issues failed on gh (503)"), "{answer}");
    assert_eq!(
        (&failure(&answer)["code"], server.calls("web_search")),
        (&json!("UPSTREAM_ERROR"), 1)
    );
    // A status says nothing of the items before it, so a batch of writes is not done again item by
    // item.
    let answer = call(&session, "batch_label_issues", json!({"targets": [1, 2, 3]})).await;
    assert_eq!(
        (&failure(&answer)["mayHaveExecuted"], server.calls("batch_label_issues")),
        (&json!(true), 1)
    );
    assert!(text(&answer).contains("may have been executed"), "{answer}");
}

#[tokio::test]
async fn a_fallback_that_cannot_keep_to_its_tools_schema_is_an_error_so_that_clients_read_it() {
    let server = Faulty::start(|_, _, _| End::Status("429 Too Many Requests", "", "")).await;
    let folder = tempfile::TempDir::new().unwrap();
    let policies = "[tools.\"gh/cypher\"]\nfallback = [{ text = \"The graph is down.\" }]\n";
    let store = format!("[store]\npath = {:?}\n", folder.path());
    let served = server.served(&format!("{QUICK}{policies}{store}")).await;
    let session = served.session("/mcp/gh").await;
    for (tool, by) in [("update_issue", "queue"), ("cypher", "text")] {
        let answer = call(&session, tool, json!({})).await;
        let result = &answer["result"];
        assert_eq!(
            (&result["_meta"]["seawall/served"]["by"], &result["isError"]),
            (&json!(by), &json!(true)),
            "{answer}"
        );
        assert!(result.get("structuredContent").is_none(), "{answer}");
    }
    assert_eq!(
        served_by(&call(&session, "create_issue", json!({})).await)["by"],
        "queue",
        "it promises nothing"
    );
}

#[tokio::test]
async fn another_tool_of_another_server_or_a_text_stands_in_where_the_file_says_so() {
    let (main, web) = (
        Faulty::start(|_, _, _| DOWN).await,
        Faulty::start(|_, _, _| End::Text("from the web")).await,
    );
    let policies = format!(
        "{QUICK}[tools.\"gh/search_issues\"]\nfallback = [{{ tool = \"web/web_search\", map = {{ q = \"query\" }} }}]\n\
         [tools.\"gh/get_issue\"]\nfallback = [{{ text = \"Issues are down for maintenance.\" }}]\n\
         [servers.web]\nurl = \"{}\"\ntype = \"http\"\n",
        web.url
    );
    let served = main.served(&policies).await;
    let session = served.session("/mcp").await;
    session.ask(1, "tools/list", json!({})).await;
    let answer = call(&session, "gh__search_issues", json!({"query": "x", "limit": 1})).await;
    assert_eq!(
        (&served_by(&answer)["by"], &answer["result"]["content"][1]["text"]),
        (&json!("alternate"), &json!("from the web"))
    );
    assert_eq!(web.arguments("web_search"), [json!({"q": "x"})]);
    let answer = call(&session, "gh__get_issue", json!({})).await;
    assert_eq!(
        (&served_by(&answer)["by"], text(&answer)),
        (&json!("text"), "Issues are down for maintenance.")
    );
}

#[tokio::test]
async fn a_tool_of_a_server_that_nobody_listed_stands_in_too() {
    let (main, web) = (
        Faulty::start(|_, _, _| DOWN).await,
        Faulty::start(|_, _, _| End::Text("from the web")).await,
    );
    let policies = format!(
        "[tools.\"gh/search_issues\"]\nretry = {{ attempts = 1 }}\nfallback = [{{ tool = \"web/web_search\" }}]\n\
         [servers.web]\nurl = \"{}\"\ntype = \"http\"\n",
        web.url
    );
    let served = main.served(&policies).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "search_issues", json!({"query": "x"})).await;
    assert_eq!(
        (&served_by(&answer)["by"], text(&answer)),
        (&json!("alternate"), "Answered by web_search of web because search_issues failed (503).")
    );
}

#[tokio::test]
async fn a_server_that_does_not_list_what_might_stand_in_changes_no_failure() {
    let main = Faulty::start(|_, _, _| End::Status("429 Too Many Requests", "", "")).await;
    let hung = Faulty::answering(|_, name, _, _| (name == "tools/list").then_some(End::Hang)).await;
    let policies = format!(
        "[tools.\"gh/create_issue\"]\nretry = {{ attempts = 1 }}\nattempt_timeout = \"2s\"\n\
         fallback = [{{ tool = \"web/web_search\" }}]\n[servers.web]\nurl = \"{}\"\ntype = \"http\"\n",
        hung.url
    );
    let served = main.served(&policies).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({})).await;
    let told = failure(&answer);
    assert_eq!(
        (&told["code"], &told["mayHaveExecuted"]),
        (&json!("RATE_LIMITED"), &json!(false)),
        "{answer}"
    );
}

#[tokio::test]
async fn a_modern_client_gets_a_fallback_as_a_complete_result() {
    let server =
        Faulty::start(|_, count, _| if count == 1 { End::Text("issue 7") } else { DOWN }).await;
    let served = server.served(QUICK).await;
    let ask =
        || served.modern("/mcp/gh", "tools/call", json!({"name": "get_issue", "arguments": {}}));
    ask().await;
    let (status, answer) = ask().await;
    assert_eq!(
        (status.as_u16(), &answer["result"]["resultType"]),
        (200, &json!("complete")),
        "{answer}"
    );
    assert_eq!(served_by(&answer)["by"], "cached");
}

#[tokio::test]
async fn a_read_with_a_copy_does_not_wait_long_for_a_server_that_is_away() {
    let server = Faulty::start(|_, _, _| End::Text("issue 7")).await;
    // Nobody waits for less than a minute, but for who has a copy.
    let served = server.served(&format!("{QUICK}[reconnect]\nwait = \"60s\"\n")).await;
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({})).await;
    drop(server);
    let begun = tokio::time::Instant::now();
    for _ in 0..3 {
        let answer = call(&session, "get_issue", json!({})).await;
        assert_eq!(served_by(&answer)["by"], "cached", "{answer}");
    }
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
