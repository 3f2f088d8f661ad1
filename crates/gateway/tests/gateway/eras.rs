//! Calls across the eras, as a client on a pipe sees them: questions, cancellation, logging,
//! subscriptions.

use serde_json::{Value, json};

use super::kit::{Served, Wrapped, fixture as fixture_toml, last, program};

fn modern(id: i64, method: &str, capabilities: Value, mut params: Value) -> String {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

fn fixture(era: &str) -> Wrapped {
    Wrapped::run(&[&program("seawall-fixture"), "--stdio", "--era", era])
}

#[tokio::test]
async fn a_legacy_client_is_asked_what_a_modern_server_wants_to_know() {
    for era in ["legacy", "modern"] {
        let mut wrapped = fixture(era);
        wrapped.initialize(json!({"elicitation": {}})).await;
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "test_input_required_result_multi_round", "arguments": {}}});
        wrapped.send(&call.to_string()).await;
        for (property, value) in [("name", "Ada"), ("color", "blue")] {
            let question = wrapped.message().await;
            assert_eq!(question["method"], "elicitation/create", "{era}: {question}");
            assert!(
                question["params"]["requestedSchema"]["properties"][property].is_object(),
                "{question}"
            );
            let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {property: value}}});
            wrapped.send(&answer.to_string()).await;
        }
        let (answer, _) = wrapped.answer(&json!(1)).await;
        assert_eq!(
            answer["result"]["content"][0]["text"], "\"Ada\" likes \"blue\"",
            "{era}: {answer}"
        );
        assert!(answer["result"].get("resultType").is_none());
    }
}

/// It may not know the method and never answer.
#[tokio::test]
async fn a_client_that_takes_no_questions_is_asked_none_and_the_server_is_told() {
    for (name, method) in
        [("test_input_required_result_multi_round", "elicitation"), ("test_sampling", "sampling")]
    {
        let mut wrapped = fixture("legacy");
        wrapped.initialize(json!({"roots": {}})).await;
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {"prompt": "?"}}});
        wrapped.send(&call.to_string()).await;
        let answer = wrapped.message().await;
        assert_eq!(answer["id"], 1, "{answer}");
        assert!(answer.to_string().contains(method), "{answer}");
    }
}

