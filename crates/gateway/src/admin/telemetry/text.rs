//! The text format of Prometheus: families of samples, with escaped label values.

use std::fmt::{Display, Write};

/// A text that grows by families.
#[derive(Debug, Default)]
pub(super) struct MetricsText {
    text: String,
    name: &'static str,
}

impl MetricsText {
    /// Begins a family; the samples that follow belong to it.
    pub(super) fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _never_fails = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the family.
    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.part("", labels, value);
    }

    /// A sample of a part of the family: its buckets, its sum, its count.
    pub(super) fn part(&mut self, part: &str, labels: &[(&str, &str)], value: impl Display) {
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

    pub(super) fn finish(self) -> String {
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
            letter if seawall::is_unseen(letter) || matches!(letter, '\u{2028}' | '\u{2029}') => {
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
