//! A start that was begun is finished, and a child that its client left unused is there for the
//! next client that greets alike.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::kit::*;

/// A server that needs so many seconds to start, and writes down each start and each handshake.
fn noting(seconds: f64, ledger: &Path, more: &str) -> String {
    let program = program("seawall-scripted");
    let script = format!(
        "echo begun >> {0}; sleep {seconds}; exec {program} --ledger {0}",
        ledger.display()
    );
    format!("{}{more}", shell("slow", &script))
}

fn count(ledger: &Path, word: &str) -> usize {
    std::fs::read_to_string(ledger)
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with(word))
        .count()
}

async fn call(session: &Legacy<'_>) -> Value {
    session.ask("tools/call", json!({"name": "echo", "arguments": {"text": "hi"}})).await
}

/// How often the server was started for two clients, of which the second greets with these
/// capabilities.
async fn starts(more: &str, is_used: bool, second: &Value) -> usize {
    let folder = tempfile::TempDir::new().unwrap();
    let ledger = folder.path().join("ledger");
    let (_folder, file) = configured(&noting(0.0, &ledger, more));
    let served = Served::start(&file).await;
    let first = served.session("/mcp/slow", &json!({})).await;
    assert_eq!(names(&first.ask("tools/list", json!({})).await["result"]), ["echo"]);
    if is_used {
        assert!(call(&first).await["result"]["content"].is_array());
    }
    first.leave().await;
    let other = served.session("/mcp/slow", second).await;
    assert!(call(&other).await["result"]["content"].is_array());
    assert_eq!(count(&ledger, "begun"), count(&ledger, "hello"), "every start was greeted once");
    count(&ledger, "begun")
}

#[tokio::test]
async fn a_start_is_finished_although_its_client_left_and_the_next_client_has_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let ledger = folder.path().join("ledger");
    let (_folder, file) = configured(&noting(6.0, &ledger, ""));
    let served = Served::start(&file).await;
    let first = served.session("/mcp/slow", &json!({})).await;
    assert_eq!(count(&ledger, "hello"), 0, "it is still starting");
    first.leave().await;
    until("the start is finished for nobody", || count(&ledger, "hello") == 1).await;
    let began = Instant::now();
    let second = served.session("/mcp/slow", &json!({})).await;
    assert!(call(&second).await["result"]["content"].is_array());
    assert!(began.elapsed() < Duration::from_secs(3), "nothing was started: {:?}", began.elapsed());
    assert_eq!((count(&ledger, "begun"), count(&ledger, "hello")), (1, 1));
}

#[tokio::test]
async fn a_child_that_was_only_listed_is_handed_on() {
    assert_eq!(starts("", false, &json!({})).await, 1);
}

#[tokio::test]
async fn a_child_that_served_a_call_or_was_greeted_otherwise_is_not_handed_on() {
    assert_eq!(starts("", true, &json!({})).await, 2, "it may know something of its client");
    assert_eq!(starts("", false, &json!({"sampling": {}})).await, 2, "it was told something else");
}

#[tokio::test]
async fn an_operator_can_do_without_warm_children() {
    assert_eq!(starts("keep_warm = \"0s\"\n", false, &json!({})).await, 2);
}

#[tokio::test]
async fn a_child_that_nobody_comes_for_ends() {
    let folder = tempfile::TempDir::new().unwrap();
    let ledger = folder.path().join("ledger");
    let (_folder, file) = configured(&noting(0.0, &ledger, "keep_warm = \"1s\"\n"));
    let served = Served::start(&file).await;
    let first = served.session("/mcp/slow", &json!({})).await;
    let mark = ledger.to_str().unwrap().to_owned();
    assert_eq!(processes(&mark), 1);
    let began = Instant::now();
    first.leave().await;
    until("it has ended", || processes(&mark) == 0).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "it was kept: {:?}", began.elapsed());
}

/// How many servers run whose command line has this word.
fn processes(word: &str) -> usize {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let lines = pids.filter_map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(word)).count()
}
