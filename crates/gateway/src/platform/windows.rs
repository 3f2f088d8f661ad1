//! Windows: every server is in a job object of its own, and all processes of the job end when it is
//! closed, also by the death of the gateway.
//!
//! Written, and neither compiled nor run: docs/platforms.md says what else is missing there.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use process_wrap::tokio::{ChildWrapper, CommandWrap, JobObject, KillOnDrop};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::ServerCommand;
pub(crate) use super::unknown_holder::{lock_holder, port_holder};
use crate::protocol::limits::CHILD_GRACE;

/// Servers need no launcher here: the system ends their jobs.
pub(crate) fn start_servers_through_this_program() {}

/// No server is started through this program.
pub(crate) fn become_server(_gateway: u32, _command: &[String]) -> io::Error {
    io::ErrorKind::Unsupported.into()
}

/// No watcher is needed: the system ends the jobs.
pub(crate) fn watch(_is_detached: bool) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Nothing is left of a gateway that is gone: its jobs ended with it.
pub(crate) async fn end_orphans() {}

/// A launcher cannot be followed.
pub(crate) fn end_with(_parent: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reads stdin, on a thread that waits.
pub(crate) fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    Box::new(tokio::io::stdin())
}

/// Writes stdout, on a thread that waits.
pub(crate) fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    Box::new(tokio::io::stdout())
}

/// Only the reader of stdin comes to its end.
pub(crate) fn stdin_is_closed() -> bool {
    false
}

/// Whether a file may be a program; the system knows when it starts it.
pub(crate) fn is_program(file: &Path) -> bool {
    file.is_file()
}

/// A server's process and all that it starts, in one job.
pub(crate) struct ServerJob {
    child: Box<dyn ChildWrapper>,
}

impl ServerJob {
    pub(crate) async fn start(command: ServerCommand<'_>) -> io::Result<Self> {
        let variables = command.passed_on.into_iter().chain(command.own);
        let mut process = CommandWrap::with_new(&command.program, |process| {
            process.args(command.args).env_clear().envs(variables);
            process.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            if let Some(cwd) = command.cwd {
                process.current_dir(cwd);
            }
        });
        process.wrap(KillOnDrop).wrap(JobObject);
        Ok(Self { child: process.spawn()? })
    }

    /// Its stdin, stdout and stderr; `None` if they were taken before.
    pub(crate) fn take_pipes(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        let child = &mut self.child;
        Some((child.stdin().take()?, child.stdout().take()?, child.stderr().take()?))
    }

    /// Its pid; `None` once it has ended.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it has ended. What it started may go on: the job itself is not waited for.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.inner_mut().wait().await
    }

    /// Waits for a process whose stdin is closed, then ends its job.
    pub(crate) async fn stop(mut self) {
        let _exit = timeout(CHILD_GRACE, self.wait()).await;
        let _ended = self.child.start_kill();
        let _gone = self.wait().await;
    }
}
