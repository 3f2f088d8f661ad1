//! A breaker that opens when a server fails, refuses while it is down, and probes when it may be
//! back.
//!
//! `cargo run -p seawall --example circuit_breaker`. Time is paused, so that waiting takes none.

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

use std::time::Duration;

use seawall::{BreakerPolicy, CircuitBreaker, Env, GuardedError, Invalid};

/// A server that is down for the first 30 seconds.
async fn get_issue(since: tokio::time::Instant) -> Result<&'static str, String> {
    match since.elapsed() < Duration::from_secs(30) {
        true => Err("503 Service Unavailable".into()),
        false => Ok("issue 7"),
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Invalid> {
    let start = tokio::time::Instant::now();
    let breakers =
        CircuitBreaker::new(BreakerPolicy::new(3, Duration::from_secs(30)), &Env::new())?;

    for call in 1..=6 {
        if call == 6 {
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        let outcome = match breakers.call("get_issue", || get_issue(start)).await {
            Ok(issue) => issue.to_owned(),
            Err(GuardedError::Failed(error)) => error,
            Err(GuardedError::Open(open)) => {
                format!("refused at once, try again in {} s", open.retry_after.as_secs())
            }
        };
        let status = breakers.breaker("get_issue").status();
        println!("call {call}: {outcome} ({status})");
    }
    Ok(())
}
