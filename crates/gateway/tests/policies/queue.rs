//! Writes that wait: kept through a crash, made once, in order, and read by whoever asked for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::kit::{Served, Session, Wrapped, program, soon, until};
use super::server::{End, Faulty, call, failure, text};

/// A server that is too busy until it is told to be well: what it refuses so was certainly not
/// executed.
async fn busy() -> (Faulty, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let looked = Arc::clone(&is_well);
    let server = Faulty::start(move |_, _, with| {
        match (looked.load(Ordering::SeqCst), with["how"].as_str()) {
            (true, _) => End::Text("made"),
            (false, Some("reset")) => End::Reset,
            (false, _) => End::Status("429 Too Many Requests", "", ""),
        }
    })
    .await;
    (server, is_well)
}

fn policies(folder: &TempDir) -> String {
    let path = folder.path().display();
    format!(
        "[store]\npath = \"{path}\"\n[defaults]\nretry = {{ base = \"20ms\" }}\nbreaker = {{ failures = 0 }}\n"
    )
}

/// What became of a call, as its client reads it.
async fn became(session: &Session<'_>, resource: &str) -> Value {
    let answer = session.ask(60, "resources/read", json!({"uri": resource})).await;
    match answer["result"]["contents"][0]["text"].as_str() {
        Some(text) => serde_json::from_str(text).unwrap(),
        None => answer,
    }
}

#[tokio::test]
async fn a_write_that_certainly_did_not_run_waits_and_is_made_once_and_its_client_reads_the_result()
{
    let folder = TempDir::new().unwrap();
    let (server, is_well) = busy().await;
    let served = server.served(&policies(&folder)).await;
    let (one, two) = (served.session("/mcp/gh").await, served.session("/mcp/gh").await);
    let answer = call(&one, "create_issue", json!({"title": "x"})).await;
    let queued = &answer["result"]["_meta"]["seawall/served"];
    assert_eq!(
        (&queued["by"], &queued["code"], &answer["result"]["isError"]),
        (&json!("queue"), &json!("QUEUED"), &json!(false))
    );
    let id = queued["id"].as_str().unwrap();
    let told = format!(
        "create_issue was not executed yet. It is queued as {id} and will be tried when its server answers again. In this session the same call is not sent again while it waits."
    );
    assert_eq!(text(&answer), told);
    let resource = queued["resource"].as_str().unwrap().to_owned();
    let state = became(&one, &resource).await["state"].clone();
    assert!(state == "waiting" || state == "delivering", "{state}");
    assert_eq!(became(&two, &resource).await["error"]["code"], -32602, "it is nobody else's");

    is_well.store(true, Ordering::SeqCst);
    until("it is made", async || became(&one, &resource).await["state"] == "delivered").await;
    let item = became(&one, &resource).await;
    assert_eq!(
        (&item["result"]["content"][0]["text"], &item["tool"]),
        (&json!("made"), &json!("create_issue")),
        "{item}"
    );
    let made = server.arguments("create_issue").iter().filter(|with| with["title"] == "x").count();
    assert!(made >= 3, "two tries, then at least one delivery: {made}");
}

#[tokio::test]
async fn a_write_that_waits_is_not_kept_by_the_breaker_of_another_tool() {
    let folder = TempDir::new().unwrap();
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("create_issue", 3..) => End::Text("made"),
        ("create_issue", _) => End::Status("429 Too Many Requests", "", ""),
        _ => End::Status("503 Service Unavailable", "", ""),
    })
    .await;
    let open = "[tools.\"gh/get_issue\"]\nretry = { attempts = 1 }\nbreaker = { failures = 1, cooldown = \"1h\" }\n";
    let served = server.served(&format!("{}{open}", policies(&folder))).await;
    let session = served.session("/mcp/gh").await;
    session.ask(1, "tools/list", json!({})).await;
    call(&session, "get_issue", json!({})).await;
    assert_eq!(
        failure(&call(&session, "get_issue", json!({"n": 2})).await)["code"],
        "CIRCUIT_OPEN"
    );
    let answer = call(&session, "create_issue", json!({"title": "x"})).await;
    let resource =
        answer["result"]["_meta"]["seawall/served"]["resource"].as_str().unwrap().to_owned();
    until("it is made", async || became(&session, &resource).await["state"] == "delivered").await;
    assert_eq!(
        failure(&call(&session, "get_issue", json!({"n": 3})).await)["code"],
        "CIRCUIT_OPEN",
        "still open"
    );
}

