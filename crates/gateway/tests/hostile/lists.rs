//! Lists without measure on the endpoint of several servers: each server costs its own entries
//! only, and is named.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::kit::{Entry, Gateway, Legacy, MIB, failure, http, shown, within};

/// A hostile server next to a calm one.
async fn started(hostile: &[&str]) -> (Gateway, Legacy) {
    let args = [&["--tag", "$TAG"], hostile].concat();
    let gateway =
        Gateway::serve(&[Entry::scripted("a", &args), Entry::scripted("b", &["--tag", "$TAG"])])
            .await;
    let client = Legacy::connect(&gateway, "/mcp").await;
    (gateway, client)
}

/// All pages of the merged list: the names, and what the first page says about the hostile server.
async fn listed(client: &Legacy) -> (Vec<String>, Value) {
    let mut names = Vec::new();
    let mut params = json!({});
    let mut trouble = None;
    for _ in 0..10 {
        let answer = client.request("tools/list", params.clone()).await;
        let result = &answer["result"];
        let tools = result["tools"].as_array().unwrap_or_else(|| panic!("{}", shown(&answer)));
        names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
        trouble.get_or_insert_with(|| result["_meta"]["seawall/servers"]["a"].clone());
        match &result["nextCursor"] {
            Value::Null => return (names, trouble.unwrap()),
            cursor => params = json!({"cursor": cursor}),
        }
    }
    panic!("the merged list has no end");
}

/// The list of `a` ends with this many tools and this warning, none stands twice, and `b` is whole.
async fn cut_short(hostile: &[&str], tools: usize, warning: &str) {
    let (gateway, client) = started(hostile).await;
    let memory = gateway.memory();
    let (names, trouble) = within(30, "the list", listed(&client)).await;
    memory.grew_at_most(64 * MIB);
    assert!(
        trouble["reason"].as_str().is_some_and(|reason| reason.contains(warning)),
        "{hostile:?}: {trouble}"
    );
    let of_a = names.iter().filter(|name| name.starts_with("a__")).count();
    assert_eq!((of_a, names.last().map(String::as_str)), (tools, Some("b__echo")));
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len(), "a tool stands twice");
    client.works("a__echo").await;
    client.works("b__echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_offers_two_thousand_tools_and_no_more() {
    cut_short(&["--tools", "5000"], 2_000, "more than 2000").await;
}

#[tokio::test]
async fn a_list_of_huge_schemas_is_cut_short() {
    // 50 pages of 16 tools of 128 KiB are 100 MiB; four of them are read.
    let huge = ["--tools", "16", "--tool-bytes", "131072", "--pages", "50"];
    cut_short(&huge, 31, "larger than 4194304 bytes").await;
}

#[tokio::test]
async fn cursors_that_go_in_circles_are_noticed() {
    cut_short(&["--pages", "3", "--tools", "2", "--cursor-loop"], 6, "its pages go in circles")
        .await;
}

#[tokio::test]
async fn a_list_of_a_million_pages_ends_after_fifty() {
    cut_short(&["--pages", "1000000"], 50, "more than 50 pages").await;
}

#[tokio::test]
async fn a_cursor_that_is_null_is_none() {
    let (gateway, client) = started(&["--tools", "3", "--cursor-null"]).await;
    let (names, trouble) = listed(&client).await;
    assert_eq!((names.len(), trouble), (4, Value::Null), "{names:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_never_answers_does_not_keep_the_others_from_the_client() {
    let servers = [
        Entry::scripted("mute", &["--tag", "$TAG", "--mute"]),
        Entry::scripted("b", &["--tag", "$TAG"]),
    ];
    let gateway = Gateway::serve(&servers).await;
    let client = within(25, "the handshake", Legacy::connect(&gateway, "/mcp")).await;
    client.works("b__echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_refusal_of_a_mebibyte_is_shown_by_its_beginning() {
    let servers =
        [Entry::scripted("a", &["--refuse", "1048576"]), Entry::scripted("b", &["--tag", "$TAG"])];
    let gateway = Gateway::serve(&servers).await;
    let info =
        http::post(gateway.address, "/mcp", &[], crate::kit::client::initialize().to_string())
            .await;
    let told = info.message()["result"]["instructions"].as_str().unwrap().to_owned();
    assert!(
        told.starts_with("**MCP servers that failed to load (tools unavailable — needs attention):** a: refused the handshake: refused"),
        "{told:.200}"
    );
    assert!(told.len() < 1_000, "{}", told.len());
    let client = Legacy::connect(&gateway, "/mcp").await;
    let answer = client.call("a__echo", json!({})).await;
    assert!(failure(&answer).len() < 1_000);
    client.works("b__echo").await;
    gateway.stop().await;
}
