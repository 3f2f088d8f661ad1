//! Decides when an agent is in a loop of identical calls.

use crate::model::invalid::{self, Invalid};

/// Which calls the loop guard counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoopMode {
    /// Identical calls that failed; after `repeats` of them the next one is answered instead.
    #[default]
    Failures,
    /// Identical calls, whether they succeeded or failed; the `repeats`th is answered instead.
    Calls,
    /// No calls: the loop guard is off.
    Off,
}

/// When a call is answered with a warning instead of being executed.
///
/// ```
/// # use seawall::{LoopMode, LoopPolicy};
/// let strict = LoopPolicy { mode: LoopMode::Calls, repeats: 2, window: 5 };
/// assert!(strict.validate().is_ok());
/// assert_eq!(LoopPolicy { repeats: 6, ..strict }.validate().unwrap_err().field, "repeats");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopPolicy {
    /// Which calls count.
    pub mode: LoopMode,
    /// How many identical calls are too many; 2 to `window`.
    pub repeats: u32,
    /// How many of the session's last calls are searched; up to 1000.
    pub window: u32,
}

impl LoopPolicy {
    /// No loop guard.
    pub const OFF: LoopPolicy = LoopPolicy { mode: LoopMode::Off, repeats: 3, window: 10 };

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.repeats < 2 {
            return Err(Invalid::new("repeats", "must be at least 2"));
        }
        invalid::counted("window", self.window, LONGEST_WINDOW)?;
        if self.repeats > self.window {
            return Err(Invalid::new(
                "repeats",
                format!("must not exceed window, which is {}", self.window),
            ));
        }
        Ok(())
    }
}

impl Default for LoopPolicy {
    fn default() -> Self {
        Self { mode: LoopMode::Failures, repeats: 3, window: 10 }
    }
}

pub(crate) const LONGEST_WINDOW: u32 = 1000;
