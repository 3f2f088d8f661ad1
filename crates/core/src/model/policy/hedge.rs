//! Decides when a slow read is hedged with a second attempt.

use std::time::Duration;

use crate::model::invalid::{self, Invalid};

/// When the hedge starts.
///
/// ```
/// # use seawall::HedgePolicy;
/// # use std::time::Duration;
/// assert!(HedgePolicy::After(Duration::from_millis(300)).validate().is_ok());
/// assert!(HedgePolicy::Quantile(0.95).validate().is_ok());
/// assert!(HedgePolicy::Quantile(1.0).validate().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HedgePolicy {
    /// After this long; shorter than the timeout of the attempt, so that the hedge has time to
    /// answer.
    After(Duration),
    /// After the time in which this share of the tool's recent attempts had ended, e.g. 0.95; above
    /// 0 and below 1.
    Quantile(f64),
}

impl HedgePolicy {
    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        match self {
            HedgePolicy::After(delay) => invalid::positive("delay", *delay),
            HedgePolicy::Quantile(share) => invalid::between("quantile", *share),
        }
    }
}