#[tokio::test]
async fn a_modern_client_gets_a_legacy_servers_questions_as_a_result() {
    for era in ["legacy", "modern"] {
        let mut wrapped = fixture(era);
        let name = json!({"name": "test_input_required_result_multi_round", "arguments": {}});
        wrapped.send(&modern(1, "tools/call", json!({"elicitation": {}}), name.clone())).await;
        let mut result = wrapped.answer(&json!(1)).await.0["result"].clone();
        for (id, property, value) in [(2, "name", "Ada"), (3, "color", "blue")] {
            assert_eq!(result["resultType"], "input_required", "{era}: {result}");
            let key = result["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
            let mut again = name.clone();
            again["requestState"] = result["requestState"].clone();
            again["inputResponses"] =
                json!({key: {"action": "accept", "content": {property: value}}});
            wrapped.send(&modern(id, "tools/call", json!({"elicitation": {}}), again)).await;
            result = wrapped.answer(&json!(id)).await.0["result"].clone();
        }
        assert_eq!(result["content"][0]["text"], "\"Ada\" likes \"blue\"", "{era}: {result}");
        assert_eq!(result["resultType"], "complete");
    }
}

#[tokio::test]
async fn a_state_that_is_brought_back_twice_is_refused() {
    let mut wrapped = fixture("legacy");
    let name = json!({"name": "test_input_required_result_elicitation", "arguments": {}});
    wrapped.send(&modern(1, "tools/call", json!({"elicitation": {}}), name.clone())).await;
    let result = wrapped.answer(&json!(1)).await.0["result"].clone();
    let mut again = name;
    again["requestState"] = result["requestState"].clone();
    again["inputResponses"] = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    wrapped.send(&modern(2, "tools/call", json!({"elicitation": {}}), again.clone())).await;
    let (answer, _) = wrapped.answer(&json!(2)).await;
    assert_eq!(answer["result"]["content"][0]["text"], "Hello, Ada!", "{answer}");
    wrapped.send(&modern(3, "tools/call", json!({"elicitation": {}}), again)).await;
    assert_eq!(wrapped.answer(&json!(3)).await.0["error"]["code"], -32602);
}

#[tokio::test]
async fn one_client_on_a_pipe_has_one_server_process() {
    let mut wrapped = fixture("legacy");
    for (id, method) in [(1, "server/discover"), (2, "tools/list"), (3, "resources/list")] {
        wrapped
            .send(&modern(id, method, json!({"elicitation": {}, "sampling": {}}), json!({})))
            .await;
        let (answer, _) = wrapped.answer(&json!(id)).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    }
    let call = json!({"name": "test_input_required_result_elicitation", "arguments": {}});
    wrapped.send(&modern(4, "tools/call", json!({"elicitation": {}, "sampling": {}}), call)).await;
    assert_eq!(wrapped.answer(&json!(4)).await.0["result"]["resultType"], "input_required");
    assert_eq!(super::kit::children(wrapped.child.id().unwrap()).len(), 1);
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_its_server() {
    for (client, server) in
        [("legacy", "legacy"), ("legacy", "modern"), ("modern", "legacy"), ("modern", "modern")]
    {
        let mut wrapped = fixture(server);
        let line = |id: i64, name: &str, arguments: Value| {
            let params =
                json!({"name": name, "arguments": arguments, "_meta": {"progressToken": 1}});
            match client {
                "modern" => modern(id, "tools/call", json!({}), params),
                _ => json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
                    .to_string(),
            }
        };
        if client == "legacy" {
            wrapped.initialize(json!({})).await;
        }
        wrapped.send(&line(1, "slow", json!({"ms": 60_000}))).await;
        // Cancelled only once the server has it: a counter says so.
        let mut id = 10;
        let mut counters = async |wrapped: &mut Wrapped| {
            id += 1;
            wrapped.send(&line(id, "counters", json!({}))).await;
            let (answer, _) = wrapped.answer(&json!(id)).await;
            answer["result"]["structuredContent"].clone()
        };
        while counters(&mut wrapped).await["calls"] != 1 {}
        wrapped
            .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}"#)
            .await;
        let mut tries = 0;
        while counters(&mut wrapped).await["cancelled"] != 1 {
            tries += 1;
            assert!(tries < 500, "{client} client, {server} server: never cancelled");
        }
    }
}

#[tokio::test]
async fn a_list_change_reaches_the_client_in_its_own_words() {
    for server in ["legacy", "modern"] {
        let mut wrapped = fixture(server);
        wrapped.initialize(json!({})).await;
        // The subscription of a legacy client to a modern server is ours and takes a moment.
        let mut id = 1;
        let changed = loop {
            let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "test_trigger_tool_change", "arguments": {}}});
            wrapped.send(&request.to_string()).await;
            let (_, others) = wrapped.answer(&json!(id)).await;
            id += 1;
            if let Some(changed) = others.into_iter().next() {
                break changed;
            }
            assert!(id < 500, "{server}");
        };
        assert_eq!(changed["method"], "notifications/tools/list_changed", "{server}");
        assert!(changed["params"]["_meta"].is_null(), "{changed}");

        let mut wrapped = fixture(server);
        wrapped
            .send(&modern(
                7,
                "subscriptions/listen",
                json!({}),
                json!({"notifications": {"toolsListChanged": true}}),
            ))
            .await;
        let acknowledged = wrapped.message().await;
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        wrapped
            .send(&modern(
                8,
                "tools/call",
                json!({}),
                json!({"name": "test_trigger_tool_change", "arguments": {}}),
            ))
            .await;
        let (first, second) = (wrapped.message().await, wrapped.message().await);
        let changed = if first["method"].is_string() { first } else { second };
        assert_eq!(
            changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7,
            "{server}: {changed}"
        );
    }
}

/// A legacy server that asks for the client's roots at an odd moment, and answers the call without
/// waiting.
const HASTY: &str = r#"
id() { echo "$1" | sed 's/.*"id":\([0-9]*\).*/\1/'; }
while read -r line; do case "$line" in
*initialize\"*) echo '{"jsonrpc":"2.0","id":'$(id "$line")',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"h","version":"0"}}}';;
*discover*) echo '{"jsonrpc":"2.0","id":'$(id "$line")',"error":{"code":-32601,"message":"no"}}';;
*tools/call*) n=$(id "$line"); printf '%s\n%s\n' '{"jsonrpc":"2.0","id":0,"method":"roots/list"}' '{"jsonrpc":"2.0","id":'$n',"result":{"content":[],"done":true}}';;
esac; done
"#;

#[tokio::test]
async fn an_answer_that_follows_a_question_closely_is_not_lost() {
    let mut wrapped = Wrapped::run(&["sh", "-c", HASTY]);
    for id in 1..=20 {
        wrapped
            .send(&modern(
                id,
                "tools/call",
                json!({"roots": {}}),
                json!({"name": "x", "arguments": {}}),
            ))
            .await;
        let (answer, _) = wrapped.answer(&json!(id)).await;
        assert_eq!(answer["result"]["done"], true, "{answer}");
        assert_eq!(answer["result"]["resultType"], "complete");
    }
}

