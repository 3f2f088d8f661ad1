//! Names and arguments that clients invent leave nothing behind, but for as many copies of answers
//! as may be kept.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::kit::{Served, Session, fixture};

/// Calls before memory is looked at first.
const BEFORE: usize = 4_000;
/// How often it is looked at then.
const STEPS: usize = 10;

/// How much more memory there may be for anything but copies, in KiB.
const ANYTHING: u64 = 4 << 10;
/// As many calls as fill the room for copies.
const FULL: usize = 400_000;

/// How much more memory there may be after so many calls, in KiB: a quarter of them leave a copy of
/// their answer. There is room for 64 MiB of copies; what stands around small ones comes on top.
fn allowed(calls: usize) -> u64 {
    const COPY: u64 = 2;
    const COPIES: u64 = 120 << 10;
    (calls as u64 / 4 * COPY).min(COPIES) + ANYTHING
}

/// Resident memory of a process in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// A call like no other: three of four by a name that no server has, the fourth of a tool that
/// answers with what it is given.
fn invented(id: usize) -> Value {
    let text = format!("argument {id} {}", "x".repeat(id % 512));
    let name =
        if id.is_multiple_of(4) { "echo_meta".to_owned() } else { format!("get_invented_{id}") };
    json!({"name": name, "arguments": {"text": text}})
}

async fn invent(sessions: &[Session<'_>], from: usize, to: usize) {
    let each = (to - from) / sessions.len();
    let client = async |number: usize, session: &Session<'_>| {
        for id in (0..each).map(|call| from + number * each + call) {
            let answer = session.ask(9, "tools/call", invented(id)).await;
            assert_eq!(answer["result"].is_object(), id.is_multiple_of(4), "{answer}");
        }
    };
    join_all(sessions.iter().enumerate().map(|(number, session)| client(number, session))).await;
}

/// `SEAWALL_CALLS` makes it longer; the full test is a million.
#[tokio::test(flavor = "multi_thread")]
async fn invented_names_and_arguments_leave_memory_flat() {
    let calls: usize =
        std::env::var("SEAWALL_CALLS").ok().and_then(|calls| calls.parse().ok()).unwrap_or(12_000);
    let served = Served::with(&fixture("a", "legacy")).await;
    let pid = served.child.id().unwrap();
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(served.session("/mcp/a").await);
    }
    println!("{:>9} calls: {} KiB", 0, resident(pid));
    invent(&sessions, 0, BEFORE).await;
    let before = resident(pid);
    println!("{BEFORE:>9} calls: {before} KiB");
    let mut full = None;
    for step in 0..STEPS {
        let from = BEFORE + calls * step / STEPS;
        let to = BEFORE + calls * (step + 1) / STEPS;
        invent(&sessions, from, to).await;
        let now = resident(pid);
        println!("{to:>9} calls: {now} KiB");
        if to >= FULL {
            let grown = now.saturating_sub(*full.get_or_insert(now));
            assert!(
                grown < ANYTHING,
                "{grown} KiB more although there was no room for more copies"
            );
        }
    }
    let grown = resident(pid).saturating_sub(before);
    assert!(grown < allowed(calls), "{grown} KiB more after {calls} calls");
}
