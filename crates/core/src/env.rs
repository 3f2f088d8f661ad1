//! Decides what a policy may know of the world: the time, chance, and who listens.

use std::sync::Arc;

use crate::model::rng::Rng;
use crate::report::event::Events;
use crate::time::clock::Clock;

/// The injected surroundings. Clones share the same clock, chance and listeners.
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
    /// The one source of chance.
    pub rng: Arc<Rng>,
    /// The one stream of events.
    pub events: Events,
}

impl Env {
    /// The default clock, chance from the system, nobody listening.
    pub fn new() -> Self {
        Self::default()
    }

    /// With another clock.
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// With other chances.
    pub fn with_rng(mut self, rng: Rng) -> Self {
        self.rng = Arc::new(rng);
        self
    }
}
