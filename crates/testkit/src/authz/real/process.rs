//! One program on the loopback: it gets ports that were free, is waited for, can be frozen, and
//! ends with its owner.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use http_body_util::Full;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::fetch;
use crate::freeze;

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
    /// Starts it with the arguments that belong to two ports, and waits until it listens on both
    /// and `ready`, a path of the first, answers with anything but an error of its own.
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
            let asked = tokio::time::timeout(Duration::from_secs(1), is_ready(&url, addresses[1]));
            match asked.await.map_err(io::Error::from).flatten() {
                Ok(()) => return Ok(process),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    }

    /// Ends it; its ports refuse when this returns.
    pub(super) async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Stops it where it is: connections are taken by the kernel and nobody answers.
    pub(super) fn freeze(&self) -> io::Result<()> {
        freeze::freeze(&self.child)
    }

    /// Lets it go on.
    pub(super) fn thaw(&self) -> io::Result<()> {
        freeze::thaw(&self.child)
    }
}

async fn is_ready(url: &str, other: SocketAddr) -> io::Result<()> {
    let request = http::Request::get(url).body(Full::default()).map_err(io::Error::other)?;
    let (status, _) = fetch(request).await?;
    if status.is_server_error() {
        return Err(io::Error::other(format!("{url} answers {status}")));
    }
    TcpStream::connect(other).await.map(drop)
}

async fn free() -> io::Result<[SocketAddr; 2]> {
    let one = TcpListener::bind(("127.0.0.1", 0)).await?;
    let other = TcpListener::bind(("127.0.0.1", 0)).await?;
    Ok([one.local_addr()?, other.local_addr()?])
}
