//! The command line: what `seawall` can be told, and what it does then.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use super::admin;
use super::config::{self, Config};
use super::demo;
use super::log;
use super::memory::Memory;
use super::store::{Bounds, Store, Trouble};
use crate::accept::guard::Guard;
use crate::accept::http::Listener;
use crate::accept::stdio;
use crate::catalog::required;
use crate::gateway::Gateway;
use crate::upstream::{child, mark, watcher};

/// A usage or configuration error.
pub const USAGE: u8 = 1;
/// Something could not be reached or bound.
const UNREACHABLE: u8 = 4;

/// Stands between AI agents and their MCP tools, and keeps the agents working when the tools fail.
#[derive(Debug, Parser)]
#[command(name = "seawall", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Wrap one server; the client speaks stdio to us
    #[command(
        after_help = "Examples:\n  seawall run -- npx -y @modelcontextprotocol/server-everything\n  seawall run https://mcp.example/mcp\n\n\
                            In a client's configuration put `seawall run --` before the server's own command."
    )]
    Run(Run),
    /// Serve all configured servers on one endpoint
    #[command(
        after_help = "Examples:\n  seawall serve --config seawall.toml\n  seawall serve --config ~/.cursor/mcp.json --listen 127.0.0.1:7332\n\n\
                            All servers are at /mcp, with tools named <server>__<tool>; one server alone is at /mcp/<server>."
    )]
    Serve(Serve),
    /// See what Seawall does: faulty servers, the same calls direct and through Seawall, a table
    #[command(after_help = "Examples:\n  seawall demo\n  seawall demo --seed 7 --calls 200\n\n\
                            Nothing is needed and nothing is left behind. The same seed gives the same counts.")]
    Demo(Demo),
    /// Serve the faulty server of the demo on stdio (used by seawall itself)
    #[command(hide = true)]
    FaultyServer { folder: PathBuf },
    /// Become a server's process (used by seawall itself)
    #[command(hide = true)]
    StartServer(StartServer),
    /// Outlive a gateway and end what it leaves behind (used by seawall itself)
    #[command(hide = true)]
    WatchGateway {
        /// Be the watcher, and not the one that starts it
        #[arg(long)]
        detached: bool,
    },
}

#[derive(Args, Debug)]
struct StartServer {
    parent: u32,
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Args, Debug)]
struct Demo {
    /// Where chance begins
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many things the agent wants done
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    calls: u64,
    /// How many times longer each limit is, for a machine that is often held up
    #[arg(long, hide = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=60))]
    pace: u32,
}

#[derive(Args, Debug)]
struct Run {
    /// Seawall's own configuration, or a client's MCP file as it is
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Remember nothing of the server between runs
    #[arg(long)]
    no_memory: bool,
    /// The name of the server: in messages, and to choose one from a configuration
    #[arg(long)]
    name: Option<String>,
    /// The address of a remote server
    #[arg(value_name = "URL", conflicts_with = "command")]
    url: Option<String>,
    /// The command that starts the server, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Args, Debug)]
struct Serve {
    /// Seawall's own configuration, or a client's MCP file as it is
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen, instead of what the configuration says
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Remember nothing of the servers between runs
    #[arg(long)]
    no_memory: bool,
    /// Speak stdio to one client instead of listening
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
}

/// What must happen before there are threads: this process may have to become another.
pub fn begin(cli: &Cli) -> Option<ExitCode> {
    match &cli.command {
        Command::StartServer(start) => {
            let error = child::become_server(start.parent, &start.command);
            log::line(&format!("cannot start {:?}: {error}", start.command.first()));
            Some(ExitCode::from(UNREACHABLE))
        }
        Command::WatchGateway { detached } => {
            let watched = watcher::watch(*detached);
            Some(if watched.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(UNREACHABLE) })
        }
        _ => {
            child::launch_through("/proc/self/exe".into());
            None
        }
    }
}

