//! Child processes of servers: what is started, how it is connected over stdin and stdout, and when
//! it is ended. How the system starts and ends it is in `platform`.
//!
//! Commands of a configuration are started nowhere else. The demo crate starts its own servers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::pipe::{self, PipeWriter};
use super::stderr::{self, StderrTail};
use super::{Connection, Server, UpstreamFailure, Wire};
use crate::config::Transport;
use crate::platform::{self, ServerCommand, ServerProcess};
use crate::upstream::call::ClientSink;

/// The variables of the gateway's environment that a child gets where it does not inherit all of
/// it.
const PASSED_ON: [&str; 7] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG"];

/// How long the gateway waits for the last output and the exit status of a process that has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Starts a server's process and opens a connection to it.
pub(crate) async fn start(
    server: &Server,
    transport: &Transport,
    general: Arc<dyn ClientSink>,
) -> Result<Arc<Connection>, UpstreamFailure> {
    let lifecycle = &server.lifecycle;
    let place = server.processes.place().await?;
    let mut process = spawn(transport).await?;
    let Some((stdin, stdout, stderr)) = process.take_pipes() else {
        return Err(UpstreamFailure::Unreachable("its pipes could not be opened".to_owned()));
    };
    let running = process.pid().map(|pid| server.status.process(pid));
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
        let exit = supervise(&mut process, reader, (heard, &said), weak, (ended, writing)).await;
        said.ended(exit.as_deref());
        if let Some(exit) = exit {
            status.exited(exit);
        }
        process.stop().await;
        // Last: the process permit and the pid in the status are given back once the process is
        // gone.
        drop((place, running));
    });
    Ok(connection)
}

async fn spawn(transport: &Transport) -> Result<ServerProcess, UpstreamFailure> {
    let Transport::Stdio { command, args, env, cwd, inherit_env } = transport else {
        return Err(UpstreamFailure::Unreachable("it is no command".to_owned()));
    };
    let passed_on: Vec<_> = if *inherit_env {
        std::env::vars_os().collect()
    } else {
        PASSED_ON
            .iter()
            .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
            .collect()
    };
    let own: Vec<_> = env
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value.expose())))
        .collect();
    let path = own.iter().rev().chain(passed_on.iter().rev()).find(|(name, _)| name == "PATH");
    let path = path.map(|(_, path)| path.clone()).unwrap_or_default();
    if let Some(folder) = transport.missing_folder() {
        return Err(UpstreamFailure::Impossible(format!(
            "there is no folder {folder:?}, which is its cwd"
        )));
    }
    let cwd = cwd.as_deref();
    let program = find(command, cwd, &path)
        .ok_or_else(|| UpstreamFailure::Impossible(format!("there is no program {command:?}")))?;
    ServerProcess::start(ServerCommand { program, args, cwd, passed_on, own })
        .await
        .map_err(|error| UpstreamFailure::Unreachable(format!("cannot start {command:?}: {error}")))
}

/// The file of a command, found as a shell would find it: a missing program is reported before any
/// process starts.
fn find(command: &str, cwd: Option<&Path>, path: &OsString) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| platform::is_program(file);
    if command.contains('/') {
        let file = cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
        return Some(file).filter(is_program);
    }
    std::env::split_paths(path).map(|folder| folder.join(command)).find(is_program)
}

/// Runs until the connection ends. Returns the exit status if the process ended by itself.
async fn supervise(
    process: &mut ServerProcess,
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
        _ = process.wait() => {
            let rest = tokio::time::timeout(LAST_WORDS, reader);
            let rest = connection_ended.run_until_cancelled(rest).await;
            rest.map(|read| read.unwrap_or_else(|_| UpstreamFailure::Lost("its process ended".to_owned())))
        }
    };
    writing.cancel();
    // Every waiting call's error quotes the last stderr lines and the exit status, so both are
    // awaited here, but not for long.
    let exit = tokio::time::timeout(LAST_WORDS, process.wait()).await.ok().and_then(Result::ok);
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
