//! A gateway with a memory, which is ended and started again.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::process::{Entry, Gateway, SEAWALL, tag};
use super::within;

impl Gateway {
    /// One with a memory and an address that stay the same when it is started again.
    pub(crate) async fn remembering(settings: &str, servers: &[Entry]) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (folder, tag) = (TempDir::new().unwrap(), tag());
        let path = folder.path().display();
        let settings = format!(
            "listen = \"127.0.0.1:{port}\"\ngrace = \"1s\"\n{}\n",
            settings.replace("$FOLDER", &path.to_string())
        );
        let servers: String =
            servers.iter().map(|entry| entry.text.replace("$TAG", &tag)).collect();
        fs::write(folder.path().join("seawall.toml"), format!("{settings}{servers}")).unwrap();
        let process = Self::again(&folder);
        let mut gateway = Self {
            address: ([127, 0, 0, 1], port).into(),
            log: Arc::default(),
            tag,
            process,
            folder,
        };
        gateway.listens().await;
        gateway
    }

    /// Another one that remembers in the same folder.
    pub(crate) async fn beside(other: &Self, servers: &[Entry]) -> Self {
        let (folder, tag) = (TempDir::new().unwrap(), tag());
        let servers: String =
            servers.iter().map(|entry| entry.text.replace("$TAG", &tag)).collect();
        fs::write(
            folder.path().join("seawall.toml"),
            format!("listen = \"127.0.0.1:0\"\ngrace = \"1s\"\n{servers}"),
        )
        .unwrap();
        let process = Self::remembers(&folder, other.folder());
        let mut gateway =
            Self { address: ([127, 0, 0, 1], 0).into(), log: Arc::default(), tag, process, folder };
        gateway.listens().await;
        gateway
    }

    fn again(folder: &TempDir) -> Child {
        Self::remembers(folder, folder.path())
    }

    fn remembers(folder: &TempDir, state: &Path) -> Child {
        let mut command = Command::new(SEAWALL);
        command.args(["serve", "--config"]).arg(folder.path().join("seawall.toml"));
        command.env("XDG_STATE_HOME", state).env("HOME", state);
        command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    }

    async fn listens(&mut self) {
        self.log.lock().unwrap().clear();
        let lines = BufReader::new(self.process.stderr.take().unwrap()).lines();
        self.listen_to(lines).await;
    }

    /// Ends one that remembers, and starts it again.
    pub(crate) async fn restart(&mut self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid().cast_signed()).unwrap(), signal).unwrap();
        within(15, "the gateway ends", self.process.wait()).await.unwrap();
        self.process = Self::again(&self.folder);
        self.listens().await;
    }

    /// Where it keeps everything.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}
