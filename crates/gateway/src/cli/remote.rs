//! The arguments of the commands that talk to a running gateway; `actions` runs them.

mod actions;
mod moving;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

pub(super) use self::actions::run;

/// What can be asked of a running gateway.
#[derive(Debug, Subcommand)]
pub(super) enum RemoteCommand {
    /// Show a running gateway at a glance
    #[command(
        after_help = "Examples:\n  seawall status\n  seawall status --config seawall.toml --json"
    )]
    Status {
        #[command(flatten)]
        at: AdminArgs,
    },
    /// Show the breakers of a running gateway; reset one, hold it open, leave it out
    #[command(
        after_help = "Examples:\n  seawall breakers\n  seawall breakers reset github__get_issue\n  \
                            seawall breakers force github__delete_repo open\n  seawall breakers force github__delete_repo auto\n\n\
                            What is forced stays so until it is forced to auto, or the gateway ends."
    )]
    Breakers {
        #[command(flatten)]
        at: AdminArgs,
        #[command(subcommand)]
        deed: Option<BreakerAction>,
    },
    /// Show the writes that wait for their server; send one at once, or drop it
    #[command(
        after_help = "Examples:\n  seawall queue\n  seawall queue retry q17\n  seawall queue drop q17\n  seawall queue move --to redis"
    )]
    Queue {
        #[command(flatten)]
        at: AdminArgs,
        #[command(subcommand)]
        deed: Option<QueueAction>,
    },
    /// Show the servers of a running gateway, or restart one
    #[command(after_help = "Examples:\n  seawall servers\n  seawall servers restart github")]
    Servers {
        #[command(flatten)]
        at: AdminArgs,
        #[command(subcommand)]
        deed: Option<ServerAction>,
    },
    /// Let a running gateway read its configuration again
    #[command(
        after_help = "Examples:\n  seawall reload\n  seawall reload --admin 127.0.0.1:7333\n\n\
                            The gateway does so by itself when the file changes, and at SIGHUP. A file with mistakes changes nothing."
    )]
    Reload {
        #[command(flatten)]
        at: AdminArgs,
    },
    /// Show what a server said last on stderr
    #[command(after_help = "Examples:\n  seawall logs github")]
    Logs {
        #[command(flatten)]
        at: AdminArgs,
        /// The server
        name: String,
    },
    /// Watch a running gateway in this terminal: servers, tools, breakers, queue, events
    #[command(after_help = "Examples:\n  seawall top\n  seawall top --config seawall.toml\n\n\
                            ? shows the keys: sort, filter, details, reset or force a breaker, restart a server; q leaves.")]
    Top {
        #[command(flatten)]
        at: AdminPlace,
    },
    /// Show what happens, as it happens, until ctrl-c
    #[command(
        after_help = "Examples:\n  seawall tap\n  seawall tap --tool github__get_issue --class timeout\n  \
                            seawall tap --last 1000 --json"
    )]
    Tap {
        #[command(flatten)]
        at: AdminArgs,
        /// Only this tool
        #[arg(long)]
        tool: Option<String>,
        /// Only calls that ended so: ok, tool_error, fallback, cancelled, or a code such as timeout
        #[arg(long)]
        class: Option<String>,
        /// So many of the events before, of the last thousand
        #[arg(long, default_value_t = 0)]
        last: usize,
    },
}

/// Where the gateway is, and how its answer is shown.
#[derive(Args, Debug)]
pub(super) struct AdminArgs {
    #[command(flatten)]
    place: AdminPlace,
    /// Print what the gateway answers, as JSON
    #[arg(long, global = true)]
    json: bool,
}

/// Where the gateway is.
#[derive(Args, Debug)]
pub(super) struct AdminPlace {
    /// The gateway's configuration: its [admin] section says where it is
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "admin")]
    config: Option<PathBuf>,
    /// The address of [admin], instead of a configuration; the token comes from SEAWALL_ADMIN_TOKEN
    #[arg(long, value_name = "ADDRESS", global = true)]
    admin: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum BreakerAction {
    /// Close a breaker and forget its failures
    Reset {
        /// The tool, as `seawall breakers` shows it
        tool: Option<String>,
        /// Every breaker that is open or has counted failures
        #[arg(long, conflicts_with = "tool")]
        all: bool,
    },
    /// Hold a breaker open, leave it out, or let it decide again
    Force {
        /// The tool, as `seawall breakers` shows it
        tool: String,
        /// open: no call passes; closed: every call passes; auto: it decides by itself
        state: ForcedArg,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ForcedArg {
    Open,
    Closed,
    Auto,
}

#[derive(Debug, Subcommand)]
pub(super) enum QueueAction {
    /// Show what waits, is being sent, or was given up
    List {
        /// Also what was made
        #[arg(long)]
        all: bool,
        /// Only what came after this one
        #[arg(long, value_name = "ID")]
        after: Option<String>,
    },
    /// Send one as soon as its turn comes; one that was given up waits again
    Retry {
        /// The item
        id: String,
        /// Although it may have been executed already
        #[arg(long)]
        even_if_executed: bool,
    },
    /// Forget one: it is not made, and its client is not told a result
    Drop {
        /// The item
        id: String,
        /// Although it was made, and its client may still want to read the result
        #[arg(long)]
        even_if_delivered: bool,
    },
    /// Move what waits in the file of [store] path to [store] redis; no gateway may have the file
    Move {
        /// Where to
        #[arg(long)]
        to: MoveTarget,
    },
}

/// Where a queue can be moved to.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum MoveTarget {
    Redis,
}

#[derive(Debug, Subcommand)]
pub(super) enum ServerAction {
    /// Start a server anew; its clients keep their sessions
    Restart {
        /// The server
        name: String,
    },
}
