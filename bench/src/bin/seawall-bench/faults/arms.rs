//! What stands between agents and servers: nothing, Seawall, Seawall without one of its parts, or a
//! peer.

use std::io;
use std::path::Path;

use seawall_demo::client::ServerRoute;
use seawall_demo::gateway::DemoGateway;
use seawall_gateway::schema;

use super::peers::{Peer, Peers};

/// What Seawall is told in all of its arms: how long things take, a thirtieth of the defaults, like
/// the times of the agents; and nothing else. What no setting can change stays as it is.
const TIMES: &str = "\
[timeouts]
quick = \"2s\"
heavy = \"4s\"
[startup]
backoff = \"8ms\"
max_starting = \"10s\"
[reconnect]
base = \"17ms\"
max = \"2s\"
wait = \"667ms\"
";

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    Direct,
    /// Its name, and how it differs from what Seawall is by default.
    Seawall(&'static str, But),
    Peer(Peer),
}

/// How an arm differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum But {
    Same,
    /// A part of its policy is off.
    Without(&'static str),
    /// It has a store in which writes wait for their server.
    Queue,
}

/// All of them; the parts that an arm does not name are as in Seawall's own.
pub(crate) const ALL: [Arm; 10] = [
    Arm::Direct,
    Arm::Seawall("Seawall", But::Same),
    Arm::Seawall("Seawall, no retries", But::Without("retry")),
    Arm::Seawall("Seawall, no breakers", But::Without("breaker")),
    Arm::Seawall("Seawall, no fallbacks", But::Without("fallback")),
    Arm::Seawall("Seawall, forgets calls", But::Without("ledger")),
    Arm::Seawall("Seawall with a queue", But::Queue),
    Arm::Peer(Peer::McpProxy),
    Arm::Peer(Peer::Envoy),
    Arm::Peer(Peer::Fastmcp),
];

/// An arm that runs.
pub(crate) enum Running {
    Direct,
    Seawall(DemoGateway),
    Peer { _child: tokio::process::Child },
}

/// How agents reach the server through an arm: the way, and what is put before the names of tools.
pub(crate) struct Started {
    pub(crate) running: Running,
    pub(crate) way: ServerRoute,
    pub(crate) prefix: &'static str,
}

impl Arm {
    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Arm::Direct => "direct",
            Arm::Seawall(name, ..) => name,
            Arm::Peer(peer) => peer.name(),
        }
    }

    /// Whether it can stand before this kind of server.
    pub(crate) fn takes(self, is_web: bool) -> bool {
        !matches!(self, Arm::Peer(Peer::Envoy)) || is_web
    }

    /// Whether it takes so much of the machine that it must run alone, or the others would be slow
    /// for it.
    pub(crate) fn is_heavy(self) -> bool {
        self == Arm::Peer(Peer::Fastmcp)
    }

    /// Starts it before a server.
    pub(crate) async fn start(
        self,
        folder: &Path,
        way: &ServerRoute,
        peers: &Peers,
    ) -> io::Result<Started> {
        match self {
            Arm::Direct => Ok(Started { running: Running::Direct, way: way.clone(), prefix: "" }),
            Arm::Seawall(_, but) => {
                let settings = match but {
                    But::Without(part) => settings(part),
                    But::Queue => {
                        format!("[store]\npath = {:?}\n{}", folder.join("queue.redb"), settings(""))
                    }
                    But::Same => settings(""),
                };
                let gateway = DemoGateway::start(folder, &settings, &[("s", way)], true).await?;
                let way = ServerRoute::Web(gateway.url("s"));
                Ok(Started { running: Running::Seawall(gateway), way, prefix: "" })
            }
            Arm::Peer(peer) => peers.start(peer, folder, way).await,
        }
    }
}

/// Seawall's settings, without one part.
pub(crate) fn settings(without: &str) -> String {
    let part = |name: &str, with: &str, off: &str| {
        if without == name { off.to_owned() } else { with.to_owned() }
    };
    let known = |key: &str, line: &str| {
        if schema().contains(&format!("\"{key}\"")) { line.to_owned() } else { String::new() }
    };
    let of_kind = |kind: &str, retry: &str, cooldown: &str| {
        let retry = part("retry", &format!("retry = {{ base = {retry:?} }}\n"), "");
        let breaker = part("breaker", &format!("breaker = {{ cooldown = {cooldown:?} }}\n"), "");
        format!("[kinds.{kind}]\n{retry}{breaker}")
    };
    [
        TIMES.to_owned(),
        "[defaults]\n".to_owned(),
        part("retry", "retry = { base = \"33ms\", max = \"1s\" }\n", "retry = { attempts = 1 }\n"),
        part("breaker", "breaker = { cooldown = \"1s\" }\n", "breaker = { failures = 0 }\n"),
        part("fallback", "", "fallback = []\n"),
        part(
            "ledger",
            "uncertain_write_hold = \"2s\"\n",
            "loop = { mode = \"off\" }\nuncertain_write_hold = \"0s\"\non_abandon = \"forget\"\n",
        ),
        known("rejoin_after", part("ledger", "rejoin_after = \"33ms\"\n", "").as_str()),
        known("rejoin", part("ledger", "", "rejoin = \"off\"\n").as_str()),
        of_kind("write", "67ms", "2s"),
        of_kind("batch", "33ms", "4s"),
    ]
    .concat()
}

impl Running {
    /// How often a breaker opened.
    pub(crate) fn opened(&self) -> u64 {
        match self {
            Running::Seawall(gateway) => gateway.opened(),
            Running::Direct | Running::Peer { .. } => 0,
        }
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        if let Running::Seawall(gateway) = self {
            gateway.stop().await;
        }
    }
}