#[tokio::test]
async fn a_write_that_waits_is_not_made_beside_it_when_its_client_repeats_it() {
    let folder = TempDir::new().unwrap();
    let server = Faulty::start(|_, count, _| match count {
        1 => End::Status("429 Too Many Requests", "Retry-After: 3600\r\n", ""),
        _ => End::Text("made"),
    })
    .await;
    let served = server.served(&policies(&folder)).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({"title": "x"})).await;
    let id = answer["result"]["_meta"]["seawall/served"]["id"].as_str().expect("queued").to_owned();

    let again = call(&session, "create_issue", json!({"title": "x"})).await;

    assert_eq!(failure(&again)["code"], "ALREADY_QUEUED", "{again}");
    // Whether it waits or is being tried at this very moment is for the queue to say.
    let told = format!("create_issue was not sent: the same call is queued as {id} and is ");
    assert!(text(&again).starts_with(&told), "{again}");
    assert_eq!(server.calls("create_issue"), 1);
}

#[tokio::test]
async fn what_waits_is_made_after_a_cool_down_though_nobody_calls_what_failed() {
    let folder = TempDir::new().unwrap();
    let (server, is_well) = busy().await;
    let served =
        server.served(&policies(&folder).replace("failures = 0", "cooldown = \"300ms\"")).await;
    let session = served.session("/mcp/gh").await;
    for number in 0..2 {
        call(&session, "get_issue", json!({"how": "reset", "n": number})).await;
    }
    assert_eq!(server.calls("get_issue"), 5, "its breaker is open");
    let answer = call(&session, "create_issue", json!({"title": "x"})).await;
    let resource = answer["result"]["_meta"]["seawall/served"]["resource"]
        .as_str()
        .expect("queued")
        .to_owned();

    is_well.store(true, Ordering::SeqCst);

    until("it is made", async || became(&session, &resource).await["state"] == "delivered").await;
}

#[tokio::test]
async fn what_was_read_before_a_write_that_waited_is_not_fresh_after_it() {
    let folder = TempDir::new().unwrap();
    let (server, is_well) = busy().await;
    is_well.store(true, Ordering::SeqCst);
    let fresh = "[tools.\"gh/list_issues\"]\ncache = { ttl = \"1h\" }\n";
    let served = server.served(&format!("{}{fresh}", policies(&folder))).await;
    let session = served.session("/mcp/gh").await;
    call(&session, "list_issues", json!({})).await;
    is_well.store(false, Ordering::SeqCst);
    let answer = call(&session, "create_issue", json!({"title": "x"})).await;
    let resource = answer["result"]["_meta"]["seawall/served"]["resource"]
        .as_str()
        .expect("queued")
        .to_owned();
    call(&session, "list_issues", json!({})).await;
    assert_eq!(server.calls("list_issues"), 1, "nothing was written yet");

    is_well.store(true, Ordering::SeqCst);
    until("it is made", async || became(&session, &resource).await["state"] == "delivered").await;

    call(&session, "list_issues", json!({})).await;
    assert_eq!(server.calls("list_issues"), 2);
}

#[tokio::test]
async fn a_write_that_asks_back_when_it_is_made_is_not_said_to_be_delivered() {
    let folder = TempDir::new().unwrap();
    let server = Faulty::start(|_, count, _| match count {
        1 | 2 => End::Status("429 Too Many Requests", "", ""),
        _ => End::Result(json!({"resultType": "input_required", "inputRequests": {}})),
    })
    .await;
    let served = server.served(&policies(&folder)).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({})).await;
    let resource = answer["result"]["_meta"]["seawall/served"]["resource"]
        .as_str()
        .expect("queued")
        .to_owned();
    until("it is over", async || became(&session, &resource).await["state"] == "dead").await;
    let item = became(&session, &resource).await;
    let note = "may have been executed: it asks for something, and nobody is there to answer";
    assert_eq!((&item["note"], &item["mayHaveExecuted"]), (&json!(note), &json!(true)), "{item}");
}

