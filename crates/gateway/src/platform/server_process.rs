//! A server's process on Unix: in a process group of its own, connected over its stdin, stdout and
//! stderr, and ended together with what it started.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::ServerCommand;
use super::system::{self, Tie};
use crate::protocol::limits::CHILD_GRACE;

/// The hidden command that becomes a server.
const COMMAND: &str = "start-server";

/// The program that starts every server, if one is set.
static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();

/// Makes this program, the `seawall` command itself, the launcher of every server: the launcher
/// ties the server's life to the gateway's. Where the program cannot be found, servers are started
/// without it.
pub(crate) fn start_servers_through_this_program() {
    if let Ok(program) = system::own_program() {
        let _once = LAUNCHER.set(program);
    }
}

/// Replaces this process with a server's command, once its life is tied to its gateway's. Returns
/// only if that fails.
pub(crate) fn become_server(gateway: u32, command: &[String]) -> io::Error {
    if let Err(error) = system::tie_to(gateway) {
        return error;
    }
    let [program, args @ ..] = command else { return io::ErrorKind::InvalidInput.into() };
    std::process::Command::new(program).args(args).exec()
}

/// Whether a file can be run.
pub(crate) fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// A server's process.
pub(crate) struct ServerProcess {
    child: Child,
    group: Option<Pid>,
    tie: Tie,
}

impl ServerProcess {
    pub(crate) async fn start(command: ServerCommand<'_>) -> io::Result<Self> {
        let (launcher, tie) = (LAUNCHER.get(), Tie::new());
        let mut process = match launcher {
            Some(launcher) => {
                let mut process = Command::new(launcher);
                let gateway = std::process::id().to_string();
                process.args([COMMAND, &gateway, "--"]).arg(&command.program);
                process
            }
            None => Command::new(&command.program),
        };
        // The server's own variables may replace that of the tie: then processes that leave its
        // group are not found and stay.
        let variables = command.passed_on.into_iter().chain(tie.variable()).chain(command.own);
        process
            .args(command.args)
            .env_clear()
            .envs(variables.collect::<Vec<(OsString, OsString)>>());
        process.process_group(0).kill_on_drop(true);
        process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(cwd) = command.cwd {
            process.current_dir(cwd);
        }
        let mut child = process.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        if let (Some(launcher), Some(group)) = (launcher, group) {
            tie.started(launcher, group, &mut child).await;
        }
        Ok(Self { child, group, tie })
    }

    /// Its stdin, stdout and stderr; `None` if they were taken before.
    pub(crate) fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?, self.child.stderr.take()?))
    }

    /// Its pid; `None` once it has ended.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it has ended. What it started may go on.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Waits for a process whose stdin is closed, then sends SIGTERM, then SIGKILL; what it started
    /// goes with it.
    pub(crate) async fn stop(mut self) {
        let group = self.group;
        let signal = |signal| group.map(|group| kill_process_group(group, signal));
        let mut exit = timeout(CHILD_GRACE, self.child.wait()).await;
        if exit.is_err() {
            signal(Signal::TERM);
            exit = timeout(CHILD_GRACE, self.child.wait()).await;
        }
        // Also after a clean exit: processes left behind in its group end now.
        signal(Signal::KILL);
        if exit.is_err() {
            let _gone = self.child.wait().await;
        }
        self.tie.ended(group).await;
    }
}
