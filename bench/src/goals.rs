//! Decides whether a goal is met. A missed goal is told, never enforced: another machine has other
//! numbers.

use crate::measure::Rounds;
use crate::subject::Role;
use crate::table::{Row, number};

/// On how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// One.
    One,
    /// Two.
    Two,
}

impl Column {
    fn name(self) -> &'static str {
        match self {
            Column::One => "1T",
            Column::Two => "2T",
        }
    }

    fn of(self, row: &Row) -> &Rounds {
        match self {
            Column::One => &row.measured.one,
            Column::Two => &row.measured.two,
        }
    }
}

/// Something a row should reach, by its median. Rows are named by group and subject.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At most so many nanoseconds.
    AtMost(&'static str, &'static str, Column, f64),
    /// At most so many times what another row costs on one thread.
    Times(&'static str, &'static str, Column, f64, &'static str, &'static str),
    /// No allocation at all.
    NoAllocation(&'static str, &'static str),
    /// Faster than every peer of its group, on one thread and on two: so is every row of Seawall's
    /// there. Told by the fastest rounds: what neighbours do only adds to a round, and not to all
    /// of them alike.
    Ahead(&'static str),
}

/// One line for each goal whose rows were measured.
pub fn judge(goals: &[Goal], rows: &[Row]) -> Vec<String> {
    goals
        .iter()
        .filter_map(|goal| goal.verdict(rows))
        .map(|(met, text)| verdict(met, &text))
        .collect()
}

/// Whether a goal is met, as a line.
pub fn verdict(met: bool, text: &str) -> String {
    format!("{} {text}", if met { "met    " } else { "missed " })
}

impl Goal {
    /// `None` where nothing can be said.
    fn verdict(&self, rows: &[Row]) -> Option<(bool, String)> {
        let find = |group: &str, name: &str| {
            rows.iter().find(|row| row.group == group && row.name == name)
        };
        let median = |column: Column, group, name| column.of(find(group, name)?).median();
        match *self {
            Goal::AtMost(group, name, column, limit) => {
                let nanos = median(column, group, name)?;
                let measured = format!("{} {}", column.name(), number(nanos));
                Some((
                    nanos <= limit,
                    format!("{group}, {name}: {measured} ns, goal at most {limit} ns"),
                ))
            }
            Goal::Times(group, name, column, factor, other_group, other) => {
                let (nanos, base) =
                    (median(column, group, name)?, median(Column::One, other_group, other)?);
                let measured =
                    format!("{} {} ns is {:.2} times", column.name(), number(nanos), nanos / base);
                let goal = format!("{other} ({} ns), goal at most {factor}", number(base));
                Some((nanos <= factor * base, format!("{group}, {name}: {measured} {goal}")))
            }
            Goal::NoAllocation(group, name) => {
                let count = find(group, name)?.measured.allocations;
                Some((count == 0.0, format!("{group}, {name}: {count} allocations, goal none")))
            }
            Goal::Ahead(group) => ahead(group, rows),
        }
    }
}

fn ahead(group: &str, rows: &[Row]) -> Option<(bool, String)> {
    let of_role =
        |role: Role| rows.iter().filter(move |row| row.group == group && row.role == role);
    let mut compared = 0;
    let (mut behind, mut level) = (Vec::new(), Vec::new());
    for (ours, peer) in
        of_role(Role::Ours).flat_map(|ours| of_role(Role::Peer).map(move |peer| (ours, peer)))
    {
        for column in [Column::One, Column::Two] {
            let (Some(our), Some(their)) = (column.of(ours).min(), column.of(peer).min()) else {
                continue;
            };
            compared += 1;
            let (our_number, their_number) = (number(our), number(their));
            // What the table shows as equal is equal: the digits behind it change with every run.
            if our_number == their_number {
                level.push(format!("{} at {}", peer.name, column.name()));
            } else if our > their {
                let numbers = format!("{our_number} against {their_number} ns");
                behind.push(format!(
                    "{} is behind {} at {} ({numbers})",
                    ours.name,
                    peer.name,
                    column.name()
                ));
            }
        }
    }
    let verdict = match (behind.is_empty(), level.is_empty()) {
        (false, _) => behind.join("; "),
        (true, false) => format!("behind no peer, level with {}", level.join(", ")),
        (true, true) => "ahead of every peer".to_owned(),
    };
    (compared > 0).then(|| (behind.is_empty(), format!("{group}: {verdict}")))
}
