//! Names and arguments that clients invent leave nothing behind.

use futures_util::future::join_all;
use serde_json::json;

use super::kit::{Served, Session, fixture};

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Calls tools that no server has, each by a name and with arguments of its own.
async fn invent(sessions: &[Session<'_>], from: usize, to: usize) {
    let each = (to - from) / sessions.len();
    let client = async |number: usize, session: &Session<'_>| {
        for call in 0..each {
            let id = from + number * each + call;
            let params = json!({"name": format!("get_invented_{id}"), "arguments": {"text": format!("argument {id}")}});
            let answer = session.ask(9, "tools/call", params).await;
            assert!(answer["error"].is_object() || answer["result"].is_object(), "{answer}");
        }
    };
    join_all(sessions.iter().enumerate().map(|(number, session)| client(number, session))).await;
}

/// `SEAWALL_CALLS` makes it longer; the full test is a million.
#[tokio::test(flavor = "multi_thread")]
async fn invented_names_and_arguments_leave_memory_flat() {
    let calls: usize = std::env::var("SEAWALL_CALLS").ok().and_then(|calls| calls.parse().ok()).unwrap_or(12_000);
    let served = Served::with(&fixture("a", "legacy")).await;
    let pid = served.child.id().unwrap();
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(served.session("/mcp/a").await);
    }
    invent(&sessions, 0, 8_000).await;
    let before = resident(pid);
    invent(&sessions, 8_000, 8_000 + calls).await;
    let grown = resident(pid).saturating_sub(before);
    println!("{calls} calls by names of their own: {before} KiB before, {grown} KiB more after");
    assert!(grown < 8 * 1024, "{grown} KiB more after {calls} calls");
}
