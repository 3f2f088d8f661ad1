//! The real Open Policy Agent with its Envoy plugin: an ext_authz server over gRPC that decides by
//! a policy in Rego.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::process::Process;
use super::program;

/// OPA on loopback ports.
pub struct Opa {
    process: Process,
    /// Holds the policy; gone with OPA.
    folder: PathBuf,
}

impl Opa {
    /// Starts it with this policy, whose decision is `data.<path>`, such as `envoy/authz/allow`.
    /// `None`: the program was not built (see [`program`]).
    pub async fn start(policy: &str, path: &str) -> io::Result<Option<Self>> {
        let Some(opa) = program("opa-envoy-plugin")? else { return Ok(None) };
        let mut name = [0; 8];
        getrandom::fill(&mut name).map_err(io::Error::other)?;
        let name = format!("seawall-opa-{:016x}", u64::from_ne_bytes(name));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder)?;
        let file = folder.join("policy.rego");
        std::fs::write(&file, policy)?;
        let arguments = |[http, grpc]: [SocketAddr; 2]| {
            let plugin = "plugins.envoy_ext_authz_grpc";
            vec![
                "run".to_owned(),
                "--server".to_owned(),
                "--skip-version-check".to_owned(),
                "--log-level=error".to_owned(),
                format!("--addr={http}"),
                format!("--set={plugin}.addr={grpc}"),
                format!("--set={plugin}.path={path}"),
                file.display().to_string(),
            ]
        };
        let process = Process::start(&opa, arguments, "/health?plugins").await;
        match process {
            Ok(process) => Ok(Some(Self { process, folder })),
            Err(error) => {
                _ = std::fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// Where it takes checks.
    pub fn address(&self) -> SocketAddr {
        self.process.addresses[1]
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Stops it where it is: connections are taken, nobody answers.
    pub fn freeze(&self) -> io::Result<()> {
        self.process.freeze()
    }

    /// Lets it go on.
    pub fn thaw(&self) -> io::Result<()> {
        self.process.thaw()
    }

    /// Ends it.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.process.kill().await
    }
}

impl Drop for Opa {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.folder);
    }
}
