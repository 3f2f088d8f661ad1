//! Decides how log lines are written: the section `[log]`.

use super::problem::{Problem, Problems};
use super::suggest;
use super::tree::{ConfigField, ConfigString};

const KEYS: [&str; 2] = ["format", "level"];

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogConfig {
    /// Whether they are read by people or by programs.
    pub format: LogFormat,
    /// The lowest level that is written; `None`: INFO. `SEAWALL_LOG` overrides it.
    pub level: Option<LogLevel>,
}

/// The form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Time, level and words.
    #[default]
    Human,
    /// One JSON object.
    Json,
}

/// The severity of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// An operation cannot be done until an operator or user acts.
    Error,
    /// A state that should be otherwise.
    Warn,
    /// An event that an operator may want to know.
    Info,
    /// Details that help only in finding a fault.
    Debug,
}

impl LogLevel {
    /// Its name in a line.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Error => "ERROR",
            Self::Warn => "WARN",
            Self::Info => "INFO",
            Self::Debug => "DEBUG",
        }
    }

    /// The level of this name, in any case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let levels = [Self::Error, Self::Warn, Self::Info, Self::Debug];
        levels.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(name))
    }
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> LogConfig {
    let mut log = LogConfig::default();
    for (key, value) in section.entries(problems) {
        match key {
            "format" => log.format = problems.keep(format(&value)).unwrap_or_default(),
            "level" => log.level = problems.keep(level(&value)),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    log
}

fn format(value: &ConfigField<'_>) -> Result<LogFormat, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.as_str() {
        "human" => Ok(LogFormat::Human),
        "json" => Ok(LogFormat::Json),
        _ => Err(place.problem(format!("{text:?} is neither \"human\" nor \"json\""))),
    }
}

fn level(value: &ConfigField<'_>) -> Result<LogLevel, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.as_str() {
        "error" => Ok(LogLevel::Error),
        "warn" => Ok(LogLevel::Warn),
        "info" => Ok(LogLevel::Info),
        "debug" => Ok(LogLevel::Debug),
        _ => Err(place.problem(format!("{text:?} is none of error, warn, info, debug"))),
    }
}