#[tokio::test]
async fn a_write_that_waits_keeps_the_pause_that_its_server_asked_for() {
    let folder = TempDir::new().unwrap();
    let server =
        Faulty::start(|_, _, _| End::Status("429 Too Many Requests", "Retry-After: 3600\r\n", ""))
            .await;
    let served = server.served(&policies(&folder)).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({})).await;
    let resource = answer["result"]["_meta"]["seawall/served"]["resource"]
        .as_str()
        .expect("queued")
        .to_owned();

    until("it was tried", async || became(&session, &resource).await["attempts"] == 1).await;
    let item = became(&session, &resource).await;
    assert_eq!((&item["state"], server.calls("create_issue")), (&json!("waiting"), 1), "{item}");
}

#[tokio::test]
async fn a_write_that_waits_takes_a_place_of_its_server_like_any_other() {
    let folder = TempDir::new().unwrap();
    let (is_well, hold) = (Arc::new(AtomicBool::new(false)), Arc::new(Semaphore::new(0)));
    let (looked, held) = (Arc::clone(&is_well), Arc::clone(&hold));
    let server = Faulty::start(move |tool, _, _| match (tool, looked.load(Ordering::SeqCst)) {
        ("create_issue", true) => End::Text("made"),
        ("create_issue", false) => End::Status("429 Too Many Requests", "", ""),
        _ => End::Held(Arc::clone(&held), "read"),
    })
    .await;
    let soon = "[tools.\"gh/create_issue\"]\ntimeout = \"1s\"\n";
    let served =
        Served::with(&server.config(&format!("{}{soon}", policies(&folder)), "concurrency = 1\n"))
            .await;
    let (session, other) = (served.session("/mcp/gh").await, served.session("/mcp/gh").await);
    let answer = call(&session, "create_issue", json!({})).await;
    let resource = answer["result"]["_meta"]["seawall/served"]["resource"]
        .as_str()
        .expect("queued")
        .to_owned();
    let mut read = std::pin::pin!(call(&other, "get_issue", json!({})));
    let tries = async || became(&session, &resource).await["attempts"].as_u64().unwrap();
    let held_up = async {
        until("the one place is taken", async || server.calls("get_issue") == 1).await;
        let (before, tried) = (server.calls("create_issue"), tries().await);
        is_well.store(true, Ordering::SeqCst);
        // One may just have ended.
        until("it was its turn, and there was no place", async || tries().await >= tried + 2).await;
        assert_eq!(server.calls("create_issue"), before);
    };
    tokio::select! {
        _ = read.as_mut() => panic!("it is held"),
        () = held_up => {}
    }

    hold.add_permits(1);
    assert_eq!(text(&read.await), "read");
    until("it is made", async || became(&session, &resource).await["state"] == "delivered").await;
}

#[tokio::test]
async fn a_write_that_a_breaker_refuses_after_closing_waits_and_is_made_with_one_attempt() {
    let folder = TempDir::new().unwrap();
    let hold = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&hold);
    let server = Faulty::start(move |tool, count, _| match (tool, count) {
        ("get_issue", 1) => End::Status("503 Service Unavailable", "", ""),
        ("get_issue", 3) => End::Held(Arc::clone(&held), "read"),
        _ => End::Text("made"),
    })
    .await;
    let path = folder.path().display();
    let shared =
        "breaker = { failures = 1, cooldown = \"5s\", slow_start = 1, scope = \"server\" }\n";
    let policies = format!(
        "[store]\npath = \"{path}\"\n[defaults]\nretry = {{ attempts = 1 }}\nloop = {{ mode = \"off\" }}\n{shared}"
    );
    let served = server.served(&policies).await;
    let (session, other) = (served.session("/mcp/gh").await, served.session("/mcp/gh").await);
    let read = async || call(&other, "get_issue", json!({})).await;
    read().await;
    until("the breaker closes", async || read().await["result"]["isError"].is_null()).await;

    let write = async {
        until("the one place is taken", async || server.calls("get_issue") == 3).await;
        let answer = call(&session, "create_issue", json!({})).await;
        let resource = answer["result"]["_meta"]["seawall/served"]["resource"]
            .as_str()
            .expect("queued")
            .to_owned();
        let item = became(&session, &resource).await;
        assert_eq!((&item["state"], &item["attempts"]), (&json!("waiting"), &json!(0)), "{item}");
        hold.add_permits(1);
        until("it is made", async || became(&session, &resource).await["state"] == "delivered")
            .await;
        became(&session, &resource).await
    };
    let (item, answer) = tokio::join!(write, read());
    assert_eq!((text(&answer), server.calls("create_issue")), ("read", 1));
    assert_eq!((&item["attempts"], &item["mayHaveExecuted"]), (&json!(1), &json!(false)), "{item}");
}

