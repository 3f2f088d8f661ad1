//! What clients notice when servers start and lists change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::kit::*;
use super::upstream::{answer, honest, response};

/// Less than a client is made to wait for a server that may still come.
const WAITED: Duration = Duration::from_secs(3);
/// The least patient client waits for so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The list, asked for three times, and how long the quickest took.
async fn quickest_list(client: &mut Client) -> (Value, Duration) {
    let (mut list, mut quickest) = (Value::Null, Duration::MAX);
    for _ in 0..3 {
        let began = Instant::now();
        list = client.list().await;
        quickest = quickest.min(began.elapsed());
    }
    (list, quickest)
}

#[tokio::test]
async fn one_unreachable_server_costs_only_its_own_tools() {
    let (one, two, gone) = (healthy().await, healthy().await, nobody());
    let config = remote("one", &one.url) + &remote("gone", &gone) + &remote("two", &two.url);
    let (mut client, _, took) = Client::quickest(&config).await;
    assert!(took < WAITED, "{took:?}");
    let (list, took) = quickest_list(&mut client).await;
    assert!(took < WAITED, "{took:?}");
    assert_eq!(names(&list), ["one__echo", "two__echo"]);
    assert_eq!(told(&list, "gone")["status"], "permanent");
    let call =
        client.ask("tools/call", json!({"name": "two__echo", "arguments": {"text": "hi"}})).await;
    assert_eq!(call["result"]["content"][0]["text"], "hi");

    let (_folder, file) = configured(&config);
    let served = Served::start(&file).await;
    let info = served.modern("server/discover").await;
    let line = "**MCP servers that failed to load (tools unavailable — needs attention):** gone: Cannot connect to ";
    assert!(info["result"]["instructions"].as_str().unwrap().starts_with(line), "{info}");
    let list = &served.modern("tools/list").await["result"];
    assert_eq!(names(list), ["one__echo", "two__echo"]);
    assert_eq!(
        (&told(list, "gone")["status"], &list["ttlMs"]),
        (&json!("permanent"), &json!(0)),
        "{list}"
    );
}

/// A fixture that starts when a file is gone.
fn waiting(name: &str, file: &std::path::Path) -> String {
    let fixture = program("seawall-fixture");
    shell(
        name,
        &format!(
            "while [ -e {} ]; do sleep 0.05; done; exec {fixture} --stdio --era legacy",
            file.display()
        ),
    )
}

#[tokio::test]
async fn a_slow_server_keeps_nobody_waiting_and_appears_when_it_is_ready() {
    let folder = tempfile::TempDir::new().unwrap();
    let flag = folder.path().join("slow");
    std::fs::write(&flag, "").unwrap();
    let ok = healthy().await;
    let (mut client, info, took) =
        Client::connect(&(remote("ok", &ok.url) + &waiting("slow", &flag))).await;
    assert!(took < PATIENCE, "{took:?}");
    assert!(
        info["instructions"].as_str().unwrap().ends_with("tools may appear shortly):** slow"),
        "{info}"
    );
    assert_eq!(info["capabilities"]["tools"]["listChanged"], true, "{info}");
    let (list, took) = quickest_list(&mut client).await;
    assert_eq!(names(&list), ["ok__echo"]);
    assert!(took < WAITED, "it was waited for already: {took:?}");

    std::fs::remove_file(&flag).unwrap();
    client.hears(CHANGED, 1).await;
    let list = client.list().await;
    assert!(names(&list).contains(&"slow__echo_meta"), "{list}");
    assert_eq!(list.get("_meta"), None);
    assert_eq!(client.count(CHANGED), 1);
}

#[tokio::test]
async fn a_server_that_is_slow_to_list_keeps_nobody_waiting_either() {
    let is_slow = Arc::new(AtomicBool::new(true));
    let slow = Arc::clone(&is_slow);
    let lists = super::upstream::Upstream::start(move |asked, mut tcp| {
        let slow = Arc::clone(&slow);
        async move {
            while asked.is("tools/list") && slow.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            super::upstream::write(&mut tcp, &honest(&asked)).await;
        }
    })
    .await;
    let ok = healthy().await;
    let (mut client, info, _) =
        Client::connect(&(remote("ok", &ok.url) + &remote("slow", &lists.url))).await;
    // Greeted is not loaded: without its list its tools are missing.
    assert!(
        info["instructions"].as_str().unwrap().ends_with("tools may appear shortly):** slow"),
        "{info}"
    );
    assert_eq!(info["capabilities"]["tools"]["listChanged"], true, "{info}");
    let began = Instant::now();
    let list = client.list().await;
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    assert_eq!(
        (names(&list), &told(&list, "slow")["status"]),
        (vec!["ok__echo"], &json!("transient")),
        "{list}"
    );

    is_slow.store(false, Ordering::SeqCst);
    client.hears(CHANGED, 1).await;
    let list = client.list().await;
    assert_eq!((names(&list), list.get("_meta")), (vec!["ok__echo", "slow__echo"], None));

    is_slow.store(true, Ordering::SeqCst);
    let again = client.list().await;
    assert_eq!(again["tools"], list["tools"], "what it listed last stands in");
    assert_eq!(told(&again, "slow")["status"], "transient");
    is_slow.store(false, Ordering::SeqCst);
}

