//! Checks a whole configuration before clients depend on it: which servers can be reached, which
//! credentials are missing, which settings will surprise.
//!
//! The check calls no tool and leaves nothing behind: it shakes hands with all servers at once,
//! within a time limit, and lists their tools. `trouble` explains each problem and its remedy,
//! `needs` checks the gateway's own ports and store, `warn` finds harmless surprises, `show` writes
//! the report.

pub(crate) mod needs;
pub(super) mod reached;
mod scheme;
mod show;
mod trouble;
mod warn;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use seawall::Cause;
use tokio::time::Instant;

use self::needs::Requirement;
use self::trouble::ServerTrouble;
use crate::call::required;
use crate::catalog::listed::ListedTool;
use crate::catalog::quarantine;
use crate::client::missing;
use crate::config::Config;
use crate::gateway::Gateway;
use crate::policy::startup;
use crate::protocol::names::Era;
use crate::protocol::{limits, scan};
use crate::upstream::probe::{ProbeFailed, ProbeResult};
use crate::upstream::startup::NOT_READY_YET;
use crate::upstream::status::Observations;
use crate::upstream::{Server, UpstreamFailure};

/// The result of a check.
pub(crate) struct CheckReport {
    file: String,
    servers: Vec<CheckedServer>,
    needs: Vec<Requirement>,
    warnings: Vec<String>,
    /// Facts that need no action.
    notes: Vec<String>,
}

/// The result for one server.
struct CheckedServer {
    name: String,
    /// The command or the URL, without secrets.
    way: String,
    took: Duration,
    found: Result<HealthyServer, ServerTrouble>,
    warnings: Vec<String>,
}

/// A server that works.
struct HealthyServer {
    era: Era,
    version: String,
    tools: Vec<(String, ListedTool)>,
    /// Tools with a broken definition, and why.
    broken: Vec<String>,
    bytes: usize,
}

/// One probed server: the result and the time it took.
type ServerCheck = (Result<ProbeResult, ProbeFailed>, Duration);

/// Probes all servers of a gateway that has no clients, each for at most `most`; `progress` gets
/// the names of the servers that have not answered yet.
pub(crate) async fn look(
    gateway: &Gateway,
    most: Duration,
    progress: impl Fn(&[&str]),
) -> Vec<ServerCheck> {
    let servers = &gateway.now().servers;
    let mut waiting: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    progress(&waiting);
    let looks = servers.iter().enumerate().map(async |(at, server)| (at, one(server, most).await));
    let mut looks = futures_util::stream::iter(looks).buffer_unordered(limits::LOOKS);
    let mut looked = Vec::new();
    while let Some((at, outcome)) = looks.next().await {
        waiting.retain(|name| *name != servers[at].name);
        progress(&waiting);
        looked.push((at, outcome));
    }
    looked.sort_by_key(|(at, _)| *at);
    looked.into_iter().map(|(_, outcome)| outcome).collect()
}

/// How long another gateway that has just been started may answer from its cache, and how often it
/// is asked meanwhile.
const STARTS_WITHIN: Duration = Duration::from_secs(5);
const ASKED_EVERY: Duration = Duration::from_millis(100);

async fn one(server: &Server, most: Duration) -> ServerCheck {
    let (handshake, began) = (required::handshake(), Instant::now());
    let starts_until = began + most.min(STARTS_WITHIN);
    loop {
        let look = server.look(&handshake, limits::PAGES);
        let found = tokio::time::timeout(most, look).await;
        let found = found.unwrap_or(Err(ProbeFailed::Failed(UpstreamFailure::Silent(most))));
        if !found.as_ref().is_ok_and(starts) || Instant::now() + ASKED_EVERY > starts_until {
            return (found, began.elapsed());
        }
        tokio::time::sleep(ASKED_EVERY).await;
    }
}

/// Whether another gateway answered from its cache because it is still starting the server behind
/// it.
fn starts(found: &ProbeResult) -> bool {
    remembered(found).is_some_and(|(_, reason)| reason.starts_with(NOT_READY_YET))
}

/// Writes the tool lists into the catalog cache, and waits until they are on disk.
pub(crate) async fn keep(gateway: &Gateway, looked: &[ServerCheck]) {
    let route = gateway.all();
    for (server, (found, _)) in route.set.servers.iter().zip(looked) {
        // A list that another gateway served from its cache, for a server that is away, is not
        // news.
        if let Ok(found) = found.as_ref()
            && remembered(found).is_none()
        {
            startup::keep_found(
                &route.catalog_cache,
                &route.policies,
                server,
                &required::handshake(),
                found,
            );
        }
    }
    route.catalog_cache.flush().await;
}

