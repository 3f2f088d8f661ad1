//! Decides when a circuit breaker trips and how long it stays open: plain data, validated once.

use std::fmt;
use std::time::Duration;

use crate::model::invalid::{self, Invalid};

/// When a circuit breaker opens, for how long, and when it closes.
///
/// ```
/// # use seawall::{BreakerPolicy, Cooldown};
/// # use std::time::Duration;
/// let (base, max) = (Duration::from_secs(10), Duration::from_secs(300));
/// let policy = BreakerPolicy {
///     cooldown: Cooldown::growing(base, max),
///     trip_on_429: true,
///     ..BreakerPolicy::new(3, base)
/// };
/// assert!(policy.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct BreakerPolicy {
    /// Opens at this many counted failures in a row, up to 10 000; 0 turns this rule off.
    pub failures: u32,
    /// A row of failures is forgotten after this long without a further failure.
    pub memory: Duration,
    /// Opens on a share of failed or slow calls, beside the row of failures.
    pub window: Option<WindowRule>,
    /// How long the breaker stays open.
    pub cooldown: Cooldown,
    /// How many probes may be in flight while half-open; 1 to 1000.
    pub probes: u32,
    /// How many probes must succeed to close the breaker; 1 to 1000.
    pub successes: u32,
    /// Slow start: how many attempts may be in flight right after probes closed the breaker. Each
    /// success makes room for one more, and after the length of the first cool-down all attempts
    /// pass; 0 lets all pass at once.
    pub slow_start: u32,
    /// A probe that has not ended after this long counts as failed, unless it was admitted with a
    /// lease of its own.
    pub lease: Duration,
    /// Whether a server that asks for a pause (429) counts as failing.
    pub trip_on_429: bool,
}

/// Opens when too many of the recent calls failed or were slow.
///
/// ```
/// # use seawall::{BreakerPolicy, WindowRule};
/// # use std::time::Duration;
/// let length = Duration::from_secs(30);
/// let half = WindowRule { length, min_calls: 20, failure_rate: 0.5, slow: None };
/// let policy = BreakerPolicy { failures: 0, window: Some(half), ..BreakerPolicy::default() };
/// assert!(policy.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct WindowRule {
    /// How far back calls count.
    pub length: Duration,
    /// Below this many calls the rule does not apply; 1 to 1 000 000.
    pub min_calls: u32,
    /// Opens at this share of failures.
    pub failure_rate: f64,
    /// Opens at a share of slow calls.
    pub slow: Option<SlowRule>,
}

/// Opens when too many of the recent calls were slow.
///
/// ```
/// # use seawall::{BreakerPolicy, SlowRule, WindowRule};
/// # use std::time::Duration;
/// let slow = SlowRule { after: Duration::from_secs(5), rate: 0.8 };
/// let length = Duration::from_secs(30);
/// let rule = WindowRule { length, min_calls: 20, failure_rate: 0.5, slow: Some(slow) };
/// assert!(BreakerPolicy { window: Some(rule), ..BreakerPolicy::default() }.validate().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowRule {
    /// A call that takes longer than this is slow.
    pub after: Duration,
    /// Opens at this share of slow calls.
    pub rate: f64,
}

/// How long a breaker stays open.
///
/// ```
/// # use seawall::Cooldown;
/// # use std::time::Duration;
/// let (base, max) = (Duration::from_secs(30), Duration::from_secs(300));
/// let quiet = Cooldown { jitter: 0.0, ..Cooldown::growing(base, max) };
/// assert_eq!((quiet.growth, Cooldown::fixed(base).growth), (2.0, 1.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cooldown {
    /// The first cool-down.
    pub base: Duration,
    /// The longest cool-down, jitter included.
    pub max: Duration,
    /// Multiplies the cool-down with each opening in a row; 1 keeps it fixed. Each healthy `base`
    /// undoes one step.
    pub growth: f64,
    /// Adds up to this share, so that the gateways of a fleet do not probe together.
    pub jitter: f64,
}

