//! Decides how servers that are away are reconnected: how soon, how often, and how long calls wait
//! for them.

use std::time::Duration;

use super::duration;
use super::problem::{Problem, Problems};
use super::suggest;
use super::tree::{ConfigField, ConfigString};
use crate::protocol::limits;

/// How a server that is away is reconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconnectConfig {
    /// The first delay; each further one is twice the one before.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
    /// Attempts in a row after which the server is given up; no limit by default.
    pub attempts: Option<u32>,
    /// How long a call waits for a server that is starting or coming back.
    pub wait: Duration,
}

impl Default for ReconnectConfig {
    fn default() -> Self {
        let (base, max) = (Duration::from_millis(500), Duration::from_secs(60));
        Self { base, max, attempts: None, wait: limits::SERVER_WAIT }
    }
}

const KEYS: [&str; 4] = ["base", "max", "attempts", "wait"];

/// Reads `[reconnect]`.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> ReconnectConfig {
    let mut read = ReconnectConfig::default();
    let before = problems.count();
    for (key, value) in section.entries(problems) {
        match key {
            "base" => read.base = problems.keep(some_time(&value)).unwrap_or(read.base),
            "max" => read.max = problems.keep(some_time(&value)).unwrap_or(read.max),
            "attempts" => match problems.keep(value.count()) {
                Some(0) => problems.push(value.place.problem("must be a whole number from 1")),
                attempts => read.attempts = attempts.or(read.attempts),
            },
            "wait" => read.wait = problems.keep(time(&value)).unwrap_or(read.wait),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    if read.base > read.max && problems.count() == before {
        problems.push(section.place.problem("max must not be shorter than base"));
    }
    read
}

/// A duration.
pub(super) fn time(value: &ConfigField<'_>) -> Result<Duration, Problem> {
    let ConfigString { place, text } = value.text()?;
    duration::parse(&text).map_err(|error| place.problem(error))
}

/// A duration above zero.
pub(super) fn some_time(value: &ConfigField<'_>) -> Result<Duration, Problem> {
    match time(value)? {
        Duration::ZERO => Err(value.place.problem("must not be zero")),
        time => Ok(time),
    }
}
