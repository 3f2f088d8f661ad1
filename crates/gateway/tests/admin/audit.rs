//! The audit log: one line for each call, and a chain that shows every change of it.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use super::admin_api::ADMIN;
use super::kit::{Served, until};
use super::server::{End, Faulty};

fn config(server: &Faulty, log: &Path, more: &str) -> String {
    let policy =
        "[kinds.write]\nretry = { attempts = 1 }\n[kinds.read]\nretry = { attempts = 1 }\n";
    let audit = format!("[audit]\npath = {:?}\n{more}", log.to_str().unwrap());
    format!("listen = \"127.0.0.1:0\"\n{ADMIN}{}{policy}{audit}", server.config("", ""))
}

fn lines(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

async fn verified(log: &Path, more: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.args(["audit", "verify"]).arg(log).args(more).output().await.unwrap()
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::TempDir::new().unwrap();
    let log = folder.path().join("audit.jsonl");
    (folder, log)
}

#[tokio::test]
async fn every_call_is_one_line_that_says_how_it_ended_and_holds_no_argument() {
    let server = Faulty::start(|tool, _, _| match tool {
        "get_issue" => End::Text("found"),
        "list_issues" => End::ToolError("no such label"),
        _ => End::Reset,
    })
    .await;
    let (_folder, log) = file();
    let served = Served::file("seawall.toml", &config(&server, &log, "")).await;
    let session = served.session("/mcp/gh").await;
    for tool in ["get_issue", "list_issues", "create_issue", "get_issue"] {
        let call = json!({"name": tool, "arguments": {"title": "a-private-title"}});
        session.ask(1, "tools/call", call).await;
    }
    until("four lines", async || lines(&log).len() == 4).await;
    let lines = lines(&log);
    let told = |line: &Value| {
        let parts = ["n", "tool", "effect", "outcome", "mayHaveExecuted", "attempts"];
        json!(parts.map(|part| line[part].clone()))
    };
    let told: Vec<Value> = lines.iter().map(told).collect();
    let expected = [
        json!([1, "get_issue", "read-only", "answered", null, 1]),
        json!([2, "list_issues", "read-only", "tool_error", null, 1]),
        json!([3, "create_issue", "write", "failed", true, 1]),
        json!([4, "get_issue", "read-only", "answered", null, 1]),
    ];
    assert_eq!(told, expected, "{lines:#?}");
    assert!(lines[0]["caller"].as_str().unwrap().starts_with("client "), "{}", lines[0]);
    assert!(lines.iter().all(|line| line["caller"] == lines[0]["caller"]));
    assert_eq!(lines[0]["arguments"], lines[3]["arguments"]);
    assert_eq!(lines[2]["code"], "CONNECTION_LOST", "{}", lines[2]);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains("private"), "{text}");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&log).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_line_that_is_changed_taken_out_or_cut_off_is_seen() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let (_folder, log) = file();
    let text = config(&server, &log, "arguments = \"redacted\"\n");
    let served = Served::file("seawall.toml", &text).await;
    let session = served.session("/mcp/gh").await;
    for n in 0..5 {
        let call = json!({"name": "get_issue", "arguments": {"n": n}});
        session.ask(1, "tools/call", call).await;
    }
    until("five lines", async || lines(&log).len() == 5).await;
    assert_eq!(lines(&log)[0]["arguments"], json!({"n": "<number>"}));
    let whole = verified(&log, &[]).await;
    assert!(whole.status.success(), "{whole:?}");
    let said = String::from_utf8(whole.stdout).unwrap();
    let last = said.lines().find_map(|line| line.strip_prefix("last hash ")).unwrap().to_owned();

    let text = std::fs::read_to_string(&log).unwrap();
    let all: Vec<&str> = text.lines().collect();
    let changed = text.replacen("\"answered\"", "\"denied\"", 1);
    let without = [&all[..2], &all[3..]].concat().join("\n") + "\n";
    let denied = all[4].replace("\"answered\"", "\"denied\"");
    let last_changed = [&all[..4], &[&*denied]].concat();
    let overwritten = [&all[..2], &["xxxxxx"; 3]].concat();
    let shorter = all[..4].join("\n") + "\n";
    for (tampered, more) in [
        (changed, vec![]),
        (without, vec![]),
        (last_changed.join("\n") + "\n", vec![]),
        (overwritten.join("\n") + "\n", vec![]),
        (all[2..].join("\n") + "\n", vec![]),
        (shorter, vec!["--contains", last.as_str()]),
    ] {
        std::fs::write(&log, &tampered).unwrap();
        let found = verified(&log, &more).await;
        assert_eq!(found.status.code(), Some(1), "{tampered}\n{found:?}");
    }
    std::fs::write(&log, &text).unwrap();
    assert!(verified(&log, &["--contains", &last]).await.status.success());
}

