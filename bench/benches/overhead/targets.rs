//! What the load goes through: each target is started once, with the least that makes it a proxy
//! for our server.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use seawall_bench::Setup;
use seawall_testkit::authz::{Key, KeyKind, claims};
use serde_json::json;

use super::peers::Places;
use super::process::{Process, free_port, pause};
use super::session::Era;

pub(crate) const DIRECT: &str = "direct";
pub(crate) const RELAY: &str = "raw relay";
pub(crate) const SEAWALL: &str = "seawall";
pub(crate) const MODERN: &str = "seawall, modern era";
pub(crate) const ENVOY: &str = "envoy";
pub(crate) const MCP_PROXY: &str = "mcp-proxy";
pub(crate) const TOKEN: &str = "seawall, token";
pub(crate) const AUTHZ: &str = "seawall, token, ext_authz";
pub(crate) const REMEMBERED: &str = "seawall, token, ext_authz remembered";
/// All of them.
pub(crate) const NAMES: [&str; 9] =
    [DIRECT, RELAY, SEAWALL, MODERN, TOKEN, AUTHZ, REMEMBERED, ENVOY, MCP_PROXY];

/// How long a process is left alone before its idle memory is read.
const SETTLE: Duration = Duration::from_millis(500);

/// Something that calls can go through.
pub(crate) struct Target {
    /// What it is called in the table.
    pub(crate) name: &'static str,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The path of MCP there.
    pub(crate) path: &'static str,
    /// What it puts before the names of tools.
    pub(crate) prefix: &'static str,
    /// How it is spoken to.
    pub(crate) era: Era,
    /// What its clients show.
    pub(crate) token: Option<String>,
    /// The process that is measured; none where there is nothing between client and server.
    pub(crate) process: Option<Process>,
    /// Its memory before it did anything, in MiB.
    pub(crate) idle: Option<f64>,
}

/// Everything that runs.
pub(crate) struct Running {
    /// What is measured.
    pub(crate) targets: Vec<Target>,
    _server: Process,
    _authorizer: Process,
}

/// Starts the server, and what is wanted of the rest: ours and the floors always, to compare with.
pub(crate) async fn start(places: &Places, is_wanted: impl Fn(&str) -> bool) -> Setup<Running> {
    let (server, behind) = Process::saying(Command::new(&places.side).arg("server"))?;
    let mut targets = vec![Target::new(DIRECT, behind, None)];
    let relayed =
        Process::saying(Command::new(&places.side).arg("relay").arg(format!("http://{behind}")))?;
    targets.push(Target::new(RELAY, relayed.1, Some(relayed.0)));
    let (process, address) = seawall(places, SEAWALL, behind, "")?;
    targets.push(Target::new(SEAWALL, address, Some(process)));
    if is_wanted(MODERN) {
        let (process, address) = seawall(places, MODERN, behind, "")?;
        targets.push(Target { era: Era::Modern, ..Target::new(MODERN, address, Some(process)) });
    }
    let (authorizer, decides) = Process::saying(Command::new(&places.side).arg("authorizer"))?;
    let (identity, token) = identity(places)?;
    let asked = format!("{identity}[ext_authz]\nservice = \"{decides}\"\n");
    for (name, settings) in [
        (TOKEN, identity),
        (AUTHZ, asked.clone()),
        (REMEMBERED, format!("{asked}cache = \"1h\"\n")),
    ] {
        if is_wanted(name) {
            let (process, address) = seawall(places, name, behind, &settings)?;
            let target = Target::new(name, address, Some(process));
            targets.push(Target { token: Some(token.clone()), ..target });
        }
    }
    if let Some(program) = places.envoy.as_ref().filter(|_| is_wanted(ENVOY)) {
        let port = free_port()?;
        let config = places.scratch.join("envoy.json");
        fs::write(&config, envoy_config(port, behind).to_string())?;
        let mut command = Command::new(program);
        command.arg("--config-path").arg(config).args([
            "--concurrency",
            "1",
            "--disable-hot-restart",
            "-l",
            "off",
        ]);
        targets.push(Target::on_port(ENVOY, port, Process::quiet(&mut command)?)?);
    }
    if let Some(program) = places.mcp_proxy.as_ref().filter(|_| is_wanted(MCP_PROXY)) {
        let port = free_port()?;
        let config = places.scratch.join("mcp-proxy.toml");
        fs::write(&config, mcp_proxy_config(port, behind))?;
        let process = Process::quiet(Command::new(program).arg("--config").arg(config))?;
        targets.push(Target {
            path: "/",
            prefix: "bench/",
            ..Target::on_port(MCP_PROXY, port, process)?
        });
    }
    pause(SETTLE);
    for target in &mut targets {
        target.idle = target.process.as_ref().and_then(Process::memory);
    }
    Ok(Running { targets, _server: server, _authorizer: authorizer })
}

