//! Runs `seawall chaos`: an MCP server that fails as its script says, so that people can test their
//! own agents and clients.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use seawall_demo::faults::FaultPlan;
use seawall_demo::world::World;

use super::{CommandEnd, UNREACHABLE, USAGE};
use crate::config::chaos_script;
use crate::runtime::log;
use crate::runtime::plural::counted;
use crate::runtime::stop::StopSignal;

#[derive(Args, Debug)]
pub(super) struct ChaosArgs {
    /// Which faults strike which calls; without it, the script that --print-script shows
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Where chance begins, instead of the script's seed
    #[arg(long)]
    seed: Option<u64>,
    /// Speak stdio to one client; so it is without --listen too
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
    /// Serve HTTP at this address
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:7334")]
    listen: Option<SocketAddr>,
    /// Keep in this folder which calls came, so that the process after a crash goes on from there;
    /// without it each process begins anew
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print the script that is played if none is given, to begin one of your own
    #[arg(long)]
    print_script: bool,
}

pub(super) async fn run(args: ChaosArgs) -> CommandEnd {
    if args.print_script {
        super::out(chaos_script::DEFAULT.trim_end());
        return Ok(());
    }
    let plan = match &args.script {
        Some(path) => chaos_script::load(path),
        None => chaos_script::default(),
    };
    let mut plan = plan.map_err(|problems| (USAGE, problems.to_string()))?;
    plan.seed = args.seed.unwrap_or(plan.seed);
    let told = told(&plan);
    let world = match &args.state {
        Some(folder) => World::resumed(folder, &plan).map_err(|error| {
            let text = format!("cannot keep state in {}: {error}", folder.display());
            (UNREACHABLE, format!("{text}; give --state a folder that can be written"))
        })?,
        None => World::in_memory(plan),
    };
    match args.listen {
        None => {
            log::tell(&told);
            seawall_demo::chaos_on_stdio(world).await;
            Ok(())
        }
        Some(address) => on_http(world, address, &told).await,
    }
}

async fn on_http(world: World, address: SocketAddr, told: &str) -> CommandEnd {
    let web = seawall_demo::chaos_on_http(world, address).await.map_err(|error| {
        (UNREACHABLE, format!("cannot listen on {address}: {error}; give --listen another address"))
    })?;
    let mut stop = StopSignal::new()
        .map_err(|error| (UNREACHABLE, format!("cannot listen for signals: {error}")))?;
    log::tell(&format!("{told}; at {}", web.url));
    stop.caught().await;
    Ok(())
}

/// What will go wrong, on one line.
fn told(plan: &FaultPlan) -> String {
    let percent: u64 = plan.strikes.iter().map(|strike| strike.percent).sum();
    let mut told = format!("this server fails on purpose: seed {}", plan.seed);
    let _infallible = match plan.strikes.len() {
        0 => write!(told, ", no fault of calls"),
        count => {
            write!(told, ", {} striking at most {percent} % of calls", counted(count, "fault"))
        }
    };
    if plan.list.is_some() {
        told += ", a fault of the tool list";
    }
    told
}