#[tokio::test]
async fn an_empty_list_at_the_start_is_asked_for_again() {
    let is_warm = Arc::new(AtomicBool::new(false));
    let warm = Arc::clone(&is_warm);
    let server = scripted(move |asked, _| {
        let is_cold = asked.is("tools/list") && !warm.load(Ordering::SeqCst);
        if is_cold { answer(asked, &json!({"tools": []})) } else { honest(asked) }
    })
    .await;
    let ok = healthy().await;
    let (mut client, _, _) =
        Client::connect(&(remote("ok", &ok.url) + &remote("cold", &server.url))).await;
    assert_eq!(names(&client.list().await), ["ok__echo"]);
    is_warm.store(true, Ordering::SeqCst);
    client.hears(CHANGED, 1).await;
    assert_eq!(names(&client.list().await), ["ok__echo", "cold__echo"]);
    assert_eq!(client.count(CHANGED), 1);
}

/// A server with sessions: it forgets them when it begins its next life, and then lists what
/// `tools` says.
async fn reborn(life: &Arc<AtomicBool>, tools: Value) -> super::upstream::Upstream {
    let is_second = Arc::clone(life);
    scripted(move |asked, _| {
        let session = if is_second.load(Ordering::SeqCst) { "second" } else { "first" };
        if asked.is("initialize") {
            let text = String::from_utf8(honest(asked)).unwrap();
            return text
                .replacen("\r\n", &format!("\r\nmcp-session-id: {session}\r\n"), 1)
                .into_bytes();
        }
        if asked.head.contains("mcp-session-id: ") && !asked.head.contains(session) {
            return response("404 Not Found", "", b"");
        }
        if asked.is("tools/list") && session == "second" {
            answer(asked, &json!({"tools": tools}))
        } else {
            honest(asked)
        }
    })
    .await
}

#[tokio::test]
async fn an_empty_list_after_a_restart_is_not_believed() {
    let life = Arc::new(AtomicBool::new(false));
    let server = reborn(&life, json!([])).await;
    let ok = healthy().await;
    let (mut client, _, _) =
        Client::connect(&(remote("cold", &server.url) + &remote("ok", &ok.url))).await;
    let before = client.raw_tools().await;
    life.store(true, Ordering::SeqCst);
    // The first finds the session gone, the second asks the new one.
    assert_eq!(client.raw_tools().await, before);
    until("the server lives again", || shakes(&server) == 2).await;
    assert_eq!(client.raw_tools().await, before);
    assert_eq!(client.count(CHANGED), 0);

    let (_folder, file) = configured(&(remote("cold", &server.url) + &remote("ok", &ok.url)));
    life.store(false, Ordering::SeqCst);
    let served = Served::start(&file).await;
    let before = served.modern("tools/list").await["result"]["tools"].to_string();
    life.store(true, Ordering::SeqCst);
    served.modern("tools/list").await;
    assert_eq!(
        served.modern("tools/list").await["result"]["tools"].to_string(),
        before,
        "for modern clients too"
    );
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

/// The process of the server whose command line has this word.
fn server(parent: u32, word: &str) -> u32 {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_it = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let of =
            stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).unwrap_or_default();
        of == parent.to_string() && String::from_utf8_lossy(&line).contains(word)
    };
    pids.into_iter().find(is_it).unwrap()
}

#[tokio::test]
async fn tools_stay_the_same_bytes_through_an_outage_and_a_blip_is_no_news() {
    let fixture = program("seawall-fixture");
    let folder = tempfile::TempDir::new().unwrap();
    let flag = folder.path().join("down");
    let ok = healthy().await;
    // A server that cannot start again while a file is there.
    let mortal = shell(
        "mortal",
        &format!("[ -e {} ] && exit 1; exec {fixture} --stdio --era legacy", flag.display()),
    );
    let (mut client, _, _) = Client::connect(&(mortal + &remote("ok", &ok.url))).await;
    let before = client.raw_tools().await;
    let gateway = client.process.id().unwrap();
    std::fs::write(&flag, "").unwrap();
    kill(server(gateway, "seawall-fixture"));
    let mut list = client.list().await;
    while told(&list, "mortal").is_null() {
        list = client.list().await;
    }
    assert_eq!(told(&list, "mortal")["status"], "transient", "{list}");
    for _ in 0..3 {
        assert_eq!(client.raw_tools().await, before, "an outage takes no tool away");
    }
    let call =
        client.ask("tools/call", json!({"name": "ok__echo", "arguments": {"text": "hi"}})).await;
    assert_eq!(call["result"]["content"][0]["text"], "hi");

    std::fs::remove_file(&flag).unwrap();
    let call =
        client.ask("tools/call", json!({"name": "mortal__echo_meta", "arguments": {}})).await;
    assert_eq!(call["result"]["structuredContent"]["name"], "echo_meta", "{call}");
    assert_eq!(client.raw_tools().await, before);
    let list = client.list().await;
    assert_eq!(
        (list.get("_meta"), client.heard.as_slice()),
        (None, [].as_slice()),
        "it is back, and nothing has changed"
    );
}

