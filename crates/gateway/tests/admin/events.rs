//! The events as an operator reads them: as they happen, and the last thousand of them.

use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::process::Command;

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::breakers::{ONCE, patient};
use super::kit::{Served, soon, until};
use super::server::{End, Faulty, call};

fn is_end(event: &Value) -> bool {
    event["event"] == "call_finished"
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

/// A server that is well.
async fn well() -> Faulty {
    Faulty::start(|_, _, _| End::Text("well")).await
}

#[tokio::test]
async fn what_happens_is_told_as_it_happens() {
    let (server, _) = patient().await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    let mut tap = admin.tap("?tool=get_issue", &[]).await.unwrap();
    for _ in 0..3 {
        call(&session, "get_issue", json!({"title": "private-canary"})).await;
    }
    let failed = ["attempt_started", "attempt_ended", "call_finished"];
    for _ in 0..2 {
        assert_eq!(names(&tap.until(is_end).await), failed);
    }
    let third = tap.until(is_end).await;
    assert_eq!(
        names(&third),
        ["attempt_started", "breaker_changed", "attempt_ended", "call_finished"]
    );
    let (ended, changed, finished) = (&third[2], &third[1], &third[3]);
    assert_eq!((&ended["attempt"], &ended["cause"]), (&json!(1), &json!("misbehaved")), "{ended}");
    assert!(ended["elapsedMs"].is_u64(), "{ended}");
    assert_eq!(
        (&changed["server"], &changed["tool"], &changed["from"], &changed["to"]),
        (&json!("gh"), &json!("get_issue"), &json!("closed"), &json!("open"))
    );
    assert_eq!(
        (&finished["class"], &finished["attempts"]),
        (&json!("UPSTREAM_ERROR"), &json!(1)),
        "{finished}"
    );
    let number = |event: &Value| {
        event["id"].as_str().unwrap().rsplit('-').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(third.is_sorted_by_key(number), "{third:?}");
    let time = finished["time"].as_str().unwrap();
    let now = Command::new("date").args(["-u", "+%Y-%m-%dT"]).output().await.unwrap().stdout;
    assert!(
        time.ends_with('Z') && time.starts_with(String::from_utf8(now).unwrap().trim()),
        "{time}"
    );

    call(&session, "get_issue", json!({"title": "private-canary"})).await;
    let refused = tap.until(is_end).await;
    assert_eq!(names(&refused), ["breaker_rejected", "degraded", "call_finished"]);
    assert_eq!(refused[2]["class"], "CIRCUIT_OPEN");
    let all = serde_json::to_string(&[third, refused].concat()).unwrap();
    assert!(!all.contains("private-canary") && !all.contains(&session.id), "{all}");
}

#[tokio::test]
async fn who_comes_later_reads_what_was_and_only_what_is_wanted() {
    let server = well().await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    for tool in ["get_issue", "list_issues", "get_issue", "invented"] {
        call(&session, tool, json!({})).await;
    }
    let ended = async |query: &str, count: usize| {
        let mut tap = admin.tap(query, &[]).await.unwrap();
        let mut found = Vec::new();
        while found.len() < count {
            let event = tap.event().await.unwrap();
            found.push((event["event"].clone(), event["tool"].clone()));
        }
        found
    };
    let one = |event: &str, tool: &str| (json!(event), json!(tool));
    let finished = |tool: &str| one("call_finished", tool);
    let all = [
        finished("get_issue"),
        finished("list_issues"),
        finished("get_issue"),
        finished("unknown"),
    ];
    // Methods of the protocol are calls too.
    until("all are told", async || {
        let mut tap = admin.tap("?class=ok", &[]).await.unwrap();
        let mut found = Vec::new();
        while !found.contains(&finished("unknown")) {
            let event = tap.event().await.unwrap();
            found.push((event["event"].clone(), event["tool"].clone()));
        }
        found.retain(|(_, tool)| !tool.as_str().unwrap().contains('/'));
        found == all
    })
    .await;
    assert_eq!(ended("?class=OK&last=2", 2).await, all[2..], "the last of those that are wanted");
    assert_eq!(ended("?class=ok&tool=list_issues", 1).await, all[1..2]);
    assert_eq!(ended("?tool=get_issue&last=1", 1).await, all[2..3]);

    let mut tap = admin.tap("?class=ok", &[]).await.unwrap();
    let first = tap.event().await.unwrap()["id"].as_str().unwrap().to_owned();
    let second = tap.event().await.unwrap();
    let mut back = admin.tap("?class=ok", &[("last-event-id", &first)]).await.unwrap();
    assert_eq!(back.event().await.unwrap(), second, "it goes on where it was");
    for foreign in ["00000000-3", "7", "x", ""] {
        let mut tap = admin.tap("?class=ok", &[("last-event-id", foreign)]).await.unwrap();
        assert_eq!(tap.event().await.unwrap()["id"], first, "{foreign}");
    }

    let mut news = admin.tap("?last=0&class=ok", &[]).await.unwrap();
    call(&session, "web_search", json!({})).await;
    assert_eq!(news.event().await.unwrap()["tool"], "web_search");
    for wrong in ["?last=x", "?tools=get_issue", "?tool=%ff"] {
        assert_eq!(admin.tap(wrong, &[]).await.err(), Some(StatusCode::BAD_REQUEST), "{wrong}");
    }
}

#[tokio::test]
async fn an_error_is_told_without_secrets_and_tools_have_their_public_names() {
    let server = Faulty::start(|_, count, _| match count {
        1 => End::Error(-32603, "503 for canary-77-secret, password=canary-88", Value::Null),
        _ => End::Text("well"),
    })
    .await;
    let to = |name: &str| {
        let headers = "headers = { Authorization = \"Bearer canary-77-secret\" }";
        format!("[servers.{name}]\nurl = \"{}\"\ntype = \"http\"\n{headers}\n", server.url)
    };
    let quick = "[defaults]\nretry = { base = \"1ms\" }\n";
    let served = Served::with(&format!("{ADMIN}{quick}{}{}", to("one"), to("two"))).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    let mut tap = admin.tap("?tool=one__get_issue", &[]).await.unwrap();
    call(&session, "one__get_issue", json!({})).await;
    let events = tap.until(is_end).await;
    let retry = events
        .iter()
        .find(|event| event["event"] == "retry_scheduled")
        .unwrap_or_else(|| panic!("{events:?}"));
    let error = retry["error"].as_str().unwrap();
    assert!(error.contains("503 for") && !error.contains("canary"), "{retry}");
    assert_eq!(
        (&retry["attempt"], &retry["of"], &retry["server"]),
        (&json!(1), &json!(3), &json!("one")),
        "{retry}"
    );

    call(&session, "two__invented", json!({})).await;
    let mut tap = admin.tap("?tool=two__unknown", &[]).await.unwrap();
    assert_eq!(tap.until(is_end).await.last().unwrap()["class"], "UPSTREAM_ERROR");
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_nobody_up_and_learns_what_it_missed() {
    let server = well().await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    call(&session, "get_issue", json!({})).await;
    assert_eq!(admin.force("get_issue", "open").await.0, 200);
    let socket = TcpSocket::new_v4().unwrap();
    // Not less: who reads from a buffer smaller than a segment may wait for the sender's probes, a
    // fraction of a second each.
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let address = admin.url.strip_prefix("http://").unwrap();
    let mut stalled = socket.connect(address.parse().unwrap()).await.unwrap();
    let request = format!("GET /resilience/events?last=0 HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stalled.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 1024];
    assert!(soon(stalled.read(&mut head)).await.unwrap() > 0, "it is let in");

    // More than the sockets between them hold.
    let mut calls = FuturesUnordered::new();
    let mut left = 12_000;
    while left > 0 || !calls.is_empty() {
        while left > 0 && calls.len() < 32 {
            calls.push(session.ask(
                left,
                "tools/call",
                json!({"name": "get_issue", "arguments": {}}),
            ));
            left -= 1;
        }
        let answer = calls.next().await.unwrap();
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    let mut text = String::new();
    let mut buffer = vec![0; 64 << 10];
    let missed = loop {
        let size = soon(stalled.read(&mut buffer)).await.unwrap();
        assert!(size > 0, "it ended");
        text.push_str(&String::from_utf8_lossy(&buffer[..size]));
        let missed = |line: &str| line.contains("\"event\":\"missed\"").then(|| line.to_owned());
        match text.lines().find_map(missed).filter(|line| line.ends_with('}')) {
            Some(line) => break line,
            None => text = text.rsplit('\n').next().unwrap_or_default().to_owned(),
        }
    };
    let missed: Value = serde_json::from_str(missed.strip_prefix("data: ").unwrap()).unwrap();
    assert!(missed["count"].as_u64().is_some_and(|count| count > 1_000), "{missed}");
}

#[tokio::test]
async fn there_are_only_so_many_readers_and_each_needs_what_reading_needs() {
    let server = well().await;
    let served = server.served(ADMIN).await;
    let admin = AdminApi::of(&served);
    let mut taps = Vec::new();
    for _ in 0..16 {
        taps.push(admin.tap("", &[]).await.unwrap_or_else(|status| panic!("{status}")));
    }
    assert_eq!(admin.tap("", &[]).await.err(), Some(StatusCode::SERVICE_UNAVAILABLE));
    taps.pop();
    until("a place is free", async || admin.tap("", &[]).await.is_ok()).await;
    assert_eq!(
        admin.send(http::Method::POST, "/resilience/events", &[("x-api-key", TOKEN)]).await.0,
        405
    );

    let served = server.served(&ADMIN.replace("127.0.0.1", "0.0.0.0")).await;
    let admin = AdminApi::of(&served);
    assert_eq!(admin.tap("", &[]).await.err(), Some(StatusCode::UNAUTHORIZED));
    assert_eq!(admin.tap("", &[("x-api-key", "wrong")]).await.err(), Some(StatusCode::FORBIDDEN));
    assert!(admin.tap("", &[("x-api-key", TOKEN)]).await.is_ok());
}

#[tokio::test]
async fn a_stream_with_nothing_to_say_shows_that_it_is_alive_and_ends_with_the_gateway() {
    let (server, is_well) = patient().await;
    is_well.store(true, Ordering::SeqCst);
    let served = server.served(ADMIN).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let mut tap = admin.tap("?tool=nobody", &[]).await.unwrap();
    let busy = async {
        for _ in 0..200 {
            call(&session, "get_issue", json!({})).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        piece = tap.piece() => assert_eq!(piece.as_deref(), Some(": alive"), "also while others have much to say"),
        () = busy => panic!("no sign of life"),
    }
    let pid = served.child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    assert_eq!(tap.event().await, None);
}
