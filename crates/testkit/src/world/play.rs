//! Plays a history: starts everything, takes the steps at their times, looks whether all is well
//! again, and ends everything.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::{Client, Shared};
use super::config::{self, Keys};
use super::gateway::Gateway;
use super::lag::Lag;
use super::ledger::{Execution, Ledger};
use super::notes::{Listing, Notes, Request};
use super::plan::{Blow, Face, History, Step, Way, What};
use super::process;
use super::server::Server;

/// How long a server that answers may stay unused.
const USED_WITHIN: Duration = Duration::from_secs(5);
/// How long what was held may take to be given back.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);
/// How many conversations with a server a gateway may keep for those who come next.
const KEPT: usize = 8;
/// More than a gateway of this size ever needs, in MiB.
const MEMORY: u64 = 256;

/// The programs a world is made with.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The gateway.
    pub seawall: PathBuf,
    /// The child that relays.
    pub relay: PathBuf,
    /// What the gateway can be told.
    pub keys: Keys,
}

/// What was seen.
pub struct Record {
    /// What was played.
    pub history: History,
    /// By the servers.
    pub executions: Vec<Execution>,
    /// By the clients.
    pub requests: Vec<Request>,
    /// By the clients.
    pub listings: Vec<Listing>,
    /// What no client may ever see, in words.
    pub strange: Vec<String>,
    /// Servers that answer and were not used.
    pub unused: Vec<String>,
    /// What was not given back.
    pub left_over: Vec<String>,
    /// When the gateway was away.
    pub blows: Vec<(Instant, Instant)>,
    /// How late this machine was at worst.
    pub lag: Duration,
    /// Whether the gateway bounds the time of questions.
    pub bounds_questions: bool,
}

/// Plays a history.
pub async fn play(history: &History, programs: &Programs) -> io::Result<Record> {
    let folder = Folder::new()?;
    let stage = Stage::set(history, programs, &folder.path).await?;
    let lag = Lag::watch();
    let fresh = stage.descriptors().await;
    stage.everybody_lists().await;
    stage.steps().await;
    let unused = stage.uses(lag.worst()).await;
    stage.everybody_lists().await;
    let left_over = stage.leave(fresh).await;
    let lock = |blows: &Mutex<Vec<(Instant, Instant)>>| {
        blows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    };
    let notes = &stage.shared.notes;
    Ok(Record {
        history: history.clone(),
        executions: stage.shared.ledger.executions(),
        requests: notes.requests(),
        listings: notes.listings(),
        strange: notes.strangers(),
        unused,
        left_over,
        blows: lock(&stage.blows),
        lag: lag.worst(),
        bounds_questions: programs.keys.knows("question_time"),
    })
}

struct Stage {
    history: History,
    shared: Arc<Shared>,
    servers: Vec<Arc<Server>>,
    clients: Vec<Arc<Client>>,
    blows: Mutex<Vec<(Instant, Instant)>>,
    wrong: Mutex<Vec<String>>,
}

impl Stage {
    async fn set(history: &History, programs: &Programs, folder: &Path) -> io::Result<Self> {
        let ports: Vec<u16> = (0..=history.servers.len()).map(|_| port()).collect();
        for (name, run) in [("serve.toml", false), ("run.toml", true)] {
            let text = config::toml(history, &programs.keys, folder, &programs.relay, &ports, run);
            std::fs::write(folder.join(name), text)?;
        }
        let ledger: Arc<Ledger> = Arc::default();
        let servers = history.servers.iter().enumerate().map(|(place, plan)| {
            Server::start(place, plan, fates(history, place), &ledger, ports[place + 1], folder)
        });
        let servers: Vec<_> = servers.collect();
        let gateway = Gateway::new(&programs.seawall, folder, ports[0]);
        gateway.start().await?;
        let notes: Arc<Notes> = Arc::default();
        let shared = Arc::new(Shared { gateway, ledger, notes, alone: history.settings.alone });
        let clients = history.clients.iter().enumerate();
        let clients = clients.map(|(place, plan)| {
            Arc::new(Client::new(place, plan, &shared, &programs.seawall, folder))
        });
        let clients = clients.collect();
        let (blows, wrong) = Default::default();
        Ok(Self { history: history.clone(), shared, servers, clients, blows, wrong })
    }

    async fn descriptors(&self) -> usize {
        self.shared.gateway.pid().await.map_or(0, process::descriptors)
    }

    /// Where a client can list, and what it sees there.
    fn lists(&self, client: &Arc<Client>) -> Vec<Option<usize>> {
        match client.plan.way {
            Way::Run(server) => vec![Some(server)],
            Way::Merged if self.history.settings.alone => {
                (0..self.servers.len()).map(Some).collect()
            }
            Way::Merged => vec![None],
        }
    }

    async fn everybody_lists(&self) {
        let mut lists = JoinSet::new();
        for client in &self.clients {
            for of in self.lists(client) {
                lists.spawn(Arc::clone(client).list(of));
            }
        }
        lists.join_all().await;
    }

