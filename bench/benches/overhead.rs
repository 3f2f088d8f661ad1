//! What a proxy costs in front of an MCP server: Seawall beside its peers and beside the floor, in
//! one table.
//!
//! `cargo bench -p seawall-bench --bench overhead` runs all of it in five minutes; `-- envoy` only
//! what has that word in its name, beside Seawall and the floors; `-- --quick` shorter rounds.
//! `bench/peers` installs the peers. Nothing fails for being slow; a wrong answer fails.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing a table is what a benchmark is for"
)]

mod overhead {
    pub(crate) mod goals;
    pub(crate) mod load;
    pub(crate) mod peers;
    pub(crate) mod process;
    pub(crate) mod rounds;
    pub(crate) mod session;
    pub(crate) mod show;
    pub(crate) mod targets;
}

use std::env;
use std::time::Duration;

use overhead::rounds::{Plan, measure};
use overhead::{goals, peers, show, targets};
use seawall_bench::{Setup, machine};

const COMMAND: &str = "cargo bench -p seawall-bench --bench overhead";
const THOROUGH: Plan = Plan { rounds: 7, time: Duration::from_secs(1) };
const QUICK: Plan = Plan { rounds: 2, time: Duration::from_millis(200) };

fn main() -> Setup<()> {
    let arguments: Vec<String> =
        env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let plan =
        if arguments.iter().any(|argument| argument == "--quick") { QUICK } else { THOROUGH };
    let words: Vec<&String> =
        arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let places = peers::find()?;
    for line in places.missing() {
        println!("{line}");
    }
    let is_wanted =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    if !targets::NAMES.iter().any(|name| is_wanted(name)) {
        return Ok(());
    }
    let shown = arguments.iter().map(|argument| format!(" {argument}")).collect::<String>();
    println!(
        "{}\nmade by: {COMMAND}{}\n",
        machine(),
        if shown.is_empty() { shown } else { format!(" --{shown}") }
    );

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows = runtime.block_on(async {
        let targets = targets::start(&places, is_wanted).await?;
        measure(&targets, plan, || eprint!(".")).await
    })?;
    eprintln!();
    println!("{}", show::table(&rows));
    println!("{}\n", show::LEGEND);
    goals::judge(&rows).iter().for_each(|line| println!("{line}"));
    match rows.iter().find(|row| row.wrong > 0) {
        Some(row) => {
            Err(format!("{}: {} calls did not end as they had to", row.target, row.wrong).into())
        }
        None => Ok(()),
    }
}
