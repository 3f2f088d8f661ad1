//! One cell: an arm before one server, first well, then in trouble, then well again, with all
//! agents at work.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use seawall_demo::client::{ClientAnswer, DemoClient, ServerRoute};
use seawall_demo::faults::{Fault, FaultPlan};
use seawall_demo::faulty::{APPEND, Faulty, TOOLS, arguments};
use seawall_demo::verdict::{Verdict, judge};
use seawall_demo::web::Web;
use seawall_demo::world::{LedgerEntry, World};
use serde_json::json;
use tokio::time::Instant;

use super::agents::{self, Agent, Errand, PATIENCE};
use super::arms::{Arm, Started};
use super::peers::Peers;
use super::scenarios::Scenario;
use super::tally::Tally;

/// Calls of the agent that makes many at a time.
const BURST: u64 = 20;
/// How long a client may be without a live answer after the trouble before it counts as lost.
const LOST: Duration = Duration::from_secs(6);
const STEP: Duration = Duration::from_millis(20);
/// How long a queue may take to be empty after the trouble.
const DELIVERED: Duration = Duration::from_secs(20);

/// What one cell is about.
#[derive(Clone, Copy)]
pub(crate) struct Cell<'a> {
    pub(crate) arm: Arm,
    pub(crate) scenario: &'a Scenario,
    pub(crate) is_web: bool,
    pub(crate) seed: u64,
    /// Things that an agent wants of each tool.
    pub(crate) each: u64,
}

/// An agent with its connection.
struct Party {
    agent: Agent,
    client: Arc<DemoClient>,
    /// The numbers of its calls begin here.
    first: u64,
    list: Option<String>,
}

impl Cell<'_> {
    /// Plays it.
    pub(crate) async fn play(&self, folder: &Path, peers: &Peers) -> io::Result<Tally> {
        std::fs::create_dir_all(folder)?;
        let world = Arc::new(World::new(folder));
        let web = Web::start(Faulty { world: Arc::clone(&world) }).await?;
        let way = if self.is_web { ServerRoute::Web(web.url.clone()) } else { program(folder)? };
        let started = self.arm.start(folder, &way, peers).await?;
        let mut parties: Vec<Party> = (1..)
            .zip(agents::ALL)
            .map(|(place, agent)| Party {
                agent,
                client: Arc::new(DemoClient::new(started.way.clone())),
                first: place * 1000,
                list: None,
            })
            .collect();
        for party in &mut parties {
            party.list = list(&party.client).await;
        }
        join_all(parties.iter().map(|party| self.warm_up(party, &started))).await;

        let before = world.total(LedgerEntry::Seen);
        world.set(&self.scenario.plan(self.seed))?;
        let mut tally = Tally::default();
        for part in join_all(parties.iter().map(|party| self.work(party, &started, &world))).await {
            tally.add(&part);
        }
        if self.scenario.is_outage {
            tally.wasted = world.total(LedgerEntry::Seen) - before;
            tally.useful_in_outage = tally.useful;
        }
        if self.scenario.is_healthy {
            tally.false_opens = started.running.opened();
        }
        world.set(&FaultPlan::default())?;
        for recovered in join_all(parties.iter().map(|party| recover(party, &started))).await {
            match recovered {
                Some(time) => tally.recovery.push(time),
                None => tally.lost_for_ever += 1,
            }
        }
        delivered(&world, &mut tally).await;
        self.count_duplicates(&parties, &world, &mut tally);
        started.running.stop().await;
        Ok(tally)
    }

    /// Everything that can be read is read once, so that a copy can exist.
    async fn warm_up(&self, party: &Party, started: &Started) {
        for (tool, number) in self.errands(party).into_iter().filter(|(tool, _)| is_read(tool)) {
            let shown = format!("{}{tool}", started.prefix);
            party.client.call(&shown, &arguments(tool, number), PATIENCE).await;
        }
    }

    /// What an agent wants, in order.
    fn errands(&self, party: &Party) -> Vec<(&'static str, u64)> {
        let each = if party.agent == Agent::Burst {
            BURST.div_ceil(TOOLS.len() as u64)
        } else {
            self.each
        };
        let numbers = (0..each).map(|number| party.first + number * 10);
        numbers.flat_map(|number| TOOLS.map(|(tool, ..)| (tool, number))).collect()
    }

    async fn work(&self, party: &Party, started: &Started, world: &World) -> Tally {
        let run = async |tool: &'static str, number: u64| {
            let shown = &format!("{}{tool}", started.prefix);
            let (agent, client, seed, is_known) =
                (party.agent, &party.client, self.seed, is_read(tool));
            // Whoever is told no has to hear it: nothing may stand in for that.
            let is_refused = matches!(
                self.scenario.plan(seed).fault(tool, number, 1),
                Some(Fault::Expired | Fault::Refused)
            );
            Errand { agent, client, world, seed, shown, tool, number, is_known, is_refused }
                .run()
                .await
        };
        let errands = self.errands(party);
        let mut tally = Tally::default();
        if party.agent == Agent::Burst {
            for part in join_all(errands.into_iter().map(|(tool, number)| run(tool, number))).await
            {
                tally.add(&part);
            }
        } else {
            for (tool, number) in errands {
                tally.add(&run(tool, number).await);
            }
        }
        // A list that cannot be had is no change; one that is different is.
        let now = list(&party.client).await;
        tally.list_changes = u64::from(now.is_some() && party.list.is_some() && now != party.list);
        tally
    }

    fn count_duplicates(&self, parties: &[Party], world: &World, tally: &mut Tally) {
        for (tool, number) in
            parties.iter().flat_map(|party| self.errands(party)).filter(|(tool, _)| *tool == APPEND)
        {
            let again = world.count(LedgerEntry::Done, tool, number).saturating_sub(1);
            tally.duplicates += u64::from(again);
            let history =
                tally.histories.iter().find(|(of, _)| *of == number && again > 0).cloned();
            history.into_iter().for_each(|(_, history)| tally.note(history));
        }
    }
}