/// Does what the command line says.
pub async fn run(cli: Cli) -> ExitCode {
    let ended = match cli.command {
        Command::StartServer(_) | Command::WatchGateway { .. } => Ok(()),
        Command::Demo(Demo { seed, calls, pace }) => {
            let played = demo::run(seed, calls, pace).await;
            played.map_err(|error| (UNREACHABLE, format!("the demo could not be played: {error}")))
        }
        Command::FaultyServer { folder } => {
            demo::serve(&folder).await;
            Ok(())
        }
        Command::Run(run) => {
            let no_memory = run.no_memory;
            match wrapped(run) {
                Ok(config) => on_stdio(&config, memory(&config, no_memory)).await,
                Err(problems) => Err((USAGE, problems)),
            }
        }
        Command::Serve(serve) => match served(&serve) {
            Ok(config) if serve.stdio => on_stdio(&config, memory(&config, serve.no_memory)).await,
            Ok(config) => on_http(&config, memory(&config, serve.no_memory)).await,
            Err(problems) => Err((USAGE, problems)),
        },
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, text)) => {
            for line in text.lines() {
                log::line(line);
            }
            ExitCode::from(code)
        }
    }
}

type Ended = Result<(), (u8, String)>;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn loaded(path: &Path) -> Result<Config, String> {
    config::load(path, &variable).map_err(|problems| problems.to_string())
}

fn wrapped(run: Run) -> Result<Config, String> {
    let name = run.name.as_deref();
    let given = match run.url {
        Some(url) => Some(Config::for_url(name, &url)),
        None if run.command.is_empty() && run.config.is_some() => None,
        None => Some(Config::for_command(name, run.command)),
    };
    let mut config = match (given, run.config) {
        (Some(given), None) => {
            let mut config = given.map_err(|problems| problems.to_string())?;
            config.take_env(&variable).map_err(|problem| problem.to_string())?;
            config
        }
        (Some(given), Some(path)) => {
            let settings = config::load_policies(&path, &variable).map_err(|problems| problems.to_string())?;
            given.map_err(|problems| problems.to_string())?.under(settings)
        }
        (None, path) => loaded(&path.unwrap_or_default())?,
    };
    if config.servers.len() > 1 && name.is_some() {
        config.servers.retain(|server| Some(server.name.as_str()) == name);
    }
    match config.servers.len() {
        1 => Ok(config),
        0 => Err("the configuration has no server of this name".to_owned()),
        count => Err(format!(
            "`run` wraps one server, the configuration has {count}: choose one with --name, or use `seawall serve --stdio`"
        )),
    }
}

fn served(serve: &Serve) -> Result<Config, String> {
    let Some(path) = config::find(serve.config.as_deref(), &variable) else {
        return Err(
            "no configuration found: give --config FILE, set SEAWALL_CONFIG, or write ./seawall.toml".to_owned()
        );
    };
    let mut config = loaded(&path)?;
    config.listen = serve.listen.unwrap_or(config.listen);
    Ok(config)
}

/// What is remembered stands in the store where there is one.
fn memory(config: &Config, is_off: bool) -> Memory {
    let folder = config.store.as_ref().map(|store| store.join("memory"));
    Memory::new(folder.or_else(|| Memory::default_folder(&variable)).filter(|_| !is_off))
}

async fn gateway(config: &Config, memory: Memory, store: Option<Store>) -> Result<Arc<Gateway>, (u8, String)> {
    let gateway = Gateway::new(config, memory, store)
        .map_err(|error| (UNREACHABLE, format!("cannot prepare connections: {error}")))?;
    // What a gateway that crashed has left behind goes; nobody waits for that.
    gateway.lifecycle.spawn(mark::sweep());
    Ok(gateway)
}

/// The store that the configuration names; one that cannot be read is told before anything starts.
#[expect(clippy::disallowed_methods, reason = "what waits in the store expires by wall time")]
async fn store(config: &Config) -> Result<Option<Store>, Trouble> {
    let Some(folder) = config.store.clone() else { return Ok(None) };
    let opened = tokio::task::spawn_blocking(move || Store::open(&folder, Bounds::default(), SystemTime::now())).await;
    opened.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())).map(Some)
}

