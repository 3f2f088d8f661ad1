//! Decides how durations are parsed and printed: `"250ms" "30s" "2m" "1h"`.

use std::time::Duration;

use super::invalid::{self, Invalid};

/// Parses a duration as config files spell it: a number with a unit.
pub fn parse_duration(field: &str, text: &str) -> Result<Duration, Invalid> {
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = (text[..split].trim(), text[split..].trim());
    let unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(unreadable(field, text)),
    };
    let number: f64 = number.parse().map_err(|_| unreadable(field, text))?;
    let duration =
        Duration::try_from_secs_f64(number * unit).map_err(|_| unreadable(field, text))?;
    invalid::sane(field, duration)?;
    Ok(duration)
}

/// Parses a timeout from an environment variable, where a bare integer is milliseconds. An integer
/// from 1 to 999 is rejected, because the operator may have meant seconds. Zero is rejected too: a
/// timeout of zero is a mistake.
pub fn parse_env_timeout(variable: &str, text: &str) -> Result<Duration, Invalid> {
    let text = text.trim();
    let duration = match text.parse::<u64>() {
        Ok(number @ 1..1000) => {
            let problem = format!(
                "{number} could be {number} ms or {number} s; write {number}ms or {number}s"
            );
            return Err(Invalid::new(variable, problem));
        }
        Ok(ms) => Duration::from_millis(ms),
        Err(_) => parse_duration(variable, text)?,
    };
    invalid::positive(variable, duration)?;
    Ok(duration)
}

fn unreadable(field: &str, text: &str) -> Invalid {
    Invalid::new(
        field,
        format!(
            "\"{text}\" is not a duration; write for example \"250ms\", \"30s\", \"2m\" or \"1h\""
        ),
    )
}

/// Exact seconds for texts: `30s`, `1.5s`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{}s", (duration.as_secs_f64() * 1000.0).round() / 1000.0)
}

/// A measured time, rounded to a tenth below 10 s and to whole seconds above: `60s`, `1.5s`.
pub(crate) fn about(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 {
        format!("{}s", (seconds * 10.0).round() / 10.0)
    } else {
        format!("{}s", seconds.round())
    }
}

/// An age in words for people: `40 s`, `14 min`, `3 h`, `2 days`.
pub(crate) fn age(duration: Duration) -> String {
    match duration.as_secs() {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7_200 => format!("{} min", s / 60),
        s @ 7_200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        for (text, ms) in [
            ("250ms", 250),
            ("30s", 30_000),
            ("1.5s", 1_500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            (" 0s ", 0),
        ] {
            assert_eq!(parse_duration("x", text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn nonsense_names_the_field_and_shows_a_good_value() {
        for text in ["", "30", "s", "-1s", "1e400s", "NaNs", "infs", "2 fortnights", "99999h"] {
            let error = parse_duration("retry.base", text).expect_err(text);
            assert_eq!(error.field, "retry.base", "{text}");
        }
        assert!(parse_duration("x", "soon").unwrap_err().to_string().contains("\"30s\""));
    }

    #[test]
    fn a_bare_integer_in_the_environment_is_milliseconds() {
        assert_eq!(parse_env_timeout("V", "30000"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_env_timeout("V", "30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_env_timeout("V", "1000"), Ok(Duration::from_secs(1)));
        for either in ["1", "60", " 999 "] {
            let told = parse_env_timeout("QUICK", either).unwrap_err().to_string();
            let number = either.trim();
            assert!(
                told.contains(&format!("{number}ms")) && told.contains(&format!("{number}s")),
                "{told}"
            );
        }
        for text in ["abc", "0", "-1", "0s", "NaN"] {
            assert_eq!(parse_env_timeout("QUICK", text).unwrap_err().field, "QUICK", "{text}");
        }
    }

    #[test]
    fn durations_are_written_for_people() {
        assert_eq!(seconds(Duration::from_secs(120)), "120s");
        assert_eq!(seconds(Duration::from_millis(1500)), "1.5s");
        assert_eq!(about(Duration::from_micros(1_540_000)), "1.5s");
        assert_eq!(about(Duration::from_micros(60_001_000)), "60s");
        assert_eq!(age(Duration::from_secs(40)), "40 s");
        assert_eq!(age(Duration::from_secs(14 * 60 + 20)), "14 min");
        assert_eq!(age(Duration::from_secs(3 * 3600)), "3 h");
        assert_eq!(age(Duration::from_secs(50 * 3600)), "2 days");
    }
}
