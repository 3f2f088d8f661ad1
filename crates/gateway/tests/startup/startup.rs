//! Loading means having the tools: a server is available when it was greeted and listed, and the
//! gateway lists it itself, for every client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::kit::*;
use super::upstream::{Upstream, honest, response};

/// How long an answer may take that waits for nobody: the machine may be busy, but no server is
/// that quick to start.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A server that shakes hands, and answers `tools/list` with this status until the flag is set.
async fn unlisted(status: &'static str, body: &'static str) -> (Upstream, Arc<AtomicBool>) {
    let is_well: Arc<AtomicBool> = Arc::default();
    let flag = Arc::clone(&is_well);
    let server = scripted(move |asked, _| {
        let fails = asked.is("tools/list") && !flag.load(Ordering::SeqCst);
        if fails { response(status, "", body.as_bytes()) } else { honest(asked) }
    })
    .await;
    (server, is_well)
}

/// How often its tools were asked for.
fn lists(server: &Upstream) -> usize {
    server.seen().iter().filter(|asked| asked.is("tools/list")).count()
}

/// The lines about a server that was greeted and whose list failed, in the prompt and for the user.
fn lines(class: &str, status: &str, url: &str) -> (String, String) {
    match class {
        "transient" => (
            "**MCP servers still starting up (will retry; tools may appear shortly):** bad"
                .to_owned(),
            "MCP server 'bad' is starting up and not ready yet — it will be retried.".to_owned(),
        ),
        "permanent" => (
            format!(
                "**MCP servers that failed to load (tools unavailable — needs attention):** bad: HTTP {status} from {url}"
            ),
            format!(
                "MCP server 'bad' is unavailable: HTTP {status} from {url}. Tools from this server will not work."
            ),
        ),
        _ => (
            format!("**MCP servers that denied access:** bad: HTTP {status} from {url}"),
            format!("MCP server 'bad' denied access: HTTP {status} from {url}."),
        ),
    }
}

async fn a_failed_list_is_told_and_mended(status: &'static str, class: &str, attempts: usize) {
    let ((bad, is_well), ok) = (unlisted(status, "").await, healthy().await);
    let (mut client, info, _) =
        Client::connect(&(remote("ok", &ok.url) + &remote("bad", &bad.url))).await;
    let (prompt, streamed) = lines(class, status, &bad.url);
    assert_eq!(info["instructions"], prompt, "{status}");
    assert_eq!(lists(&bad), attempts, "{status}: as often as a load may");
    client.hears("notifications/message", 1).await;
    assert_eq!(client.warned(), [streamed], "{status}");
    let list = client.list().await;
    assert_eq!(
        (names(&list), &told(&list, "bad")["status"]),
        (vec!["ok__echo"], &json!(class)),
        "{status}"
    );

    is_well.store(true, Ordering::SeqCst);
    if class == "denied" {
        // It is not tried in the background; who asks for it finds it well.
        assert_eq!(names(&client.list().await), ["ok__echo", "bad__echo"], "{status}");
        return;
    }
    client.hears(CHANGED, 1).await;
    let list = client.list().await;
    assert_eq!(
        (names(&list), list.get("_meta")),
        (vec!["ok__echo", "bad__echo"], None),
        "{status}"
    );
    assert_eq!((client.count(CHANGED), shakes(&bad)), (1, 1), "{status}: {:?}", client.heard);
}

#[tokio::test]
async fn a_list_that_fails_for_a_while_is_told_as_starting_and_ends_with_one_list_changed() {
    a_failed_list_is_told_and_mended("503 Service Unavailable", "transient", 3).await;
    a_failed_list_is_told_and_mended("500 Internal Server Error", "transient", 3).await;
}

#[tokio::test]
async fn a_list_that_seems_broken_is_told_with_its_endpoint_and_looked_after() {
    a_failed_list_is_told_and_mended("404 Not Found", "permanent", 1).await;
}