async fn on_stdio(config: &Config, memory: Memory) -> Ended {
    // A client's server must not fail because another client's has the store, or the port.
    let store = match store(config).await {
        Err(in_use @ Trouble::InUse { .. }) => {
            log::line(&format!("{in_use}; here no write waits for its server"));
            None
        }
        opened => opened.map_err(|trouble| (USAGE, trouble.to_string()))?,
    };
    let gateway = gateway(config, memory, store).await?;
    let mut stop = Stop::new()?;
    if let Err((_, why)) = open_admin(&gateway, config).await {
        log::line(&why);
    }
    loaded_required(&gateway, &mut stop).await?;
    tokio::select! {
        () = stdio::serve(&gateway, tokio::io::stdin(), tokio::io::stdout(), config.grace) => {}
        () = stop.asked() => {}
    }
    // Also when the client left: a write that waited may be under way for it.
    gateway.lifecycle.drain(config.grace, stop.asked()).await;
    end(&gateway).await;
    Ok(())
}

async fn on_http(config: &Config, memory: Memory) -> Ended {
    let store = store(config).await.map_err(|trouble| (USAGE, trouble.to_string()))?;
    let gateway = gateway(config, memory, store).await?;
    let mut stop = Stop::new()?;
    open_admin(&gateway, config).await?;
    loaded_required(&gateway, &mut stop).await?;
    let guard = Guard { hosts: config.allowed_hosts.clone(), origins: config.allowed_origins.clone() };
    let listener = Listener::bind(Arc::clone(&gateway), config.listen, guard).await;
    let listener = listener.map_err(|error| (UNREACHABLE, format!("cannot listen on {}: {error}", config.listen)))?;
    let address = listener.address().unwrap_or(config.listen);
    let names: Vec<&str> = gateway.servers.iter().map(|server| server.name.as_str()).collect();
    log::line(&format!("listening on http://{address}/mcp, servers: {}", names.join(", ")));
    let serving = tokio::spawn(listener.serve());
    stop.asked().await;
    log::line("going down: calls under way may finish; a second signal ends them");
    gateway.lifecycle.drain(config.grace, stop.asked()).await;
    gateway.lifecycle.closing.cancel();
    let _in_time = tokio::time::timeout(Duration::from_secs(5), serving).await;
    end(&gateway).await;
    Ok(())
}

/// Lets operators in, if the configuration says where: before anything is loaded, so that they can see it load.
async fn open_admin(gateway: &Arc<Gateway>, config: &Config) -> Ended {
    let Some(admin) = &config.admin else { return Ok(()) };
    let bound = admin::Listener::bind(gateway, config).await;
    let bound = bound.map_err(|error| (UNREACHABLE, format!("cannot listen on {} (admin): {error}", admin.listen)))?;
    if let Some(listener) = bound {
        log::line(&format!("admin at http://{}", listener.address().unwrap_or(admin.listen)));
        gateway.lifecycle.spawn(listener.serve());
    }
    Ok(())
}

/// What must be there is loaded before anybody is served.
async fn loaded_required(gateway: &Gateway, stop: &mut Stop) -> Ended {
    let loaded = tokio::select! {
        loaded = required::load(&gateway.servers) => loaded,
        () = stop.asked() => Err("stopped while the required servers were loaded".to_owned()),
    };
    if loaded.is_err() {
        end(gateway).await;
    }
    loaded.map_err(|text| (UNREACHABLE, text))
}

async fn end(gateway: &Gateway) {
    // Whoever delivers or waits stops, also if it was the client that ended it all.
    gateway.lifecycle.draining.cancel();
    gateway.lifecycle.closing.cancel();
    gateway.all().close().await;
    gateway.lifecycle.settle().await;
    gateway.lifecycle.end().await;
    if let Some(store) = &gateway.all().store {
        store.close().await;
    }
}

/// SIGTERM and SIGINT: the first asks, the second insists.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Self, (u8, String)> {
        let listen = |kind| signal(kind).map_err(|error| (UNREACHABLE, format!("cannot listen for signals: {error}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
