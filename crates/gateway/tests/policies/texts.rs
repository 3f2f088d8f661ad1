//! Failure texts: what the client reads, in which form, and what it never reads.

use serde_json::{Value, json};

use super::server::{End, Faulty, QUICK, call, failure, text};
use super::upstream::{Upstream, answer, honest, write};

const DOWN: End = End::Status("503 Service Unavailable", "", "");
const OPEN_AT_ONCE: &str = "[defaults]\nretry = { attempts = 1 }\nbreaker = { failures = 1, cooldown = \"13s\" }\nfallback = []\n";

#[tokio::test]
async fn the_classic_text_of_an_open_breaker_names_the_remaining_seconds() {
    let server = Faulty::start(|_, _, _| DOWN).await;
    let served = server.served(&format!("{OPEN_AT_ONCE}[messages]\nstyle = \"classic\"\n")).await;
    let session = served.session("/mcp/gh").await;
    let first = call(&session, "get_issue", json!({})).await;
    assert!(text(&first).starts_with("❌ Failed after multiple attempts.\n\nError: "), "{first}");
    let answer = call(&session, "get_issue", json!({})).await;
    assert!(text(&answer).starts_with(
        "⚠️ The \"get_issue\" tool is temporarily unavailable due to repeated failures."
    ));
    let wait = failure(&answer)["retryAfter"].as_u64().unwrap();
    assert!(
        text(&answer)
            .contains(&format!("⏱️ The system will automatically retry in {wait} seconds.")),
        "{answer}"
    );
    assert!((5..=13).contains(&wait), "{answer}");
    assert_eq!(answer["result"]["structuredContent"]["code"], "CIRCUIT_OPEN", "{answer}");
}

#[tokio::test]
async fn the_json_form_is_the_error_object_without_details() {
    let server = Faulty::start(|_, _, _| DOWN).await;
    let served = server.served(&format!("preset = \"gitnexus\"\n{OPEN_AT_ONCE}")).await;
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({})).await;
    let answer = call(&session, "get_issue", json!({})).await;
    let object: Value = serde_json::from_str(text(&answer)).unwrap();
    assert_eq!((&object["error"], &object["code"]), (&json!(true), &json!("CIRCUIT_OPEN")));
    let wait = object["retryAfter"].as_u64().unwrap();
    assert!((5..=13).contains(&wait), "{object}");
    let message = object["message"].as_str().unwrap();
    assert!(
        message.ends_with(&format!(
            "Will retry in {wait} seconds. Consider checking browser connection or graph status."
        )),
        "{message}"
    );
    assert!(object.get("details").is_none() && failure(&answer).get("debug").is_none(), "{answer}");
}

#[tokio::test]
async fn the_gitnexus_preset_answers_in_json_unless_it_is_told_otherwise() {
    let server = Faulty::start(|_, _, _| DOWN).await;
    for (settings, is_json) in [("", true), ("[messages]\nformat = \"text\"\n", false)] {
        let served = server.served(&format!("preset = \"gitnexus\"\n{settings}")).await;
        let session = served.session("/mcp/gh").await;
        let answer = call(&session, "get_issue", json!({})).await;
        let object: Option<Value> = serde_json::from_str(text(&answer)).ok();
        assert_eq!(
            object.map(|object| object["code"].clone()),
            is_json.then(|| json!("UPSTREAM_ERROR")),
            "{answer}"
        );
        assert_eq!(failure(&answer)["attempts"], 1, "and does not retry");
    }
}

#[tokio::test]
async fn details_come_only_when_asked_for_and_without_secrets() {
    let server = Faulty::start(|_, _, _| DOWN).await;
    let arguments = json!({"token": "canary-1", "q": "y"});
    let ask =
        json!({"name": "get_issue", "arguments": arguments, "_meta": {"seawall/debug": true}});
    for (settings, asks, shows) in [
        ("", false, false),
        ("", true, true),
        ("debug = true\n", false, true),
        ("debug_on_request = false\n", true, false),
    ] {
        let served = server.served(&format!("{OPEN_AT_ONCE}[messages]\n{settings}")).await;
        let session = served.session("/mcp/gh").await;
        let params =
            if asks { ask.clone() } else { json!({"name": "get_issue", "arguments": arguments}) };
        let answer = session.ask(1, "tools/call", params).await;
        let debug = &failure(&answer)["debug"];
        assert_eq!(debug.is_object(), shows, "{settings:?} {asks}: {answer}");
        if shows {
            assert_eq!(debug["arguments"], json!({"token": "[REDACTED]", "q": "y"}));
            assert_eq!(
                debug["timestamp"].as_str().map(|at| (&at[..2], at.len())),
                Some(("20", 24)),
                "{debug}"
            );
        }
        assert!(!answer.to_string().contains("canary-1"), "{answer}");
    }
}