#[tokio::test]
async fn what_is_no_audit_log_is_not_called_whole() {
    let (_folder, log) = file();
    for text in ["root:x:0:0:root:/root:/bin/sh\n", "\u{1}\u{2}\n\n{}\n", "{\"n\":\n", "[1]\n"] {
        std::fs::write(&log, text).unwrap();
        let found = verified(&log, &[]).await;
        assert_eq!(found.status.code(), Some(4), "{text:?}\n{found:?}");
    }
}

#[tokio::test]
async fn the_chain_goes_on_over_a_kill_and_over_files() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let (folder, log) = file();
    let text = config(&server, &log, "max_size = \"64KiB\"\nkeep = 2\n");
    let mut written = 0;
    for life in 0..3 {
        let mut served = Served::file("seawall.toml", &text).await;
        let session = served.session("/mcp/gh").await;
        for n in 0..150 {
            let call = json!({"name": "get_issue", "arguments": {"life": life, "n": n}});
            session.ask(1, "tools/call", call).await;
        }
        written += 150;
        until("they are written", async || {
            lines(&log).last().is_some_and(|line| line["n"] == written)
        })
        .await;
        served.child.kill().await.unwrap();
        // The process was killed while it wrote.
        let cut_off = std::fs::read_to_string(&log).unwrap() + "{\"n\":";
        std::fs::write(&log, cut_off).unwrap();
    }
    let found = verified(&log, &["--json"]).await;
    let report: Value = serde_json::from_slice(&found.stdout).unwrap();
    assert!(found.status.success(), "{report}");
    assert!(report["files"].as_array().unwrap().len() > 1, "{report}");
    assert!(std::fs::metadata(&log).unwrap().len() <= 64 * 1024 + 8);
    assert!(std::fs::read_dir(folder.path()).unwrap().count() <= 3);
    std::fs::remove_file(log.with_extension("jsonl.1")).unwrap();
    let gap = verified(&log, &[]).await;
    assert_eq!(gap.status.code(), Some(1), "a file was taken out from between: {gap:?}");
}

#[tokio::test]
async fn a_log_that_is_moved_away_goes_on_in_a_new_file() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let (folder, log) = file();
    let served = Served::file("seawall.toml", &config(&server, &log, "")).await;
    let session = served.session("/mcp/gh").await;
    let call = async || {
        session.ask(1, "tools/call", json!({"name": "get_issue", "arguments": {}})).await;
    };
    call().await;
    until("the first line", async || lines(&log).len() == 1).await;
    std::fs::rename(&log, folder.path().join("kept-elsewhere")).unwrap();
    call().await;
    until("a new file", async || lines(&log).len() == 1).await;
    assert_eq!((&lines(&log)[0]["n"], &lines(&log)[0]["first"]), (&json!(2), &json!(true)));
    let found = verified(&log, &[]).await;
    assert!(found.status.success(), "{found:?}");
}

#[tokio::test]
async fn a_log_that_another_process_writes_is_refused_at_the_start() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let (folder, log) = file();
    let text = config(&server, &log, "");
    let _first = Served::file("seawall.toml", &text).await;
    let config = folder.path().join("second.toml");
    std::fs::write(&config, &text).unwrap();
    let mut second = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    let ended = second.args(["serve", "--config"]).arg(&config).output().await.unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        said.contains("cannot write the audit log") && said.contains("another process"),
        "{said}"
    );
}
