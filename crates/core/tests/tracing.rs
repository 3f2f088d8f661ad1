//! What a real `tracing` subscriber hears of a call that fails: the events with their fields, and
//! nothing of its arguments or of secrets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

use std::io;
use std::sync::{Mutex, mpsc};

use seawall::{CallerOptions, Env, Rng, Settings, ToolCaller};
use serde_json::json;
use tracing_subscriber::filter::LevelFilter;

/// A subscriber's output, line by line.
struct Lines(mpsc::Sender<String>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        drop(self.0.send(String::from_utf8_lossy(bytes).trim().to_owned()));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// All that is told of one call, while the secrets in its arguments and errors are at hand.
fn told() -> Vec<String> {
    let (sender, lines) = mpsc::channel();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_writer(Mutex::new(Lines(sender)))
        .finish();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let env = Env::new().with_rng(Rng::fixed(0.0));
        listen(subscriber, &env);
        let settings = Settings { env, ..Settings::default() };
        let options = CallerOptions { server: "github".into(), ..CallerOptions::default() };
        let tools = ToolCaller::<String>::with_options(settings, options).unwrap();
        let arguments = json!({"issue_number": 4711, "token": "arg-secret"});
        tools
            .call("get_issue", arguments, |_| async {
                Err("503 Service Unavailable, token=err-secret".into())
            })
            .await;
    });
    let mut told = Vec::new();
    while told.last().is_none_or(|line: &String| !line.contains("call_finished")) {
        told.push(lines.recv().unwrap());
    }
    told
}

/// The subscriber is the current one only while the listener is added.
fn listen(subscriber: impl Into<tracing::Dispatch>, env: &Env) {
    tracing::dispatcher::with_default(&subscriber.into(), || env.events.trace()).unwrap();
}

#[test]
fn a_failing_call_is_told_with_its_fields() {
    let told = told();
    let has = |line: &str| assert!(told.iter().any(|told| told == line), "{line}\n{told:#?}");

    has(r#"DEBUG seawall: attempt_started server="github" tool="get_issue" attempt=1"#);
    has(
        r#"DEBUG seawall: attempt_ended server="github" tool="get_issue" attempt=1 elapsed_ms=0 cause=Misbehaved"#,
    );
    has(
        r#" WARN seawall: retry_scheduled server="github" tool="get_issue" attempt=1 of=3 delay_ms=1000 error="503 Service Unavailable, token=[REDACTED]""#
            .trim(),
    );
    has(
        r#"DEBUG seawall: call_finished server="github" tool="get_issue" class="UPSTREAM_ERROR" attempts=3 elapsed_ms=3000"#,
    );
    assert_eq!(told.iter().filter(|line| line.contains("attempt_started")).count(), 3);
}

#[test]
fn no_argument_and_no_secret_is_told() {
    let told = told().join("\n");
    for hidden in ["4711", "arg-secret", "err-secret", "issue_number"] {
        assert!(!told.contains(hidden), "{hidden}:\n{told}");
    }
}
