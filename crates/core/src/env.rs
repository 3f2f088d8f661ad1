//! Decides which parts of the outside world a policy may use: time, randomness and event listeners.

use std::fmt;
use std::sync::Arc;

use crate::model::rng::Rng;
use crate::report::event::Events;
use crate::time::clock::Clock;

/// Decides which process may probe a recovering server, where several processes share it and each
/// has a breaker of the same name.
///
/// A breaker asks it for every probe, while it decides, so both methods must answer at once and
/// call no breaker.
pub trait ProbeLeases: fmt::Debug + Send + Sync {
    /// Takes the right to one probe; `false`: the call is refused as if all probes were out.
    fn take(&self, breaker: &str) -> bool;

    /// A probe is over: its result counts already.
    fn give_back(&self, breaker: &str);
}

/// The injected environment. Clones share the same clock, random numbers and listeners.
///
/// ```
/// # use seawall::{Clock, Env, Rng};
/// let repeatable = Env::new().with_clock(Clock::manual()).with_rng(Rng::seeded(7));
/// let mut listener = repeatable.events.subscribe();
/// assert!(listener.drain().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Env {
    /// The one clock.
    pub clock: Clock,
    /// The one source of random numbers.
    pub rng: Arc<Rng>,
    /// The one stream of events.
    pub events: Events,
    /// Who else may probe; `None`: every breaker decides for itself.
    pub probes: Option<Arc<dyn ProbeLeases>>,
}

impl Env {
    /// The default clock, random numbers from the system, no listeners.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the clock.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces the random numbers.
    pub fn with_rng(mut self, rng: Rng) -> Self {
        self.rng = Arc::new(rng);
        self
    }

    /// Breakers under this environment ask for each probe.
    pub fn with_probes(mut self, probes: Arc<dyn ProbeLeases>) -> Self {
        self.probes = Some(probes);
        self
    }

    /// The same without probe leases: for breakers that concern this process alone.
    pub(crate) fn alone(&self) -> Self {
        Self { probes: None, ..self.clone() }
    }
}