#[tokio::test]
async fn a_write_that_was_held_up_before_it_was_sent_is_not_in_doubt_when_the_gateway_ends() {
    let folder = TempDir::new().unwrap();
    let server = Faulty::start(|_, count, _| match count {
        1 => End::Status("429 Too Many Requests", "Retry-After: 50\r\n", ""),
        _ => End::Text("made"),
    })
    .await;
    // The pause fits into a delivery, and not into the call.
    let long = "[tools.\"gh/create_issue\"]\ntimeout = \"10m\"\nretry = { attempts = 1 }\n";
    let config = server.config(&format!("{}{long}", policies(&folder)), "");
    let mut served = Served::with(&config).await;
    {
        let session = served.session("/mcp/gh").await;
        let answer = call(&session, "create_issue", json!({})).await;
        assert_eq!(answer["result"]["_meta"]["seawall/served"]["code"], "QUEUED", "{answer}");
    }
    kill_process(Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap(), Signal::TERM)
        .unwrap();
    soon(served.child.wait()).await.unwrap();

    let _next = Served::with(&config).await;
    until("it is made", async || server.calls("create_issue") == 2).await;
}

#[tokio::test]
async fn a_write_that_may_be_repeated_is_not_delivered_while_its_tool_plainly_tells_of_an_outage() {
    let folder = TempDir::new().unwrap();
    let server = Faulty::start(|_, count, _| match count {
        1 | 2 => End::Status("429 Too Many Requests", "", ""),
        3 => End::ToolError("GitHub API: 503 Service Unavailable"),
        _ => End::Text("made"),
    })
    .await;
    let again = "[tools.\"gh/create_issue\"]\neffect = \"idempotent\"\n";
    let served = server.served(&format!("{}{again}", policies(&folder))).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({})).await;
    let resource = answer["result"]["_meta"]["seawall/served"]["resource"]
        .as_str()
        .expect("queued")
        .to_owned();

    until("it is made", async || became(&session, &resource).await["state"] == "delivered").await;
    let item = became(&session, &resource).await;
    assert_eq!(
        (&item["result"]["content"][0]["text"], server.calls("create_issue")),
        (&json!("made"), 4),
        "{item}"
    );
}

#[tokio::test]
async fn what_may_have_run_is_never_queued_and_neither_is_anything_without_a_store() {
    let folder = TempDir::new().unwrap();
    let (server, _) = busy().await;
    let served = server.served(&policies(&folder)).await;
    let session = served.session("/mcp/gh").await;
    let answer = call(&session, "create_issue", json!({"how": "reset"})).await;
    assert_eq!(failure(&answer)["mayHaveExecuted"], true, "{answer}");
    let served = server.served("[defaults]\nretry = { base = \"20ms\" }\n").await;
    let session = served.session("/mcp/gh").await;
    assert_eq!(failure(&call(&session, "create_issue", json!({})).await)["code"], "RATE_LIMITED");
}

