//! Decides how the demo starts and stops a gateway: a process of its own, as a user would start it,
//! `seawall serve` with a config file.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::ServerRoute;

/// How long the gateway may take to start, or to stop.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running gateway.
pub struct DemoGateway {
    child: Child,
    address: String,
    opened: Arc<AtomicU64>,
}

impl DemoGateway {
    /// Starts a gateway before these servers. `folder` gets its config file and, if it `remembers`,
    /// its catalog cache.
    pub async fn start(
        folder: &Path,
        settings: &str,
        servers: &[(&str, &ServerRoute)],
        remembers: bool,
    ) -> io::Result<Self> {
        let file = folder.join("seawall.toml");
        std::fs::write(&file, config(settings, servers))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("serve").arg("--config").arg(file).env("XDG_STATE_HOME", folder);
        command.args((!remembers).then_some("--no-catalog-cache"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn()?;
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut lines = BufReader::new(stderr).lines();
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await??.unwrap_or_default();
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split_once("/mcp"));
        let address = address
            .ok_or_else(|| io::Error::other(format!("the gateway did not start: {line}")))?
            .0;
        let opened = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&opened);
        tokio::spawn(async move {
            // Reading on to the end also keeps the gateway from blocking on a full pipe.
            while let Ok(Some(line)) = lines.next_line().await {
                let has_opened =
                    line.contains("[CircuitBreaker]") && line.to_lowercase().contains("→ open");
                count.fetch_add(u64::from(has_opened), Ordering::Relaxed);
            }
        });
        Ok(Self { address: address.to_owned(), child, opened })
    }

    /// The URL of all servers behind the gateway.
    pub fn all(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The URL of one server behind the gateway.
    pub fn url(&self, server: &str) -> String {
        format!("http://{}/mcp/{server}", self.address)
    }

    /// How often a breaker has opened, by the gateway's log.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Stops the gateway with SIGTERM as an operator would, and its servers with it.
    pub async fn stop(mut self) {
        let id =
            self.child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            let _gone = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        let _late = tokio::time::timeout(PATIENCE, self.child.wait()).await;
    }
}

fn config(settings: &str, servers: &[(&str, &ServerRoute)]) -> String {
    let mut text = format!("listen = \"127.0.0.1:0\"\ngrace = \"100ms\"\n{settings}\n");
    for (name, way) in servers {
        let way = match way {
            ServerRoute::Web(url) => format!("url = {url:?}\ntype = \"http\"\n"),
            ServerRoute::Program(program) => {
                let (name, arguments) =
                    program.split_first().map_or(("", &[][..]), |(name, rest)| (name, rest));
                format!("command = {name:?}\nargs = {arguments:?}\n")
            }
        };
        text.push_str(&format!("[servers.{name}]\n{way}"));
    }
    text
}
