//! Sessions that are not yours, streams that are taken, and clients that leave.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Stdio as Pipes;
use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use crate::kit::client::{initialize, modern_begin, modern_request, tool_call};
use crate::kit::http::{send, whole};
use crate::kit::ledger::Ledger;
use crate::kit::process::{SEAWALL, scripted};
use crate::kit::{Entry, Gateway, Legacy, MIB, Stdio, modern, text, until, within};

async fn started() -> Gateway {
    Gateway::serve(&[
        Entry::scripted("a", &["--tag", "$TAG"]),
        Entry::scripted("b", &["--tag", "$TAG"]),
    ])
    .await
}

/// The status that a session's id gets on a path, for each method.
async fn statuses(gateway: &Gateway, path: &str, session: &str) -> [u16; 3] {
    let headers = [("mcp-session-id", session), ("content-type", "application/json")];
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let ask = async |method, body: &'static str| {
        let response = send(gateway.address, method, path, &headers, body.into()).await;
        response.status().as_u16()
    };
    [ask(Method::POST, list).await, ask(Method::GET, "").await, ask(Method::DELETE, "").await]
}

#[tokio::test]
async fn a_session_is_good_on_its_own_route_only() {
    let gateway = started().await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    for path in ["/mcp/b", "/mcp", "/mcp/"] {
        assert_eq!(statuses(&gateway, path, &client.session).await, [404; 3], "{path}");
    }
    for path in ["/mcp/c", "/", "/mcp/a/b", "/mcpa", "/mcp//a", "/mcp/%61", "/mcp/../mcp/a"] {
        assert_eq!(statuses(&gateway, path, &client.session).await, [404; 3], "{path}");
    }
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_cannot_be_guessed() {
    let gateway = started().await;
    let clients = join_all((0..8).map(|_| Legacy::connect(&gateway, "/mcp/a"))).await;
    let ids: HashSet<&str> = clients.iter().map(|client| client.session.as_str()).collect();
    assert_eq!(ids.len(), 8);
    assert!(
        ids.iter().all(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())),
        "{ids:?}"
    );
    let near = clients[0].session.replace(['0', '1'], "2");
    for wrong in [near.as_str(), "1", "", "*", &"f".repeat(32), &clients[0].session.to_uppercase()]
    {
        if ids.contains(wrong) {
            continue;
        }
        assert_eq!(statuses(&gateway, "/mcp/a", wrong).await, [404; 3], "{wrong}");
    }
    let missing = crate::kit::http::post(
        gateway.address,
        "/mcp/a",
        &[],
        r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#,
    )
    .await;
    assert_eq!(
        (missing.status, missing.error().1.as_str()),
        (400, "the header Mcp-Session-Id is missing; send initialize first")
    );
    clients[0].works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_that_was_ended_is_over() {
    let gateway = started().await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let ended =
        send(client.address, Method::DELETE, "/mcp/a", &client.headers(), Default::default()).await;
    assert_eq!(ended.status(), 200);
    assert_eq!(statuses(&gateway, "/mcp/a", &client.session).await, [404; 3]);
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_has_one_stream_and_nobody_takes_it_over() {
    let gateway = started().await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let ours = [("mcp-session-id", client.session.as_str())];
    let get = || send(client.address, Method::GET, "/mcp/a", &ours, Default::default());
    let streams = join_all((0..20).map(|_| get())).await;
    let mut open: Vec<_> = streams.into_iter().filter(|stream| stream.status() == 200).collect();
    assert_eq!(open.len(), 1, "of twenty at once one is let in");
    let second = whole(get().await).await;
    assert_eq!(
        (second.status, second.error().1.as_str()),
        (409, "this session has a stream already; there can be one")
    );
    let resumed = [("mcp-session-id", client.session.as_str()), ("last-event-id", "0-0")];
    let resumed = send(client.address, Method::GET, "/mcp/a", &resumed, Default::default()).await;
    assert_eq!(resumed.status(), 409, "nor by coming back to it");

    // The one that was first still hears.
    assert_eq!(text(&client.call("list_changed", json!({})).await), "said");
    use http_body_util::BodyExt;
    let stream = open[0].body_mut();
    let mut heard = String::new();
    while !heard.contains("notifications/tools/list_changed") {
        let frame = within(5, "the notification", stream.frame()).await.unwrap().unwrap();
        heard += &String::from_utf8_lossy(frame.data_ref().unwrap());
    }
    drop(open);
    until(5, "the place is free again", async || get().await.status() == 200).await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_event_of_another_session_leads_nowhere() {
    let gateway = started().await;
    let (ours, theirs) =
        (Legacy::connect(&gateway, "/mcp/a").await, Legacy::connect(&gateway, "/mcp/a").await);
    // A call with a notification before its answer has a stream that can be come back to.
    let secret = theirs.begin(1, "flood", json!({"before": 1})).await;
    assert!(whole(secret).await.text().contains("survived"));
    for event in ["1-0", "1-1", "2-0", "99-0", "x", "-", "1-99999999999999999999", "0-99"] {
        let headers = [("mcp-session-id", ours.session.as_str()), ("last-event-id", event)];
        let response =
            send(ours.address, Method::GET, "/mcp/a", &headers, Default::default()).await;
        let expected = if event == "0-99" { 200 } else { 404 };
        assert_eq!(response.status(), expected, "{event}");
    }
    ours.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_legacy_call_goes_on_without_its_client() {
    let gateway = started().await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let leaving = client.begin(1, "delay", json!({"ms": 4_000, "text": "done"}));
    tokio::select! {
        _ = leaving => panic!("too early"),
        () = client.counted("delayed", 1) => {}
    }
    client.counted("answered", 1).await;
    let counters = client.call("counters", json!({})).await;
    assert_eq!(counters["result"]["structuredContent"]["cancelled"], 0);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_modern_call_is_called_off_when_its_client_leaves() {
    let gateway = started().await;
    let count = async |counter: &str| {
        let answer = modern(&gateway, "/mcp/a", "counters", json!({})).await.message();
        answer["result"]["structuredContent"][counter].as_u64().unwrap()
    };
    let request = modern_request(
        1,
        "tools/call",
        json!({"name": "delay", "arguments": {"ms": 30_000, "text": "done"}}),
    );
    tokio::select! {
        _ = modern_begin(gateway.address, "/mcp/a", &request) => panic!("too early"),
        () = until(5, "it is under way", async || count("delayed").await == 1) => {}
    }
    until(5, "it is called off", async || count("cancelled").await == 1).await;
    gateway.stop().await;
}

#[tokio::test]
async fn answers_that_nobody_fetches_are_bounded_in_bytes() {
    let gateway = started().await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let memory = gateway.memory();
    for id in 0..40 {
        let params = json!({"name": "progress_then_big", "arguments": {"bytes": 3 << 20, "n": id}, "_meta": {"progressToken": id}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            .to_string();
        let headers =
            [client.headers().as_slice(), &[("content-type", "application/json")]].concat();
        let response = send(client.address, Method::POST, "/mcp/a", &headers, call.into()).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        drop(response);
    }
    client.works("echo").await;
    memory.grew_at_most(64 * MIB);
    gateway.stop().await;
}

#[tokio::test]
async fn a_client_that_writes_and_never_reads_is_not_read_without_end() {
    let ledger = Ledger::new();
    let mut client = Stdio::ready(&["--tag", "$TAG", "--ledger", ledger.path()]).await;
    let memory = client.memory();
    let mut input = client.input.take().unwrap();
    let mut write = async |call: Value| {
        let line = format!("{call}\n");
        tokio::time::timeout(Duration::from_secs(2), input.write_all(line.as_bytes())).await.is_ok()
    };
    // A gateway that keeps what it cannot get rid of would take all of these 256 MiB.
    let mut taken = 0;
    while taken < 4_096
        && write(tool_call(taken, "echo", json!({"text": "x".repeat(64 << 10)}))).await
    {
        taken += 1;
        // Few are under way at a time: what piles up is what nobody takes, however slow the server
        // is.
        let mark = format!("mark {taken}");
        if taken % 32 == 0 {
            let is_read = write(tool_call(10_000 + taken, "write", json!({"text": mark}))).await;
            let line = format!("write {mark}");
            let done = async {
                while ledger.count(&line) == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            if !is_read || tokio::time::timeout(Duration::from_secs(2), done).await.is_err() {
                break;
            }
        }
    }
    assert!(taken < 1_000, "the gateway read on though nobody takes its answers");
    memory.grew_at_most(128 * MIB);
    // Once they are taken, they are all there.
    let mut echoes = 0;
    while echoes < taken {
        echoes += u64::from(text(&client.hear().await).len() == 64 << 10);
    }
    drop(input);
    client.stop().await;
}

/// The client is on a socket, which node gives to its children, and stderr is the same file.
#[tokio::test]
async fn a_client_on_a_socket_is_served_to_its_end_and_finds_it_as_it_was() {
    let (near, far) = UnixStream::pair().unwrap();
    let end = || Pipes::from(OwnedFd::from(far.try_clone().unwrap()));
    let mut wrapper = Command::new(SEAWALL)
        .args(["run", "--no-catalog-cache", "--", scripted()])
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    near.set_nonblocking(true).unwrap();
    let (read, mut write) = tokio::net::UnixStream::from_std(near).unwrap().into_split();
    let mut lines = BufReader::new(read).lines();
    let mut answer = async |id: u64| loop {
        let line = within(20, "a line", lines.next_line()).await.unwrap().expect("it serves");
        // stderr says something now and then.
        match serde_json::from_str::<Value>(&line) {
            Ok(message) if message["id"] == id => return message,
            _ => {}
        }
    };
    write.write_all(format!("{}\n", initialize()).as_bytes()).await.unwrap();
    assert!(answer(0).await.get("result").is_some());
    // More than a socket holds, there and back.
    for id in 1..5 {
        let call = tool_call(id, "echo", json!({"text": "x".repeat(700 << 10)}));
        write.write_all(format!("{call}\n").as_bytes()).await.unwrap();
        assert_eq!(text(&answer(id).await).len(), 700 << 10);
    }
    let mode = rustix::fs::fcntl_getfl(&far).unwrap();
    assert!(!mode.contains(rustix::fs::OFlags::NONBLOCK), "who shares it would not wait any more");
    drop(far);
    write.shutdown().await.unwrap();
    let ended = within(10, "it ends with its client", wrapper.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}
