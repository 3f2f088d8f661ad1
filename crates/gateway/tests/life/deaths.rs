//! Servers that die: the client keeps its session, its state and its tools, and is told what
//! happened.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::kit::process::processes;
use crate::kit::{Entry, Gateway, Legacy, Stdio, text, until};
use crate::{AT_ONCE, Ledger, ONCE, count, failed, kill};

/// Servers come back within moments.
const SOON: &str = "[reconnect]\nbase = \"20ms\"\nmax = \"100ms\"";

#[tokio::test]
async fn a_dead_server_is_respawned_and_the_session_goes_on() {
    let ledger = Ledger::new();
    let gateway =
        Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()])])
            .await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let tools = client.request("tools/list", json!({})).await["result"]["tools"].clone();
    client.request("logging/setLevel", json!({"level": "debug"})).await;
    client.request("resources/subscribe", json!({"uri": "file:///a"})).await;

    let lost = client.call("write_and_exit", json!({"text": "once"})).await;
    assert_eq!(
        (&failed(&lost)["code"], &failed(&lost)["mayHaveExecuted"]),
        (&json!("CONNECTION_LOST"), &json!(true))
    );
    assert_eq!(text(&client.call("write", json!({"text": "twice"})).await), "written");

    assert_eq!(client.request("tools/list", json!({})).await["result"]["tools"], tools);
    assert_eq!(
        (ledger.count("write once"), ledger.count("write twice"), ledger.count("hello")),
        (1, 1, 2)
    );
    assert_eq!(ledger.count(r#""logging/setLevel" {"level":"debug"}"#), 2, "{:?}", ledger.lines());
    assert_eq!(
        ledger.count(r#""resources/subscribe" {"uri":"file:///a"}"#),
        2,
        "{:?}",
        ledger.lines()
    );
    gateway.stop().await;
}

#[tokio::test]
async fn one_death_with_eight_reads_under_way_is_one_failure_and_all_are_read_again() {
    let ledger = Ledger::new();
    let policies =
        format!("{SOON}\n[tools.\"a/*\"]\neffect = \"read_only\"\nretry = {{ base = \"20ms\" }}\n");
    let entry = Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()]);
    let gateway = Gateway::serve_with(&policies, &[entry]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;

    let reads =
        (0..8).map(|n| client.call("delay", json!({"ms": 1500, "text": format!("read {n}")})));
    let reads = futures_util::future::join_all(reads);
    let die = async {
        tokio::select! {
            _hangs = client.call("hang", json!({"text": "last"})) => {}
            () = until(10, "all have arrived", async || ledger.count("hang last") == 1) => {}
        }
        processes(gateway.tag()).iter().for_each(|pid| kill(*pid));
    };
    let (answers, ()) = tokio::join!(reads, die);

    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(text(answer), format!("read {n}"), "{answer}");
    }
    assert_eq!(count(&gateway, "[CircuitBreaker]"), 0);
    gateway.stop().await;
}