impl Cooldown {
    /// The same cool-down each time.
    pub const fn fixed(base: Duration) -> Self {
        Self { base, max: base, growth: 1.0, jitter: 0.0 }
    }

    /// Doubles with each opening in a row, plus up to 10 %, up to `max`.
    pub const fn growing(base: Duration, max: Duration) -> Self {
        Self { base, max, growth: 2.0, jitter: 0.1 }
    }

    /// The length of the next cool-down, after `level` openings in a row.
    pub(crate) fn length(&self, level: u32, chance: f64) -> Duration {
        let steps = i32::try_from(level).unwrap_or(i32::MAX).min(64);
        let grown = self.base.as_secs_f64() * self.growth.powi(steps);
        // The cap leaves room for the jitter: without it, all gateways of a fleet that reached the
        // cap would probe together.
        let room = (self.max.as_secs_f64() / (1.0 + self.jitter)).max(self.base.as_secs_f64());
        let length = Duration::try_from_secs_f64(grown.min(room) * (1.0 + self.jitter * chance));
        length.map_or(self.max, |length| length.min(self.max))
    }
}

impl BreakerPolicy {
    /// Opens after `failures` in a row, for `cooldown`; one successful probe closes it.
    pub const fn new(failures: u32, cooldown: Duration) -> Self {
        Self {
            failures,
            memory: Duration::from_secs(600),
            window: None,
            cooldown: Cooldown::fixed(cooldown),
            probes: 1,
            successes: 1,
            slow_start: 10,
            lease: Duration::from_secs(120),
            trip_on_429: false,
        }
    }

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.failures == 0 && self.window.is_none() {
            return Err(Invalid::new(
                "failures",
                "must be at least 1, unless a window rule is set",
            ));
        }
        invalid::at_most("failures", self.failures, 10_000)?;
        invalid::counted("probes", self.probes, 1000)?;
        invalid::at_most("slow_start", self.slow_start, 100_000)?;
        invalid::counted("successes", self.successes, 1000)?;
        invalid::positive("memory", self.memory)?;
        invalid::positive("lease", self.lease)?;
        self.cooldown.validate().map_err(|error| error.within("cooldown"))?;
        self.window
            .as_ref()
            .map_or(Ok(()), |window| window.validate().map_err(|error| error.within("window")))
    }
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self::new(5, Duration::from_secs(30))
    }
}

impl Cooldown {
    fn validate(&self) -> Result<(), Invalid> {
        invalid::positive("base", self.base)?;
        invalid::sane("max", self.max)?;
        invalid::share("jitter", self.jitter)?;
        if self.max < self.base {
            return Err(Invalid::new("max", "must not be shorter than base"));
        }
        if !(1.0..=10.0).contains(&self.growth) {
            return Err(Invalid::new(
                "growth",
                format!("must lie between 1 and 10, not {}", self.growth),
            ));
        }
        Ok(())
    }
}

impl WindowRule {
    fn validate(&self) -> Result<(), Invalid> {
        invalid::positive("length", self.length)?;
        invalid::counted("min_calls", self.min_calls, 1_000_000)?;
        // A rate of zero would open on the first healthy call.
        invalid::above_zero("failure_rate", self.failure_rate)?;
        if let Some(slow) = self.slow {
            invalid::positive("slow.after", slow.after)?;
            invalid::above_zero("slow.rate", slow.rate)?;
        }
        Ok(())
    }
}

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "kebab-case")
)]
pub enum BreakerStatus {
    /// Calls pass; right after closing, a growing number at a time.
    Closed,
    /// Calls are rejected.
    Open,
    /// A few calls pass as probes.
    HalfOpen,
}

