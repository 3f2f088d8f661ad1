//! Decides the shape of a rate limit: a count per period, with a burst.

use std::time::Duration;

use crate::model::invalid::{self, Invalid};
use crate::time::clock::nanos;

/// A rate limit: `count` per period. The burst equals the count unless set.
///
/// ```
/// # use seawall::Rate;
/// # use std::time::Duration;
/// let hourly = Rate { count: 5000, per: Duration::from_secs(3600), burst: 100 };
/// assert!(hourly.validate().is_ok());
/// assert_eq!(Rate::per_second(10).burst, 10);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Attempts per period; at least 1, and at most one per nanosecond.
    pub count: u32,
    /// The period.
    pub per: Duration,
    /// How many attempts may start at once after a pause; 1 to 1 000 000 000.
    pub burst: u32,
}

impl Rate {
    /// `count` per second.
    pub const fn per_second(count: u32) -> Self {
        Self { count, per: Duration::from_secs(1), burst: count }
    }

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::counted("count", self.count, u32::MAX)?;
        invalid::counted("burst", self.burst, 1_000_000_000)?;
        invalid::positive("per", self.per)?;
        if self.cell() == 0 {
            return Err(Invalid::new("count", "is more than one per nanosecond"));
        }
        Ok(())
    }

    pub(crate) fn cell(&self) -> u64 {
        nanos(self.per) / u64::from(self.count.max(1))
    }
}