/// A legacy server that reports progress before it asks, while it waits, and after it was answered.
const STEADY: &str = r#"
id() { echo "$1" | sed 's/.*"id":\([0-9]*\).*/\1/'; }
progress() { echo '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":'$n',"progress":'$1'}}'; }
while read -r line; do case "$line" in
*initialize\"*) echo '{"jsonrpc":"2.0","id":'$(id "$line")',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"0"}}}';;
*discover*) echo '{"jsonrpc":"2.0","id":'$(id "$line")',"error":{"code":-32601,"message":"no"}}';;
*tools/call*) n=$(id "$line"); progress 1; echo '{"jsonrpc":"2.0","id":0,"method":"roots/list"}';;
*resources/list*) progress 2; echo '{"jsonrpc":"2.0","id":'$(id "$line")',"result":{"resources":[]}}';;
*result*) progress 3; echo '{"jsonrpc":"2.0","id":'$n',"result":{"content":[]}}';;
esac; done
"#;

#[tokio::test]
async fn progress_comes_under_the_token_of_the_round_that_runs_and_between_rounds_not_at_all() {
    let mut wrapped = Wrapped::run(&["sh", "-c", STEADY]);
    let call = json!({"name": "x", "arguments": {}, "_meta": {"progressToken": "a"}});
    wrapped.send(&modern(1, "tools/call", json!({"roots": {}}), call)).await;
    let (answer, before) = wrapped.answer(&json!(1)).await;
    let tokens = |heard: &[Value]| -> Vec<Value> {
        heard
            .iter()
            .map(|other| json!([other["params"]["progressToken"], other["params"]["progress"]]))
            .collect()
    };
    assert_eq!(tokens(&before), [json!(["a", 1])]);
    assert_eq!(answer["result"]["resultType"], "input_required");

    let again = json!({"name": "x", "arguments": {}, "requestState": answer["result"]["requestState"],
        "inputResponses": {"roots": {"roots": []}}, "_meta": {"progressToken": "b"}});
    // The server goes on while nobody waits, before it answers this.
    wrapped.send(&modern(9, "resources/list", json!({"roots": {}}), json!({}))).await;
    let (_, between) = wrapped.answer(&json!(9)).await;
    assert_eq!(tokens(&between), [] as [Value; 0]);
    wrapped.send(&modern(2, "tools/call", json!({"roots": {}}), again)).await;
    let (_, after) = wrapped.answer(&json!(2)).await;
    assert_eq!(tokens(&after), [json!(["b", 3])]);
}

#[tokio::test]
async fn modern_clients_that_can_be_told_apart_have_processes_of_their_own() {
    for (era, sharing, is_apart) in
        [("legacy", "", true), ("modern", "", true), ("legacy", "shared = true\n", false)]
    {
        let served = Served::with(&(fixture_toml("a", era) + sharing)).await;
        let called = async |tool: &str, info: &str, token: &str| {
            let mut params = json!({"name": tool, "arguments": {}});
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            params["_meta"]["io.modelcontextprotocol/clientInfo"] =
                json!({"name": info, "version": "1"});
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
                .to_string();
            let mut headers = vec![
                ("mcp-protocol-version", "2026-07-28"),
                ("mcp-method", "tools/call"),
                ("mcp-name", tool),
            ];
            if !token.is_empty() {
                headers.push(("authorization", token));
            }
            last(served.send(http::Method::POST, "/mcp/a", &headers, &body).await).await
        };
        let simple = async |info: &str, token: &str| {
            let answer = called("test_simple_text", info, token).await;
            assert!(
                answer["result"]["content"][0]["text"].is_string(),
                "{era} {sharing}: {answer}"
            );
        };
        for (info, token, times) in
            [("one", "", 1), ("two", "", 2), ("one", "Bearer x", 3), ("one", "Bearer y", 4)]
        {
            for _ in 0..times {
                simple(info, token).await;
            }
        }
        // Without a secret, who says the same of itself is the same.
        simple("one", "").await;
        let seen = async |info: &str, token: &str| {
            let answer = called("counters", info, token).await;
            answer["result"]["structuredContent"]["calls"]
                .as_u64()
                .unwrap_or_else(|| panic!("{answer}"))
        };
        let counts = [
            seen("one", "").await,
            seen("two", "").await,
            seen("one", "Bearer x").await,
            seen("one", "Bearer y").await,
        ];
        if is_apart {
            assert_eq!(counts, [2, 2, 3, 4], "{era}");
        } else {
            assert!(counts.iter().all(|count| *count >= 11), "{counts:?}");
        }
    }
}