impl fmt::Display for BreakerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BreakerStatus::Closed => "closed",
            BreakerStatus::Open => "open",
            BreakerStatus::HalfOpen => "half-open",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_settings_name_their_field() {
        let good = BreakerPolicy::default();
        let window = WindowRule {
            length: Duration::from_secs(10),
            min_calls: 10,
            failure_rate: 0.5,
            slow: None,
        };
        let cooldown = good.cooldown;
        for (policy, field) in [
            (BreakerPolicy { failures: 0, ..good.clone() }, "failures"),
            (BreakerPolicy { probes: 0, ..good.clone() }, "probes"),
            (BreakerPolicy { slow_start: 100_001, ..good.clone() }, "slow_start"),
            (BreakerPolicy { successes: 0, ..good.clone() }, "successes"),
            (BreakerPolicy { lease: Duration::ZERO, ..good.clone() }, "lease"),
            (BreakerPolicy { memory: Duration::ZERO, ..good.clone() }, "memory"),
            (BreakerPolicy::new(5, Duration::ZERO), "cooldown.base"),
            (BreakerPolicy::new(5, Duration::MAX), "cooldown.base"),
            (
                BreakerPolicy { cooldown: Cooldown { growth: 0.5, ..cooldown }, ..good.clone() },
                "cooldown.growth",
            ),
            (
                BreakerPolicy { cooldown: Cooldown { jitter: 2.0, ..cooldown }, ..good.clone() },
                "cooldown.jitter",
            ),
            (
                BreakerPolicy {
                    cooldown: Cooldown { max: Duration::from_secs(1), ..cooldown },
                    ..good.clone()
                },
                "cooldown.max",
            ),
            (
                BreakerPolicy {
                    window: Some(WindowRule { length: Duration::ZERO, ..window.clone() }),
                    ..good.clone()
                },
                "window.length",
            ),
            (
                BreakerPolicy {
                    window: Some(WindowRule { min_calls: 0, ..window.clone() }),
                    ..good.clone()
                },
                "window.min_calls",
            ),
            (
                BreakerPolicy {
                    window: Some(WindowRule { failure_rate: 0.0, ..window.clone() }),
                    ..good.clone()
                },
                "window.failure_rate",
            ),
            (
                BreakerPolicy {
                    window: Some(WindowRule { failure_rate: f64::NAN, ..window.clone() }),
                    ..good.clone()
                },
                "window.failure_rate",
            ),
        ] {
            assert_eq!(policy.validate().unwrap_err().field, field);
        }
        assert_eq!(BreakerPolicy { failures: 0, window: Some(window), ..good }.validate(), Ok(()));
    }

    #[test]
    fn a_growing_cooldown_doubles_up_to_its_cap() {
        let cooldown = Cooldown {
            jitter: 0.0,
            ..Cooldown::growing(Duration::from_secs(30), Duration::from_secs(300))
        };

        let lengths: Vec<u64> = (0..6).map(|level| cooldown.length(level, 0.0).as_secs()).collect();

        assert_eq!(lengths, [30, 60, 120, 240, 300, 300]);
        assert_eq!(cooldown.length(u32::MAX, 0.0).as_secs(), 300);
    }

    #[test]
    fn the_cap_holds_with_the_jitter_too_and_does_not_take_it_away() {
        let cooldown = Cooldown::growing(Duration::from_secs(30), Duration::from_secs(300));
        let spread = |level| [0.0, 0.5, 1.0].map(|chance| cooldown.length(level, chance));

        assert_eq!(spread(0).map(|length| length.as_millis()), [30_000, 31_500, 33_000]);
        for level in [4, 60, u32::MAX] {
            assert!(spread(level).is_sorted_by(|a, b| a < b), "{:?}", spread(level));
            assert!(spread(level)[2] <= Duration::from_secs(300), "{:?}", spread(level));
        }
        let flat = Cooldown { jitter: 0.1, ..Cooldown::fixed(Duration::from_secs(30)) };
        assert_eq!(flat.length(3, 1.0), Duration::from_secs(30), "no longer than the longest");
    }
}
