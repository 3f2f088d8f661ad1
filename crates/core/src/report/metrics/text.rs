//! Decides how numbers become Prometheus text: families of samples with escaped label values, and
//! the four families of resilience by their names.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use crate::model::policy::breaker::BreakerStatus;
use crate::model::sanitize::is_unseen;

/// A text in the format of Prometheus, for an endpoint such as `/metrics`. It grows by families.
///
/// ```
/// let mut text = seawall::MetricsText::default();
/// text.family("issues_open", "gauge", "Issues that are open.");
/// text.sample(&[("repo", "acme/harbour")], 3);
/// assert!(text.finish().ends_with("issues_open{repo=\"acme/harbour\"} 3\n"));
/// ```
#[derive(Debug, Default)]
pub struct MetricsText {
    text: String,
    name: &'static str,
}

/// The name and value of each label of a sample.
pub type MetricLabels<'a> = [(&'a str, &'a str)];

/// What is told of one tool in the four families of resilience.
#[derive(Clone, Copy, Debug)]
pub struct ToolSamples<'a> {
    /// The labels of its samples.
    pub labels: &'a MetricLabels<'a>,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Calls that a fallback answered, by its step.
    pub fallbacks: &'a BTreeMap<String, u64>,
    /// Calls to which an open breaker left only an explanation.
    pub degraded: u64,
}

impl MetricsText {
    /// Begins a family; the samples that follow belong to it.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _never_fails = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the family.
    pub fn sample(&mut self, labels: &MetricLabels<'_>, value: impl Display) {
        self.part("", labels, value);
    }

    /// A sample of a part of the family: its buckets, its sum, its count.
    pub fn part(&mut self, part: &str, labels: &MetricLabels<'_>, value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(part);
        for (place, (label, value)) in labels.iter().enumerate() {
            self.text.push(if place == 0 { '{' } else { ',' });
            self.text.push_str(label);
            self.text.push_str("=\"");
            escape(&mut self.text, value);
            self.text.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _never_fails = writeln!(self.text, "{end} {value}");
    }

    /// Writes `retry_attempts_total`, `circuit_breaker_state`, `fallback_activated_total` and
    /// `graceful_degradation_total`.
    pub fn resilience(
        &mut self,
        tools: &[ToolSamples<'_>],
        breakers: &[(&MetricLabels<'_>, BreakerStatus)],
    ) {
        self.family("retry_attempts_total", "counter", "Attempts of a call beyond the first.");
        for tool in tools {
            self.sample(tool.labels, tool.retries);
        }
        let help = "1 for the state that a circuit breaker is in, 0 for the others.";
        self.family("circuit_breaker_state", "gauge", help);
        for (labels, now) in breakers {
            for state in [BreakerStatus::Closed, BreakerStatus::HalfOpen, BreakerStatus::Open] {
                let state_name = state.to_string();
                let labels = [*labels, &[("state", state_name.as_str())]].concat();
                self.sample(&labels, u8::from(state == *now));
            }
        }
        self.family("fallback_activated_total", "counter", "Calls that a fallback answered.");
        for tool in tools {
            for (step, count) in tool.fallbacks {
                self.sample(&[tool.labels, &[("step", step)]].concat(), count);
            }
        }
        let help = "Calls to which an open breaker left only an explanation.";
        self.family("graceful_degradation_total", "counter", help);
        for tool in tools {
            self.sample(tool.labels, tool.degraded);
        }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

fn escape(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            // Some parsers split lines at other characters too: they must not find more lines than
            // there are.
            letter if is_unseen(letter) || matches!(letter, '\u{2028}' | '\u{2029}') => {
                text.push('\u{fffd}')
            }
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stays_within_its_quotation_marks() {
        let mut text = MetricsText::default();
        text.family("a_total", "counter", "What a is.");
        text.sample(&[("tool", "x\"} 1\nb_total{a=\"\\\r"), ("server", "é")], 3);
        text.part("_sum", &[], 0.5);
        assert_eq!(
            text.finish(),
            "# HELP a_total What a is.\n# TYPE a_total counter\n\
             a_total{tool=\"x\\\"} 1\\nb_total{a=\\\"\\\\\u{fffd}\",server=\"é\"} 3\na_total_sum 0.5\n"
        );
    }
}
