//! Decides how long a cached response may be served.

use std::time::Duration;

use crate::model::invalid::{self, Invalid};

/// How long a cached response may be served.
///
/// ```
/// # use seawall::CachePolicy;
/// # use std::time::Duration;
/// let policy = CachePolicy { fresh: Some(Duration::from_secs(60)), ..CachePolicy::RESCUE };
/// assert!(policy.validate().is_ok());
/// assert_eq!(policy.stale_if_error, Some(Duration::from_secs(3600)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    /// For this long a cached response answers calls without asking the server; `None`: never.
    pub fresh: Option<Duration>,
    /// For this long a stale response, labelled with its age, answers calls that failed; `None`:
    /// never.
    pub stale_if_error: Option<Duration>,
}

impl CachePolicy {
    /// Keeps the last good answer for an hour, to be served when the server fails.
    pub const RESCUE: CachePolicy =
        CachePolicy { fresh: None, stale_if_error: Some(Duration::from_secs(3600)) };

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.fresh.map_or(Ok(()), |fresh| invalid::positive("ttl", fresh))?;
        self.stale_if_error.map_or(Ok(()), |stale| invalid::positive("stale_if_error", stale))
    }

    /// Whether responses are kept at all.
    pub(crate) fn keeps(&self) -> bool {
        self.fresh.is_some() || self.stale_if_error.is_some()
    }
}
