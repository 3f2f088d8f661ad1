//! What happened, in numbers: counted from the one stream of events, for whoever asks.
//!
//! `counts` is what is counted, `breakers` what there is to look at, `scrape` and `text` how it is told to Prometheus.

pub mod breakers;
pub mod counts;
pub mod scrape;
mod text;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::ops::lifecycle::Lifecycle;
use crate::policies::Policies;
use counts::Counts;

/// The numbers of one gateway.
#[derive(Debug, Default)]
pub struct Telemetry {
    counts: Mutex<Counts>,
}

impl Telemetry {
    /// Counts from now on, until the gateway ends.
    pub fn listen(policies: &Arc<Policies>, lifecycle: &Lifecycle) -> Arc<Self> {
        let telemetry: Arc<Self> = Arc::default();
        let (heard, policies, ended) = (Arc::clone(&telemetry), Arc::clone(policies), lifecycle.ended.clone());
        let mut listener = policies.env().events.subscribe();
        lifecycle.spawn(async move {
            while let Some(Some(first)) = ended.run_until_cancelled(listener.next()).await {
                let rest = listener.drain();
                let mut counts = heard.counts();
                counts.missed = listener.missed();
                for event in std::iter::once(first).chain(rest) {
                    counts.take(&event, |server, tool| policies.named(server, tool));
                }
            }
        });
        telemetry
    }

    /// What was counted so far.
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use seawall::{Breaker, BreakerPolicy, Mode};

    use super::*;
    use crate::ops::config::Config;

    #[tokio::test]
    async fn events_that_come_too_fast_are_counted_as_missed() {
        let config = Config::for_command(None, vec!["none".to_owned()]).unwrap();
        let policies = Arc::new(Policies::new(&config, None).unwrap());
        let lifecycle = Lifecycle::default();
        let telemetry = Telemetry::listen(&policies, &lifecycle);
        let breaker = Breaker::new("x", BreakerPolicy::default(), policies.env()).unwrap();
        breaker.set_mode(Mode::ForcedOpen);
        // Nobody else runs meanwhile: there is one thread, and nothing is waited for.
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
