//! Decides how servers are loaded: the section `[startup]`.

use std::time::Duration;

use seawall::DeniedText;

use super::problem::{Problem, Problems};
use super::tree::{ConfigField, ConfigString};
use super::{duration, reconnect, suggest};

const KEYS: [&str; 4] = ["attempts", "backoff", "max_starting", "denied_text"];
/// More attempts are a mistake, or a storm.
const MOST: u32 = 20;

/// How servers are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartupConfig {
    /// Attempts of one load.
    pub attempts: u32,
    /// The first pause between attempts.
    pub backoff: Duration,
    /// How long a server may be starting before an operator should look at it.
    pub max_starting: Duration,
    /// The text about a server that denied access; unless set, the preset's.
    pub denied_text: Option<DeniedText>,
}

impl Default for StartupConfig {
    fn default() -> Self {
        Self {
            attempts: 3,
            backoff: Duration::from_millis(250),
            max_starting: Duration::from_secs(300),
            denied_text: None,
        }
    }
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> StartupConfig {
    let mut load = StartupConfig::default();
    for (key, value) in section.entries(problems) {
        match key {
            "attempts" => {
                load.attempts = problems.keep(value.whole(1, MOST)).unwrap_or(load.attempts)
            }
            "backoff" => {
                load.backoff = problems.keep(duration::read(&value)).unwrap_or(load.backoff)
            }
            "max_starting" => {
                load.max_starting =
                    problems.keep(reconnect::some_time(&value)).unwrap_or(load.max_starting)
            }
            "denied_text" => load.denied_text = problems.keep(denied_text(&value)),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    load
}

fn denied_text(value: &ConfigField<'_>) -> Result<DeniedText, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.as_str() {
        "diagnostic" => Ok(DeniedText::Diagnostic),
        "legacy" => Ok(DeniedText::Legacy),
        _ => Err(place.problem(format!("must be \"diagnostic\" or \"legacy\", not {text:?}"))),
    }
}
