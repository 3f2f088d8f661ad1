//! Decides how long to wait before the next attempt. Pure: the caller passes in the randomness.

use std::time::Duration;

use crate::model::invalid::{self, Invalid};
use crate::model::rng::Rng;

/// How a delay is spread so that many clients do not retry together.
///
/// ```
/// # use seawall::{Backoff, Jitter, Rng};
/// let full = Backoff { jitter: Jitter::Full, ..Backoff::TOOL_CALL };
/// let (soonest, latest) = (full.delay(1, &Rng::fixed(1.0)), full.delay(1, &Rng::fixed(0.0)));
/// assert_eq!((soonest.as_millis(), latest.as_millis()), (0, 1000));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    /// No jitter.
    None,
    /// Adds up to this share of the delay.
    Additive(f64),
    /// Adds or subtracts up to this share of the delay.
    Symmetric(f64),
    /// Any delay from zero to the nominal one.
    Full,
    /// Adds up to one base delay.
    AdditiveBase,
}

/// Exponential backoff: `base`, then twice as long each time, up to `max`.
///
/// ```
/// # use seawall::{Backoff, Rng};
/// # use std::time::Duration;
/// let backoff = Backoff { max: Duration::from_secs(3), ..Backoff::TOOL_CALL };
/// let nominal: Vec<u64> = (1..=4).map(|nth| backoff.nominal(nth).as_secs()).collect();
/// assert_eq!(nominal, [1, 2, 3, 3]);
/// assert_eq!(backoff.delay(1, &Rng::fixed(0.5)), Duration::from_millis(1100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The first delay. Zero means no delay at all.
    pub base: Duration,
    /// The longest delay before jitter.
    pub max: Duration,
    /// How the delay is spread.
    pub jitter: Jitter,
    /// Whether `max` caps the delay after jitter too.
    pub clamp: bool,
}

impl Backoff {
    /// For tool calls: 1 s, 2 s, 4 s … 30 s, plus up to 20 %.
    pub const TOOL_CALL: Backoff = Backoff {
        base: Duration::from_secs(1),
        max: Duration::from_secs(30),
        jitter: Jitter::Additive(0.2),
        clamp: false,
    };
    /// For the steps of a fallback chain: 500 ms … 5 s, plus up to 20 %.
    pub const FALLBACK: Backoff = Backoff {
        base: Duration::from_millis(500),
        max: Duration::from_secs(5),
        ..Backoff::TOOL_CALL
    };
    /// For reconnecting: 500 ms … 60 s, plus or minus 15 %, never above 60 s.
    pub const RECONNECT: Backoff = Backoff {
        base: Duration::from_millis(500),
        max: Duration::from_secs(60),
        jitter: Jitter::Symmetric(0.15),
        clamp: true,
    };
    /// For loading servers: 250 ms, 500 ms …, plus up to 250 ms.
    pub const LOAD: Backoff = Backoff {
        base: Duration::from_millis(250),
        max: Duration::from_secs(60),
        jitter: Jitter::AdditiveBase,
        clamp: false,
    };

    /// The delay after the `nth` failure, in whole milliseconds.
    pub fn delay(&self, nth: u32, rng: &Rng) -> Duration {
        let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
        let nominal = ms(self.nominal(nth));
        let spread = match self.jitter {
            Jitter::None => 0.0,
            Jitter::Additive(share) => nominal * share * rng.unit(),
            Jitter::Symmetric(share) => nominal * share * (2.0 * rng.unit() - 1.0),
            Jitter::Full => -nominal * rng.unit(),
            Jitter::AdditiveBase => ms(self.base) * rng.unit(),
        };
        // Each part is floored, so that a random number just below one never rounds up to the whole
        // share. A float beyond the range of an integer saturates.
        let delay = Duration::from_millis((nominal.floor() + spread.floor()) as u64);
        if self.clamp { delay.min(self.max) } else { delay }
    }

