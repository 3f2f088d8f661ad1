//! Decides the retry budget of a server.

use super::rate::Rate;
use crate::model::invalid::{self, Invalid};

/// The retry budget of a server.
///
/// ```
/// # use seawall::BudgetPolicy;
/// let strict = BudgetPolicy { share: 0.1, floor: 1, ..BudgetPolicy::DEFAULT };
/// assert!(strict.validate().is_ok());
/// assert_eq!(BudgetPolicy { share: 2.0, ..strict }.validate().unwrap_err().field, "share");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetPolicy {
    /// Retries per call, as a share.
    pub share: f64,
    /// Retries per second that are allowed at any traffic, up to 100 000; zero means none.
    pub floor: u32,
    /// The most retries that can be saved up; up to 1 000 000.
    pub saved: u32,
}

impl BudgetPolicy {
    /// 20 % of calls, and 10 retries per second in any case.
    pub const DEFAULT: BudgetPolicy = BudgetPolicy { share: 0.2, floor: 10, saved: 100 };

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::share("share", self.share)?;
        invalid::at_most("floor", self.floor, 100_000)?;
        invalid::at_most("saved", self.saved, 1_000_000)
    }

    pub(crate) fn floor_rate(&self) -> Option<Rate> {
        (self.floor > 0).then(|| Rate::per_second(self.floor))
    }
}

impl Default for BudgetPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}
