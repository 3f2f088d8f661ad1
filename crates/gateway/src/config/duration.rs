//! Decides how a duration is spelled: `"250ms" "30s" "2m" "1h" "1m30s"`.

use std::time::Duration;

use super::problem::Problem;
use super::tree::{ConfigField, ConfigString};

/// A longer duration is a mistake in the unit.
pub(super) const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// The duration that a field holds.
pub(super) fn read(value: &ConfigField<'_>) -> Result<Duration, Problem> {
    let ConfigString { place, text } = value.text()?;
    parse(&text).map_err(|error| place.problem(error))
}

/// Parses a duration, or explains the mistake in it.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let unreadable = || {
        format!(
            "{text:?} is not a duration; write for example \"250ms\", \"30s\", \"2m\" or \"1h\""
        )
    };
    let (mut rest, mut sum) = (text, Some(0_u64));
    if rest.is_empty() {
        return Err(unreadable());
    }
    while !rest.is_empty() {
        let (number, after) = split(rest, |letter| !letter.is_ascii_digit());
        let (unit, more) = split(after, |letter| letter.is_ascii_digit());
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(unreadable()),
        };
        let number: u64 = number.parse().map_err(|_| unreadable())?;
        sum = sum.zip(number.checked_mul(unit_ms)).and_then(|(sum, more)| sum.checked_add(more));
        rest = more;
    }
    sum.map(Duration::from_millis)
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| "must not exceed 7 days".to_owned())
}

/// What stands before the first letter of a kind, and the rest.
fn split(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// A duration as a config file spells it.
pub(crate) fn spelled(duration: Duration) -> String {
    let (seconds, ms) = (duration.as_secs(), duration.subsec_millis());
    match (seconds, ms) {
        (_, 1..) => format!("{}ms", duration.as_millis()),
        (3600.., 0) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (121.., 0) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use seawall::Rate;

    use super::*;
    use crate::config::rules::spelled_rate;

    #[test]
    fn durations_are_spelled_as_they_are_read() {
        for text in ["250ms", "0s", "1500ms", "60s", "90s", "120s", "5m", "1h"] {
            assert_eq!(spelled(parse(text).unwrap()), text);
        }
        let rate =
            |count, per| spelled_rate(&Rate { count, per: Duration::from_secs(per), burst: count });
        assert_eq!(
            (rate(20, 1), rate(5, 60), rate(9, 3600)),
            ("20/s".into(), "5/m".into(), "9/h".into())
        );
    }
}
