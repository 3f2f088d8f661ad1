//! Servers on a pipe that misbehave: the call fails with the reason or the answer still comes, and
//! the next call works.

use serde_json::{Value, json};

use crate::kit::client::{initialize, modern_headers, modern_request, tool_call};
use crate::kit::{
    Entry, Gateway, Legacy, MIB, Stdio, failure, http, modern, shown, text, until, within,
};

const FROM_SERVER: u64 = 16 * MIB;

async fn started() -> (Gateway, Legacy) {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    (gateway, client)
}

/// The call fails with this reason, within this much memory, and a new process answers the next
/// one.
async fn breaks(tool: &str, arguments: Value, reason: &str) {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let answer = client.call(tool, arguments.clone()).await;
    assert!(failure(&answer).contains(reason), "{tool} {arguments}: {}", shown(&answer));
    memory.grew_at_most(10 * FROM_SERVER);
    client.works("echo").await;

    let answer = modern(&gateway, "/mcp/a", tool, arguments.clone()).await.message();
    assert!(failure(&answer).contains(reason), "modern {tool} {arguments}: {}", shown(&answer));
    let answer = modern(&gateway, "/mcp/a", "echo", json!({"text": "still here"})).await.message();
    assert_eq!(text(&answer), "still here");
    gateway.stop().await;
}

/// A server that shouts does not fill the disk.
#[tokio::test]
async fn what_a_server_shouts_is_shown_in_part_and_the_rest_is_counted() {
    let (gateway, client) = started().await;
    assert_eq!(text(&client.call("shout", json!({"lines": 30_000})).await), "shouted");
    client.works("echo").await;
    let shown =
        || gateway.log.lock().unwrap().iter().filter(|line| line.contains("a: shout")).count();
    // What was left out is told when the process ends, or with the next line that is shown.
    let headers = client.headers();
    http::send(client.address, ::http::Method::DELETE, "/mcp/a", &headers, Default::default())
        .await;
    until(10, "it is told", async || gateway.said("lines left out: it said too much at once"))
        .await;
    let shown = shown();
    assert!((900..=4_000).contains(&shown), "{shown} of 30,000 lines are shown");
    gateway.stop().await;
}

#[tokio::test]
async fn a_line_without_an_end_fails_its_call_and_gets_a_new_process() {
    breaks("endless", json!({}), "sent a message that cannot be read: larger than 16777216 bytes")
        .await;
}

#[tokio::test]
async fn an_answer_of_twenty_mebibytes_fails_its_call() {
    breaks(
        "big",
        json!({"bytes": 20 << 20}),
        "sent a message that cannot be read: larger than 16777216 bytes",
    )
    .await;
}

#[tokio::test]
async fn an_answer_nested_129_deep_fails_its_call() {
    breaks(
        "nested",
        json!({"depth": 129}),
        "sent a message that cannot be read: nested deeper than 128 levels",
    )
    .await;
}

#[tokio::test]
async fn an_answer_nested_a_million_deep_fails_its_call() {
    breaks("nested", json!({"depth": 1_000_000}), "nested deeper than 128 levels").await;
}

#[tokio::test]
async fn an_answer_nested_64_deep_arrives() {
    let (gateway, client) = started().await;
    let answer = client.call("nested", json!({"depth": 64})).await;
    assert!(answer["result"].is_array(), "{}", shown(&answer));
    gateway.stop().await;
}

#[tokio::test]
async fn an_answer_with_a_key_twice_fails_its_call() {
    breaks("broken", json!({"text": "twice"}), "the key 'result' stands twice").await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_its_call_instead_of_leaving_it_waiting() {
    breaks("broken", json!({"text": "utf8"}), "not valid UTF-8").await;
    for how in ["bom", "nul", "control", "cut"] {
        breaks("broken", json!({"text": how}), "not valid JSON").await;
    }
}

#[tokio::test]
async fn an_answer_of_nothing_but_members_costs_no_more_than_ten_times_its_size() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let answer = client.call("members", json!({"count": 3_000_000})).await;
    assert!(failure(&answer).contains("members in one object"), "{}", shown(&answer));
    memory.grew_at_most(10 * 15_000_000);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_answer_of_fifteen_mebibytes_arrives_within_ten_times_its_size() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    assert_eq!(text(&client.call("big", json!({"bytes": 15 << 20})).await).len(), 15 << 20);
    assert_eq!(
        text(&modern(&gateway, "/mcp/a", "big", json!({"bytes": 5 << 20})).await.message()).len(),
        5 << 20
    );
    memory.grew_at_most(10 * 15 * MIB);
    gateway.stop().await;
}

