//! Decides how processes are ended that nobody waits for: SIGTERM, then SIGKILL, until none of them
//! is found any more.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// How often the processes are looked for.
const LOOK: Duration = Duration::from_millis(20);
/// How often SIGKILL is repeated, for processes that fork faster than they are killed.
const ROUNDS: usize = 20;

/// Ends all that `look` finds: `signal` sends a signal to one of them.
pub(super) async fn end_all<Found, Looking>(
    look: impl Fn() -> Looking,
    signal: impl Fn(&Found, Signal),
) where
    Looking: Future<Output = Vec<Found>>,
{
    let mut found = look().await;
    for process in &found {
        signal(process, Signal::TERM);
    }
    let insist = Instant::now() + GRACE;
    while !found.is_empty() && Instant::now() < insist {
        sleep(LOOK).await;
        found = look().await;
    }
    for _ in 0..ROUNDS {
        if found.is_empty() {
            return;
        }
        for process in &found {
            signal(process, Signal::KILL);
        }
        sleep(LOOK).await;
        found = look().await;
    }
}
