//! Decides how long a client waits for an answer where `client_timeout` is not set: a client that
//! gave up twice after the same time has that timeout.
//!
//! People stop calls at any moment, timers always after the same time. A client with a known
//! timeout is answered before it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How far a client's timer may stray from its timeout.
const STRAYS: Duration = Duration::from_millis(100);
/// How long a learned timeout is believed; a client that still has it teaches it again.
const BELIEVED: Duration = Duration::from_secs(60 * 60);
/// How many clients are remembered; beyond that, the client that gave up longest ago is forgotten.
const MOST: usize = 1024;

/// The times after which clients gave up their calls.
#[derive(Debug, Default)]
pub(crate) struct ClientLimits {
    seen: Mutex<HashMap<Arc<str>, ObservedTimeout>>,
}

#[derive(Clone, Copy, Debug)]
struct ObservedTimeout {
    after: Duration,
    at: Instant,
    /// Whether the client gave up twice after this time.
    is_limit: bool,
}

impl ClientLimits {
    fn seen(&self) -> MutexGuard<'_, HashMap<Arc<str>, ObservedTimeout>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a client waits, if the gateway has learned it.
    pub(crate) fn of(&self, client: &str) -> Option<Duration> {
        let seen = self.seen().get(client).copied()?;
        (seen.is_limit && seen.at.elapsed() < BELIEVED).then_some(seen.after)
    }

    /// Notes that a client gave up a call after this time. Shorter times than `shortest` are
    /// ignored: no timer is set that low, but people are that quick.
    pub(crate) fn gave_up(&self, client: &Arc<str>, after: Duration, shortest: Duration) {
        if after < shortest {
            return;
        }
        let at = Instant::now();
        let mut seen = self.seen();
        let former = seen.get(client).filter(|former| former.at.elapsed() < BELIEVED).copied();
        let now = match former {
            Some(former) if former.after.abs_diff(after) <= STRAYS => {
                ObservedTimeout { after: former.after.min(after), at, is_limit: true }
            }
            // A call stopped by hand before the timeout does not disprove the timeout.
            Some(former) if former.is_limit && after < former.after => former,
            _ => ObservedTimeout { after, at, is_limit: false },
        };
        if seen.len() >= MOST && !seen.contains_key(client) {
            let oldest = seen
                .iter()
                .min_by_key(|(_, given_up)| given_up.at)
                .map(|(client, _)| Arc::clone(client));
            oldest.and_then(|oldest| seen.remove(&oldest));
        }
        seen.insert(Arc::clone(client), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_timer_is_known_after_two_calls_and_a_person_never() {
        let (limits, me) = (ClientLimits::default(), "me".into());
        limits.gave_up(&me, 5 * SECOND, SECOND);
        assert_eq!(limits.of("me"), None);
        limits.gave_up(&me, 5 * SECOND + Duration::from_millis(30), SECOND);
        assert_eq!((limits.of("me"), limits.of("you")), (Some(5 * SECOND), None));
        limits.gave_up(&me, 2 * SECOND, SECOND);
        assert_eq!(limits.of("me"), Some(5 * SECOND), "one that was stopped by hand");
        limits.gave_up(&me, 8 * SECOND, SECOND);
        assert_eq!(limits.of("me"), None, "it waits longer than was thought");

        let person = "person".into();
        for after in [3, 9, 4, 7] {
            limits.gave_up(&person, after * SECOND, SECOND);
        }
        for _ in 0..9 {
            limits.gave_up(&person, SECOND / 2, SECOND);
        }
        assert_eq!(limits.of("person"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_learned_is_forgotten_after_an_hour_and_bounded_before() {
        let limits = ClientLimits::default();
        for number in 0..MOST + 10 {
            let client = number.to_string().into();
            limits.gave_up(&client, 5 * SECOND, SECOND);
            limits.gave_up(&client, 5 * SECOND, SECOND);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert_eq!(
            (limits.of("9"), limits.of("10"), limits.seen().len()),
            (None, Some(5 * SECOND), MOST)
        );
        tokio::time::advance(BELIEVED).await;
        assert_eq!(limits.of("10"), None);
    }
}
