//! Istio's ext_authz server, over gRPC and HTTP at once: it allows what has the header
//! `x-ext-authz: allow`, or over gRPC a principal that ends in `/sa/a`, and denies all else with
//! 403, a body and headers of its own.

use std::io;
use std::net::SocketAddr;

use super::process::Process;
use super::program;

/// The server. It takes ports and no addresses, so others than the loopback reach it too.
pub struct Istio {
    process: Process,
}

impl Istio {
    /// Starts it. `None`: the program was not built (see [`program`]).
    pub async fn start() -> io::Result<Option<Self>> {
        let Some(path) = program("extauthz")? else { return Ok(None) };
        let arguments = |[http, grpc]: [SocketAddr; 2]| {
            vec![format!("--http={}", http.port()), format!("--grpc={}", grpc.port())]
        };
        Ok(Some(Self { process: Process::start(&path, arguments, "/").await? }))
    }

    /// Where it takes checks over gRPC.
    pub fn address(&self) -> SocketAddr {
        self.process.addresses[1]
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// Where it takes checks over HTTP.
    pub fn http_address(&self) -> SocketAddr {
        self.process.addresses[0]
    }

    /// The same as a URL.
    pub fn http_url(&self) -> String {
        format!("http://{}", self.http_address())
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