/// Waits until all that waited in a queue was made, and counts what was not.
async fn delivered(world: &World, tally: &mut Tally) {
    let begun = Instant::now();
    let is_missing =
        |(tool, number): &(&'static str, u64)| world.count(LedgerEntry::Done, tool, *number) == 0;
    while tally.waits.iter().any(is_missing) && begun.elapsed() < DELIVERED {
        tokio::time::sleep(STEP).await;
    }
    for waits in std::mem::take(&mut tally.waits).into_iter().filter(is_missing) {
        tally.never_made += 1;
        tally.note(format!("{} {} waited in a queue and was not made", waits.0, waits.1));
    }
}

fn is_read(tool: &str) -> bool {
    TOOLS.iter().any(|(name, hint, _)| *name == tool && *hint == "readOnlyHint")
}

/// The faulty server as a child of whoever needs it.
pub(crate) fn program(folder: &Path) -> io::Result<ServerRoute> {
    let program = std::env::current_exe()?.to_string_lossy().into_owned();
    Ok(ServerRoute::Program(vec![
        program,
        "faulty-server".to_owned(),
        folder.to_string_lossy().into_owned(),
    ]))
}

/// The tools that a client is shown, as text.
async fn list(client: &DemoClient) -> Option<String> {
    match client.ask("tools/list", json!({}), PATIENCE * 3).await {
        ClientAnswer::Message(message) => {
            Some(message["result"]["tools"].to_string()).filter(|_| message.get("error").is_none())
        }
        _ => None,
    }
}

/// How long it takes until a client has a live answer again.
async fn recover(party: &Party, started: &Started) -> Option<Duration> {
    let begun = Instant::now();
    let shown = format!("{}read_note", started.prefix);
    while begun.elapsed() < LOST {
        let told = party.client.call(&shown, &arguments("read_note", party.first), PATIENCE).await;
        if judge(&told, "read_note", party.first) == (Verdict::Useful { by: None }) {
            return Some(begun.elapsed());
        }
        tokio::time::sleep(STEP).await;
    }
    None
}