#[tokio::test]
async fn a_timeout_that_the_server_tells_of_is_quoted_and_given_no_time() {
    let server = Faulty::start(|tool, _, _| match tool {
        "create_issue" => End::Status("504 Gateway Timeout", "", "the backend is slow"),
        _ => End::Status("408 Request Timeout", "", ""),
    })
    .await;
    let served = server.served(QUICK).await;
    let session = served.session("/mcp/gh").await;
    for (tool, words) in [
        ("create_issue", "HTTP 504 Gateway Timeout: the backend is slow"),
        ("get_issue", "HTTP 408"),
    ] {
        let answer = call(&session, tool, json!({})).await;
        assert_eq!(failure(&answer)["code"], "TIMEOUT", "{answer}");
        assert!(text(&answer).contains(words) && !text(&answer).contains("within"), "{answer}");
    }
}

#[tokio::test]
async fn the_same_failing_call_is_stopped_and_other_sessions_are_not() {
    let server =
        Faulty::start(|_, _, _| End::Status("422 Unprocessable Entity", "", "bad number")).await;
    let served = server.served("").await;
    let (one, two) = (served.session("/mcp/gh").await, served.session("/mcp/gh").await);
    for arguments in [json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), json!({"a": 1, "b": 2})] {
        assert_eq!(failure(&call(&one, "get_issue", arguments).await)["code"], "VALIDATION_ERROR");
    }
    let answer = call(&one, "get_issue", json!({"b": 2, "a": 1})).await;
    assert_eq!(
        (&failure(&answer)["code"], server.calls("get_issue")),
        (&json!("LOOP_DETECTED"), 3),
        "{answer}"
    );
    assert_eq!(
        failure(&call(&two, "get_issue", json!({"a": 1, "b": 2})).await)["code"],
        "VALIDATION_ERROR"
    );
}

#[tokio::test]
async fn where_calls_count_the_third_identical_one_is_not_made_though_they_work() {
    let server = Faulty::start(|_, _, _| End::Text("same")).await;
    let served = server.served("preset = \"blog\"").await;
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({})).await;
    call(&session, "get_issue", json!({})).await;
    let answer = call(&session, "get_issue", json!({})).await;
    let told = &answer["result"]["_meta"]["seawall/failure"];
    assert_eq!((&told["code"], server.calls("get_issue")), (&json!("LOOP_DETECTED"), 2));
    assert_eq!(answer["result"]["isError"], false, "a warning, no error: {answer}");
}

#[tokio::test]
async fn where_several_servers_share_an_endpoint_texts_use_the_names_that_are_listed_there() {
    let (one, two) =
        (Faulty::start(|_, _, _| End::Reset).await, Faulty::start(|_, _, _| DOWN).await);
    let other = format!("[servers.other]\nurl = \"{}\"\ntype = \"http\"\n", two.url);
    let served = one.served(&other).await;
    let session = served.session("/mcp").await;
    session.ask(1, "tools/list", json!({})).await;
    let answer = call(&session, "gh__create_issue", json!({})).await;
    assert!(
        text(&answer).starts_with("gh__create_issue failed: the connection to gh was lost"),
        "{answer}"
    );
    assert!(text(&answer).contains("gh__list_issues can show whether it took effect"), "{answer}");
    assert_eq!(failure(&answer)["tool"], "gh__create_issue");
}

#[tokio::test]
async fn a_write_in_doubt_names_a_tool_that_reads_and_never_a_method() {
    let tools = json!([{"name": "add_to_list", "inputSchema": {"type": "object"}}, {"name": "get_weather", "inputSchema": {"type": "object"}}]);
    let server = Upstream::start(move |asked, mut tcp| {
        let tools = tools.clone();
        async move {
            match asked.message["method"].as_str() {
                Some("tools/call") => {}
                Some("tools/list") => {
                    let _gone = write(&mut tcp, &answer(&asked, &json!({"tools": tools}))).await;
                }
                _ => drop(write(&mut tcp, &honest(&asked)).await),
            }
        }
    })
    .await;
    let served = super::kit::Served::with(&format!(
        "[servers.gh]\nurl = {:?}\ntype = \"http\"\n",
        server.url
    ))
    .await;
    let session = served.session("/mcp/gh").await;
    let told = "It may have been executed. Looking at the current state before another attempt, for example with get_weather, avoids doing it twice.";
    let answer = call(&session, "add_to_list", json!({})).await;
    assert!(text(&answer).ends_with(told), "{answer}");
}

#[tokio::test]
async fn what_is_no_tool_fails_with_an_error_of_the_protocol_and_never_a_5xx() {
    let server = Faulty::start(|_, _, _| DOWN).await;
    let served =
        server.served("[servers.gone]\nurl = \"http://127.0.0.1:9/mcp\"\ntype = \"http\"\n").await;
    let session = served.session("/mcp").await;
    let response = session
        .raw(&json!({"jsonrpc": "2.0", "id": 5, "method": "prompts/get", "params": {"name": "gone__x"}}).to_string())
        .await;
    assert_eq!(response.status(), 200);
    let answer = super::kit::last(response).await;
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
    assert!(
        answer["error"]["data"]["code"].is_string()
            && answer["error"]["data"]["retryable"].is_boolean(),
        "{answer}"
    );
}