#[tokio::test]
async fn one_broken_schema_costs_one_tool() {
    const GOOD: &str = r#"{"name" : "good",  "inputSchema":{"type":"object","properties":{"n":{"maximum":1.0e2}}}, "x":1.50}"#;
    const LAST: &str =
        r#"{"name":"last","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}"#;
    let broken = [
        r#"{"name":"no_schema"}"#,
        r#"{"name":"wrong_type","inputSchema":{"type":"string"}}"#,
        r#"{"inputSchema":{"type":"object"}}"#,
        r#"{"name":"good","inputSchema":{"type":"object"}}"#,
    ];
    let with = |tools: Vec<&str>| {
        let body = format!(r#"{{ "tools":[ {} ], "extra" : 7 }}"#, tools.join(" , "));
        move |asked: &super::upstream::Asked, _: usize| {
            if !asked.is("tools/list") {
                return honest(asked);
            }
            let message =
                format!(r#"{{"jsonrpc":"2.0","id":{},"result":{body}}}"#, asked.message["id"]);
            response("200 OK", "content-type: application/json\r\n", message.as_bytes())
        }
    };
    let bad = scripted(with([&[GOOD], broken.as_slice(), &[LAST]].concat())).await;
    let (mut client, _, _) = Client::connect(&remote("bad", &bad.url)).await;
    assert_eq!(
        client.raw_tools().await,
        format!("[{GOOD},{LAST}]"),
        "the others stay byte for byte"
    );
    let list = client.list().await;
    assert_eq!(list["extra"], 7);
    let quarantined = list["_meta"]["seawall/quarantined"]["bad"].as_array().unwrap();
    let tools: Vec<_> = quarantined.iter().map(|tool| tool["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["no_schema", "wrong_type", "", "good"]);
    assert!(quarantined.iter().all(|tool| tool["reason"].is_string()), "{list}");
    client
        .logs("bad: 4 tools are left out of its list: \"no_schema\" (its inputSchema is missing")
        .await;

    let ok = healthy().await;
    let (mut client, _, _) =
        Client::connect(&(remote("bad", &bad.url) + &remote("ok", &ok.url))).await;
    let list = client.list().await;
    assert_eq!(names(&list), ["bad__good", "bad__last", "ok__echo"]);
    assert_eq!(list["_meta"]["seawall/quarantined"]["bad"].as_array().unwrap().len(), 4, "{list}");
    assert_eq!(told(&list, "bad"), &Value::Null, "the server itself is there");

    let fine = scripted(with(vec![GOOD, LAST])).await;
    let (mut client, _, _) = Client::connect(&remote("fine", &fine.url)).await;
    client.list().await;
    let whole = format!(r#""result":{{ "tools":[ {GOOD} , {LAST} ], "extra" : 7 }}"#);
    assert!(
        client.last_line.contains(&whole),
        "without broken tools every byte is the server's: {}",
        client.last_line
    );
}

#[tokio::test]
async fn a_tool_that_was_renamed_is_reported() {
    let life = Arc::new(AtomicBool::new(false));
    let schema = json!({"type": "object"});
    let renamed =
        json!([{"name": "echo2", "inputSchema": schema}, {"name": "more", "inputSchema": schema}]);
    let server = reborn(&life, renamed).await;
    let ok = healthy().await;
    let (mut client, _, _) =
        Client::connect(&(remote("new", &server.url) + &remote("ok", &ok.url))).await;
    assert_eq!(names(&client.list().await), ["new__echo", "ok__echo"]);
    life.store(true, Ordering::SeqCst);
    let call =
        client.ask("tools/call", json!({"name": "new__echo", "arguments": {"text": "hi"}})).await;
    assert_eq!(call["result"]["content"][0]["text"], "hi", "{call}");
    client.hears(CHANGED, 1).await;
    client.logs("new: tools/list is not what it was: added echo2, more; removed echo").await;
    assert_eq!(names(&client.list().await), ["new__echo2", "new__more", "ok__echo"]);
    assert_eq!((client.count(CHANGED), shakes(&server)), (1, 2), "{:?}", client.heard);
}