#[tokio::test]
async fn a_list_that_is_denied_is_told_as_denied() {
    a_failed_list_is_told_and_mended("403 Forbidden", "denied", 1).await;
    a_failed_list_is_told_and_mended("401 Unauthorized", "denied", 1).await;
}

#[tokio::test]
async fn the_endpoint_of_one_server_says_it_too_in_both_eras() {
    let (bad, _) = unlisted("403 Forbidden", "").await;
    let (_folder, file) = configured(&remote("bad", &bad.url));
    let served = Served::start(&file).await;
    let (prompt, _) = lines("denied", "403 Forbidden", &bad.url);
    let session = served.session("/mcp/bad", &json!({})).await;
    assert_eq!(
        (&session.info["instructions"], &session.info["serverInfo"]["name"]),
        (&json!(prompt), &json!("by-hand"))
    );
    let discovered = served.modern_at("/mcp/bad", "server/discover").await;
    assert_eq!(discovered["result"]["instructions"], prompt, "{discovered}");
}

#[tokio::test]
async fn a_denial_can_be_told_in_the_words_from_before_it_was_told_apart() {
    let ((bad, _), ok) = (unlisted("403 Forbidden", "").await, healthy().await);
    let config = format!(
        "[startup]\ndenied_text = \"legacy\"\n{}{}",
        remote("ok", &ok.url),
        remote("bad", &bad.url)
    );
    let (mut client, info, _) = Client::connect(&config).await;
    let line = "**MCP servers that failed to load (tools from these servers are unavailable):**  bad: HTTP 403 Forbidden from ";
    assert_eq!(info["instructions"], format!("{line}{}", bad.url));
    client.hears("notifications/message", 1).await;
    assert_eq!(
        client.warned(),
        ["MCP server 'bad' is unavailable. Tools from this server will not work."]
    );
}

#[tokio::test]
async fn an_endpoint_is_told_with_its_path_and_without_its_secrets() {
    let (bad, _) = unlisted("403 Forbidden", "").await;
    let secret = format!("{}/jira?api_key=hunter2hunter2", bad.url);
    let ok = healthy().await;
    let (_client, info, _) =
        Client::connect(&(remote("ok", &ok.url) + &remote("bad", &secret))).await;
    let told = info["instructions"].as_str().unwrap();
    assert!(told.ends_with(&format!("HTTP 403 Forbidden from {}/jira", bad.url)), "{told}");
    assert!(!info.to_string().contains("hunter2"), "{info}");
}

#[tokio::test]
async fn a_server_without_tools_is_available() {
    let none = scripted(|asked, _| {
        if !asked.is("tools/list") {
            return honest(asked);
        }
        let error = json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": {"code": -32601, "message": "no"}});
        response("200 OK", "content-type: application/json\r\n", error.to_string().as_bytes())
    })
    .await;
    let ok = healthy().await;
    let (mut client, info, _) =
        Client::connect(&(remote("ok", &ok.url) + &remote("none", &none.url))).await;
    assert_eq!(info.get("instructions"), None, "{info}");
    let list = client.list().await;
    assert_eq!((names(&list), list.get("_meta")), (vec!["ok__echo"], None), "{list}");
}

/// A server that needs so many seconds to start, and then lists as many tools as the file says.
fn slow(name: &str, seconds: f64, file: &std::path::Path) -> String {
    let program = program("seawall-scripted");
    shell(name, &format!("sleep {seconds}; exec {program} --tools $(cat {})", file.display()))
}

async fn timed(work: impl Future<Output = Value>) -> (Value, Duration) {
    let began = Instant::now();
    (work.await, began.elapsed())
}

