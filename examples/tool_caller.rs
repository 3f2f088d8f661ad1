//! The tools of one server, each called in one line: retried, answered from a copy, or told
//! honestly.
//!
//! `cargo run -p seawall --example tool_caller`. Time is paused, so that the pauses take none.

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

use std::cell::Cell;
use std::time::Duration;

use seawall::{Answer, FailureSignals, Invalid, Settings, ToolCaller, TransportFailure};
use serde_json::json;

fn show(tool: &str, answer: &Answer<String>) {
    let attempts = answer.attempts;
    match (answer.value(), answer.report()) {
        (Some(value), _) => println!("{tool}: {value} ({}, {attempts} sent)", answer.final_step()),
        (None, Some(report)) => println!("{tool}: {} {}", report.code.as_str(), report.message),
        (None, None) => println!("{tool}: nothing"),
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Invalid> {
    let tools = ToolCaller::<String>::new(Settings::default())?;
    let is_down = Cell::new(false);
    let issue = json!({"issue_number": 7});

    // `get_issue` is a read by its name: three attempts.
    let send = |attempt: seawall::Attempt| {
        let fails = is_down.get() || attempt.number == 1;
        async move {
            if fails { Err("503 Service Unavailable".into()) } else { Ok("issue 7".to_owned()) }
        }
    };
    show("get_issue", &tools.call("get_issue", issue.clone(), send).await);

    // The server fails: the last good answer is given, labelled as what it is.
    is_down.set(true);
    tokio::time::sleep(Duration::from_secs(90)).await;
    show("get_issue", &tools.call("get_issue", issue, send).await);

    // A write that may have been executed is not sent again, and says so.
    let comment = json!({"issue_number": 7, "body": "done"});
    let lost =
        |_| async { Err(FailureSignals::transport(TransportFailure::Lost, "connection reset")) };
    show("add_comment", &tools.call("add_comment", comment, lost).await);
    Ok(())
}