#[tokio::test]
async fn noise_on_stdout_is_skipped_and_shown_without_its_escapes() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG", "--noise"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(text(&client.call("noise", json!({"lines": 5_000})).await), "heard");
    client.works("echo").await;
    until(5, "the noise is shown", async || {
        gateway.said("a: not a message on stdout, skipped: starting up...")
    })
    .await;
    let log = gateway.log.lock().unwrap().join("\n");
    assert!(
        !log.contains(['\x1b', '\r', '\0']),
        "escapes of a server reach the operator's terminal"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_noisy_server_does_not_stop_the_others_when_nobody_reads_the_log() {
    let servers =
        [Entry::scripted("noisy", &["--tag", "$TAG"]), Entry::scripted("calm", &["--tag", "$TAG"])];
    let (gateway, unread) = Gateway::unheard(&servers).await;
    let client = Legacy::connect(&gateway, "/mcp").await;
    let memory = gateway.memory();
    assert_eq!(text(&client.call("noisy__noise", json!({"lines": 100_000})).await), "heard");
    client.works("calm__echo").await;
    client.works("noisy__echo").await;
    memory.grew_at_most(32 * MIB);
    drop(unread);
    gateway.stop().await;
}

#[tokio::test]
async fn a_hundred_thousand_notifications_do_not_keep_the_answer_from_its_caller() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    assert_eq!(
        text(&client.call("flood", json!({"before": 100_000, "after": 20_000})).await),
        "survived"
    );
    let flood = json!({"before": 20_000, "after": 20_000});
    assert_eq!(
        text(&modern(&gateway, "/mcp/a", "flood", flood.clone()).await.message()),
        "survived"
    );
    memory.grew_at_most(16 * MIB);
    client.works("echo").await;
    gateway.stop().await;

    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    assert_eq!(text(&client.call(1, "flood", flood).await), "survived");
    client.works().await;
    client.stop().await;
}

#[tokio::test]
async fn notifications_that_nobody_reads_are_bounded_in_bytes_too() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let flood = json!({"count": 30, "bytes": 2 << 20});
    let request =
        modern_request(1, "tools/call", json!({"name": "big_notifications", "arguments": flood}));
    let headers = modern_headers(&request);
    let headers: Vec<_> =
        headers.iter().skip(1).map(|(name, value)| (*name, value.as_str())).collect();
    let _modern = http::unread(gateway.address, "/mcp/a", &headers, &request.to_string()).await;
    let call = tool_call(1, "big_notifications", flood).to_string();
    let _legacy = http::unread(gateway.address, "/mcp/a", &client.headers(), &call).await;
    // The server works on one after the other: this comes after the flood.
    client.works("echo").await;
    let answer = modern(&gateway, "/mcp/a", "echo", json!({"text": "still here"})).await.message();
    assert_eq!(text(&answer), "still here");
    memory.grew_at_most(5 * FROM_SERVER);
    gateway.stop().await;
}

#[tokio::test]
async fn answers_under_foreign_ids_are_passed_over() {
    let (gateway, client) = started().await;
    assert_eq!(text(&client.call("wrong_id", json!({})).await), "for you");
    assert_eq!(text(&client.call("twice", json!({})).await), "first");
    client.works("echo").await;
    gateway.stop().await;

    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    assert_eq!(text(&client.call(1, "twice", json!({})).await), "first");
    // The next line is the answer to the next call, not the second one to the last.
    client.say(&tool_call(2, "echo", json!({"text": "next"}))).await;
    assert_eq!(text(&client.hear().await), "next");
    client.stop().await;
}

#[tokio::test]
async fn a_server_that_pings_and_does_not_listen_costs_a_bounded_amount() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    assert_eq!(text(&client.call("pings", json!({"count": 50_000})).await), "pinged");
    memory.grew_at_most(16 * MIB);
    Legacy::connect(&gateway, "/mcp/a").await.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_asks_and_asks_costs_a_bounded_amount() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let call = tool_call(1, "questions", json!({"count": 60, "bytes": 1 << 20})).to_string();
    let unread = http::unread(gateway.address, "/mcp/a", &client.headers(), &call).await;
    client.works("echo").await;
    drop(unread);
    // One that takes the questions and answers none.
    let asked = client.call("questions", json!({"count": 30, "bytes": 1 << 20})).await;
    assert_eq!(text(&asked), "asked");
    memory.grew_at_most(40 * MIB);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_listen_does_not_hold_up_the_others() {
    let servers =
        [Entry::scripted("deaf", &["--tag", "$TAG"]), Entry::scripted("calm", &["--tag", "$TAG"])];
    let gateway = Gateway::serve(&servers).await;
    let client = Legacy::connect(&gateway, "/mcp").await;
    assert_eq!(text(&client.call("deaf__deaf", json!({})).await), "deaf from now on");
    // More than its queue and its pipe can hold.
    let padding = "x".repeat(4096);
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed", "params": {"pad": padding}});
    for _ in 0..150 {
        assert_eq!(client.post(changed.to_string()).await.status, 202);
    }
    client.works("calm__echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn calls_called_off_on_a_server_that_does_not_listen_cost_a_bounded_amount() {
    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    assert_eq!(text(&client.call("deaf", "deaf", json!({})).await), "deaf from now on");
    let memory = client.memory();
    for number in 0..10_000 {
        let call = tool_call(number, "echo", json!({"text": "x".repeat(100)})).to_string();
        let off = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}});
        client.write(format!("{call}\n{off}\n").as_bytes()).await;
    }
    // Answered by the gateway, so everything before it was read; calls that were called off count
    // until they have ended.
    within(15, "they have ended", async {
        loop {
            client.say(&initialize()).await;
            let answer = client.answer(&json!(0)).await;
            match answer["error"]["message"].as_str().unwrap_or_default() {
                "this session is initialized already" => return,
                told => assert_eq!(told, "over 1024 calls are under way", "{answer}"),
            }
        }
    })
    .await;
    memory.grew_at_most(16 * MIB);
    client.stop().await;
}
