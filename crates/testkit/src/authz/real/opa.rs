//! Open Policy Agent's authorizer for Envoy, over gRPC: it decides by `policy.rego`, which lets
//! everybody do everything but call a tool that is not `echo`.

use std::io;
use std::net::SocketAddr;

use super::process::Process;
use super::program;

/// The policy that it is started with.
const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/authz/real/policy.rego");

/// The authorizer on loopback ports.
pub struct Opa {
    process: Process,
}

impl Opa {
    /// Starts it. `None`: the program was not built (see [`program`]).
    pub async fn start() -> io::Result<Option<Self>> {
        let Some(path) = program("opa-envoy-plugin")? else { return Ok(None) };
        let arguments = |[http, grpc]: [SocketAddr; 2]| {
            vec![
                "run".to_owned(),
                "--server".to_owned(),
                "--disable-telemetry".to_owned(),
                format!("--addr={http}"),
                format!("--set=plugins.envoy_ext_authz_grpc.addr={grpc}"),
                "--set=plugins.envoy_ext_authz_grpc.path=mcp/decision".to_owned(),
                POLICY.to_owned(),
            ]
        };
        Ok(Some(Self { process: Process::start(&path, arguments, "/health").await? }))
    }

    /// Where it takes checks, as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.process.addresses[1])
    }

    /// Stops it where it is: connections are taken, nobody answers.
    pub fn freeze(&self) -> io::Result<()> {
        self.process.freeze()
    }

    /// Lets it go on.
    pub fn thaw(&self) -> io::Result<()> {
        self.process.thaw()
    }
}
