//! The command line: which commands `seawall` has, and how each is run.

mod audit;
mod chaos;
mod check;
mod config_args;
mod explain;
mod hint;
mod install;
mod remote;
mod serve;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use self::serve::{ReadAgain, catalog_cache, on_http, on_stdio};
use super::config;
use crate::platform;
use crate::runtime::log;

/// A usage or configuration error.
pub const USAGE: u8 = 1;
/// Credentials are missing or refused.
const AUTH: u8 = 3;
/// A server, port or gateway could not be reached or bound.
const UNREACHABLE: u8 = 4;

/// Stands between AI agents and their MCP tools, and keeps the agents working when the tools fail.
#[derive(Debug, Parser)]
#[command(name = "seawall", version, arg_required_else_help = true)]
pub struct Cli {
    /// The process that started this one in its own place, such as npm's launcher: when it ends,
    /// this process ends as by SIGTERM
    #[arg(long, hide = true, value_name = "PID")]
    launcher: Option<u32>,
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
    Run(RunArgs),
    /// Serve all configured servers on one endpoint
    #[command(
        after_help = "Examples:\n  seawall serve --config seawall.toml\n  seawall serve --config ~/.cursor/mcp.json --listen 127.0.0.1:7332\n  seawall serve --config agentgateway.yaml\n\n\
                            All servers are at /mcp, with tools named <server>__<tool> (of an only server as it names them, unless prefix = \"always\"); one server alone is at /mcp/<server>."
    )]
    Serve(ServeArgs),
    /// Look at everything that is configured: connects, lists, calls no tool
    #[command(
        after_help = "Examples:\n  seawall check\n  seawall check --config .mcp.json --json | jq '.servers[] | select(.ok | not)'\n\n\
                            Exit codes: 0 all servers are well, 1 the configuration is wrong, 3 only credentials are missing, 4 a server, or something that the gateway needs, is not there."
    )]
    Check(check::CheckArgs),
    /// Say how a tool is treated, and where each value comes from
    #[command(
        after_help = "Examples:\n  seawall explain github/create_issue\n  seawall explain github__create_issue --json | jq '.values.timeout'\n\n\
                            Starts nothing and connects to nothing: what a server says of its tools is known from when it was last used."
    )]
    Explain(explain::ExplainArgs),
    /// Put Seawall before the servers of a client that is set up already
    #[command(
        after_help = "Examples:\n  seawall install cursor\n  seawall install .mcp.json --write\n\n\
                            Clients: claude-desktop, claude-code, codex, cursor, gemini, vscode, windsurf: the project's file where there is one, else yours.\n\
                            Only the commands change; everything else in the file stays as it is, and a copy of it is kept."
    )]
    Install(install::ClientFileArgs),
    /// Take Seawall away again: each server is started by its own command
    #[command(
        after_help = "Examples:\n  seawall uninstall cursor\n  seawall uninstall .mcp.json --write"
    )]
    Uninstall(install::ClientFileArgs),
    /// Write the JSON schema of the configuration, for editors
    #[command(after_help = "Examples:\n  seawall schema > seawall.schema.json\n\n\
                            With `#:schema ./seawall.schema.json` as its first line, editors complete and check a seawall.toml.")]
    Schema,
    /// Look at an audit log: whether every line is the one that was written
    #[command(after_help = "Examples:\n  seawall audit verify /var/log/seawall/audit.jsonl")]
    Audit(audit::AuditArgs),
    /// See what Seawall does: faulty servers, the same calls direct and through Seawall, a table
    #[command(after_help = "Examples:\n  seawall demo\n  seawall demo --seed 7 --calls 200\n\n\
                            Nothing is needed and nothing is left behind. The same seed gives the same counts.")]
    Demo(DemoArgs),
    /// Be an MCP server that fails on purpose, to test your own agent
    #[command(
        after_help = "Examples:\n  seawall chaos\n  seawall chaos --script chaos.toml --seed 7 --listen 127.0.0.1:7334\n  \
                            seawall run -- seawall chaos --state /tmp/chaos\n\n\
                            It has eight tools about notes. The same seed and the same calls meet the same faults."
    )]
    Chaos(chaos::ChaosArgs),
    #[command(flatten)]
    Remote(remote::RemoteCommand),
    /// Serve the faulty server of the demo on stdio (used by seawall itself)
    #[command(hide = true)]
    FaultyServer { folder: PathBuf },
    /// Become a server's process (used by seawall itself)
    #[command(hide = true)]
    StartServer(StartServerArgs),
    /// Outlive a gateway and end what it leaves behind (used by seawall itself)
    #[command(hide = true)]
    WatchGateway {
        /// Be the watcher, and not the one that starts it
        #[arg(long)]
        detached: bool,
    },
}

