//! Writes a report: for people as a list with marks, for programs as one object.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::needs::Requirement;
use super::{CheckReport, CheckedServer, HealthyServer};
use crate::protocol::names::Era;
use crate::runtime::log::plain;
use crate::runtime::plural::counted;

/// Bytes of a tool list per token, roughly.
const TOKEN: usize = 4;

impl CheckReport {
    /// The report for people.
    pub(crate) fn text(&self) -> String {
        let mut lines = Vec::new();
        for server in &self.servers {
            lines.extend(server.lines());
        }
        for (need, unmet) in
            self.needs.iter().filter_map(|need| Some((need, need.found.as_ref().err()?)))
        {
            lines.push(format!("✗ {}: {}", need.what, need.at));
            lines.extend([
                format!("    {} ({})", unmet.text, unmet.problem),
                format!("    {}", unmet.next),
            ]);
        }
        for warning in &self.warnings {
            lines.push(format!("! {warning}"));
        }
        lines.extend(self.notes.iter().map(|note| format!("· {note}")));
        let (well, fine) = (self.fine().count(), self.fine());
        let (tools, bytes) = fine
            .fold((0, 0), |(tools, bytes), fine| (tools + fine.tools.len(), bytes + fine.bytes));
        let warnings: usize = self.warnings.len()
            + self.servers.iter().map(|server| server.warnings.len()).sum::<usize>();
        lines.push(format!(
            "{}: {well} of {} well, {}, about {}, {}",
            self.file,
            counted(self.servers.len(), "server"),
            counted(tools, "tool"),
            counted(bytes / TOKEN, "token"),
            counted(warnings, "warning"),
        ));
        // Much of the text comes from servers: control characters are replaced.
        lines.iter().map(|line| plain(line)).collect::<Vec<_>>().join("\n")
    }

    /// The report for programs.
    pub(crate) fn json(&self) -> Value {
        let servers: Map<String, Value> =
            self.servers.iter().map(|server| (server.name.clone(), server.json())).collect();
        let needs: Map<String, Value> =
            self.needs.iter().map(|need| (need.what.to_owned(), need.json())).collect();
        json!({
            "ok": self.is_well(), "file": self.file, "servers": servers, "gateway": needs, "warnings": self.warnings,
            "notes": self.notes, "problems": [],
        })
    }

    fn fine(&self) -> impl Iterator<Item = &HealthyServer> {
        self.servers.iter().filter_map(|server| server.found.as_ref().ok())
    }
}

impl Requirement {
    fn json(&self) -> Value {
        let mut told = json!({"ok": self.found.is_ok(), "at": self.at});
        if let Err(unmet) = &self.found {
            told["problem"] = json!(unmet.problem);
            told["text"] = json!(unmet.text);
            told["next"] = json!(unmet.next);
        }
        told
    }
}

impl CheckedServer {
    fn lines(&self) -> Vec<String> {
        let took = took(self.took);
        let (mark, mut lines) = match &self.found {
            Ok(fine) => {
                let (era, version) = (era(fine.era), &fine.version);
                let (tools, tokens) =
                    (counted(fine.tools.len(), "tool"), counted(fine.bytes / TOKEN, "token"));
                let text = format!("{tools}, about {tokens}, {version} ({era}), {took}");
                ("✓", vec![text])
            }
            Err(trouble) => {
                let mut lines = vec![
                    format!("{} ({}, {took})", trouble.text, trouble.problem),
                    trouble.next.clone(),
                ];
                if let (Some(exit), "timeout" | "malformed") = (&trouble.exit, trouble.problem) {
                    lines.push(format!("Its process ended: {exit}."));
                }
                if !trouble.stderr.is_empty() {
                    lines.push("It last said:".to_owned());
                    lines.extend(trouble.stderr.iter().map(|line| format!("  {line}")));
                }
                ("✗", lines)
            }
        };
        lines.extend(self.warnings.iter().map(|warning| format!("! {warning}")));
        let head = format!("{mark} {}: {}", self.name, self.way);
        std::iter::once(head).chain(lines.into_iter().map(|line| format!("    {line}"))).collect()
    }

    fn json(&self) -> Value {
        let millis = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        let mut told = json!({
            "ok": self.found.is_ok(), "reached": self.way, "millis": millis, "warnings": self.warnings,
        });
        match &self.found {
            Ok(fine) => {
                told["era"] = json!(era(fine.era));
                told["version"] = json!(fine.version);
                told["tools"] = json!(fine.tools.len());
                told["tokens"] = json!(fine.bytes / TOKEN);
            }
            Err(trouble) => {
                told["problem"] = json!(trouble.problem);
                told["text"] = json!(trouble.text);
                told["next"] = json!(trouble.next);
                told["exit"] = json!(trouble.exit);
                told["stderr"] = json!(trouble.stderr);
            }
        }
        told
    }
}

fn era(era: Era) -> &'static str {
    match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

fn took(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_speak_to_the_terminal_or_forge_a_line() {
        let warnings = vec!["names: frob\u{1b}]0;x\u{7}, a\n✓ b".to_owned()];
        let text = CheckReport {
            file: "f".to_owned(),
            servers: Vec::new(),
            needs: Vec::new(),
            warnings,
            notes: Vec::new(),
        }
        .text();
        assert_eq!(text.lines().next(), Some("! names: frob\u{fffd}]0;x\u{fffd}, a\u{fffd}✓ b"));
    }
}
