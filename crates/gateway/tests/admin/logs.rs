//! The log for programs: one JSON object a line, with one vocabulary, and no secret.

use serde_json::{Value, json};

use super::admin_api::ADMIN;
use super::kit::{Served, until};
use super::server::{End, Faulty, QUICK, call};

/// A secret of the server `gh`.
const CANARY: &str = "canary-5ecret-77";

fn lines(served: &Served) -> Vec<Value> {
    let log = served.log.lock().unwrap();
    let read = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    log.iter().map(read).collect()
}

/// The first line whose message holds these words.
async fn said(served: &Served, words: &str) -> Value {
    let find = || {
        let is_it = |line: &Value| line["message"].as_str().unwrap().contains(words);
        lines(served).into_iter().find(is_it)
    };
    until(words, async || find().is_some()).await;
    find().unwrap()
}

#[tokio::test]
async fn every_line_of_a_json_log_has_the_same_fields_and_no_secret_of_any_server() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("get_issue", 1) => End::Status("503 Service Unavailable", "", CANARY),
        ("list_issues", _) => End::ToolError("no such label"),
        _ => End::Text("well"),
    })
    .await;
    // It knows what it should not, and its own secrets are others.
    let talker = format!(
        "[servers.talker]\ncommand = \"sh\"\nargs = [\"-c\", \"echo it is {CANARY} >&2\"]\n"
    );
    let headers = format!("headers = {{ Authorization = \"Bearer {CANARY}\" }}\n{talker}");
    let log = "[log]\nformat = \"json\"\nlevel = \"debug\"\n";
    let served = Served::with(&server.config(&format!("{QUICK}{ADMIN}{log}"), &headers)).await;
    let session = served.session("/mcp").await;
    call(&session, "gh__get_issue", json!({})).await;
    call(&session, "gh__list_issues", json!({})).await;

    let retry = said(&served, "[Retry] Attempt 1/3 failed").await;
    assert_eq!((&retry["level"], &retry["server"]), (&json!("info"), &json!("gh")));
    assert_eq!(retry["tool"], "get_issue");
    let failed = said(&served, "tools/call gh__list_issues").await;
    assert_eq!((&failed["level"], &failed["request"]), (&json!("debug"), &json!("7")));
    assert_eq!(failed["tool"], "gh__list_issues");
    let talked = said(&served, "it is ***").await;
    assert_eq!((&talked["server"], &talked["message"]), (&json!("talker"), &json!("it is ***")));
    for line in lines(&served) {
        let fields = line.as_object().unwrap();
        let known = ["time", "level", "message", "server", "tool", "request"];
        assert!(fields.keys().all(|key| known.contains(&key.as_str())), "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        let level = line["level"].as_str().unwrap();
        assert!(["error", "warn", "info", "debug"].contains(&level), "{line}");
        assert!(!line.to_string().contains("5ecret"), "{line}");
    }
}

#[tokio::test]
async fn the_level_of_the_file_leaves_lines_out() {
    let server = Faulty::start(|_, _, _| End::Status("503 Service Unavailable", "", "")).await;
    let served =
        Served::with(&server.config(&format!("{QUICK}[log]\nlevel = \"debug\"\n"), "")).await;
    let session = served.session("/mcp").await;
    call(&session, "get_issue", json!({})).await;
    let logged = |words: &str| served.log.lock().unwrap().iter().any(|line| line.contains(words));
    until("the failure", async || logged("DEBUG gh: tools/call get_issue of request 7")).await;
    assert!(logged("INFO [Retry] Attempt 1/3 failed"));
}