#[tokio::test]
async fn a_fresh_server_asks_for_the_roots_again_and_the_client_hears_it() {
    let ledger = Ledger::new();
    let mut client =
        Stdio::ready(&["--tag", "$TAG", "--asks-roots", "--ledger", ledger.path()]).await;
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
async fn five_servers_that_die_at_once_are_all_back_for_the_next_call() {
    let names = ["a", "b", "c", "d", "e"];
    let gateway =
        Gateway::serve(&names.map(|name| Entry::scripted(name, &["--tag", "$TAG"]))).await;
    let client = Legacy::connect(&gateway, "/mcp").await;
    let before = processes(gateway.tag());
    assert_eq!(before.len(), 5);
    before.iter().for_each(|pid| kill(*pid));
    until(10, "all are missed", async || count(&gateway, "; attempt 1 in ") == 5).await;
    for name in names {
        client.works(&format!("{name}__echo")).await;
    }
    until(5, "five are left", async || processes(gateway.tag()).len() == 5).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_failed_forty_times_is_still_tried_and_serves_the_same_session() {
    let ledger = Ledger::new();
    let ready = ledger.path.with_file_name("ready");
    let args = ["--tag", "$TAG", "--ledger", ledger.path(), "--needs", ready.to_str().unwrap()];
    let entry = Entry::scripted("a", &args);
    let gateway =
        Gateway::serve_with("[reconnect]\nbase = \"5ms\"\nmax = \"20ms\"\nwait = \"0s\"", &[entry])
            .await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    until(30, "forty starts", async || ledger.count("start") >= 40).await;
    let refused = client.call("echo", json!({"text": "now?"})).await;
    assert_eq!(
        (&failed(&refused)["code"], &failed(&refused)["mayHaveExecuted"]),
        (&json!("CONNECTION_LOST"), &json!(false))
    );
    until(5, "it is told", async || gateway.said(" WARN a failed 10 times in a row")).await;

    std::fs::write(&ready, "").unwrap();
    until(10, "it is back", async || {
        client.call("echo", json!({"text": "x"})).await["result"]["isError"].is_null()
    })
    .await;
    gateway.stop().await;
}

#[tokio::test]
async fn calls_under_way_are_answered_at_once_with_the_signal_that_ended_their_server() {
    let ledger = Ledger::new();
    let gateway =
        Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()])])
            .await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let calls = futures_util::future::join_all(
        (0..3).map(|n| client.call("hang", json!({"text": "x", "n": n}))),
    );
    let killing = async {
        until(10, "three calls are under way", async || ledger.count("hang x") == 3).await;
        kill(processes(gateway.tag())[0]);
        tokio::time::Instant::now()
    };
    let (answers, killed) = tokio::join!(calls, killing);
    assert!(killed.elapsed() < AT_ONCE, "{:?}", killed.elapsed());
    for answer in &answers {
        assert_eq!(
            (&failed(answer)["code"], &failed(answer)["mayHaveExecuted"]),
            (&json!("CONNECTION_LOST"), &json!(true))
        );
        assert!(
            failed(answer)["message"].as_str().unwrap().contains("signal: 9 (SIGKILL)"),
            "{answer}"
        );
    }
    // The operator reads it too.
    until(5, "the end is told", async || {
        gateway.said("a: its process ended (signal: 9 (SIGKILL))")
    })
    .await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_banner_on_stdout_is_skipped_and_counted() {
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

/// A server whose two children leave its process group, where they are found even so.
const FORKS: &[&str] = &[
    "--tag",
    "$TAG",
    "--forks",
    "2",
    #[cfg(not(seawall_portable))]
    "--setsid",
];

#[tokio::test]
async fn thirty_deaths_leave_no_process_and_no_descriptor() {
    let gateway = Gateway::serve_with(SOON, &[Entry::scripted("a", FORKS)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    client.works("echo").await;
    until(5, "all have started", async || processes(gateway.tag()).len() == 3).await;
    let before = descriptors();
    for _ in 0..30 {
        client.call("exit", json!({})).await;
        client.works("echo").await;
    }
    until(10, "three are left", async || processes(gateway.tag()).len() == 3).await;
    until(10, "descriptors are given back", async || descriptors() <= before + 2).await;
    until(5, "none is left unburied", async || zombies(gateway.pid()) == 0).await;
    gateway.stop().await;
}

fn zombies(parent: u32) -> usize {
    let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        Some(stat.rsplit_once(") ")?.1.to_owned())
    });
    stats.filter(|stat| stat.starts_with(&format!("Z {parent} "))).count()
}

#[tokio::test]
async fn an_answer_under_a_wrong_id_is_counted_and_given_to_nobody() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let waiting = client.begin(1, "only_wrong_id", json!({}));
    let meanwhile = async {
        until(5, "it is told", async || {
            gateway
                .said("a: answered under an id that nothing was asked with (99999999); passed over")
        })
        .await;
        client.works("echo").await;
        // Late and double answers are no news.
        assert_eq!(text(&client.call("twice", json!({})).await), "first");
        client.call("exit", json!({})).await;
    };
    let (answer, ()) = tokio::join!(waiting, meanwhile);
    let answer = crate::kit::http::whole(answer).await.message();
    assert_eq!(
        failed(&answer)["code"],
        "CONNECTION_LOST",
        "it waited until its server died: {answer}"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_process_that_hangs_for_ever_is_pinged_and_replaced() {
    let policies = format!("{ONCE}timeout = \"2s\"\n{SOON}\n");
    let gateway = Gateway::serve_with(&policies, &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;
    let hung = processes(gateway.tag());
    for pid in &hung {
        kill_process(Pid::from_raw(*pid).unwrap(), Signal::STOP).unwrap();
    }
    let lost = client.call("echo", json!({"text": "lost"})).await;
    assert_eq!(
        (&failed(&lost)["code"], &failed(&lost)["mayHaveExecuted"]),
        (&json!("TIMEOUT"), &json!(true)),
        "{lost}"
    );
    let mut calls = 0;
    until(20, "another one serves", async || {
        calls += 1;
        client.call("echo", json!({"text": format!("{calls}")})).await["result"]["isError"]
            .is_null()
    })
    .await;
    assert!(gateway.said("not even a ping, and is replaced"), "{:?}", gateway.log.lock().unwrap());
    until(10, "the hung one is gone", async || {
        let running = processes(gateway.tag());
        !running.is_empty() && hung.iter().all(|pid| !running.contains(pid))
    })
    .await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_process_that_only_takes_long_for_a_call_is_not_replaced() {
    let policies = format!("{ONCE}timeout = \"2s\"\n{SOON}\n");
    let gateway = Gateway::serve_with(&policies, &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;
    let before = processes(gateway.tag());
    let slow = client.call("delay", json!({"ms": 15_000, "text": "late"})).await;
    assert_eq!(failed(&slow)["code"], "TIMEOUT", "{slow}");
    // Longer than two pings take.
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    client.works("echo").await;
    assert_eq!(processes(gateway.tag()), before);
    gateway.stop().await;
}
