//! The order of a run: every arm meets every scenario on both transports, a few cells at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, stream};
use seawall_bench::{Setup, machine};
use seawall_demo::Folder;
use tokio::time::Instant;

use super::arms::{self, Arm};
use super::cell::Cell;
use super::peers::Peers;
use super::scenarios::{self, Scenario};
use super::tally::Tally;
use super::{pairs, report};

/// How many seeds a run has, so that chance can be told from effect.
const SEEDS: u64 = 3;
/// Cells at a time: most of what they do is waiting.
const TOGETHER: usize = 16;
/// Cells at a time of an arm that needs much of the machine; they come last, when all others are
/// done.
const HEAVY_TOGETHER: usize = 2;

/// What one cell came to.
pub(crate) struct Played {
    pub(crate) arm: Arm,
    pub(crate) scenario: &'static Scenario,
    pub(crate) is_web: bool,
    pub(crate) seed: u64,
    pub(crate) tally: Tally,
}

/// What was asked for.
struct Wishes {
    /// The first seed, and how many.
    seed: u64,
    seeds: u64,
    is_quick: bool,
    arms: Vec<String>,
    faults: Vec<String>,
    writes: bool,
}

impl Wishes {
    fn read(arguments: &[String]) -> Setup<Self> {
        let (arms, faults) = (Vec::new(), Vec::new());
        let mut wishes =
            Self { seed: 1, seeds: SEEDS, is_quick: false, arms, faults, writes: false };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--seed" => wishes.seed = value()?.parse()?,
                "--seeds" => wishes.seeds = value()?.parse::<u64>()?.clamp(1, 99),
                "--arms" => wishes.arms = value()?.split(',').map(str::to_lowercase).collect(),
                "--faults" => wishes.faults = value()?.split(',').map(str::to_lowercase).collect(),
                "--quick" => wishes.is_quick = true,
                "--write" => wishes.writes = true,
                other => {
                    return Err(format!(
                        "{other:?} is not known; write --seed, --seeds, --quick, --arms, --faults or --write"
                    )
                    .into());
                }
            }
        }
        Ok(wishes)
    }

    fn has(&self, arm: Arm) -> bool {
        let name = arm.name().to_lowercase();
        self.arms.is_empty()
            || self
                .arms
                .iter()
                .any(|word| *word == name || (word != "seawall" && name.contains(word)))
    }

    fn scenarios(&self) -> Vec<&'static Scenario> {
        let is_named = |name: &str| {
            self.faults.is_empty()
                || self.faults.iter().any(|word| name.to_lowercase().contains(word.as_str()))
        };
        let is_wanted = |scenario: &&Scenario| {
            is_named(scenario.name) && (!self.is_quick || scenarios::QUICK.contains(&scenario.name))
        };
        scenarios::ALL.iter().filter(is_wanted).collect()
    }
}

/// Runs what the arguments ask for, and shows it.
pub(crate) async fn run(arguments: &[String]) -> Setup<()> {
    let wishes = Wishes::read(arguments)?;
    let machine = machine();
    let peers = Peers::find();
    let is_there = |arm: &Arm| !matches!(arm, Arm::Peer(peer) if peers.program(*peer).is_none());
    let (arms, absent): (Vec<Arm>, Vec<Arm>) =
        arms::ALL.into_iter().filter(|arm| wishes.has(*arm)).partition(is_there);
    let absent: Vec<&str> = absent.into_iter().map(Arm::name).collect();
    let folder = Folder::new()?;
    let begun = Instant::now();
    let played = play(&wishes, &arms, &peers, &folder).await;
    let pairs = if arms.iter().any(|arm| arm.name() == "Seawall") {
        pairs::play(&folder.path).await?
    } else {
        Vec::new()
    };
    let shown = arguments.iter().filter(|argument| *argument != "--write").map(|argument| {
        match argument.contains(' ') {
            true => format!(" '{argument}'"),
            false => format!(" {argument}"),
        }
    });
    let head = report::Head {
        machine,
        command: format!(
            "cargo run --release -p seawall-bench -- faults{}",
            shown.collect::<String>()
        ),
        absent,
        took: begun.elapsed(),
    };
    let text = report::page(&head, &arms, &played, &pairs);
    println!("{text}");
    if wishes.writes {
        report::write(&text, &arms, &played)?;
    }
    Ok(())
}

async fn play(wishes: &Wishes, arms: &[Arm], peers: &Peers, folder: &Folder) -> Vec<Played> {
    let mut cells = Vec::new();
    for seed in (wishes.seed..).take(usize::try_from(wishes.seeds).unwrap_or(1)) {
        for scenario in wishes.scenarios() {
            for (place, is_web) in [false, true].into_iter().enumerate() {
                let fits = |arm: &&Arm| scenario.on[place] && arm.takes(is_web);
                let is_in = |arm: &&Arm| !arm.is_heavy() || seed == wishes.seed;
                let fits = arms.iter().filter(fits).filter(is_in);
                cells.extend(fits.map(|arm| Cell { arm: *arm, scenario, is_web, seed, each: 1 }));
            }
        }
    }
    let of = cells.len();
    let done = Arc::new(AtomicU64::new(0));
    let play = |(place, cell): (usize, Cell<'static>)| {
        let (done, folder) = (Arc::clone(&done), folder.path.join(place.to_string()));
        async move {
            let tally = match cell.play(&folder, peers).await {
                Ok(tally) => tally,
                Err(error) => {
                    eprintln!("\n{} / {}: {error}", cell.arm.name(), cell.scenario.name);
                    return None;
                }
            };
            eprint!("\r{}/{of} ", done.fetch_add(1, Ordering::Relaxed) + 1);
            let Cell { arm, scenario, is_web, seed, .. } = cell;
            Some((place, Played { arm, scenario, is_web, seed, tally }))
        }
    };
    let (heavy, light): (Vec<_>, Vec<_>) =
        cells.into_iter().enumerate().partition(|(_, cell)| cell.arm.is_heavy());
    let mut played: Vec<(usize, Played)> = Vec::new();
    for (cells, together) in [(light, TOGETHER), (heavy, HEAVY_TOGETHER)] {
        let part = stream::iter(cells).map(play).buffer_unordered(together);
        played.extend(part.filter_map(std::future::ready).collect::<Vec<_>>().await);
    }
    eprintln!();
    played.sort_by_key(|(place, _)| *place);
    played.into_iter().map(|(_, played)| played).collect()
}
