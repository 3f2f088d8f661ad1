//! What is said about servers that are missing, word for word, and when it stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::kit::*;
use super::upstream::{Asked, Upstream, honest, response};

#[tokio::test]
async fn each_class_has_its_own_line_in_the_prompt_and_for_the_user() {
    let (ok, slow, closed) = (
        healthy().await,
        refusing("503 Service Unavailable", "").await,
        refusing("403 Forbidden", "").await,
    );
    let gone = nobody();
    let config = [("ok", &ok.url), ("slow", &slow.url), ("gone", &gone), ("closed", &closed.url)];
    let config: String = config.iter().map(|(name, url)| remote(name, url)).collect();
    let (mut client, info, _) = Client::connect(&config).await;

    let refused = format!(
        "Cannot connect to {}: client error (Connect): tcp connect error: Connection refused (os error 111)",
        gone
    );
    let denied = format!("HTTP 403 Forbidden from {}", closed.url);
    let lines = [
        "**MCP servers still starting up (will retry; tools may appear shortly):** slow".to_owned(),
        format!(
            "**MCP servers that failed to load (tools unavailable — needs attention):** gone: {refused}"
        ),
        format!("**MCP servers that denied access:** closed: {denied}"),
    ];
    assert_eq!(info["instructions"], lines.join("\n\n"));

    client.hears("notifications/message", 3).await;
    assert_eq!(
        client.warned(),
        [
            "MCP server 'slow' is starting up and not ready yet — it will be retried.".to_owned(),
            format!(
                "MCP server 'gone' is unavailable: {refused}. Tools from this server will not work."
            ),
            format!("MCP server 'closed' denied access: {denied}."),
        ]
    );
    let shape = &client.heard[0]["params"];
    assert_eq!(
        (&shape["level"], &shape["logger"]),
        (&"warning".into(), &"seawall".into()),
        "{shape}"
    );
    assert!(info["capabilities"]["logging"].is_object(), "what is sent is announced: {info}");

    let list = client.list().await;
    assert_eq!(names(&list), ["ok__echo"]);
    let status = |server| told(&list, server)["status"].as_str();
    assert_eq!(
        (status("slow"), status("gone"), status("closed")),
        (Some("transient"), Some("permanent"), Some("denied"))
    );
    assert_eq!(told(&list, "closed")["reason"], denied);
    assert_eq!(
        told(&list, "closed").get("retryAfter"),
        None,
        "a denial is not tried again: {list}"
    );
    assert!(told(&list, "slow")["retryAfter"].as_u64() >= Some(1), "{list}");
    assert_eq!(told(&list, "ok"), &serde_json::Value::Null);
    assert_eq!(client.warned().len(), 3, "each is told once");
}

#[tokio::test]
async fn nothing_is_said_when_nothing_failed() {
    let (one, two) = (healthy().await, healthy().await);
    let (mut client, info, _) =
        Client::connect(&(remote("one", &one.url) + &remote("two", &two.url))).await;
    assert_eq!(info.get("instructions"), None, "{info}");
    assert_eq!(info["capabilities"], serde_json::json!({"tools": {}}));
    let list = client.list().await;
    assert_eq!((names(&list), list.get("_meta")), (vec!["one__echo", "two__echo"], None));
    assert!(client.heard.is_empty(), "{:?}", client.heard);
}

#[tokio::test]
async fn one_server_alone_is_told_of_in_the_same_words() {
    let url = nobody();
    let (mut client, info, took) = Client::quickest(&remote("only", &url)).await;
    let text = info["instructions"].as_str().unwrap();
    assert!(text.starts_with(
        "**MCP servers that failed to load (tools unavailable — needs attention):** only: Cannot connect to "
    ));
    assert!(
        took < Duration::from_secs(3),
        "what trying again cannot help keeps nobody waiting: {took:?}"
    );
    client.hears("notifications/message", 1).await;
    assert!(
        client.warned()[0].ends_with("Tools from this server will not work."),
        "{:?}",
        client.heard
    );

    let slow = refusing("503 Service Unavailable", "").await;
    let (_client, info, _) = Client::connect(&remote("only", &slow.url)).await;
    let text = info["instructions"].as_str().unwrap();
    assert_eq!(
        text.lines().next(),
        Some("**MCP servers still starting up (will retry; tools may appear shortly):** only")
    );
    assert!(!text.contains("will not work"), "{text}");
}

/// A server that is away with this status at first, and comes when the test says so.
async fn coming(status: &'static str) -> (Upstream, Arc<AtomicBool>) {
    let is_up = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_up);
    let answer = move |asked: &Asked, _| {
        if seen.load(Ordering::SeqCst) { honest(asked) } else { response(status, "", b"") }
    };
    (scripted(answer).await, is_up)
}