impl Target {
    fn new(name: &'static str, address: SocketAddr, process: Option<Process>) -> Self {
        Self {
            name,
            address,
            path: "/mcp",
            prefix: "",
            era: Era::Legacy,
            token: None,
            process,
            idle: None,
        }
    }

    fn on_port(name: &'static str, port: u16, mut process: Process) -> Setup<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        process.reached(address).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self::new(name, address, Some(process)))
    }
}

/// An issuer whose keys are in a file, and a token of it.
fn identity(places: &Places) -> Setup<(String, String)> {
    let key = Key::new(KeyKind::Rs256, "bench")?;
    let jwks = places.scratch.join("jwks.json");
    fs::write(&jwks, json!({"keys": [key.jwk()]}).to_string())?;
    let token = key.sign(&claims("bench", "https://idp.example", "bench", 3_600));
    let issuer = "[[identity.jwt]]\nissuer = \"https://idp.example\"\naudiences = [\"bench\"]";
    Ok((format!("{issuer}\njwks = {:?}\n", jwks.display().to_string()), token))
}

/// Each gateway has a file of its own: it would take what is written there for the next one.
fn seawall(
    places: &Places,
    name: &str,
    behind: SocketAddr,
    settings: &str,
) -> Setup<(Process, SocketAddr)> {
    let config = places.scratch.join(format!("{name}.toml"));
    fs::write(
        &config,
        format!(
            "listen = \"127.0.0.1:0\"\n{settings}[servers.bench]\nurl = \"http://{behind}/mcp\"\n"
        ),
    )?;
    Process::logging(Command::new(&places.seawall).arg("serve").arg("--config").arg(config))
}

/// A plain HTTP proxy on one thread, that tries again where the server fails.
fn envoy_config(port: u16, behind: SocketAddr) -> serde_json::Value {
    let at = |port: u16| json!({"socket_address": {"address": "127.0.0.1", "port_value": port}});
    let retries = json!({"retry_on": "5xx,reset,connect-failure", "num_retries": 2});
    let route = json!({"match": {"prefix": "/"},
                       "route": {"cluster": "bench", "timeout": "30s", "retry_policy": retries}});
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "route_config": {"virtual_hosts": [{"name": "bench", "domains": ["*"], "routes": [route]}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
    });
    let filter =
        json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": manager});
    let endpoint = json!({"endpoint": {"address": at(behind.port())}});
    json!({"static_resources": {
        "listeners": [{"name": "bench", "address": at(port), "filter_chains": [{"filters": [filter]}]}],
        "clusters": [{"name": "bench", "type": "STATIC", "connect_timeout": "1s",
                      "load_assignment": {"cluster_name": "bench", "endpoints": [{"lb_endpoints": [endpoint]}]}}],
    }})
}

/// As plain as it gets: no policy, no logs.
fn mcp_proxy_config(port: u16, behind: SocketAddr) -> String {
    format!(
        "[proxy]\nname = \"bench\"\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\
         [[backends]]\nname = \"bench\"\ntransport = \"http\"\nurl = \"http://{behind}/mcp\"\n\
         [observability]\nlog_level = \"error\"\n"
    )
}
