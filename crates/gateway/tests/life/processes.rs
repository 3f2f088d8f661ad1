//! As many processes as the gateway starts: those that nobody uses give way.

use std::time::Duration;

use serde_json::json;

use crate::kit::process::processes;
use crate::kit::{Entry, Gateway, Legacy, text, until};

/// The most that a gateway starts.
const MOST: usize = 256;

#[tokio::test]
async fn sessions_that_nobody_uses_do_not_keep_others_from_their_servers() {
    let names: Vec<String> = (0..32).map(|number| format!("s{number}")).collect();
    let servers: Vec<Entry> =
        names.iter().map(|name| Entry::scripted(name, &["--tag", "$TAG"])).collect();
    let gateway = Gateway::serve(&servers).await;
    let mut abandoned = Vec::new();
    for number in 1..=MOST / names.len() {
        abandoned.push(Legacy::connect(&gateway, "/mcp").await);
        until(60, "all are started", async || {
            processes(gateway.tag()).len() == number * names.len()
        })
        .await;
    }

    let client = Legacy::connect(&gateway, "/mcp").await;
    for name in &names {
        let tool = format!("{name}__echo");
        until(30, "its server is there", async || {
            client.call(&tool, json!({"text": "here"})).await["result"]["isError"].is_null()
        })
        .await;
    }
    assert!(processes(gateway.tag()).len() <= MOST);
    assert!(gateway.said("is stopped, as there is no room for another"));
    // Whose process gave way gets it back with the next call.
    until(30, "it is there again", async || {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let answer = abandoned[0].call("s0__echo", json!({"text": "back"})).await;
        answer["result"]["isError"].is_null() && text(&answer) == "back"
    })
    .await;
    gateway.stop().await;
}