#[tokio::test]
async fn who_comes_after_a_slow_server_was_listed_has_its_tools_at_once_whatever_it_can_do() {
    let folder = tempfile::TempDir::new().unwrap();
    let count = folder.path().join("count");
    std::fs::write(&count, "3").unwrap();
    let ok = healthy().await;
    let (_folder, file) = configured(&(remote("ok", &ok.url) + &slow("slow", 6.0, &count)));
    let served = Served::start(&file).await;
    let first = served.session("/mcp", &json!({})).await;
    let list = first.ask("tools/list", json!({})).await;
    assert_eq!(names(&list["result"]), ["ok__echo"], "nothing is known of it yet");
    // Nobody asks for its tools: the gateway does.
    let mut after = Value::Null;
    let others = [
        json!({"sampling": {}}),
        json!({"roots": {"listChanged": true}}),
        json!({"elicitation": {}}),
    ];
    for capabilities in others.iter().cycle().take(30) {
        let session = served.session("/mcp", capabilities).await;
        after = session.ask("tools/list", json!({})).await;
        if names(&after["result"]).len() == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let all = ["ok__echo", "slow__echo", "slow__tool_0_1", "slow__tool_0_2"];
    assert_eq!(names(&after["result"]), all);
    for capabilities in [json!({}), json!({"sampling": {}, "roots": {}})] {
        let (info, took) = timed(async { served.session("/mcp", &capabilities).await.info }).await;
        assert!(took < AT_ONCE && info.get("instructions").is_none(), "{took:?} {info}");
        let session = served.session("/mcp/slow", &capabilities).await;
        let (list, took) = timed(session.ask("tools/list", json!({}))).await;
        assert!(took < AT_ONCE && names(&list["result"]).len() == 3, "{took:?} {list}");
    }
    for (path, count) in [("/mcp", 4), ("/mcp/slow", 3)] {
        let (list, took) = timed(served.modern_at(path, "tools/list")).await;
        assert!(took < AT_ONCE && names(&list["result"]).len() == count, "{took:?} {list}");
        assert_eq!(list["result"]["resultType"], "complete", "{list}");
    }
}

/// A client of a new gateway that comes while its server starts: what it is listed from before, how
/// quickly, and what it hears once the server is there.
async fn while_it_starts(then: &str) -> (Value, Duration, usize, Value) {
    let folder = tempfile::TempDir::new().unwrap();
    let (count, gate) = (folder.path().join("count"), folder.path().join("gate"));
    std::fs::write(&count, "2").unwrap();
    let program = program("seawall-scripted");
    let script = format!(
        "while [ -e {} ]; do sleep 0.05; done; exec {program} --tools $(cat {})",
        gate.display(),
        count.display()
    );
    let config = shell("slow", &script);
    let (mut client, _, _) = Client::start_with(&config, Some(folder.path())).greeted().await;
    let before = client.list().await;
    assert_eq!(names(&before).len(), 2);
    let memory = folder.path().join("seawall/catalog");
    let is_kept = |entry: std::fs::DirEntry| {
        std::fs::read_to_string(entry.path()).unwrap().contains("tool_0_1")
    };
    until("it is remembered", || std::fs::read_dir(&memory).unwrap().flatten().any(is_kept)).await;
    drop(client);

    std::fs::write(&gate, "").unwrap();
    std::fs::write(&count, then).unwrap();
    let (mut client, info, _) = Client::start_with(&config, Some(folder.path())).greeted().await;
    assert_eq!(info.get("instructions"), None, "{info}");
    let (list, took) = timed(client.list()).await;
    assert_eq!(
        (&list["tools"], &told(&list, "slow")["status"]),
        (&before["tools"], &json!("transient"))
    );
    std::fs::remove_file(&gate).unwrap();
    while !told(&client.list().await, "slow").is_null() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let after = client.list().await;
    (list, took, client.count(CHANGED), after)
}

#[tokio::test]
async fn what_is_remembered_is_listed_at_once_and_a_list_that_is_the_same_is_no_news() {
    let (list, took, changes, after) = while_it_starts("2").await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!((changes, &after["tools"]), (0, &list["tools"]));
}

#[tokio::test]
async fn what_is_remembered_is_listed_at_once_and_a_list_that_differs_is_told_once() {
    let (_, took, changes, after) = while_it_starts("3").await;
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!((changes, names(&after).len()), (1, 3));
}
