//! The `seawall-world` program: plays random histories against a gateway, for as long as it is
//! told, and prints what was violated. `tests/world` runs the same in `cargo test`.
#![allow(clippy::print_stdout, reason = "what it found is the program's output")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use seawall_testkit::world::campaign::{Campaign, run};
use seawall_testkit::world::check::{Rule, check};
use seawall_testkit::world::config::Keys;
use seawall_testkit::world::generate;
use seawall_testkit::world::play::{Programs, play};

/// Plays random histories against a gateway.
#[derive(Parser)]
#[command(name = "seawall-world")]
struct Arguments {
    /// The gateway; the one beside this program if it is not said.
    #[arg(long, env = "SEAWALL")]
    seawall: Option<PathBuf>,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// How many histories.
    #[arg(long, default_value_t = 200)]
    count: u64,
    /// How many minutes at most.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// How many worlds at once.
    #[arg(long, default_value_t = 16)]
    at_once: usize,
    /// Only this rule; may be given again.
    #[arg(long)]
    only: Vec<String>,
    /// How many histories are made smaller for each rule.
    #[arg(long, default_value_t = 1)]
    shrunk: usize,
    /// How many violations of each rule are told as they come.
    #[arg(long, default_value_t = 3)]
    told: usize,
    /// Play this seed alone and tell everything.
    #[arg(long)]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> std::io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let beside = std::env::current_exe()?;
    let seawall = arguments.seawall.clone().unwrap_or_else(|| beside.with_file_name("seawall"));
    let keys = Keys::of(&seawall)?;
    let programs = Programs { seawall, relay: beside.with_file_name("seawall-relay"), keys };
    let is_wanted =
        |rule: &Rule| arguments.only.is_empty() || arguments.only.contains(&rule.to_string());
    if let Some(seed) = arguments.seed {
        return alone(seed, &programs).await;
    }
    let campaign = Campaign {
        first: arguments.first,
        count: arguments.count,
        time: Duration::from_secs(arguments.minutes * 60),
        at_once: arguments.at_once,
        rules: Rule::ALL.into_iter().filter(is_wanted).collect(),
        shrunk: arguments.shrunk,
        told: arguments.told,
        is_strict: true,
    };
    let report = run(&campaign, &programs, |line| println!("{line}")).await;
    println!("{report}");
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One history, with everything that was seen.
async fn alone(seed: u64, programs: &Programs) -> std::io::Result<ExitCode> {
    let history = generate::history(seed);
    println!("{history}");
    let record = play(&history, programs).await?;
    println!("{record}");
    let violations = check(&record);
    for violation in &violations {
        println!("{}: {}", violation.rule, violation.seen);
    }
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
