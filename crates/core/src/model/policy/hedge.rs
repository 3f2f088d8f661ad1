//! When a slow read gets a second attempt.

use std::time::Duration;

use crate::model::invalid::{self, Invalid};

/// When the second attempt starts.
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
