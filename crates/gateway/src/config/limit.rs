//! Decides the meaning of a time limit in another client's file: its unit, or that it is skipped
//! with a warning.

use std::path::Path;
use std::time::Duration;

use super::duration::LONGEST;
use super::problem::Problems;
use super::tree::ConfigField;

/// Up to here a bare number may be seconds: clients that use seconds offer an hour at most.
const UNCLEAR: f64 = 3600.0;
/// The file of a client that uses seconds; all others whose unit is known use milliseconds.
const IN_SECONDS: &str = "cline_mcp_settings.json";

/// The time limit for calls of one server, and its line.
type ServerLimit = (Duration, usize);

/// Whether a bare number in this file is in seconds.
pub(super) fn is_in_seconds(file: &Path) -> bool {
    file.file_name().is_some_and(|name| name == IN_SECONDS)
}

/// Reads `timeout`, whose unit depends on the client.
pub(super) fn of_calls(
    value: &ConfigField<'_>,
    is_in_seconds: bool,
    problems: &mut Problems,
) -> Option<ServerLimit> {
    match value.number() {
        Ok(number) if is_in_seconds => seconds(number, value, problems),
        Ok(number) if number > UNCLEAR => seconds(number / 1000.0, value, problems),
        Ok(number) => {
            let why = format!(
                "{number} is milliseconds to some clients and seconds to others, so it is passed over"
            );
            passed_over(value, &why, problems)
        }
        Err(_) => passed_over(value, "is not a number, so it is passed over", problems),
    }
}

/// Reads a limit whose name says that it is in seconds.
pub(super) fn in_seconds(value: &ConfigField<'_>, problems: &mut Problems) -> Option<ServerLimit> {
    match value.number() {
        Ok(number) => seconds(number, value, problems),
        Err(_) => passed_over(value, "is not a number, so it is passed over", problems),
    }
}

fn seconds(number: f64, value: &ConfigField<'_>, problems: &mut Problems) -> Option<ServerLimit> {
    if number.is_nan() || number <= 0.0 {
        return passed_over(value, "is no time, so it is passed over", problems);
    }
    let time = Duration::try_from_secs_f64(number)
        .ok()
        .filter(|time| *time <= LONGEST)
        .unwrap_or_else(|| {
            problems.warn(value.place.problem("counts as 7 days: no call is waited for longer"));
            LONGEST
        });
    Some((time, value.place.own_line().unwrap_or_default()))
}

fn passed_over(value: &ConfigField<'_>, why: &str, problems: &mut Problems) -> Option<ServerLimit> {
    problems.warn(
        value
            .place
            .problem(format!("{why}; say timeout = \"60s\" under x-seawall.policy of this server")),
    );
    None
}

/// The warning about a limit for the start of a server.
pub(super) const OF_STARTS: &str = "is passed over; how long calls wait for a server that starts is said by wait = \"60s\" under x-seawall.reconnect";
