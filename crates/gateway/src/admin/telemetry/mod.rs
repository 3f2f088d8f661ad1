//! Telemetry from the one stream of events: counters, and the last events themselves.
//!
//! `counts` holds the counters, `breakers` finds the breakers to show, `scrape` writes them for
//! Prometheus; `ring` keeps the last events, `tell` and `date` write them.

pub(crate) mod breakers;
pub(crate) mod counts;
pub(crate) mod date;
#[cfg(test)]
mod reference;
pub(crate) mod ring;
pub(crate) mod scrape;
pub(crate) mod tell;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use seawall::Event;

use crate::policy::registry::PolicyRegistry;
use crate::runtime::lifecycle::Lifecycle;
use counts::Counters;
use ring::{EventKind, EventRing};

/// The counters and the last events of one gateway.
#[derive(Debug, Default)]
pub(crate) struct Telemetry {
    counts: Mutex<Counters>,
    /// The last events.
    pub ring: EventRing,
}

impl Telemetry {
    /// Counts events from now on, until the gateway ends.
    pub(crate) fn listen(policies: &Arc<PolicyRegistry>, lifecycle: &Lifecycle) -> Arc<Self> {
        let telemetry: Arc<Self> = Arc::default();
        let (heard, newest, ended) =
            (Arc::clone(&telemetry), Arc::clone(policies.newest()), lifecycle.ended.clone());
        let mut listener = policies.env().events.subscribe();
        lifecycle.spawn(async move {
            while let Some(Some(first)) = ended.run_until_cancelled(listener.next()).await {
                let mut events = vec![first];
                // All waiting events at once: the counters are locked once per batch.
                events.append(&mut listener.drain());
                // None: the gateway is going down.
                let Some(policies) = newest.get() else { return };
                let missed = heard.count(&events, listener.missed(), &policies);
                let what = |event: Arc<Event>| match tell::is_large(&event) {
                    true => tell::told(&event, &policies).map(EventKind::Shown),
                    false => Some(EventKind::Event(event)),
                };
                heard.ring.push(now(), missed, events.into_iter().filter_map(what));
            }
        });
        telemetry
    }

    /// Counts events; returns how many were missed before them.
    fn count(&self, events: &[Arc<Event>], missed: u64, policies: &PolicyRegistry) -> u64 {
        let mut counts = self.counts();
        for event in events {
            counts.take(event, |server, tool| policies.named(server, tool));
        }
        missed - std::mem::replace(&mut counts.missed, missed)
    }

    /// The counters.
    pub(crate) fn counts(&self) -> MutexGuard<'_, Counters> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "a person is told when it was; nothing is decided by it"
)]
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use seawall::{Breaker, BreakerMode, BreakerPolicy};

    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn events_that_come_too_fast_are_counted_as_missed() {
        let config = Config::for_command(None, vec!["none".to_owned()]).unwrap();
        let policies = Arc::new(PolicyRegistry::new(&config, None).unwrap()).in_force();
        let lifecycle = Lifecycle::default();
        let telemetry = Telemetry::listen(&policies, &lifecycle);
        let breaker = Breaker::new("x", BreakerPolicy::default(), policies.env()).unwrap();
        breaker.set_mode(BreakerMode::ForcedOpen);
        // No other task runs meanwhile: there is one thread, and this loop never awaits.
        for _ in 0..10_000 {
            assert!(breaker.peek().is_err());
        }
        for _ in 0..1_000 {
            if telemetry.counts().missed > 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        let missed = telemetry.counts().missed;
        assert!((1..10_000).contains(&missed), "{missed}");
        lifecycle.end().await;
    }
}