#[derive(Args, Debug)]
struct StartServerArgs {
    parent: u32,
    #[arg(last = true)]
    command: Vec<String>,
}

#[derive(Args, Debug)]
struct DemoArgs {
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
struct RunArgs {
    /// Seawall's own configuration, or a client's MCP file as it is
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Remember nothing of the server between runs
    #[arg(long)]
    no_catalog_cache: bool,
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
struct ServeArgs {
    /// Seawall's own configuration, or a client's MCP file as it is
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where to listen, instead of what the configuration says
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Remember nothing between runs, neither what servers said nor the sessions of clients
    #[arg(long)]
    no_catalog_cache: bool,
    /// Speak stdio to one client instead of listening
    #[arg(long, conflicts_with = "listen")]
    stdio: bool,
}

/// The parsed arguments of this process; or an exit code, after a usage error, `--help` or
/// `--version`.
pub fn parsed() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        let _gone = error.print();
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        match hint::run_line(&arguments) {
            Some(line) if error.use_stderr() => {
                log::line(&format!("a command stands behind `--`; write: {line}"))
            }
            _ => {}
        }
        if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
    })
}

/// Does what must come before any thread: ties this process to its launcher, and runs the commands
/// that turn it into a server's command or the watcher. `None` for all others.
pub fn begin(cli: &Cli) -> Option<ExitCode> {
    if let Some(Err(error)) = cli.launcher.map(platform::end_with) {
        log::tell(&format!("cannot follow the launcher: {error}"));
        return Some(ExitCode::from(UNREACHABLE));
    }
    match &cli.command {
        Command::StartServer(start) => {
            let error = platform::become_server(start.parent, &start.command);
            log::tell(&format!("cannot start {:?}: {error}", start.command.first()));
            Some(ExitCode::from(UNREACHABLE))
        }
        Command::WatchGateway { detached } => {
            let watched = platform::watch(*detached);
            Some(if watched.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(UNREACHABLE) })
        }
        _ => {
            platform::start_servers_through_this_program();
            None
        }
    }
}

/// The threads of the command. The wrapper has one: it stands between one client and one server,
/// which wait for each other, and a second thread would be woken for each message only to wake the
/// first again.
pub fn runtime(cli: &Cli) -> io::Result<Runtime> {
    let mut builder = match cli.command {
        Command::Run(_) => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.enable_all().build()
}

/// Runs the command.
pub async fn run(cli: Cli) -> ExitCode {
    let is_gateway = matches!(cli.command, Command::Run(_) | Command::Serve(_));
    let ended = match cli.command {
        Command::StartServer(_) | Command::WatchGateway { .. } => Ok(()),
        Command::Demo(DemoArgs { seed, calls, pace }) => {
            let played = seawall_demo::run(seed, calls, pace).await;
            played.map_err(|error| (UNREACHABLE, format!("the demo could not be played: {error}")))
        }
        Command::Chaos(args) => chaos::run(args).await,
        Command::Remote(remote) => remote::run(remote).await,
        Command::FaultyServer { folder } => {
            seawall_demo::serve(&folder).await;
            Ok(())
        }
        Command::Run(run) => {
            let no_catalog_cache = run.no_catalog_cache;
            match config_args::wrapped(run) {
                Ok(config) => {
                    on_stdio(&config, None, catalog_cache(&config, no_catalog_cache)).await
                }
                Err(problems) => Err((USAGE, problems)),
            }
        }
        Command::Check(check) => check::run(&check).await,
        Command::Audit(args) => audit::run(args),
        Command::Schema => {
            out(config::schema());
            Ok(())
        }
        Command::Explain(explain) => explain::run(&explain),
        Command::Install(install) => install::install(&install),
        Command::Uninstall(uninstall) => install::uninstall(&uninstall),
        Command::Serve(serve) => match config_args::served(&serve) {
            Ok(config) => {
                let cache = catalog_cache(&config, serve.no_catalog_cache);
                let is_on_stdio = serve.stdio;
                let read_again: ReadAgain = Some(Box::new(move || config_args::served(&serve)));
                match is_on_stdio {
                    true => on_stdio(&config, read_again, cache).await,
                    false => on_http(&config, read_again, cache).await,
                }
            }
            Err(problems) => Err((USAGE, problems)),
        },
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, text)) => {
            // The output of a gateway is a log; the output of any other command is read by a
            // person.
            text.lines().for_each(if is_gateway { log::error } else { log::tell });
            ExitCode::from(code)
        }
    }
}

/// Writes a command's output; a reader that has gone does not want the rest.
fn out(text: &str) {
    use std::io::Write;
    let _read = writeln!(std::io::stdout(), "{text}");
}

/// The end of a command: success, or an exit code and a text.
type CommandEnd = Result<(), (u8, String)>;