    /// Takes the steps, each at its time, and waits until all are over.
    async fn steps(&self) {
        let begun = Instant::now();
        let steps = self.history.steps.iter().map(|step| self.step(begun, step));
        futures_util::future::join_all(steps).await;
    }

    async fn step(&self, begun: Instant, step: &Step) {
        sleep_until(begun + Duration::from_millis(step.at)).await;
        match &step.what {
            What::Intend(intent) => {
                let one = Arc::clone(&self.clients[intent.client]).pursue(intent.clone());
                let other = async {
                    if let Some(twin) = intent.twin {
                        Arc::clone(&self.clients[twin]).pursue(intent.clone()).await;
                    }
                };
                tokio::join!(one, other);
            }
            What::List(client) => {
                let client = &self.clients[*client];
                for of in self.lists(client) {
                    Arc::clone(client).list(of).await;
                }
            }
            What::Reconnect(client) => self.clients[*client].reconnect().await,
            What::KillWrapper(client) => self.clients[*client].kill_wrapper().await,
            What::Trouble(server, trouble) => self.servers[*server].suffer(*trouble).await,
            What::Blow(blow, away) => {
                let begun = Instant::now();
                match self.shared.gateway.suffer(*blow, *away).await {
                    Ok(None) => {}
                    Ok(Some(wrong)) => self.wrong(wrong),
                    Err(error) => self.wrong(format!("the gateway does not start again: {error}")),
                }
                self.blows
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((begun, Instant::now()));
            }
        }
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    /// Now that all troubles are over: does every server answer every client soon?
    async fn uses(&self, lag: Duration) -> Vec<String> {
        let mut tries = JoinSet::new();
        for client in &self.clients {
            for server in (0..self.servers.len()).filter(|server| client.reaches(*server)) {
                let (who, client) = (client.place, Arc::clone(client));
                let limit = USED_WITHIN + lag * 4;
                tries.spawn(async move { (who, server, client.uses(server, limit).await) });
            }
        }
        let unused = tries.join_all().await.into_iter();
        unused
            .filter_map(|(client, server, last)| {
                Some(format!("s{server} was of no use to c{client}: {}", last?))
            })
            .collect()
    }

    /// Ends everything, and tells what is left.
    async fn leave(&self, fresh: usize) -> Vec<String> {
        for client in &self.clients {
            client.leave().await;
        }
        let pid = self.shared.gateway.pid().await;
        let mut left =
            std::mem::take(&mut *self.wrong.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(pid) = pid {
            // A child has three pipes and a handle, a server on HTTP a connection and a stream of
            // news; several conversations may be kept for a while for a client that asked much at
            // once.
            let held =
                |server: &Arc<Server>| KEPT * if server.plan.face == Face::Http { 2 } else { 4 };
            let bound = fresh + 4 + self.servers.iter().map(held).sum::<usize>();
            if !within(GIVEN_BACK_WITHIN, || process::descriptors(pid) <= bound).await {
                left.push(format!(
                    "{} descriptors, and {fresh} at the start",
                    process::descriptors(pid)
                ));
            }
            let memory = process::resident(pid);
            if memory > MEMORY {
                left.push(format!("{memory} MiB of memory"));
            }
        }
        left.extend(self.shared.gateway.end(Blow::Terminated).await);
        for server in &self.servers {
            server.end();
        }
        let still = |server: &Arc<Server>| {
            let children = self.shared.ledger.children_of(server.place);
            children
                .into_iter()
                .filter(|pid| process::is_there(*pid, server.word()))
                .collect::<Vec<_>>()
        };
        for server in &self.servers {
            if !within(GIVEN_BACK_WITHIN, || still(server).is_empty()).await {
                left.push(format!("processes of s{}: {:?}", server.place, still(server)));
                still(server)
                    .into_iter()
                    .for_each(|pid| process::send(pid, server.word(), process::KILL));
            }
        }
        left
    }
}

/// Waits until something is so, but not for ever; gives whether it is.
async fn within(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(20)).await;
    }
    true
}

/// What befalls each intent at a server.
fn fates(history: &History, server: usize) -> HashMap<String, Vec<super::plan::Fate>> {
    let intents = history.steps.iter().filter_map(|step| match &step.what {
        What::Intend(intent) if intent.server == server => {
            Some((intent.name.clone(), intent.fates.clone()))
        }
        _ => None,
    });
    intents.collect()
}

/// A port below those that the system gives away, and that no other world of this process has.
fn port() -> u16 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let begin = u64::from(std::process::id()) * 977;
    loop {
        let next = begin + NEXT.fetch_add(1, Ordering::Relaxed);
        let Ok(port) = u16::try_from(10_000 + next % 20_000) else { continue };
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A folder of its own, gone with the world.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn new() -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(
            "seawall-world-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if std::env::var_os("SEAWALL_WORLD_KEEP").is_none() {
            _ = std::fs::remove_dir_all(&self.path);
        }
    }
}
