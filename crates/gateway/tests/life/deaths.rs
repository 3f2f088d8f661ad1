//! Servers that die: the client keeps its session, its state and its tools, and is told what happened.

use serde_json::json;

use crate::kit::process::processes;
use crate::kit::{Entry, Gateway, Legacy, Stdio, text, until};
use crate::{Ledger, failed, kill};

#[tokio::test]
async fn p1_a_dead_server_is_respawned_and_the_session_goes_on() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].clone();
    client.request("logging/setLevel", json!({"level": "debug"})).await;
    client.request("resources/subscribe", json!({"uri": "file:///a"})).await;

    let lost = client.call("write_and_exit", json!({"text": "once"})).await;
    assert_eq!((&failed(&lost)["code"], &failed(&lost)["mayHaveExecuted"]), (&json!("CONNECTION_LOST"), &json!(true)));
    assert_eq!(text(&client.call("write", json!({"text": "twice"})).await), "written");

    assert_eq!(client.request("tools/list", json!({})).await["result"]["tools"], tools);
    assert_eq!((ledger.count("write once"), ledger.count("write twice"), ledger.count("hello")), (1, 1, 2));
    assert_eq!(ledger.count(r#""logging/setLevel" {"level":"debug"}"#), 2, "{:?}", ledger.lines());
    assert_eq!(ledger.count(r#""resources/subscribe" {"uri":"file:///a"}"#), 2, "{:?}", ledger.lines());
    gateway.stop().await;
}

#[tokio::test]
async fn p1_a_fresh_server_asks_for_the_roots_again_and_the_client_hears_it() {
    let ledger = Ledger::new();
    let mut client = Stdio::ready(&["--tag", "$TAG", "--asks-roots", "--ledger", ledger.path()]).await;
    for round in 1..=2 {
        let question = loop {
            let message = client.hear().await;
            if message["method"] == "roots/list" {
                break message["id"].clone();
            }
        };
        client.say(&json!({"jsonrpc": "2.0", "id": question, "result": {"roots": [{"uri": "file:///w"}]}})).await;
        let told = || ledger.count(r#"roots [{"uri":"file:///w"}]"#);
        until(10, "the server knows the roots", async || told() == round).await;
        if round == 1 {
            client.call("exit", "exit", json!({})).await;
        }
    }
    client.works().await;
    client.stop().await;
}

#[tokio::test]
async fn p5_calls_under_way_are_answered_at_once_with_the_signal_that_ended_their_server() {
    let ledger = Ledger::new();
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let calls = futures_util::future::join_all((0..3).map(|_| client.call("hang", json!({"text": "x"}))));
    let killing = async {
        until(10, "three calls are under way", async || ledger.count("hang x") == 3).await;
        kill(processes(gateway.tag())[0]);
        tokio::time::Instant::now()
    };
    let (answers, killed) = tokio::join!(calls, killing);
    assert!(killed.elapsed().as_millis() < 2_000, "{:?}", killed.elapsed());
    for answer in &answers {
        assert_eq!(
            (&failed(answer)["code"], &failed(answer)["mayHaveExecuted"]),
            (&json!("CONNECTION_LOST"), &json!(true))
        );
        assert!(failed(answer)["message"].as_str().unwrap().contains("signal: 9 (SIGKILL)"), "{answer}");
    }
    // P10: the operator reads it too.
    until(5, "the end is told", async || gateway.said("a: its process ended (signal: 9 (SIGKILL))")).await;
    gateway.stop().await;
}

#[tokio::test]
async fn p11_a_banner_on_stdout_is_skipped_and_counted() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG", "--noise"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(text(&client.call("noise", json!({"lines": 100})).await), "heard");
    client.call("exit", json!({})).await;
    // Nine lines at the start, nine more and a hundred when it was told to make noise.
    let told = "a: its process ended (exit status: 3); 118 lines on its stdout were no messages and were skipped";
    until(5, "the noise is counted", async || gateway.said(told)).await;
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_answer_under_a_wrong_id_is_counted_and_given_to_nobody() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let waiting = client.begin(1, "only_wrong_id", json!({}));
    let meanwhile = async {
        until(5, "it is told", async || {
            gateway.said("a: answered under an id that nothing was asked with (99999999); passed over")
        })
        .await;
        client.works("echo").await;
        // Late and double answers are no news.
        assert_eq!(text(&client.call("twice", json!({})).await), "first");
        client.call("exit", json!({})).await;
    };
    let (answer, ()) = tokio::join!(waiting, meanwhile);
    let answer = crate::kit::http::whole(answer).await.message();
    assert_eq!(failed(&answer)["code"], "CONNECTION_LOST", "it waited until its server died: {answer}");
    gateway.stop().await;
}
