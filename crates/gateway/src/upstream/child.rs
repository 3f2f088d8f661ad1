//! Child processes of servers: started, connected over stdin and stdout, and ended together with
//! every process they started.
//!
//! Commands of a configuration are started nowhere else. `watcher` starts the process that cleans
//! up after the gateway, and the demo crate starts its own servers.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::pipe::{self, PipeWriter};
use super::stderr::{self, StderrTail};
use super::{Connection, Server, UpstreamFailure, Wire, orphans};
use crate::config::Transport;
use crate::protocol::limits;
use crate::runtime::parent;
use crate::upstream::call::ClientSink;

/// The variables of the gateway's environment that a child gets where it does not inherit all of
/// it.
const PASSED_ON: [&str; 7] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG"];

/// How long the gateway waits for the last output and the exit status of a process that has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// The program that starts every child process, if one is set.
static LAUNCHER: OnceLock<PathBuf> = OnceLock::new();

/// Makes `program`, the `seawall` command itself, the launcher of every child process: the launcher
/// ties the child's life to the gateway's.
pub(crate) fn launch_through(program: PathBuf) {
    let _once = LAUNCHER.set(program);
}

/// Replaces this process with a server's command, after asking the kernel to kill it when its
/// gateway dies. Returns only if that fails.
pub(crate) fn become_server(gateway: u32, command: &[String]) -> io::Error {
    if let Err(error) = parent::end_with(gateway, Signal::KILL) {
        return error;
    }
    let [program, args @ ..] = command else { return io::ErrorKind::InvalidInput.into() };
    std::process::Command::new(program).args(args).exec()
}

/// Starts a server's process and opens a connection to it.
pub(crate) async fn start(
    server: &Server,
    transport: &Transport,
    general: Arc<dyn ClientSink>,
) -> Result<Arc<Connection>, UpstreamFailure> {
    let lifecycle = &server.lifecycle;
    let place = server.processes.place().await?;
    let mark = orphans::next();
    let mut child = spawn(transport, mark.as_deref())?;
    let (Some(stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(UpstreamFailure::Unreachable("its pipes could not be opened".to_owned()));
    };
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let running = child.id().map(|pid| server.status.process(pid));
    let said = Arc::new(StderrTail::new(&server.name, transport, &server.secrets, &server.status));
    let heard = tokio::spawn(stderr::listen(stderr, Arc::clone(&said)));
    let (pipe, outgoing) = PipeWriter::new();
    let ended = lifecycle.ended.child_token();
    let connection = Connection::new(&server.name, Wire::Pipe(pipe), general, ended.clone());
    server.processes.note(&connection);
    // The writer has a token of its own: stdin must close, which asks the process to exit, as soon
    // as `supervise` sees the end, and not only at `lose`, which waits for the exit status.
    let writing = CancellationToken::new();
    lifecycle.spawn(pipe::write_lines(outgoing, stdin, writing.clone()));
    let (weak, status) = (Arc::downgrade(&connection), Arc::clone(&server.status));
    lifecycle.spawn(async move {
        let reader = pipe::read_lines(stdout, weak.clone(), |line| said.noise(line));
        let exit = supervise(&mut child, reader, (heard, &said), weak, (ended, writing)).await;
        said.ended(exit.as_deref());
        if let Some(exit) = exit {
            status.exited(exit);
        }
        stop(&mut child, group, mark.as_deref()).await;
        // Last: the process permit and the pid in the status are given back once the process is
        // gone.
        drop((place, running));
    });
    Ok(connection)
}

fn spawn(transport: &Transport, mark: Option<&str>) -> Result<Child, UpstreamFailure> {
    let Transport::Stdio { command, args, env, cwd, inherit_env } = transport else {
        return Err(UpstreamFailure::Unreachable("it is no command".to_owned()));
    };
    let variables: Vec<_> = if *inherit_env {
        std::env::vars_os().collect()
    } else {
        PASSED_ON
            .iter()
            .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
            .collect()
    };
    let own =
        env.iter().map(|(name, value)| (OsString::from(name), OsString::from(value.expose())));
    // The server's own variables come last and may replace the mark; then processes that it starts
    // in sessions of their own are not found and stay.
    let mark = mark.map(|mark| (OsString::from(orphans::VARIABLE), OsString::from(mark)));
    let variables: Vec<_> = variables.into_iter().chain(mark).chain(own).collect();
    let path = variables
        .iter()
        .rfind(|(name, _)| name == "PATH")
        .map(|(_, path)| path.clone())
        .unwrap_or_default();
    if let Some(folder) = transport.missing_folder() {
        return Err(UpstreamFailure::Impossible(format!(
            "there is no folder {folder:?}, which is its cwd"
        )));
    }
    let program = find(command, cwd.as_deref(), &path)
        .ok_or_else(|| UpstreamFailure::Impossible(format!("there is no program {command:?}")))?;
    let mut process = match LAUNCHER.get() {
        Some(launcher) => {
            super::watcher::start(launcher);
            let mut process = Command::new(launcher);
            process.arg("start-server").arg(std::process::id().to_string()).arg("--").arg(program);
            process
        }
        None => Command::new(program),
    };
    process.args(args).env_clear().envs(variables).process_group(0).kill_on_drop(true);
    process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cwd) = cwd {
        process.current_dir(cwd);
    }
    process
        .spawn()
        .map_err(|error| UpstreamFailure::Unreachable(format!("cannot start {command:?}: {error}")))
}

