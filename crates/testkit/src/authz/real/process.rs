//! One program on the loopback: it gets ports that were free, is waited for, can be frozen, and ends
//! with its owner.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::get;

/// How long a program may take until it is ready; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ports are free when they are chosen and may be gone a moment later.
const TRIES: usize = 3;

/// The program.
pub(super) struct Process {
    child: Child,
    /// Two ports, in the order in which the arguments got them.
    pub(super) addresses: [SocketAddr; 2],
}

impl Process {
    /// Starts it with the arguments that belong to two ports, and waits until `ready`, a path below
    /// the first of them, answers with success.
    pub(super) async fn start(
        program: &Path,
        arguments: impl Fn([SocketAddr; 2]) -> Vec<String>,
        ready: &str,
    ) -> io::Result<Self> {
        let mut last = io::Error::other("never started");
        for _ in 0..TRIES {
            let addresses = free().await?;
            match Self::once(program, arguments(addresses), addresses, ready).await {
                Ok(process) => return Ok(process),
                Err(error) => last = error,
            }
        }
        Err(io::Error::new(last.kind(), format!("{}: {last}", program.display())))
    }

    async fn once(
        program: &Path,
        arguments: Vec<String>,
        addresses: [SocketAddr; 2],
        ready: &str,
    ) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Self { child: command.kill_on_drop(true).spawn()?, addresses };
        let url = format!("http://{}{ready}", addresses[0]);
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = process.child.try_wait()? {
                return Err(io::Error::other(format!("ended at its start with {status}")));
            }
            match tokio::time::timeout(Duration::from_secs(1), get(&url)).await {
                Ok(Ok(_)) => return Ok(process),
                Ok(Err(error)) if Instant::now() > until => return Err(error),
                Err(_) if Instant::now() > until => return Err(io::ErrorKind::TimedOut.into()),
                _ => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Ends it; its ports refuse when this returns.
    pub(super) async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Stops it where it is: connections are taken by the kernel and nobody answers.
    pub(super) fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    pub(super) fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let id = self.child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let id = id.ok_or_else(|| io::Error::other("the program has ended"))?;
        Ok(kill_process(id, signal)?)
    }
}

async fn free() -> io::Result<[SocketAddr; 2]> {
    let one = TcpListener::bind(("127.0.0.1", 0)).await?;
    let other = TcpListener::bind(("127.0.0.1", 0)).await?;
    Ok([one.local_addr()?, other.local_addr()?])
}
