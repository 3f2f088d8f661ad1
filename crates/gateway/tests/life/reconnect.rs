//! Servers that do not come back, or come back too often.

use std::time::Duration;

use serde_json::json;

use crate::kit::{Entry, Gateway, Legacy, text, until};
use crate::{Ledger, count, failed, leave};

#[tokio::test]
async fn after_the_limit_calls_fail_for_good_until_a_new_client_comes() {
    let ledger = Ledger::new();
    let ready = ledger.path.with_file_name("ready");
    let args = ["--tag", "$TAG", "--ledger", ledger.path(), "--needs", ready.to_str().unwrap()];
    let settings = "[reconnect]\nbase = \"10ms\"\nmax = \"20ms\"\nattempts = 3";
    let gateway = Gateway::serve_with(
        settings,
        &[Entry::scripted("a", &args), Entry::scripted("b", &["--tag", "$TAG"])],
    )
    .await;
    let client = Legacy::connect(&gateway, "/mcp").await;
    for _ in 0..2 {
        let answer = client.call("a__echo", json!({"text": "x"})).await;
        let failure = failed(&answer);
        assert_eq!(
            (&failure["code"], &failure["retryable"]),
            (&json!("RETRY_EXHAUSTED"), &json!(false)),
            "{answer}"
        );
        assert_eq!(failure["mayHaveExecuted"], false);
        assert!(
            failure["message"]
                .as_str()
                .unwrap()
                .contains("Maximum reconnection attempts (3) reached"),
            "{answer}"
        );
    }
    // The first try and three more, for the handshake in each era.
    let starts = ledger.count("start");
    assert!((4..=8).contains(&starts), "{starts}");
    client.works("b__echo").await;
    assert_eq!(ledger.count("start"), starts, "a server that was given up is left alone");
    for attempt in 1..=3 {
        until(5, "each is told", async || gateway.said(&format!("; attempt {attempt} in "))).await;
    }

    std::fs::write(&ready, "").unwrap();
    leave(&client).await;
    Legacy::connect(&gateway, "/mcp").await.works("a__echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn how_long_calls_wait_is_the_operators_choice() {
    let ledger = Ledger::new();
    let ready = ledger.path.with_file_name("ready");
    let args = ["--tag", "$TAG", "--needs", ready.to_str().unwrap(), "--ledger", ledger.path()];
    for (wait, code) in [("0s", "CONNECTION_LOST"), ("30s", "")] {
        let _gone = std::fs::remove_file(&ready);
        let settings = format!("[reconnect]\nbase = \"50ms\"\nmax = \"50ms\"\nwait = \"{wait}\"");
        let gateway = Gateway::serve_with(&settings, &[Entry::scripted("a", &args)]).await;
        let client = Legacy::connect(&gateway, "/mcp/a").await;
        let call = client.call("echo", json!({"text": "here"}));
        let come = async {
            let before = ledger.count("start");
            until(20, "it was tried some more", async || ledger.count("start") >= before + 4).await;
            std::fs::write(&ready, "").unwrap();
        };
        let (answer, ()) = tokio::join!(call, come);
        match code {
            "" => assert_eq!(text(&answer), "here"),
            code => assert_eq!(failed(&answer)["code"], code),
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_shakes_hands_and_dies_is_not_started_faster_than_the_backoff() {
    let ledger = Ledger::new();
    let servers = [
        Entry::scripted("loop", &["--tag", "$TAG", "--mortal", "--ledger", ledger.path()]),
        Entry::scripted("calm", &["--tag", "$TAG"]),
    ];
    let gateway = Gateway::serve(&servers).await;
    let client = Legacy::connect(&gateway, "/mcp").await;
    until(5, "the first start", async || ledger.count("start") > 0).await;
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_secs(10) {
        // A client that asks for everything all the time changes nothing about it.
        client.request("tools/list", json!({})).await;
        client.works("calm__echo").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // At 0, 0.5, 1.5, 3.5 and 7.5 s, give or take.
    let starts = ledger.count("start");
    assert!((3..=6).contains(&starts), "{starts} starts in 10 s");
    let lines = gateway.log.lock().unwrap().len();
    assert!(lines < 40, "{lines} lines in the log");
    gateway.stop().await;
}

#[tokio::test]
async fn many_clients_of_a_server_that_dies_do_not_make_it_wait_longer_than_one() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let clients =
        futures_util::future::join_all((0..12).map(|_| Legacy::connect(&gateway, "/mcp/a"))).await;
    // None was of use yet, so that nothing speaks for the server.
    for pid in crate::kit::process::processes(gateway.tag()) {
        crate::kill(pid);
    }
    let began = tokio::time::Instant::now();
    until(10, "all are missed", async || count(&gateway, "a: its process ended (signal: 9") == 12)
        .await;
    futures_util::future::join_all(clients.iter().map(|client| client.works("echo"))).await;
    // Twelve deaths in a row would be a wait of a minute.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    gateway.stop().await;
}
