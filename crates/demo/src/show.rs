//! Decides the output of the demo: a bar while it runs, and a table with a legend below it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// The results of all tasks in one arm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Tasks that ended with a useful answer.
    pub useful: u64,
    /// Useful answers that a fallback gave, labelled as such.
    pub stand_ins: u64,
    /// Tasks that failed, and the agent was told so.
    pub failed: u64,
    /// Tasks that ended without any answer.
    pub dark: u64,
    /// Tasks that ended with a false answer.
    pub wrong: u64,
    /// Repeated executions of tasks that must be executed once.
    pub duplicates: u64,
    /// Calls that gave no usable answer.
    pub wasted: u64,
    /// How long the arm took.
    pub time: Duration,
}

/// Writes the table to stdout.
pub fn table(seed: u64, calls: u64, rows: &[(&str, Row)]) -> io::Result<()> {
    let mut lines = vec![
        ["".to_owned()]
            .into_iter()
            .chain(rows.iter().map(|(name, _)| (*name).to_owned()))
            .collect(),
    ];
    let mut line = |name: &str, cell: &dyn Fn(&Row) -> String| {
        let cells: Vec<String> =
            [name.to_owned()].into_iter().chain(rows.iter().map(|(_, row)| cell(row))).collect();
        lines.push(cells);
    };
    line("useful answers", &|row| format!("{} of {calls}", row.useful));
    line("  of these from a labelled stand-in", &|row| row.stand_ins.to_string());
    line("honest failures", &|row| row.failed.to_string());
    line("no answer at all", &|row| row.dark.to_string());
    line("false answers", &|row| row.wrong.to_string());
    line("duplicate executions", &|row| row.duplicates.to_string());
    line("wasted calls", &|row| row.wasted.to_string());
    line("time", &|row| format!("{:.1} s", row.time.as_secs_f64()));
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "{calls} tasks of one agent, two faulty servers, seed {seed}\n\n{}",
        aligned(&lines)
    )?;
    writeln!(out, "{LEGEND}")
}

const LEGEND: &str = "\
The servers hang, die before and after they have done their work, break off in the middle of an answer, ask for pauses,
forget sessions; one is down for a fifth of the time. Both columns met the same faults. The agent repeats a call that
failed up to three times. If the answer says how long to wait, it goes on with something else; if it says that the call
may have been executed, it looks before it repeats.

useful answers        the task was done once, or a read was answered with a copy that says how old it is
honest failures       the agent was told what happened, and what was not done
no answer at all      a timeout or a lost connection: the agent cannot know what happened
duplicate executions  the server's ledger shows a write again that the agent wanted once; its task is not counted as useful
wasted calls          calls of the agent that brought nothing: turns of the model, paid for

Pauses are shorter than the defaults here, so that this takes seconds. Next: seawall run -- YOUR-SERVER-COMMAND";

/// Aligned columns: the first is text, the others are numbers.
fn aligned(lines: &[Vec<String>]) -> String {
    let widths: Vec<usize> = (0..lines.first().map_or(0, Vec::len))
        .map(|column| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0))
        .collect();
    let row = |line: &Vec<String>| {
        let cells =
            line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("   {cell:>width$}"),
            });
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    lines.iter().map(row).collect()
}

/// A progress bar on stderr, if that is a terminal.
pub struct Progress {
    done: u64,
    of: u64,
    is_shown: bool,
}

impl Progress {
    const WIDTH: u64 = 40;

    /// A bar at zero of `of` tasks.
    pub fn new(of: u64) -> Self {
        Self { done: 0, of: of.max(1), is_shown: io::stderr().is_terminal() }
    }

    /// Counts one more task, and names the arm it belongs to.
    pub fn step(&mut self, what: &str) {
        self.done += 1;
        if self.is_shown {
            let full = (self.done * Self::WIDTH / self.of).min(Self::WIDTH);
            let bar: String =
                (0..Self::WIDTH).map(|place| if place < full { '█' } else { '░' }).collect();
            let _gone = write!(io::stderr(), "\r\x1b[K{bar} {}/{} {what}", self.done, self.of);
        }
    }

    /// Removes the bar.
    pub fn clear(&self) {
        if self.is_shown {
            let _gone = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
