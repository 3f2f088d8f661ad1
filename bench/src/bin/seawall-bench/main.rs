//! The fault bench: `cargo run --release -p seawall-bench -- faults`. Told anything else, this is
//! `seawall` itself, so that gateways and faulty servers are processes of one program.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing a table is what a benchmark is for"
)]

mod faults {
    pub(crate) mod agents;
    pub(crate) mod arms;
    pub(crate) mod cell;
    pub(crate) mod chart;
    pub(crate) mod pairs;
    pub(crate) mod peers;
    pub(crate) mod report;
    pub(crate) mod run;
    pub(crate) mod scenarios;
    pub(crate) mod spread;
    pub(crate) mod tally;
}

use std::process::ExitCode;

use clap::Parser;
use seawall_gateway::cli;
use seawall_gateway::cli::Cli;
use seawall_gateway::{descriptors, log};

const USAGE: &str = "\
The bench itself: seawall-bench faults [--seed N] [--seeds N] [--quick] [--arms WORD,…] [--faults WORD,…] [--write]
  --seed N       draws other faults; 1 unless told
  --seeds N      so many seeds, that one and the next ones; 3 unless told
  --quick        fewer faults
  --arms, --faults   only those whose names have one of these words in them
  --write        puts the page and its chart in docs/evidence";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("faults", rest)) =
        arguments.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        if rest.iter().any(|word| word == "--help" || word == "-h") {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        return with_threads(async || match faults::run::run(rest).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        });
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _gone = error.print();
            eprintln!("\n{USAGE}");
            return ExitCode::from(cli::USAGE);
        }
    };
    if let Some(code) = cli::begin(&cli) {
        return code;
    }
    let code = with_threads(async || cli::run(cli).await);
    log::flush();
    code
}

fn with_threads(work: impl AsyncFnOnce() -> ExitCode) -> ExitCode {
    descriptors::raise();
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let code = runtime.block_on(work());
    runtime.shutdown_background();
    code
}
