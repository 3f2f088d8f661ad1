//! `seawall serve` as a process of its own, hit and started again at the same address.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::plan::{Blow, Ms};
use super::process;

/// How long it may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) struct Gateway {
    seawall: PathBuf,
    folder: PathBuf,
    pub(crate) port: u16,
    process: Mutex<Option<Child>>,
    /// Blows come one after the other: the next one hits what the last one let start.
    blows: Mutex<()>,
    /// How often it was started; odd steps are lives: it is counted up when one ends, too.
    life: AtomicUsize,
}

/// A command whose state lives in this folder and whose words go to a file there.
pub(crate) fn command(seawall: &Path, folder: &Path) -> io::Result<Command> {
    let log = OpenOptions::new().create(true).append(true).open(folder.join("gateway.log"))?;
    let mut command = Command::new(seawall);
    command.env("XDG_STATE_HOME", folder.join("state")).env("HOME", folder);
    command.stderr(log).kill_on_drop(true);
    Ok(command)
}

impl Gateway {
    pub(crate) fn new(seawall: &Path, folder: &Path, port: u16) -> Self {
        let (seawall, folder) = (seawall.to_owned(), folder.to_owned());
        Self {
            seawall,
            folder,
            port,
            process: Mutex::default(),
            blows: Mutex::default(),
            life: AtomicUsize::new(0),
        }
    }

    /// The number of its life; it changes when one ends and when one begins.
    pub(crate) fn life(&self) -> usize {
        self.life.load(Ordering::SeqCst)
    }

    /// Starts it, and waits until it listens.
    pub(crate) async fn start(&self) -> io::Result<()> {
        let mut process = self.process.lock().await;
        let mut command = command(&self.seawall, &self.folder)?;
        command.args(["serve", "--config"]).arg(self.folder.join("serve.toml"));
        let child = process.insert(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
        let listens = async {
            while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                if let Some(exit) = child.try_wait()? {
                    return Err(io::Error::other(format!("it ended at once: {exit}")));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        };
        timeout(PATIENCE, listens)
            .await
            .unwrap_or_else(|_| Err(io::Error::other("it does not listen")))?;
        self.life.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) async fn pid(&self) -> Option<u32> {
        self.process.lock().await.as_ref()?.id()
    }

    /// Ends it; gives what is wrong with its end.
    pub(crate) async fn end(&self, blow: Blow) -> Option<String> {
        let mut process = self.process.lock().await;
        let child = process.as_mut()?;
        self.life.fetch_add(1, Ordering::SeqCst);
        let pid = child.id()?;
        let signal = if blow == Blow::Killed { process::KILL } else { process::TERMINATE };
        process::send(pid, "serve", signal);
        let exit = timeout(PATIENCE, child.wait()).await;
        *process = None;
        match (exit, blow) {
            (Err(_), _) => Some("it does not end".to_owned()),
            (Ok(Err(error)), _) => Some(error.to_string()),
            (Ok(Ok(exit)), Blow::Terminated) if !exit.success() => {
                Some(format!("it ended with {exit}"))
            }
            _ => None,
        }
    }

    /// Ends it, and starts it again after so long.
    pub(crate) async fn suffer(&self, blow: Blow, away: Ms) -> io::Result<Option<String>> {
        let _alone = self.blows.lock().await;
        let wrong = self.end(blow).await;
        tokio::time::sleep(Duration::from_millis(away)).await;
        self.start().await?;
        Ok(wrong)
    }
}
