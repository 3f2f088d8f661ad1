//! What the fixture promises on stdio, in each era.
#![allow(clippy::unwrap_used, reason = "a broken fixture shall fail the test")]

use seawall_testkit::fixture::{Eras, serve_lines};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex,
    split,
};

struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Client {
    fn of(eras: Eras) -> Self {
        let (near, far) = duplex(1 << 20);
        tokio::spawn(async move {
            let (reader, writer) = split(far);
            serve_lines(reader, writer, eras).await
        });
        let (reader, writer) = split(near);
        Self { lines: BufReader::new(reader).lines(), writer }
    }

    async fn greeted(eras: Eras) -> Self {
        let mut client = Self::of(eras);
        let capabilities = json!({ "elicitation": {}, "sampling": {} });
        let greeting = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities });
        client.request(json!(0), "initialize", greeting).await;
        assert_eq!(client.next().await["result"]["protocolVersion"], "2025-11-25");
        client
    }

    async fn say(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn request(&mut self, id: Value, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }
}

fn modern(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    params
}

#[tokio::test(start_paused = true)]
async fn a_legacy_client_is_asked_and_its_answer_ends_the_call() {
    let mut client = Client::greeted(Eras::Both).await;
    client
        .request(
            json!("1"),
            "tools/call",
            json!({ "name": "test_input_required_result_elicitation" }),
        )
        .await;
    let question = client.next().await;
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    client.say(json!({ "jsonrpc": "2.0", "id": question["id"], "result": answer })).await;
    let end = client.next().await;
    assert_eq!(
        (&end["id"], &end["result"]["content"][0]["text"]),
        (&json!("1"), &json!("Hello, Ada!"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_gets_questions_as_results_and_brings_the_answers_round_by_round() {
    let mut client = Client::of(Eras::Modern);
    let mut params = modern(json!({ "name": "test_input_required_result_multi_round" }));
    for (round, (key, answer)) in
        [("step1", json!({ "name": "Ada" })), ("step2", json!({ "color": "red" }))]
            .into_iter()
            .enumerate()
    {
        client.request(json!(round), "tools/call", params.clone()).await;
        let result = client.next().await["result"].take();
        assert_eq!(result["resultType"], "input_required");
        assert_eq!(result["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), [key]);
        params["inputResponses"] = json!({ key: { "action": "accept", "content": answer } });
        params["requestState"] = result["requestState"].clone();
    }
    client.request(json!(9), "tools/call", params).await;
    let result = client.next().await["result"].take();
    assert_eq!(
        (&result["resultType"], &result["content"][0]["text"]),
        (&json!("complete"), &json!("\"Ada\" likes \"red\""))
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_is_counted_and_never_answered() {
    let mut client = Client::greeted(Eras::Legacy).await;
    client
        .request(json!(1), "tools/call", json!({ "name": "slow", "arguments": { "ms": 60_000 } }))
        .await;
    client.say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } })).await;
    client
        .request(json!("1"), "tools/call", json!({ "name": "slow", "arguments": { "ms": 90_000 } }))
        .await;
    assert_eq!(client.next().await["id"], "1");
    client.request(json!(2), "tools/call", json!({ "name": "counters" })).await;
    assert_eq!(
        client.next().await["result"]["structuredContent"],
        json!({ "calls": 2, "cancelled": 1 })
    );
}

#[tokio::test(start_paused = true)]
async fn slow_reports_progress_three_times_before_it_answers() {
    let mut client = Client::greeted(Eras::Both).await;
    let params =
        json!({ "name": "slow", "arguments": { "ms": 3000 }, "_meta": { "progressToken": "t" } });
    client.request(json!(1), "tools/call", params).await;
    for progress in 1..=3 {
        let expected = json!({ "progressToken": "t", "progress": progress, "total": 3 });
        assert_eq!(client.next().await["params"], expected);
    }
    assert_eq!(client.next().await["id"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_first_the_acknowledgement_and_then_only_what_it_asked_for() {
    let mut client = Client::of(Eras::Both);
    let filter = json!({ "notifications": { "promptsListChanged": true, "resourceSubscriptions": ["test://a"] } });
    client.request(json!(7), "subscriptions/listen", modern(filter.clone())).await;
    let first = client.next().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], filter["notifications"]);
    for (name, uri) in [
        ("test_trigger_tool_change", ""),
        ("touch_resource", "test://b"),
        ("touch_resource", "test://a"),
    ] {
        client
            .request(
                json!(8),
                "tools/call",
                modern(json!({ "name": name, "arguments": { "uri": uri } })),
            )
            .await;
    }
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(client.next().await);
    }
    heard.retain(|message| message.get("method").is_some());
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0]["params"]["uri"], "test://a");
    assert_eq!(heard[0]["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
}

#[tokio::test(start_paused = true)]
async fn each_era_alone_refuses_the_opening_of_the_other() {
    let mut legacy = Client::of(Eras::Legacy);
    legacy.request(json!(1), "server/discover", modern(json!({}))).await;
    assert_eq!(legacy.next().await["error"]["code"], -32601);
    let mut modern = Client::of(Eras::Modern);
    modern.request(json!(1), "initialize", json!({ "protocolVersion": "2025-11-25" })).await;
    let error = modern.next().await["error"].take();
    assert_eq!(
        (&error["code"], &error["data"]["supported"]),
        (&json!(-32022), &json!(["2026-07-28"]))
    );
}

#[tokio::test(start_paused = true)]
async fn echo_meta_returns_the_params_it_got() {
    let mut client = Client::greeted(Eras::Both).await;
    let params = json!({ "name": "echo_meta", "arguments": { "a": [1, null] }, "_meta": { "x/y": "z" }, "extra": true });
    client.request(json!(1), "tools/call", params.clone()).await;
    assert_eq!(client.next().await["result"]["structuredContent"], params);
}