#[tokio::test]
async fn a_result_that_is_too_large_is_shown_by_its_ends_and_read_in_pieces_by_its_own_client() {
    let server = Faulty::start(|_, _, _| End::Lines(20_000)).await;
    let served = server.served("[tools.\"gh/get_issue\"]\nmax_result = 3000\n").await;
    let (one, two) = (served.session("/mcp/gh").await, served.session("/mcp/gh").await);
    let whole = text(&call(&one, "list_issues", json!({})).await).to_owned();
    let answer = call(&one, "get_issue", json!({})).await;
    let served_as = &answer["result"]["_meta"]["seawall/served"];
    assert_eq!(
        (&served_as["by"], &served_as["bytes"]),
        (&json!("excerpt"), &json!(whole.len())),
        "{answer}"
    );
    let part = |number: usize| answer["result"]["content"][number]["text"].as_str().unwrap();
    assert!(
        whole.starts_with(part(1))
            && whole.ends_with(part(2))
            && part(1).len() + part(2).len() <= 3000
    );

    let mut next = served_as["resource"].as_str().map(str::to_owned);
    assert!(part(0).contains(next.as_deref().unwrap()), "{}", part(0));
    // What the text says of the second piece is so.
    let second = part(0).split(": ").last().and_then(|rest| rest.split(' ').next()).unwrap();
    let second = one.ask(1, "resources/read", json!({"uri": second})).await;
    let second = second["result"]["contents"][0]["text"].as_str().expect("a piece").to_owned();
    let foreign = two.ask(1, "resources/read", json!({"uri": next})).await;
    assert_eq!(foreign["error"]["code"], -32602, "it is nobody else's");
    let mut read = String::new();
    while let Some(uri) = next {
        let piece = one.ask(1, "resources/read", json!({"uri": uri})).await;
        read.push_str(piece["result"]["contents"][0]["text"].as_str().unwrap());
        next = piece["result"]["_meta"]["seawall/next"].as_str().map(str::to_owned);
    }
    assert!(read == whole, "{} of {} bytes", read.len(), whole.len());
    assert!(
        whole.len() > second.len() && whole[60_000..70_000].contains(&second[..1000]),
        "{}",
        &second[..100]
    );
}

#[tokio::test]
async fn a_copy_of_a_result_that_is_too_large_is_no_larger_than_the_result_was() {
    let server =
        Faulty::start(|_, count, _| if count == 1 { End::Lines(20_000) } else { DOWN }).await;
    let served = server
        .served("[tools.\"gh/get_issue\"]\nmax_result = 3000\nretry = { attempts = 1 }\n")
        .await;
    let session = served.session("/mcp/gh").await;
    let live = call(&session, "get_issue", json!({})).await;
    let copy = call(&session, "get_issue", json!({})).await;
    assert_eq!(copy["result"]["_meta"]["seawall/served"]["by"], "cached", "{}", text(&copy));
    assert!(text(&copy).starts_with("Cached copy from "), "{}", text(&copy));
    let blocks = |answer: &Value| answer["result"]["content"].as_array().unwrap().clone();
    assert_eq!(blocks(&copy)[2..], blocks(&live)[1..], "its ends");
    assert!(blocks(&copy)[1]["text"].as_str().unwrap().contains("seawall://result/"));
}

#[tokio::test]
async fn of_a_result_that_is_large_for_other_reasons_than_its_text_nothing_is_shown_twice() {
    let block = |text: &str| json!({"type": "text", "text": text});
    let rows = json!({"rows": vec!["0123456789"; 400]});
    let image = json!({"type": "image", "mimeType": "image/png", "data": "A".repeat(3000)});
    let results = json!({
        "escaped": {"content": [block(&"\n".repeat(700))]},
        "rows": {"content": [block("400 rows")], "structuredContent": rows},
        "image": {"content": [block("a cat"), image]},
    });
    let known = results.clone();
    let server =
        Faulty::start(move |_, _, with| End::Result(known[with["how"].as_str().unwrap()].clone()))
            .await;
    let served = server.served("[tools.\"gh/get_issue\"]\nmax_result = 1000\n").await;
    let session = served.session("/mcp/gh").await;
    let ask =
        async |how: &str| call(&session, "get_issue", json!({"how": how})).await["result"].clone();

    assert_eq!(ask("escaped").await, results["escaped"], "its text is not large");

    let result = ask("image").await;
    assert_eq!(
        (result["content"].as_array().unwrap().len(), result.get("structuredContent")),
        (2, None),
        "{result}"
    );
    assert!(
        result["content"][0]["text"]
            .as_str()
            .unwrap()
            .ends_with("what is text follows whole, the rest is left out.")
    );
    assert!(
        result["content"][1]["text"].as_str().unwrap().starts_with("a cat\n(something of 30"),
        "{result}"
    );

    let result = ask("rows").await;
    assert!(
        result["content"][1]["text"]
            .as_str()
            .unwrap()
            .starts_with("400 rows\n{\"rows\":[\"0123456789\""),
        "{result}"
    );
    let uri = &result["_meta"]["seawall/served"]["resource"];
    let read = session.ask(1, "resources/read", json!({"uri": uri})).await;
    let text = read["result"]["contents"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(
        text,
        format!("400 rows\n{}", results["rows"]["structuredContent"]),
        "nothing is lost"
    );
}
