//! When a slow read gets a second attempt.

use std::time::Duration;

use crate::model::invalid::{self, Invalid};

/// When the second attempt starts.
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
    /// After this long, which leaves time for it: less than the attempt has.
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
