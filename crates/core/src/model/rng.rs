//! Decides where randomness comes from: one injected, seedable source of numbers in `[0, 1)`.

use std::sync::{Mutex, PoisonError};

/// Randomness for jitter. Cheap to share: only failure paths draw numbers, so its lock is rarely
/// contended.
#[derive(Debug)]
pub struct Rng(RngSource);

#[derive(Debug)]
enum RngSource {
    Drawn(Mutex<fastrand::Rng>),
    Fixed(f64),
}

impl Rng {
    /// Seeded from the system's entropy.
    pub fn new() -> Self {
        Self(RngSource::Drawn(Mutex::new(fastrand::Rng::new())))
    }

    /// The same seed draws the same numbers.
    pub fn seeded(seed: u64) -> Self {
        Self(RngSource::Drawn(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// Always draws `unit`, clamped to `[0, 1)`; shows the ends of a jitter range in tests.
    pub fn fixed(unit: f64) -> Self {
        Self(RngSource::Fixed(unit.clamp(0.0, 1.0 - f64::EPSILON)))
    }

    /// Draws a number in `[0, 1)`.
    pub fn unit(&self) -> f64 {
        match &self.0 {
            RngSource::Drawn(rng) => rng.lock().unwrap_or_else(PoisonError::into_inner).f64(),
            RngSource::Fixed(unit) => *unit,
        }
    }
}

impl Default for Rng {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers() {
        let (a, b) = (Rng::seeded(7), Rng::seeded(7));

        let drawn: Vec<f64> = (0..5).map(|_| a.unit()).collect();

        assert_eq!(drawn, (0..5).map(|_| b.unit()).collect::<Vec<_>>());
        assert!(drawn.iter().all(|n| (0.0..1.0).contains(n)));
    }

    #[test]
    fn a_fixed_number_stays_below_one() {
        assert_eq!(Rng::fixed(0.0).unit(), 0.0);
        assert!(Rng::fixed(1.0).unit() < 1.0);
    }
}
