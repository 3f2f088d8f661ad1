//! Processes that do not want to go, and those they start: all of them end when their conversation
//! does.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::kit::client::initialize;
use crate::kit::process::processes;
use crate::kit::{Entry, Gateway, Legacy, Stdio, failure, http, text, until, within};

const STUBBORN: [&str; 6] = ["--tag", "$TAG", "--ignore-term", "--ignore-eof", "--forks", "3"];

#[tokio::test]
async fn a_hangup_is_told_and_ends_nothing() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    for _ in 0..3 {
        kill_process(Pid::from_raw(gateway.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
        client.works("echo").await;
    }
    until(5, "it is told", async || {
        gateway.said("SIGHUP: the configuration was read again: nothing changed")
    })
    .await;
    gateway.stop().await;
    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    kill_process(Pid::from_raw(client.pid().cast_signed()).unwrap(), Signal::HUP).unwrap();
    client.works().await;
    client.works().await;
    assert!(client.stop().await.success());
}

#[tokio::test]
async fn a_process_that_minds_nothing_ends_with_its_session() {
    let gateway = Gateway::serve(&[
        Entry::scripted("a", &STUBBORN),
        Entry::scripted("b", &["--tag", "$TAG"]),
    ])
    .await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;
    until(5, "all have started", async || processes(gateway.tag()).len() == 4).await;
    let response = http::send(
        client.address,
        ::http::Method::DELETE,
        &client.path,
        &client.headers(),
        Default::default(),
    )
    .await;
    assert_eq!(response.status(), 200);
    until(8, "the processes are gone", async || processes(gateway.tag()).is_empty()).await;
    Legacy::connect(&gateway, "/mcp/b").await.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn processes_that_mind_nothing_end_with_the_gateway() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &STUBBORN)]).await;
    for _ in 0..3 {
        Legacy::connect(&gateway, "/mcp/a").await.works("echo").await;
    }
    until(5, "all have started", async || processes(gateway.tag()).len() == 12).await;
    gateway.stop().await;
}

#[tokio::test]
async fn processes_that_mind_nothing_end_with_their_client_on_stdio() {
    let mut client = Stdio::ready(&STUBBORN).await;
    client.works().await;
    // The word stands in the gateway's own command line too.
    until(5, "all have started", async || processes(client.tag()).len() == 1 + 4).await;
    assert!(client.stop().await.success());
}

#[tokio::test]
async fn a_process_that_ends_fails_its_call_and_another_takes_its_place() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    for n in 0..3 {
        let answer = client.call("exit", json!({ "n": n })).await;
        assert!(
            failure(&answer)
                .contains("(\"its process ended (exit status: 3)\"). It may have been executed."),
            "{answer}"
        );
        client.works("echo").await;
    }
    until(5, "one process is left", async || processes(gateway.tag()).len() == 1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_process_that_ends_is_noticed_though_its_child_holds_the_pipe() {
    let gateway =
        Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG", "--ignore-term"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let answer = within(10, "the failure", client.call("orphan", json!({}))).await;
    assert!(failure(&answer).contains("its process ended (exit status: 3)"), "{answer}");
    client.works("echo").await;
    until(5, "one process is left", async || processes(gateway.tag()).len() == 1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_handshake_leaves_no_process() {
    let mute = ["--tag", "$TAG", "--mute", "--ignore-eof", "--ignore-term"];
    let mute = Entry::scripted("mute", &mute).with("keep_warm = \"0s\"");
    let gateway = Gateway::serve(&[mute, Entry::scripted("b", &["--tag", "$TAG"])]).await;
    let body = initialize().to_string();
    let mut seen = HashSet::new();
    for _ in 0..10 {
        let mut tcp = TcpStream::connect(gateway.address).await.unwrap();
        let head =
            "POST /mcp/mute HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        tcp.write_all(request.as_bytes()).await.unwrap();
        until(5, "a process starts", async || {
            let before = seen.len();
            seen.extend(processes(gateway.tag()));
            seen.len() > before
        })
        .await;
    }
    until(10, "the processes are gone", async || processes(gateway.tag()).is_empty()).await;
    Legacy::connect(&gateway, "/mcp/b").await.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_shared_server_that_died_three_times_says_things_once() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"]).shared()]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    for _ in 0..3 {
        failure(&client.call("exit", json!({})).await);
        client.works("echo").await;
    }
    let heard = client.begin(1, "list_changed", json!({})).await;
    assert_eq!(text(&http::whole(heard).await.message()), "said");
    let general = http::send(
        client.address,
        ::http::Method::GET,
        &client.path,
        &client.headers(),
        Default::default(),
    )
    .await;
    let response = http::send(
        client.address,
        ::http::Method::DELETE,
        &client.path,
        &client.headers(),
        Default::default(),
    )
    .await;
    assert_eq!(response.status(), 200);
    let changes = http::whole(general).await.messages();
    let changes =
        changes.iter().filter(|message| message["method"] == "notifications/tools/list_changed");
    assert_eq!(changes.count(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_that_is_told_to_go_during_a_handshake_leaves_nothing() {
    let mute = [&STUBBORN, ["--mute"].as_slice()].concat();
    let gateway = Gateway::serve(&[Entry::scripted("mute", &mute)]).await;
    let body = initialize().to_string();
    let _waiting = http::unread(gateway.address, "/mcp/mute", &[], &body).await;
    until(5, "all processes run", async || processes(gateway.tag()).len() == 4).await;
    gateway.stop().await;
}
