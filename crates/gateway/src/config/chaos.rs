//! Decides which faults the gateway adds to the calls of a server: its section `chaos`.

use std::time::Duration;

use super::problem::{Problem, Problems};
use super::tree::ConfigField;
use super::{duration, reconnect, suggest};

const KEYS: [&str; 5] = ["seed", "latency", "error_rate", "hang_rate", "crash_rate"];

/// The faults that are added to the calls of a server's tools.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChaosConfig {
    /// Where chance begins.
    pub seed: u32,
    /// How much later each call is sent.
    pub latency: Duration,
    /// The share of calls that are answered with HTTP status 503 and not sent.
    pub error_rate: f64,
    /// The share of calls that are neither sent nor answered.
    pub hang_rate: f64,
    /// The share of calls that are sent to a connection that ends at once.
    pub crash_rate: f64,
}

/// Reads the section.
pub(super) fn read(section: &ConfigField<'_>, problems: &mut Problems) -> Option<ChaosConfig> {
    let mut chaos = ChaosConfig {
        seed: 1,
        latency: Duration::ZERO,
        error_rate: 0.0,
        hang_rate: 0.0,
        crash_rate: 0.0,
    };
    let before = problems.count();
    for (key, value) in section.entries(problems) {
        match key {
            "seed" => chaos.seed = problems.keep(value.count())?,
            "latency" => chaos.latency = problems.keep(reconnect::some_time(&value))?,
            "error_rate" => chaos.error_rate = problems.keep(share(&value))?,
            "hang_rate" => chaos.hang_rate = problems.keep(share(&value))?,
            "crash_rate" => chaos.crash_rate = problems.keep(share(&value))?,
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    if problems.count() > before {
        return None;
    }
    let rates = chaos.error_rate + chaos.hang_rate + chaos.crash_rate;
    if rates > 1.0 {
        problems.push(
            section.place.problem(
                "at most one fault strikes a call, so the rates must not exceed 1 together",
            ),
        );
    }
    if rates == 0.0 && chaos.latency.is_zero() {
        problems.push(section.place.problem(
            "adds no fault; set latency, error_rate, hang_rate or crash_rate, or remove it",
        ));
    }
    let text = format!("faults are added to its calls on purpose: {}", chaos.told());
    problems.warn(section.place.problem(format!("{text}; remove it where agents work")));
    Some(chaos)
}

fn share(value: &ConfigField<'_>) -> Result<f64, Problem> {
    let share = value.number()?;
    match share > 0.0 && share <= 1.0 {
        true => Ok(share),
        false => Err(value.place.problem("must be above 0 and at most 1: the share of calls")),
    }
}

impl ChaosConfig {
    /// The faults in words, for logs and operators.
    pub(crate) fn told(&self) -> String {
        let late = (!self.latency.is_zero())
            .then(|| format!("calls are sent {} late", duration::spelled(self.latency)));
        let rates = [
            (self.error_rate, "answered 503"),
            (self.hang_rate, "never answered"),
            (self.crash_rate, "met by a crash"),
        ];
        let rates = rates
            .into_iter()
            .filter(|(rate, _)| *rate > 0.0)
            .map(|(rate, what)| format!("{} % {what}", rate * 100.0));
        late.into_iter().chain(rates).collect::<Vec<_>>().join(", ")
    }
}