#[tokio::test]
async fn what_waits_survives_a_killed_gateway_and_is_made_in_order_by_the_next() {
    let folder = TempDir::new().unwrap();
    let (server, is_well) = busy().await;
    let mut served = server.served(&policies(&folder)).await;
    {
        let session = served.session("/mcp/gh").await;
        for number in 0..3 {
            let answer = call(&session, "create_issue", json!({"number": number})).await;
            assert_eq!(answer["result"]["_meta"]["seawall/served"]["code"], "QUEUED", "{answer}");
        }
    }
    kill_process(Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap(), Signal::KILL)
        .unwrap();
    soon(served.child.wait()).await.unwrap();

    is_well.store(true, Ordering::SeqCst);
    let before = server.calls("create_issue");
    let _next = server.served(&policies(&folder)).await;
    until("all are made", async || server.calls("create_issue") >= before + 3).await;
    let made: Vec<Value> = server.arguments("create_issue").split_off(before);
    assert_eq!(made, [json!({"number": 0}), json!({"number": 1}), json!({"number": 2})]);
}

/// A client that is the same caller each time.
async fn on_a_pipe(folder: &TempDir, server: &Faulty) -> Wrapped {
    let config = folder.path().join("seawall.toml");
    let to = format!("[servers.gh]\nurl = \"{}\"\ntype = \"http\"\n", server.url);
    std::fs::write(&config, format!("{}{to}", policies(folder))).unwrap();
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    process.args(["serve", "--stdio", "--no-catalog-cache", "--config"]).arg(&config);
    let mut client = Wrapped::start(process);
    client.initialize(json!({})).await;
    client
}

#[tokio::test]
async fn a_write_that_waits_is_not_made_beside_it_by_the_next_gateway_either() {
    let folder = TempDir::new().unwrap();
    let (server, _) = busy().await;
    let write = json!({"name": "create_issue", "arguments": {"title": "x"}});
    let mut first = on_a_pipe(&folder, &server).await;
    let answer = first.ask(1, "tools/call", write.clone()).await;
    let id = answer["result"]["_meta"]["seawall/served"]["id"].as_str().expect("queued").to_owned();
    first.close();
    soon(first.child.wait()).await.unwrap();

    let again = on_a_pipe(&folder, &server).await.ask(1, "tools/call", write).await;

    let told = format!(
        "create_issue was not sent: the same call is queued as {id} and is not done yet. It will be tried from there."
    );
    assert_eq!(
        (text(&again), &failure(&again)["code"]),
        (told.as_str(), &json!("ALREADY_QUEUED")),
        "{again}"
    );
}

#[tokio::test]
async fn a_client_on_a_pipe_reads_after_a_restart_what_became_of_its_write() {
    let folder = TempDir::new().unwrap();
    let (server, is_well) = busy().await;
    let start = async || on_a_pipe(&folder, &server).await;
    let mut first = start().await;
    let answer = first.ask(1, "tools/call", json!({"name": "create_issue", "arguments": {}})).await;
    let resource = answer["result"]["_meta"]["seawall/served"]["resource"].clone();
    assert!(resource.is_string(), "{answer}");
    // It may just be under way: that is no reason for doubt.
    first.close();
    soon(first.child.wait()).await.unwrap();

    is_well.store(true, Ordering::SeqCst);
    let second = tokio::sync::Mutex::new(start().await);
    until("it is made, and told", async || {
        let read = second.lock().await.ask(2, "resources/read", json!({"uri": resource})).await;
        let told = read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("{read}"))
            .to_owned();
        serde_json::from_str::<Value>(&told).unwrap()["state"] == "delivered"
    })
    .await;
}

