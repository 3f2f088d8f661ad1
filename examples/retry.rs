//! A read that is tried again until it works, and a write that is not sent twice.
//!
//! `cargo run -p seawall --example retry`. Time is paused, so that the pauses take none.

#![allow(clippy::print_stdout, reason = "an example prints what happens")]

use std::time::Duration;

use seawall::{Effect, Env, Invalid, Retry, Rng};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Invalid> {
    // Without jitter, so that the output is the same each time. Leave `env` out in your program.
    let env = Env::new().with_rng(Rng::fixed(0.0));
    let mut events = env.events.subscribe();

    let read = Retry::new(Effect::ReadOnly).env(env);
    let issue = read
        .call(|attempt| async move {
            match attempt {
                1 => Err("503 Service Unavailable"),
                2 => Err("429 rate limit exceeded"),
                _ => Ok("issue 7"),
            }
        })
        .await;
    for event in events.drain() {
        println!("{event}");
    }
    if let Ok(issue) = issue {
        println!("read: {} after {} attempts", issue.value, issue.attempts);
    }

    // Nobody knows whether the server got it, so nobody sends it again.
    let write = Retry::new(Effect::Write).timeout(Duration::from_secs(10))?;
    let lost = write.call(|_| async { Err::<(), _>("connection reset by peer") }).await;
    if let Err(gave_up) = lost {
        println!("write: {gave_up} after {} attempt", gave_up.attempts);
    }
    Ok(())
}
