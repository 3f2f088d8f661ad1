//! Decides how often a call is attempted, and how long it waits in between.

use std::time::Duration;

use super::backoff::Backoff;
use crate::model::invalid::{self, Invalid};

/// How often a call is attempted, and how long it waits in between.
///
/// ```
/// # use seawall::{Backoff, Effect, Retry, RetryPolicy};
/// let policy = RetryPolicy::new(5, Backoff::RECONNECT);
/// let retry = Retry::new(Effect::Idempotent).policy(policy)?;
///
/// let too_many = RetryPolicy { attempts: 101, ..policy };
/// assert_eq!(too_many.validate().unwrap_err().field, "attempts");
/// # Ok::<(), seawall::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; 1 to 100.
    pub attempts: u32,
    /// The backoff between attempts.
    pub backoff: Backoff,
    /// If the server asks for a longer pause than this, the call does not wait for a retry.
    pub longest_pause: Duration,
}

/// A server that failed a hundred attempts is down.
pub(crate) const MOST_ATTEMPTS: u32 = 100;

impl RetryPolicy {
    /// `attempts` in all, with the pauses of `backoff`.
    pub const fn new(attempts: u32, backoff: Backoff) -> Self {
        Self { attempts, backoff, longest_pause: Duration::from_secs(300) }
    }

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::counted("attempts", self.attempts, MOST_ATTEMPTS)?;
        invalid::sane("longest_pause", self.longest_pause)?;
        self.backoff.validate()
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new(3, Backoff::TOOL_CALL)
    }
}