    /// The delay after the `nth` failure before jitter.
    pub fn nominal(&self, nth: u32) -> Duration {
        // 31 doublings are the most that the `u32` factor below can hold.
        let doublings = nth.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.max)
    }

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::sane("base", self.base)?;
        invalid::sane("max", self.max)?;
        if self.max < self.base {
            return Err(Invalid::new("max", "must not be shorter than base"));
        }
        match self.jitter {
            Jitter::Additive(share) | Jitter::Symmetric(share) => invalid::share("jitter", share),
            Jitter::None | Jitter::Full | Jitter::AdditiveBase => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: f64 = 1.0;

    fn ms(backoff: Backoff, nth: u32, chance: f64) -> u128 {
        backoff.delay(nth, &Rng::fixed(chance)).as_millis()
    }

    #[test]
    fn the_ends_of_every_jitter_are_where_they_should_be() {
        let with = |jitter, clamp| Backoff { jitter, clamp, ..Backoff::TOOL_CALL };

        assert_eq!(
            (ms(with(Jitter::None, false), 1, MOST), ms(with(Jitter::None, false), 3, MOST)),
            (1000, 4000)
        );
        assert_eq!(
            (
                ms(with(Jitter::Additive(0.2), false), 1, 0.0),
                ms(with(Jitter::Additive(0.2), false), 1, MOST)
            ),
            (1000, 1199)
        );
        assert_eq!(
            (
                ms(with(Jitter::Symmetric(0.2), false), 1, 0.0),
                ms(with(Jitter::Symmetric(0.2), false), 1, MOST)
            ),
            (800, 1199)
        );
        assert_eq!(
            (ms(with(Jitter::Full, false), 1, 0.0), ms(with(Jitter::Full, false), 1, MOST)),
            (1000, 0)
        );
        assert_eq!(
            (
                ms(with(Jitter::AdditiveBase, false), 2, 0.0),
                ms(with(Jitter::AdditiveBase, false), 2, MOST)
            ),
            (2000, 2999)
        );
    }

    #[test]
    fn the_cap_holds_before_jitter_and_with_clamp_after_it() {
        assert_eq!(ms(Backoff::TOOL_CALL, 6, 0.0), 30_000);
        assert_eq!(ms(Backoff::TOOL_CALL, 6, MOST), 35_999);
        assert_eq!(ms(Backoff { clamp: true, ..Backoff::TOOL_CALL }, 6, MOST), 30_000);
        assert_eq!(ms(Backoff::RECONNECT, 40, MOST), 60_000);
    }

    #[test]
    fn reconnecting_doubles_from_500_ms_to_a_minute() {
        let nominal: Vec<u128> =
            (1..=9).map(|n| Backoff::RECONNECT.nominal(n).as_millis()).collect();
        assert_eq!(nominal, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
    }

    #[test]
    fn huge_counts_and_zero_bases_are_fine() {
        assert_eq!(ms(Backoff::TOOL_CALL, u32::MAX, 0.0), 30_000);
        assert_eq!(ms(Backoff { base: Duration::ZERO, ..Backoff::LOAD }, 9, MOST), 0);
        assert_eq!(
            ms(Backoff { jitter: Jitter::Additive(0.0), ..Backoff::TOOL_CALL }, 1, MOST),
            1000
        );
    }

    #[test]
    fn bad_settings_name_their_field() {
        let field = |backoff: Backoff| backoff.validate().unwrap_err().field;

        assert_eq!(field(Backoff { base: Duration::MAX, ..Backoff::LOAD }), "base");
        assert_eq!(field(Backoff { max: Duration::ZERO, ..Backoff::LOAD }), "max");
        assert_eq!(field(Backoff { jitter: Jitter::Additive(-0.1), ..Backoff::LOAD }), "jitter");
        assert_eq!(
            field(Backoff { jitter: Jitter::Symmetric(f64::NAN), ..Backoff::LOAD }),
            "jitter"
        );
    }
}