/// The file of a command, found as a shell would find it: a missing program is reported before any
/// process starts.
fn find(command: &str, cwd: Option<&Path>, path: &OsString) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') {
        let file = cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
        return Some(file).filter(is_program);
    }
    std::env::split_paths(path).map(|folder| folder.join(command)).find(is_program)
}

/// Runs until the connection ends. Returns the exit status if the process ended by itself.
async fn supervise(
    child: &mut Child,
    reader: impl Future<Output = UpstreamFailure>,
    (heard, said): (JoinHandle<()>, &StderrTail),
    connection: Weak<Connection>,
    (connection_ended, writing): (CancellationToken, CancellationToken),
) -> Option<String> {
    tokio::pin!(reader);
    let why = tokio::select! {
        biased;
        why = connection_ended.run_until_cancelled(reader.as_mut()) => why,
        // Reads the rest of the output of a process that has ended, but not for long: a grandchild
        // may hold the pipe open for ever.
        _ = child.wait() => {
            let rest = tokio::time::timeout(LAST_WORDS, reader);
            let rest = connection_ended.run_until_cancelled(rest).await;
            rest.map(|read| read.unwrap_or_else(|_| UpstreamFailure::Lost("its process ended".to_owned())))
        }
    };
    writing.cancel();
    // Every waiting call's error quotes the last stderr lines and the exit status, so both are
    // awaited here, but not for long.
    let exit = tokio::time::timeout(LAST_WORDS, child.wait()).await.ok().and_then(Result::ok);
    let _in_time = tokio::time::timeout(LAST_WORDS, heard).await;
    let was_alone = why.is_some();
    if let Some(connection) = connection.upgrade() {
        connection.lose(match (why, exit) {
            (Some(UpstreamFailure::Lost(_)), Some(exit)) => {
                UpstreamFailure::Lost(format!("its process ended ({exit}){}", said.last()))
            }
            (Some(why), _) => why,
            (None, _) => UpstreamFailure::Lost("the session was closed".to_owned()),
        });
    }
    exit.filter(|_| was_alone).map(|exit| exit.to_string())
}

/// Waits for a process whose stdin is closed, then sends SIGTERM, then SIGKILL; every process that
/// it started goes with it.
async fn stop(child: &mut Child, group: Option<Pid>, mark: Option<&str>) {
    let signal = |signal| group.map(|group| kill_process_group(group, signal));
    let mut exit = tokio::time::timeout(limits::CHILD_GRACE, child.wait()).await;
    if exit.is_err() {
        signal(Signal::TERM);
        exit = tokio::time::timeout(limits::CHILD_GRACE, child.wait()).await;
    }
    // Also after a clean exit: processes left behind in its group end now.
    signal(Signal::KILL);
    if exit.is_err() {
        let _gone = child.wait().await;
    }
    // The group does not reach processes that moved to a session of their own; the mark does.
    if let Some(mark) = mark {
        orphans::end(mark).await;
    }
}
