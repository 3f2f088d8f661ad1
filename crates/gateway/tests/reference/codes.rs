//! `error-codes.md`: every error code, its causes, and what a model reads.

use std::fmt::Write as _;

use seawall::{Cause, ErrorCode, Outcome, Settings, ToolCaller};
use seawall_testkit::page;

/// All causes of failures, in the order of their definition.
const CAUSES: [Cause; 20] = [
    Cause::RateLimited,
    Cause::Timeout,
    Cause::AuthExpired,
    Cause::Denied,
    Cause::InvalidInput,
    Cause::UnknownTool,
    Cause::Network,
    Cause::SessionLost,
    Cause::Misbehaved,
    Cause::Refusal,
    Cause::Loop,
    Cause::Uncertain,
    Cause::Queued,
    Cause::CircuitOpen,
    Cause::Overloaded,
    Cause::Starting,
    Cause::Away,
    Cause::Unavailable,
    Cause::GivenUp,
    Cause::Cancelled,
];

/// The only code that comes from no cause of the library: the gateway's authorizer is away.
const AUTHZ: &str = "\n\
    The text names the reason and when to try again: [authorization](../authorization.md#whether-they-may).\n";

/// The texts of a cause in the catalogue: a write that did not run, and one that may have.
fn texts(cause: Cause) -> Vec<String> {
    let catalogue = page::read(
        "crates/core/src/report/texts/snapshots/seawall__report__texts__tests__the_plain_catalogue.snap",
    );
    let section = catalogue.split(&format!("== {cause:?}\n")).nth(1).unwrap();
    let lines = section.lines().take_while(|line| !line.starts_with("== "));
    let mut found = Vec::new();
    for line in lines {
        let Some((of, text)) = line.split_once(": ") else { continue };
        let text = text.to_owned();
        if of.starts_with("Write, ") && !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// The error object of a real failure.
async fn example() -> String {
    let tools = ToolCaller::<String>::new(Settings::default()).unwrap();
    let answer = tools
        .call("create_issue", serde_json::json!({}), |_| async { Err("403 Forbidden".into()) })
        .await;
    let Outcome::Failed(report) = answer.outcome else { panic!("{answer:?}") };
    serde_json::to_string_pretty(&report.object()).unwrap()
}

#[tokio::test]
async fn the_reference_of_the_error_codes_is_what_clients_get() {
    let source = page::read("crates/core/src/model/report.rs");
    let causes = page::read("crates/core/src/model/failure.rs");
    let told = page::variants(&source, "ErrorCode");
    let known = page::variants(&causes, "Cause");
    let names: Vec<String> = CAUSES.iter().map(|cause| format!("{cause:?}")).collect();
    assert!(known.iter().map(|(name, _)| name).eq(&names), "CAUSES is not the enum Cause");
    let named = ErrorCode::ALL.map(|code| format!("{code:?}"));
    assert!(told.iter().map(|(name, _)| name).eq(&named), "ErrorCode::ALL is not the enum");

    let mut text = format!(include_str!("codes.txt"), example = example().await);
    for (code, (_, when)) in ErrorCode::ALL.iter().zip(&told) {
        let retryable = if code.is_retryable() { "yes" } else { "no" };
        writeln!(
            text,
            "| [`{0}`](#{1}) | {retryable} | {when} |",
            code.as_str(),
            code.as_str().to_lowercase()
        )
        .unwrap();
    }
    text.push_str(
        "\n## What a model reads\n\n\
         The texts of a write, `create_issue` of the server `github`, after two attempts where attempts are made.\n",
    );
    for code in ErrorCode::ALL {
        write!(text, "\n### {}\n", code.as_str()).unwrap();
        if code == ErrorCode::AuthzUnavailable {
            text.push_str(AUTHZ);
        }
        for (cause, (_, why)) in CAUSES.iter().zip(&known) {
            if ErrorCode::of(*cause) != code {
                continue;
            }
            write!(text, "\n{why}\n").unwrap();
            for said in texts(*cause) {
                write!(text, "\n> {said}\n").unwrap();
            }
        }
    }
    page::is_current("error-codes.md", &text);
}
