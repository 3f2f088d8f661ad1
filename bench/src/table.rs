//! Decides how the numbers are shown: one table, and where they come from.

use std::fs;
use std::process::Command;
use std::thread;

use crate::measure::{Measured, Rounds};
use crate::subject::Role;

/// A measured subject.
#[derive(Clone, Debug)]
pub struct Row {
    /// The group it stands in.
    pub group: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Whose it is.
    pub role: Role,
    /// What it costs.
    pub measured: Measured,
}

impl Row {
    fn cells(&self) -> [String; 6] {
        let name = match self.role {
            Role::Floor => format!("floor: {}", self.name),
            Role::Ours | Role::OursToo => format!("**{}**", self.name),
            Role::Peer => self.name.to_owned(),
        };
        let Measured { one, two, allocations, wrong } = &self.measured;
        let name = if *wrong == 0 { name } else { format!("WRONG ({wrong} calls): {name}") };
        let [one, two] =
            [one, two].map(|rounds| [shown(rounds, rounds.min()), shown(rounds, rounds.median())]);
        let ([one_min, one], [two_min, two]) = (one, two);
        [name, one_min, one, two_min, two, allocated(*allocations)]
    }
}

/// Numbers from few rounds are marked; `-` where no round was undisturbed.
fn shown(rounds: &Rounds, nanos: Option<f64>) -> String {
    let mark = if rounds.is_rough() { "~" } else { "" };
    nanos.map_or_else(|| "-".to_owned(), |nanos| format!("{mark}{}", number(nanos)))
}

pub(crate) fn number(nanos: f64) -> String {
    match nanos {
        ..100.0 => format!("{nanos:.2}"),
        ..1000.0 => format!("{nanos:.1}"),
        _ => format!("{nanos:.0}"),
    }
}

fn allocated(allocations: f64) -> String {
    let text = format!("{allocations:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The rows as a Markdown table that also reads well as plain text.
pub fn table(rows: &[Row]) -> String {
    const HEAD: [&str; 6] =
        ["subject", "1T min ns", "1T median", "2T min ns", "2T median", "allocs/call"];
    let mut lines: Vec<[String; 6]> = vec![HEAD.map(str::to_owned)];
    for (place, row) in rows.iter().enumerate() {
        if place == 0 || rows[place - 1].group != row.group {
            let mut line = <[String; 6]>::default();
            line[0] = format!("_{}_", row.group);
            lines.push(line);
        }
        lines.push(row.cells());
    }
    grid(&lines)
}

/// Lines under a head as a Markdown table; the first column is text, the others are numbers.
pub fn grid<Line: AsRef<[String]>>(lines: &[Line]) -> String {
    let columns = lines.first().map_or(0, |line| line.as_ref().len());
    let width = |column: usize| {
        lines.iter().map(|line| line.as_ref()[column].chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (place, line) in lines.iter().enumerate() {
        for (column, (cell, width)) in line.as_ref().iter().zip(&widths).enumerate() {
            text.push_str(&if column == 0 {
                format!("| {cell:<width$} |")
            } else {
                format!(" {cell:>width$} |")
            });
        }
        text.push('\n');
        if place == 0 {
            for (column, width) in widths.iter().enumerate() {
                let dashes = "-".repeat(width + 1);
                text.push_str(&if column == 0 {
                    format!("|{dashes}-|")
                } else {
                    format!("{dashes}:|")
                });
            }
            text.push('\n');
        }
    }
    text
}

/// What the numbers were measured on.
pub fn machine() -> String {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let rustc = Command::new("rustc").arg("--version").output().ok();
    let rustc = rustc.and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let cpu = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    });
    let load = fs::read_to_string("/proc/loadavg").ok();
    let load = load.as_deref().and_then(|text| text.split(' ').next()).unwrap_or("unknown");
    format!(
        "{cores} cores ({}), {}, load when it began {load}",
        cpu.as_deref().unwrap_or("unknown"),
        Some(rustc.trim()).filter(|text| !text.is_empty()).unwrap_or("rustc unknown"),
    )
}
