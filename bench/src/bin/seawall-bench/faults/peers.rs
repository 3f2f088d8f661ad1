//! The peers: where `bench/peers` installed them, and how each is told to be as resilient as it can
//! be.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use seawall_demo::client::ServerRoute;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::arms::{Running, Started};

/// How long a peer may take to listen: one of them is written in Python.
const PATIENCE: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(20);

/// A peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    McpProxy,
    Fastmcp,
    Envoy,
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Peer::McpProxy => "mcp-proxy 0.6.0",
            Peer::Fastmcp => "fastmcp 4.1.2 proxy",
            Peer::Envoy => "Envoy 1.40, retries",
        }
    }
}

/// Where they are.
pub(crate) struct Peers {
    folder: PathBuf,
}

impl Peers {
    /// Looks where `bench/peers` puts them.
    pub(crate) fn find() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let target = root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
        let folder = env::var_os("SEAWALL_PEERS_DIR")
            .map_or_else(|| target.join("peers"), |dir| root.join(dir));
        Self { folder }
    }

    /// Its program, if it is installed.
    pub(crate) fn program(&self, peer: Peer) -> Option<PathBuf> {
        let program = match peer {
            Peer::McpProxy => Some(self.folder.join("mcp-proxy/bin/mcp-proxy")),
            Peer::Fastmcp => Some(self.folder.join("fastmcp/bin/python")),
            Peer::Envoy => {
                let versions = std::fs::read_dir(self.folder.join("envoy/lib")).ok()?;
                let found = versions
                    .flatten()
                    .map(|version| version.path().join("site-packages/envoy/_bin/envoy"));
                found.into_iter().find(|path| path.is_file())
            }
        };
        program.filter(|path| path.exists())
    }

    /// Starts one before a server.
    pub(crate) async fn start(
        &self,
        peer: Peer,
        folder: &Path,
        way: &ServerRoute,
    ) -> io::Result<Started> {
        let program = self.program(peer).ok_or(io::ErrorKind::NotFound)?;
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let file = folder.join(if peer == Peer::Envoy { "peer.json" } else { "peer.toml" });
        let mut command = Command::new(program);
        let (text, path, prefix) = match peer {
            Peer::McpProxy => {
                command.arg("--config").arg(&file);
                (mcp_proxy(port, way), "", "s/")
            }
            Peer::Fastmcp => {
                command.arg(&file);
                (fastmcp(port, way), "mcp", "")
            }
            Peer::Envoy => {
                command.arg("--config-path").arg(&file);
                command.args(["--concurrency", "1", "--disable-hot-restart", "-l", "off"]);
                (envoy(port, way).to_string(), "mcp", "")
            }
        };
        std::fs::write(&file, text)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let child = command.spawn()?;
        reached(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        let way = ServerRoute::Web(format!("http://127.0.0.1:{port}/{path}"));
        Ok(Started { running: Running::Peer { _child: child }, way, prefix })
    }
}

async fn reached(address: SocketAddr) -> io::Result<()> {
    let wait = async {
        while TcpStream::connect(address).await.is_err() {
            tokio::time::sleep(STEP).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .map_err(|_| io::Error::other("a peer does not listen"))
}

/// Timeout, retries and breaker, with times like Seawall's; a breaker cannot wait less than a
/// second there.
fn mcp_proxy(port: u16, way: &ServerRoute) -> String {
    let backend = match way {
        ServerRoute::Web(url) => format!("transport = \"http\"\nurl = {url:?}\n"),
        ServerRoute::Program(program) => {
            format!(
                "transport = \"stdio\"\ncommand = {:?}\nargs = {:?}\n",
                program[0],
                &program[1..]
            )
        }
    };
    format!(
        "[proxy]\nname = \"bench\"\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\
         [[backends]]\nname = \"s\"\n{backend}[backends.timeout]\nseconds = 1\n\
         [backends.circuit_breaker]\nwait_duration_seconds = 1\n\
         [backends.retry]\nmax_retries = 2\ninitial_backoff_ms = 20\n\
         [observability]\nlog_level = \"error\"\n"
    )
}

/// A proxy as its documents show it: it has no retries to turn on.
fn fastmcp(port: u16, way: &ServerRoute) -> String {
    let backend = match way {
        ServerRoute::Web(url) => json!({"mcpServers": {"s": {"url": url}}}),
        ServerRoute::Program(program) => {
            json!({"mcpServers": {"s": {"command": program[0], "args": &program[1..]}}})
        }
    };
    format!(
        "import json\nfrom fastmcp.server import create_proxy\n\
         proxy = create_proxy(json.loads({:?}), name=\"bench\")\n\
         proxy.run(transport=\"http\", host=\"127.0.0.1\", port={port}, show_banner=False, log_level=\"critical\")\n",
        backend.to_string()
    )
}

/// A proxy for HTTP that tries again where the server fails, and takes no time for hanging ones.
fn envoy(port: u16, way: &ServerRoute) -> serde_json::Value {
    let at = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let behind = match way {
        ServerRoute::Web(url) => {
            url.split(':').nth(2).and_then(|rest| rest.split('/').next()?.parse().ok()).unwrap_or(0)
        }
        ServerRoute::Program(_) => 0,
    };
    let retries = json!({"retry_on": "5xx,reset,connect-failure,retriable-status-codes",
                         "retriable_status_codes": [429], "num_retries": 2, "per_try_timeout": "0.7s"});
    let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "s", "timeout": "1.8s", "retry_policy": retries}});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "s", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    });
    let filter =
        json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": manager});
    let endpoint = json!({"endpoint": {"address": at(behind)}});
    json!({"static_resources": {
        "listeners": [{"name": "bench", "address": at(port), "filter_chains": [{"filters": [filter]}]}],
        "clusters": [{"name": "s", "type": "STATIC", "connect_timeout": "1s",
                      "load_assignment": {"cluster_name": "s", "endpoints": [{"lb_endpoints": [endpoint]}]}}],
    }})
}
