//! What each policy costs per call, side by side with its peers and with the floors, in one table.
//!
//! `cargo bench -p seawall-bench` runs all of it in about a minute, three at most; `-- breaker`
//! only what has that word in its group or name; `-- --quick` with fewer rounds. Nothing fails for
//! being slow.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing a table is what a benchmark is for"
)]

mod library {
    pub(crate) mod bounds;
    pub(crate) mod breakers;
    pub(crate) mod deadlines;
    pub(crate) mod floors;
    pub(crate) mod goals;
    pub(crate) mod inner;
    pub(crate) mod pipelines;
    pub(crate) mod rejections;
    pub(crate) mod retries;
}

use std::env;
use std::time::Duration;

use library::{bounds, breakers, deadlines, floors, goals, pipelines, rejections, retries};
use seawall_bench::{Group, Plan, Row, Setup, judge, machine, measure, table};

const COMMAND: &str = "cargo bench -p seawall-bench";
/// Thirteen groups in less than three minutes, however busy the machine is.
const THOROUGH: Plan = Plan { rounds: 20, most: 40, patience: Duration::from_secs(12) };
const QUICK: Plan = Plan { rounds: 5, most: 10, patience: Duration::from_secs(4) };

fn main() -> Setup<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let plan =
        if arguments.iter().any(|argument| argument == "--quick") { QUICK } else { THOROUGH };
    // Cargo adds flags of its own, such as `--bench`.
    let words: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |text: &str| words.iter().all(|word| text.contains(word.as_str()));

    println!("{}\nmade by: {COMMAND}{}\n", machine(), arguments_shown(&arguments));
    let mut rows = Vec::new();
    for mut group in groups()? {
        group.subjects.retain(|subject| is_wanted(&format!("{} {}", group.name, subject.name)));
        if !group.subjects.is_empty() {
            rows.extend(measured(&group, plan)?);
        }
    }
    println!("{}", table(&rows));
    println!(
        "1T: one thread. 2T: two threads on one shared instance, time of one thread per call."
    );
    println!("~: fewer than 3 undisturbed rounds. The inner call is a ready Ok everywhere.");
    println!("Goals in nanoseconds go by the median, who is ahead by the fastest rounds.\n");
    judge(&goals::all(&rows), &rows).iter().for_each(|line| println!("{line}"));

    match rows.iter().find(|row| row.measured.wrong > 0) {
        Some(row) => {
            Err(format!("{}: {} calls did not end as they had to", row.name, row.measured.wrong)
                .into())
        }
        None => Ok(()),
    }
}

fn groups() -> Setup<Vec<Group>> {
    Ok(vec![
        floors::floors(),
        breakers::in_a_row()?,
        breakers::in_a_window()?,
        rejections::rejections()?,
        retries::retries()?,
        retries::with_a_budget()?,
        deadlines::ready(),
        deadlines::waits_once(),
        deadlines::stack()?,
        bounds::slots()?,
        bounds::rate_admitted()?,
        bounds::rate_rejected()?,
        pipelines::pipelines()?,
    ])
}

fn measured(group: &Group, plan: Plan) -> Setup<Vec<Row>> {
    eprint!("{} ", group.name);
    let measured = measure(&group.subjects, plan, || eprint!("."))?;
    eprintln!();
    let row = |(subject, measured): (&seawall_bench::Subject, _)| Row {
        group: group.name,
        name: subject.name,
        role: subject.role,
        measured,
    };
    Ok(group.subjects.iter().zip(measured).map(row).collect())
}

fn arguments_shown(arguments: &[String]) -> String {
    let own: Vec<&str> =
        arguments.iter().map(String::as_str).filter(|argument| *argument != "--bench").collect();
    if own.is_empty() { String::new() } else { format!(" -- {}", own.join(" ")) }
}