#[tokio::test]
async fn a_write_that_was_made_from_the_queue_is_not_made_again_by_whoever_repeats_it_also_after_a_restart()
 {
    let folder = TempDir::new().unwrap();
    let (server, is_well) = busy().await;
    let write = json!({"name": "create_issue", "arguments": {"title": "x"}});
    let mut client = on_a_pipe(&folder, &server).await;
    let queued = client.ask(1, "tools/call", write.clone()).await;
    let id = queued["result"]["_meta"]["seawall/served"]["id"].as_str().expect("queued").to_owned();
    is_well.store(true, Ordering::SeqCst);
    let resource = json!({"uri": format!("seawall://queue/{id}")});
    let first = tokio::sync::Mutex::new(client);
    until("it is made", async || {
        let read = first.lock().await.ask(2, "resources/read", resource.clone()).await;
        read["result"]["contents"][0]["text"]
            .as_str()
            .is_some_and(|told| told.contains("\"delivered\""))
    })
    .await;
    let made = server.calls("create_issue");
    let mut client = first.into_inner();
    for round in 0..2 {
        let again = client.ask(3, "tools/call", write.clone()).await;
        let told =
            format!("create_issue was not sent: the same call, queued as {id}, was executed ");
        assert!(text(&again).starts_with(&told), "{again}");
        assert_eq!(failure(&again)["code"], "WRITE_UNCERTAIN", "{again}");
        if round == 0 {
            client.close();
            soon(client.child.wait()).await.unwrap();
            client = on_a_pipe(&folder, &server).await;
        }
    }
    assert_eq!(server.calls("create_issue"), made);
    let other = client
        .ask(4, "tools/call", json!({"name": "create_issue", "arguments": {"title": "y"}}))
        .await;
    assert_eq!(text(&other), "made");
}

#[tokio::test]
async fn what_a_server_said_of_its_tools_holds_for_the_next_gateway_while_it_is_away() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("seawall.toml");
    let start = async || {
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
        process
            .env("XDG_STATE_HOME", folder.path())
            .args(["serve", "--stdio", "--config"])
            .arg(&config);
        let mut client = Wrapped::start(process);
        client.initialize(json!({})).await;
        client
    };
    let write = |url: &str| {
        let to =
            format!("[reconnect]\nwait = \"0s\"\n[servers.gh]\nurl = {url:?}\ntype = \"http\"\n");
        std::fs::write(&config, format!("{}{to}", policies(&folder))).unwrap();
    };
    // A tool whose name says nothing: only the server's own word makes it a write that may wait.
    let note = json!({"name": "frobnicate", "arguments": {"text": "x"}});
    let additive = json!({"readOnlyHint": false, "destructiveHint": false});
    let tool =
        json!({"name": "frobnicate", "inputSchema": {"type": "object"}, "annotations": additive});
    let list = json!({"tools": [tool]});
    let server = Faulty::answering(move |is_tool, name, _, _| match (is_tool, name) {
        (true, _) => Some(End::Status("429 Too Many Requests", "", "")),
        (false, "tools/list") => Some(End::Result(list.clone())),
        _ => None,
    })
    .await;
    write(&server.url);
    let mut first = start().await;
    first.ask(1, "tools/list", json!({})).await;
    let answer = first.ask(2, "tools/call", note.clone()).await;
    assert_eq!(answer["result"]["_meta"]["seawall/served"]["code"], "QUEUED", "{answer}");
    first.close();
    soon(first.child.wait()).await.unwrap();

    drop(server);
    let mut second = start().await;
    let again = second.ask(1, "tools/call", note).await;
    assert_eq!(failure(&again)["code"], "ALREADY_QUEUED", "{again}");
    let other = second
        .ask(2, "tools/call", json!({"name": "frobnicate", "arguments": {"text": "y"}}))
        .await;
    assert_eq!(other["result"]["_meta"]["seawall/served"]["code"], "QUEUED", "{other}");
}

#[tokio::test]
async fn a_wrapper_whose_store_another_one_has_works_without_it() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("seawall.toml");
    std::fs::write(&config, format!("[store]\npath = {:?}\n", folder.path().join("store")))
        .unwrap();
    let start = || {
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
        process.args(["run", "--no-catalog-cache", "--config"]).arg(&config).arg("--");
        process.args([&program("seawall-fixture"), "--stdio", "--era", "legacy"]);
        Wrapped::start(process)
    };
    let (mut one, mut two) = (start(), start());
    for client in [&mut one, &mut two] {
        assert!(client.initialize(json!({})).await["result"]["serverInfo"].is_object());
        let list = client.ask(1, "tools/list", json!({})).await;
        assert!(
            list["result"]["tools"].as_array().is_some_and(|tools| !tools.is_empty()),
            "{list}"
        );
    }
}