async fn comes_up(status: &'static str, setting: &str) {
    let ((late, is_up), ok) = (coming(status).await, healthy().await);
    let config = remote("ok", &ok.url) + &remote("late", &late.url) + setting;
    let (mut client, info, _) = Client::connect(&config).await;
    assert!(info["instructions"].as_str().unwrap().contains(" late"), "{info}");
    let before = client.list().await;
    assert_eq!(names(&before), ["ok__echo"]);
    client.hears("notifications/message", 1).await;
    // Well past the quick tries: what brings it back is the trying in the background.
    until("it was tried in the background", || shakes(&late) >= 5).await;

    is_up.store(true, Ordering::SeqCst);
    client.hears(CHANGED, 1).await;
    let after = client.list().await;
    assert_eq!(
        (names(&after), after.get("_meta")),
        (vec!["ok__echo", "late__echo"], None),
        "the warning is gone"
    );
    assert_eq!(client.list().await, after);
    let call = client
        .ask("tools/call", serde_json::json!({"name": "late__echo", "arguments": {"text": "hi"}}))
        .await;
    assert_eq!(call["result"]["content"][0]["text"], "hi", "{call}");
    assert_eq!((client.count(CHANGED), client.warned().len()), (1, 1), "{:?}", client.heard);
}

#[tokio::test]
async fn a_transient_server_comes_up_and_its_tools_appear() {
    comes_up("503 Service Unavailable", "").await;
}

#[tokio::test]
async fn a_server_that_seemed_broken_is_looked_after_too() {
    comes_up("404 Not Found", "").await;
}

#[tokio::test]
async fn a_server_that_all_clients_share_is_announced_too() {
    comes_up("503 Service Unavailable", "shared = true\n").await;
}

#[tokio::test]
async fn the_next_handshake_says_nothing_of_a_server_that_is_there_again() {
    let late = scripted(|asked, nth| {
        if nth <= 4 { response("503 Service Unavailable", "", b"") } else { honest(asked) }
    })
    .await;
    let ok = healthy().await;
    let (folder, file) = configured(&format!(
        "listen = \"127.0.0.1:0\"\n{}{}",
        remote("ok", &ok.url),
        remote("late", &late.url)
    ));
    let served = Served::start(&file).await;
    let info = served.info().await;
    until("it is there", || {
        late.seen().iter().any(|asked| asked.is("notifications/initialized")) || shakes(&late) >= 5
    })
    .await;
    let again = served.info().await;
    assert_eq!(again["result"].get("instructions"), None, "first {info}, then {again}");
    drop(folder);
}

#[tokio::test]
async fn a_modern_client_that_listens_hears_that_a_server_came_up() {
    let ((late, is_up), ok) = (coming("503 Service Unavailable").await, healthy().await);
    let (_folder, file) = configured(&(remote("ok", &ok.url) + &remote("late", &late.url)));
    let served = Served::start(&file).await;
    let before = served.modern("tools/list").await["result"].take();
    assert_eq!(
        (names(&before), &told(&before, "late")["status"]),
        (vec!["ok__echo"], &"transient".into()),
        "{before}"
    );
    let mut heard = served.listen().await;
    until("it was tried in the background", || late.seen().len() >= 5).await;
    is_up.store(true, Ordering::SeqCst);
    let changed = async {
        while let Some(line) = heard.next_line().await.unwrap() {
            if line.contains(CHANGED) {
                return line;
            }
        }
        panic!("the stream ended");
    };
    let changed = soon("the client hears it", changed).await;
    assert!(changed.contains(r#""io.modelcontextprotocol/subscriptionId":1"#), "{changed}");
    let after = served.modern("tools/list").await["result"].take();
    assert_eq!(
        (names(&after), after.get("_meta")),
        (vec!["ok__echo", "late__echo"], None),
        "{after}"
    );
}

#[tokio::test]
async fn a_server_that_is_starting_for_too_long_needs_attention() {
    let slow = refusing("503 Service Unavailable", "").await;
    let ok = healthy().await;
    let config = format!(
        "[startup]\nmax_starting = \"9s\"\n{}{}",
        remote("ok", &ok.url),
        remote("slow", &slow.url)
    );
    let (mut client, info, _) = Client::connect(&config).await;
    assert!(info["instructions"].as_str().unwrap().contains("still starting up"), "{info}");
    client.hears("notifications/message", 2).await;
    let warned = client.warned();
    assert!(warned[0].contains("is starting up and not ready yet"), "{warned:?}");
    assert!(
        warned[1].starts_with("MCP server 'slow' is unavailable: not ready after "),
        "{warned:?}"
    );
    let list = client.list().await;
    assert_eq!(told(&list, "slow")["status"], "permanent", "{list}");
}

#[tokio::test]
async fn a_client_that_wants_no_warnings_gets_none() {
    let (ok, slow) = (healthy().await, refusing("503 Service Unavailable", "").await);
    let often = "[startup]\nmax_starting = \"9s\"\n[reconnect]\nmax = \"1s\"\n";
    let config = format!("{often}{}{}", remote("ok", &ok.url), remote("slow", &slow.url));
    let (mut client, _, _) = Client::connect(&config).await;
    client.hears("notifications/message", 1).await;
    let set = client.ask("logging/setLevel", serde_json::json!({"level": "error"})).await;
    assert_eq!(set["result"], serde_json::json!({}), "{set}");
    while told(&client.list().await, "slow")["status"] != "permanent" {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // It would be told within a second.
    let before = shakes(&slow);
    until("time passes", || shakes(&slow) >= before + 3).await;
    client.list().await;
    assert_eq!(client.warned().len(), 1, "{:?}", client.heard);
}
