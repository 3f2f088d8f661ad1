//! Decides how `seawall demo` runs and counts: the same agent makes the same calls to the same
//! faulty servers, direct and through Seawall.
//!
//! Two servers fail: a child on pipes that dies, hangs and is cut off, and an HTTP server that is
//! throttled and then down for a while. With the same seed only the times differ from run to run,
//! as long as the machine is not held up for longer than the timeouts here. The pace multiplies
//! these timeouts.

pub mod agent;
pub mod client;
pub mod faults;
pub mod faulty;
pub mod gateway;
pub mod pipe;
pub mod show;
pub mod verdict;
pub mod web;
pub mod world;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use agent::{Task, TaskResult};
use client::{DemoClient, ServerRoute};
use faults::{Fault, FaultPlan, Strike};
use faulty::{APPEND, Faulty};
use gateway::DemoGateway;
use show::{Progress, Row};
use web::Web;
use world::{LedgerEntry, World};

/// How long the agent waits for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long the agent leaves a server alone that was down; longer than any breaker stays open here.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Seawall's settings: the defaults, with shorter pauses, so that a minute of trouble takes a
/// second.
fn settings(pace: u32) -> String {
    let [timeout, attempt, cooldown] = [2500, 1000, 500].map(|limit| limit * pace);
    format!(
        "[startup]\nbackoff = \"20ms\"\n[reconnect]\nbase = \"50ms\"\n[defaults]\ntimeout = \"{timeout}ms\"\n\
         attempt_timeout = \"{attempt}ms\"\nretry = {{ base = \"30ms\" }}\nbreaker = {{ cooldown = \"{cooldown}ms\" }}\n"
    )
}

/// Plays both arms and prints the table.
pub async fn run(seed: u64, calls: u64, pace: u32) -> io::Result<()> {
    let folder = Folder::new()?;
    let mut progress = Progress::new(calls * 2);
    let direct = play(&folder.path.join("direct"), false, seed, calls, pace, &mut progress).await?;
    let through =
        play(&folder.path.join("seawall"), true, seed, calls, pace, &mut progress).await?;
    progress.clear();
    show::table(seed, calls, &[("direct", direct), ("through Seawall", through)])
}

/// Runs the server of `seawall chaos` on stdin and stdout, until stdin ends or the plan kills it.
pub async fn chaos_on_stdio(world: World) {
    pipe::serve(Faulty { world: Arc::new(world) }).await;
}

/// Runs the server of `seawall chaos` on HTTP; it stops when what is returned is dropped.
pub async fn chaos_on_http(world: World, address: SocketAddr) -> io::Result<Web> {
    Web::bind(Faulty { world: Arc::new(world) }, address).await
}

/// Runs a faulty server on stdin and stdout.
pub async fn serve(folder: &Path) {
    pipe::serve(Faulty { world: Arc::new(World::new(folder)) }).await;
}

/// The servers of one arm, each in a world of its own.
struct Servers {
    notes: Arc<World>,
    board: Arc<World>,
    web: Web,
}

impl Servers {
    async fn start(folder: &Path, seed: u64) -> io::Result<Self> {
        let world = |name: &str| {
            let folder = folder.join(name);
            std::fs::create_dir_all(&folder).map(|()| Arc::new(World::new(&folder)))
        };
        let (notes, board) = (world("notes")?, world("board")?);
        notes.set(&FaultPlan::of(
            seed,
            [
                Strike::once(Fault::DieBefore, 5),
                Strike::once(Fault::DieAfter, 10),
                Strike::once(Fault::Reset, 8),
                Strike::once(Fault::Hang, 5),
                Strike::once(Fault::Soft, 7),
            ],
        ))?;
        board.set(&storm(seed))?;
        let web = Web::start(Faulty { world: Arc::clone(&board) }).await?;
        Ok(Self { notes, board, web })
    }

    fn notes(&self) -> io::Result<ServerRoute> {
        let program = std::env::current_exe()?.to_string_lossy().into_owned();
        let folder = self.notes.folder().to_string_lossy().into_owned();
        Ok(ServerRoute::Program(vec![program, "faulty-server".to_owned(), folder]))
    }

