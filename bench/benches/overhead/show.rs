//! How the numbers are shown.

use seawall_bench::grid;

use super::rounds::Row;
use super::session::Size;
use super::targets::{AUTHZ, DIRECT, MODERN, RELAY, REMEMBERED, SEAWALL, TOKEN};

/// What the columns mean.
pub(crate) const LEGEND: &str = "\
Sessions call in a closed loop, one call each at a time. +p50, +p99: over direct in the same round, in µs.
CPU: seconds of the proxy's process for 10,000 calls. RSS in MiB: before any load, and the most seen under this one.";

/// One table, a group for each load.
pub(crate) fn table(rows: &[Row]) -> String {
    const HEAD: [&str; 9] = [
        "target",
        "p50 µs",
        "p99 µs",
        "+p50",
        "+p99",
        "calls/s",
        "CPU s/10k",
        "RSS idle",
        "RSS load",
    ];
    let mut lines = vec![HEAD.map(str::to_owned)];
    for (place, row) in rows.iter().enumerate() {
        let load = |row: &Row| (row.size, row.sessions);
        if place == 0 || load(&rows[place - 1]) != load(row) {
            let mut group = [const { String::new() }; 9];
            group[0] = format!("_{}_", name(row.size, row.sessions));
            lines.push(group);
        }
        lines.push(row.cells());
    }
    grid(&lines)
}

/// The name of a load.
pub(crate) fn name(size: Size, sessions: usize) -> String {
    let size = match size {
        Size::Small => "0.5 KB",
        Size::Large => "1 MB",
    };
    format!("{size}, {sessions} session{}", if sessions == 1 { "" } else { "s" })
}

impl Row {
    fn cells(&self) -> [String; 9] {
        let name = match self.target {
            DIRECT | RELAY => format!("floor: {}", self.target),
            SEAWALL | MODERN | TOKEN | AUTHZ | REMEMBERED => format!("**{}**", self.target),
            peer => peer.to_owned(),
        };
        let name =
            if self.wrong == 0 { name } else { format!("WRONG ({} calls): {name}", self.wrong) };
        let added = |micros: f64| {
            if self.target == DIRECT { String::new() } else { format!("{micros:+.0}") }
        };
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or_else(String::new, |it| format!("{it:.digits$}"))
        };
        [
            name,
            format!("{:.0}", self.p50),
            format!("{:.0}", self.p99),
            added(self.added_p50),
            added(self.added_p99),
            format!("{:.0}", self.rate),
            shown(self.cpu, 2),
            shown(self.idle, 1),
            shown(self.memory, 1),
        ]
    }
}