/// The report, made once the gateway has ended: the exit of a process is known only then.
pub(crate) fn report(
    config: &Config,
    gateway: &Gateway,
    needs: Vec<Requirement>,
    looked: Vec<ServerCheck>,
) -> CheckReport {
    let mut servers = Vec::new();
    for ((server, configured), (found, took)) in
        gateway.now().servers.iter().zip(&config.servers).zip(looked)
    {
        let seen = server.status.seen();
        let found = match found {
            Ok(found) => match remembered(&found) {
                None => Ok(fine(server, &found)),
                Some((name, reason)) => Err(trouble::behind(server, &name, &reason, &seen)),
            },
            Err(missed) => Err(trouble::of(server, &configured.transport, &missed, &seen)),
        };
        servers.push(CheckedServer {
            name: server.name.clone(),
            way: reached::way(server, &configured.transport),
            took,
            warnings: noise(&seen),
            found,
        });
    }
    let file = config.source.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    let mut report = CheckReport { file, servers, needs, warnings: Vec::new(), notes: Vec::new() };
    warn::add(config, &mut report);
    report
}

/// The server and reason that another gateway names, if it answered from its cache: the server
/// behind it is away.
fn remembered(found: &ProbeResult) -> Option<(String, String)> {
    let told = found.pages.iter().find_map(|page| page.meta_json(missing::SERVERS))?;
    let told: serde_json::Value = serde_json::from_slice(told).ok()?;
    let (name, about) = told.as_object()?.iter().next()?;
    Some((name.clone(), about["reason"].as_str().unwrap_or("it is away").to_owned()))
}

/// The listed tools of a server, without broken definitions.
fn fine(server: &Arc<Server>, found: &ProbeResult) -> HealthyServer {
    let (era, version) =
        found.info.as_ref().map_or((Era::Legacy, ""), |info| (info.era, &info.version));
    let mut fine = HealthyServer {
        era,
        version: version.to_owned(),
        tools: Vec::new(),
        broken: Vec::new(),
        bytes: 0,
    };
    for page in &found.pages {
        let page = quarantine::cleaned(server, era, "tools/list", page.clone());
        let told: serde_json::Value = page
            .meta_json(quarantine::QUARANTINED)
            .and_then(|json| serde_json::from_slice(json).ok())
            .unwrap_or_default();
        for broken in told[server.name.as_str()].as_array().into_iter().flatten() {
            let part = |name: &str| broken[name].as_str().unwrap_or_default().to_owned();
            fine.broken.push(format!("{:?}: {}", part("tool"), part("reason")));
        }
        let Some(list) = page.field("tools") else { continue };
        fine.bytes += list.end - list.start;
        let entries = scan::elements(page.raw(), list).into_iter();
        fine.tools.extend(ListedTool::read_all(page.raw(), entries));
    }
    fine.tools.truncate(limits::LISTED);
    fine
}

fn noise(seen: &Observations) -> Vec<String> {
    let lines = match seen.noise {
        0 => return Vec::new(),
        1 => "1 line on its stdout was no message and was skipped".to_owned(),
        lines => format!("{lines} lines on its stdout were no messages and were skipped"),
    };
    vec![format!("{lines}; its stdout belongs to MCP, let it log to stderr")]
}

impl CheckReport {
    /// Whether every server works, and the gateway has everything it needs.
    pub(crate) fn is_well(&self) -> bool {
        self.has_all() && self.servers.iter().all(|server| server.found.is_ok())
    }

    fn has_all(&self) -> bool {
        self.needs.iter().all(|need| need.found.is_ok())
    }

    /// Whether only credentials are missing.
    pub(crate) fn is_only_closed(&self) -> bool {
        let troubles = || self.servers.iter().filter_map(|server| server.found.as_ref().err());
        let is_closed =
            |trouble: &ServerTrouble| matches!(trouble.cause, Cause::AuthExpired | Cause::Denied);
        let unmet = || self.needs.iter().filter_map(|need| need.found.as_ref().err());
        !self.is_well()
            && troubles().all(is_closed)
            && unmet().all(|unmet| unmet.problem == needs::NO_TOKEN)
    }
}