    fn board(&self) -> ServerRoute {
        ServerRoute::Web(self.web.url.clone())
    }

    /// How often the ledger shows a repeated execution of a task that must be executed once.
    fn duplicates(&self, task: &Task) -> u64 {
        let world = if task.is_notes { &self.notes } else { &self.board };
        let done = if task.tool == APPEND {
            world.count(LedgerEntry::Done, task.tool, task.number)
        } else {
            0
        };
        u64::from(done.saturating_sub(1))
    }
}

/// The faults of the HTTP server while it is up.
fn storm(seed: u64) -> FaultPlan {
    FaultPlan::of(
        seed,
        [
            Strike::once(Fault::Throttled, 12),
            Strike::once(Fault::Unavailable, 8),
            Strike::once(Fault::Reset, 8),
            Strike::once(Fault::Forgotten, 4),
        ],
    )
}

/// Plays all tasks, one after the other, in one arm.
async fn play(
    folder: &Path,
    is_guarded: bool,
    seed: u64,
    calls: u64,
    pace: u32,
    progress: &mut Progress,
) -> io::Result<Row> {
    let servers = Servers::start(folder, seed).await?;
    let mut ways = (servers.notes()?, servers.board());
    let mut running = None;
    if is_guarded {
        let gateway = DemoGateway::start(
            folder,
            &settings(pace),
            &[("notes", &ways.0), ("board", &ways.1)],
            false,
        )
        .await?;
        ways = (ServerRoute::Web(gateway.url("notes")), ServerRoute::Web(gateway.url("board")));
        running = Some(gateway);
    }
    let (notes, board) = (DemoClient::new(ways.0), DemoClient::new(ways.1));
    let tasks = agent::tasks(seed, calls);
    let outage = calls / 2..calls * 7 / 10;
    let begun = Instant::now();
    let mut row = Row::default();
    for (place, task) in (0..).zip(&tasks) {
        if place == outage.start {
            servers.board.set(&FaultPlan::of(seed, [Strike::always(Fault::Unavailable)]))?;
        } else if place == outage.end {
            servers.board.set(&storm(seed))?;
            tokio::time::sleep(AFTERWARDS * pace).await;
        }
        let came =
            agent::work(if task.is_notes { &notes } else { &board }, task, PATIENCE * pace).await;
        row.add(&came, servers.duplicates(task));
        progress.step(if is_guarded { "through Seawall" } else { "direct" });
    }
    row.time = begun.elapsed();
    if let Some(gateway) = running {
        gateway.stop().await;
    }
    Ok(row)
}

impl Row {
    fn add(&mut self, came: &TaskResult, duplicates: u64) {
        self.duplicates += duplicates;
        match came {
            // A task that was executed twice is no use to the agent, even if its answer looks
            // right.
            TaskResult::Useful { wasted, .. } if duplicates > 0 => self.wasted += wasted,
            TaskResult::Useful { wasted, is_stand_in } => {
                self.useful += 1;
                self.stand_ins += u64::from(*is_stand_in);
                self.wasted += wasted;
            }
            TaskResult::Failed { wasted } => {
                self.failed += 1;
                self.wasted += wasted;
            }
            TaskResult::Dark { wasted } => {
                self.dark += 1;
                self.wasted += wasted;
            }
            TaskResult::Wrong { wasted } => {
                self.wrong += 1;
                self.wasted += wasted;
            }
        }
    }
}

/// A temporary folder, removed when dropped.
pub struct Folder {
    /// The path of the folder.
    pub path: PathBuf,
}

impl Folder {
    /// Creates a folder for this process alone.
    pub fn new() -> io::Result<Self> {
        let mut chance = [0; 8];
        getrandom::fill(&mut chance).map_err(io::Error::other)?;
        let name = format!("seawall-{}-{:016x}", std::process::id(), u64::from_ne_bytes(chance));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _left_behind = std::fs::remove_dir_all(&self.path);
    }
}
