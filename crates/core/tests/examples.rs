//! Whether the example of each front door prints what it is there to show.
//!
//! Cargo builds the examples before it runs all tests of the package. If only this one is selected,
//! it does not: `cargo build -p seawall --examples && cargo test -p seawall --test examples`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

/// What an example prints, line by line.
fn printed(example: &str) -> Vec<String> {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let program =
        profile.join("examples").join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    let output = Command::new(&program)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}; see above", program.display()));
    assert!(output.status.success(), "{example}: {}", output.status);
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_retry_repeats_a_read_and_not_a_write() {
    assert_eq!(
        printed("retry"),
        [
            "[Retry] Attempt 1/3 failed. Retrying in 1000ms. Error: 503 Service Unavailable",
            "[Retry] Attempt 2/3 failed. Retrying in 2000ms. Error: 429 rate limit exceeded",
            "read: issue 7 after 3 attempts",
            "write: connection reset by peer after 1 attempt",
        ]
    );
}

#[test]
fn the_circuit_breaker_opens_refuses_and_closes() {
    assert_eq!(
        printed("circuit_breaker"),
        [
            "call 1: 503 Service Unavailable (closed)",
            "call 2: 503 Service Unavailable (closed)",
            "call 3: 503 Service Unavailable (open)",
            "call 4: refused at once, try again in 30 s (open)",
            "call 5: refused at once, try again in 30 s (open)",
            "call 6: issue 7 (closed)",
        ]
    );
}

#[test]
fn the_fallback_chain_takes_the_next_way_and_stops_at_a_callers_fault() {
    assert_eq!(
        printed("fallback_chain"),
        [
            "20 issues, not searched (by list_issues)",
            "warning: search_api: 503 Service Unavailable",
            "warning: search_index: unavailable, skipping",
            "stopped: search_api: 400 Bad Request: unknown field",
        ]
    );
}

#[test]
fn the_tool_caller_retries_serves_a_copy_and_tells_of_a_write_in_doubt() {
    let lines = printed("tool_caller");
    assert_eq!(lines[0], "get_issue: issue 7 (get_issue, 2 sent)");
    assert_eq!(lines[1], "get_issue: issue 7 (get_issue-cached, 3 sent)");
    assert!(lines[2].starts_with("add_comment: CONNECTION_LOST "), "{}", lines[2]);
    assert!(lines[2].contains("It may have been executed."), "{}", lines[2]);
}

#[test]
fn the_start_of_an_agent_gets_the_tools_that_are_there() {
    assert_eq!(
        printed("load_tools"),
        [
            r#"tools: ["get_issue", "create_issue", "query"]"#,
            "attempts at gitnexus: 2",
            "warning: MCP server 'jira' denied access: HTTP 403 Forbidden from http://gw/mcp.",
        ]
    );
}

#[test]
fn each_example_of_a_front_door_fits_a_screen() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    for name in ["retry", "circuit_breaker", "fallback_chain", "tool_caller", "load_tools"] {
        let text = fs::read_to_string(folder.join(format!("{name}.rs"))).unwrap();
        assert!(text.lines().count() <= 60 && text.starts_with("//!"), "{name}");
    }
}
