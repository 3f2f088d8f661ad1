//! Decides how a duration is spelled: `"250ms" "30s" "2m" "1h"`.

use std::time::Duration;

use super::problem::Problem;
use super::tree::{ConfigField, ConfigString};

/// A longer wait is a slip of units.
pub(super) const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The duration that a field holds.
pub(super) fn read(value: &ConfigField<'_>) -> Result<Duration, Problem> {
    let ConfigString { place, text } = value.text()?;
    parse(&text).map_err(|error| place.problem(error))
}

/// Reads a duration, or says what is wrong with it.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let unreadable = || {
        format!(
            "{text:?} is not a duration; write for example \"250ms\", \"30s\", \"2m\" or \"1h\""
        )
    };
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(unreadable()),
    };
    let number: u64 = number.parse().map_err(|_| unreadable())?;
    let duration = number.checked_mul(unit_ms).map(Duration::from_millis);
    duration
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| "must not exceed 7 days".to_owned())
}
