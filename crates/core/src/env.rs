//! Decides which parts of the outside world a policy may use: time, randomness and event listeners.

use std::sync::Arc;

use crate::model::rng::Rng;
use crate::report::event::Events;
use crate::time::clock::Clock;

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
}
