//! The servers behind the gateway: fixtures in this process, which can be killed and come back at
//! the same address.

use std::net::SocketAddr;

use seawall_testkit::fixture::{Eras, Script, Seen, serve_http, serve_sse, serve_ws};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::PATIENCE;

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sse,
    Ws,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Sse, Kind::Ws];

/// One server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) seen: Seen,
    kind: Kind,
    script: Script,
    running: JoinHandle<()>,
    /// Bound, but not listening: the address stays ours while the server is dead.
    _kept: TcpSocket,
}

fn socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

fn listener(address: SocketAddr) -> TcpListener {
    socket(address).listen(64).unwrap()
}

impl Server {
    pub(crate) fn start(kind: Kind) -> Self {
        Self::scripted(kind, Script::default())
    }

    /// A server with a script, in which `{address}` stands for its own address.
    pub(crate) fn scripted(kind: Kind, mut script: Script) -> Self {
        let kept = socket("127.0.0.1:0".parse().unwrap());
        let address = kept.local_addr().unwrap();
        script.endpoint =
            script.endpoint.map(|said| said.replace("{address}", &address.to_string()));
        let seen = script.seen.clone();
        let running = run(kind, address, script.clone());
        Self { address, seen, kind, script, running, _kept: kept }
    }

    /// Where it is, so that its transport can be told from it.
    pub(crate) fn url(&self) -> String {
        match self.kind {
            Kind::Sse => format!("http://{}/sse", self.address),
            Kind::Ws => format!("ws://{}/ws", self.address),
        }
    }

    /// Waits until it saw something this often.
    pub(crate) async fn saw(&self, line: &str, times: usize) {
        let seen = timeout(PATIENCE, self.seen.until(line, times)).await;
        seen.unwrap_or_else(|_| panic!("{line:?} is not in {:?}", self.seen.lines()));
    }

    /// Ends it without a word, with every connection.
    pub(crate) async fn kill(&mut self) {
        self.running.abort();
        assert!((&mut self.running).await.unwrap_err().is_cancelled());
    }

    /// Starts it again; it remembers nothing.
    pub(crate) async fn revive(&mut self) {
        // What the dead one left in the kernel goes first.
        let free = async {
            while TcpSocket::new_v4()
                .and_then(|socket| socket.set_reuseaddr(true).map(|()| socket))
                .is_ok_and(|socket| socket.bind(self.address).is_err())
            {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, free).await.expect("its address is never free");
        self.running = run(self.kind, self.address, self.script.clone());
    }

    /// Starts it again as one that speaks streamable HTTP.
    pub(crate) fn renew(&mut self) {
        let listener = listener(self.address);
        self.running =
            tokio::spawn(async move { serve_http(listener, Eras::Legacy).await.unwrap() });
    }
}

fn run(kind: Kind, address: SocketAddr, script: Script) -> JoinHandle<()> {
    let listener = listener(address);
    tokio::spawn(async move {
        match kind {
            Kind::Sse => serve_sse(listener, script).await.unwrap(),
            Kind::Ws => serve_ws(listener, script).await.unwrap(),
        }
    })
}
