//! The gateway is restarted or killed: clients go on with their sessions, and need not know.

use ::http::Method;
use http_body_util::BodyExt;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::client::{initialize, tool_call};
use crate::kit::upstream::{answer, honest, response, write};
use crate::kit::{Asked, Entry, Gateway, Legacy, Upstream, failure, http, text, until, within};
use crate::{Ledger, failed, leave};

async fn get(client: &Legacy, last_event: Option<&str>) -> ::http::Response<hyper::body::Incoming> {
    let mut headers = client.headers().to_vec();
    headers.extend(last_event.map(|event| ("last-event-id", event)));
    http::send(client.address, Method::GET, &client.path, &headers, Default::default()).await
}

/// Reads a stream until this is said.
async fn heard(stream: &mut hyper::body::Incoming, what: &str) -> String {
    let mut heard = String::new();
    while !heard.contains(what) {
        let frame = within(15, what, stream.frame())
            .await
            .unwrap_or_else(|| panic!("{what}: {heard}"))
            .unwrap();
        heard += &String::from_utf8_lossy(frame.data_ref().unwrap());
    }
    heard
}

#[tokio::test]
async fn a_session_goes_on_when_the_gateway_is_restarted_or_killed() {
    let ledger = Ledger::new();
    let servers = [Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()])];
    let mut gateway = Gateway::remembering("", &servers).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let merged = Legacy::connect(&gateway, "/mcp").await;
    client.request("logging/setLevel", json!({"level": "debug"})).await;
    let list = client.request("tools/list", json!({})).await["result"].clone();
    assert!(list["tools"].is_array(), "{list}");
    for (round, signal) in [Signal::TERM, Signal::KILL, Signal::KILL].into_iter().enumerate() {
        gateway.restart(signal).await;
        // On a busy machine the new child may still be starting, which `_meta` tells.
        let again = client.request("tools/list", json!({})).await;
        assert_eq!(again["result"]["tools"], list["tools"], "round {round}");
        client.works("echo").await;
        merged.works("echo").await;
        // The level was said by one of two sessions, and each new process of that one is told it.
        let told = ledger.count(r#""logging/setLevel" {"level":"debug"}"#);
        assert_eq!(told, round + 2, "{:?}", ledger.lines());
        // Its own path only; and only ids that were given away.
        let elsewhere = Legacy::known(&gateway, "/mcp", &client.session);
        assert_eq!(elsewhere.post(tool_call(1, "echo", json!({})).to_string()).await.status, 404);
        let stranger = Legacy::known(&gateway, "/mcp/a", "0123456789abcdef0123456789abcdef");
        assert_eq!(stranger.post(tool_call(1, "echo", json!({})).to_string()).await.status, 404);
    }
    leave(&client).await;
    assert_eq!(client.post(tool_call(1, "echo", json!({})).to_string()).await.status, 404);
    gateway.restart(Signal::KILL).await;
    assert_eq!(
        client.post(tool_call(1, "echo", json!({})).to_string()).await.status,
        404,
        "what was ended is over"
    );
    merged.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_that_was_not_used_before_the_kill_can_be_ended_after_it() {
    let mut gateway = Gateway::remembering("", &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    gateway.restart(Signal::KILL).await;
    leave(&client).await;
    gateway.restart(Signal::KILL).await;
    assert_eq!(client.post(tool_call(1, "echo", json!({})).to_string()).await.status, 404);
    gateway.stop().await;
}

#[tokio::test]
async fn without_a_memory_a_session_ends_with_the_gateway() {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    gateway.stop().await;
    let again = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let known = Legacy::known(&again, "/mcp/a", &client.session);
    assert_eq!(known.post(tool_call(1, "echo", json!({})).to_string()).await.status, 404);
    again.stop().await;
}

/// Files that are broken, or are not files at all, are no sessions and no reason not to start.
#[tokio::test]
async fn garbage_in_the_folder_is_no_session() {
    let mut gateway = Gateway::remembering("", &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let (broken, whole) =
        (Legacy::connect(&gateway, "/mcp/a").await, Legacy::connect(&gateway, "/mcp/a").await);
    let folder = gateway.folder().join("seawall/sessions");
    let own = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let files = || -> Vec<_> {
        std::fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let before = files();
    assert_eq!(before.len(), 2, "one file each");
    // The two cannot be told apart by their names: one of them is broken, whichever it is.
    std::fs::write(&before[0], "garbage").unwrap();
    std::fs::write(own.join("x.json"), [0xff; 100]).unwrap();
    std::fs::create_dir(own.join("y.json")).unwrap();
    std::fs::write(folder.join("z"), "").unwrap();
    gateway.restart(Signal::KILL).await;
    let status = async |client: &Legacy| {
        client.post(tool_call(1, "echo", json!({})).to_string()).await.status
    };
    let mut statuses = [status(&broken).await, status(&whole).await];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404]);
    gateway.stop().await;
}

/// The stream that belongs to no request goes on, whatever event the client last saw of the one
/// before.
#[tokio::test]
async fn the_stream_of_a_session_is_opened_again() {
    let mut gateway = Gateway::remembering("", &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let mut stream = get(&client, None).await;
    for _ in 0..3 {
        assert_eq!(text(&client.call("list_changed", json!({})).await), "said");
    }
    let mut last = String::new();
    while !last.starts_with("0-3") {
        let said = heard(stream.body_mut(), "id: ").await;
        last = said
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .next_back()
            .unwrap_or(&last)
            .to_owned();
    }
    for _ in 0..2 {
        gateway.restart(Signal::KILL).await;
        let mut again = get(&client, Some(&last)).await;
        assert_eq!(again.status(), 200);
        assert_eq!(text(&client.call("list_changed", json!({})).await), "said");
        let said = heard(again.body_mut(), "notifications/tools/list_changed").await;
        last = said
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .next_back()
            .unwrap()
            .to_owned();
    }
    gateway.stop().await;
}

/// A client that comes back to the stream of a call that died with the gateway is told so, and does
/// not wait for ever.
#[tokio::test]
async fn a_call_that_was_under_way_ends_with_an_honest_failure() {
    let ledger = Ledger::new();
    let servers = [Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()])];
    let mut gateway = Gateway::remembering("", &servers).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let plain =
        [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let headers: Vec<_> = plain.into_iter().chain(client.headers()).collect();
    let mut call = tool_call("c-1", "hang", json!({"text": "x"}));
    call["params"]["_meta"] = json!({"progressToken": 1});
    let mut response =
        http::send(client.address, Method::POST, "/mcp/a", &headers, call.to_string().into()).await;
    let said = heard(response.body_mut(), "notifications/progress").await;
    let last =
        said.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().to_owned();
    gateway.restart(Signal::KILL).await;
    let again = http::whole(get(&client, Some(&last)).await).await;
    let answer = again.message();
    assert_eq!((again.status, &answer["id"]), (200, &json!("c-1")), "{}", again.text());
    assert!(
        failure(&answer).starts_with("The gateway was restarted while this was under way."),
        "{answer}"
    );
    assert_eq!(
        (&failed(&answer)["code"], &failed(&answer)["mayHaveExecuted"]),
        (&json!("CONNECTION_LOST"), &json!(true))
    );
    assert_eq!(ledger.count("hang x"), 1);
    client.works("echo").await;
    gateway.stop().await;
}

/// What waits in the store belongs to whoever asked for it, also after a restart.
#[tokio::test]
async fn a_client_reads_after_a_restart_what_became_of_its_queued_write() {
    let server = Upstream::start(|asked: Asked, mut tcp| async move {
        let said = match asked.is("tools/call") {
            true => response("429 Too Many Requests", "", b""),
            false if asked.is("tools/list") => {
                answer(&asked, &json!({"tools": [{"name": "create_issue", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": false}}]}))
            }
            false => honest(&asked),
        };
        write(&mut tcp, &said).await;
    })
    .await;
    let settings = "[store]\npath = \"$FOLDER/store\"\n[defaults]\nretry = { base = \"20ms\" }\nbreaker = { failures = 0 }\n";
    let mut gateway = Gateway::remembering(settings, &[Entry::url("gh", &server.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/gh").await;
    let other = Legacy::connect(&gateway, "/mcp/gh").await;
    let called = client.call("create_issue", json!({"title": "x"})).await;
    let queued = &called["result"]["_meta"]["seawall/served"];
    assert_eq!(queued["code"], "QUEUED", "{called}");
    let resource = json!({"uri": queued["resource"]});
    for signal in [Signal::TERM, Signal::KILL] {
        gateway.restart(signal).await;
        let read = client.request("resources/read", resource.clone()).await;
        let told =
            read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
        let item: Value = serde_json::from_str(told).unwrap();
        assert_eq!(item["tool"], "create_issue", "{read}");
        let read = other.request("resources/read", resource.clone()).await;
        assert_eq!(read["error"]["code"], -32602, "it is nobody else's");
    }
    gateway.stop().await;
}

/// Two gateways with one folder keep apart what is theirs.
#[tokio::test]
async fn gateways_that_share_a_folder_do_not_share_sessions() {
    let mut gateway = Gateway::remembering("", &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let second = Gateway::beside(&gateway, &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let (ours, theirs) =
        (Legacy::connect(&gateway, "/mcp/a").await, Legacy::connect(&second, "/mcp/a").await);
    let mixed = Legacy::known(&second, "/mcp/a", &ours.session);
    assert_eq!(mixed.post(initialize().to_string()).await.status, 404);
    gateway.restart(Signal::KILL).await;
    ours.works("echo").await;
    theirs.works("echo").await;
    until(5, "each has its folder", async || {
        std::fs::read_dir(gateway.folder().join("seawall/sessions")).unwrap().count() == 2
    })
    .await;
    second.stop().await;
    gateway.stop().await;
}

/// A client that repeats a write which was under way when the gateway was killed is told so, and
/// the write is not sent.
#[tokio::test]
async fn a_write_that_was_under_way_when_the_gateway_was_killed_is_not_sent_again() {
    let ledger = Ledger::new();
    let servers = [Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()])];
    for signal in [Signal::KILL, Signal::TERM] {
        let mut gateway = Gateway::remembering("", &servers).await;
        let client = Legacy::connect(&gateway, "/mcp/a").await;
        let before = ledger.count("hang x");
        let hang = || client.begin(7, "hang", json!({"text": "x"}));
        tokio::select! {
            answer = hang() => panic!("{answer:?}"),
            () = until(15, "the write runs", async || ledger.count("hang x") > before) => {}
        }
        gateway.restart(signal).await;
        let answer = http::whole(hang().await).await.message();
        assert_eq!(failed(&answer)["code"], "WRITE_UNCERTAIN", "{signal:?}: {answer}");
        assert_eq!(ledger.count("hang x"), before + 1, "{signal:?}");
        gateway.stop().await;
    }
}
