//! The misbehaving world: random histories of clients, servers and blows against the running
//! gateway.
//!
//! `SEAWALL_WORLD=30` plays for so many minutes, `SEAWALL_WORLD_SEED=27` that seed alone with all
//! that was seen, `SEAWALL_WORLD_ONLY=ExecutedAgain,Foreign` judges only these rules, `SEAWALL=…`
//! plays against another build. A seed always gives the same history, but real time makes no two
//! plays of it alike.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]
#![allow(clippy::print_stdout, reason = "what a history showed is what the test has to say")]

use std::env::var;
use std::path::PathBuf;
use std::time::Duration;

use seawall_testkit::world::campaign::{Campaign, run};
use seawall_testkit::world::check::{Rule, check};
use seawall_testkit::world::config::Keys;
use seawall_testkit::world::generate;
use seawall_testkit::world::play::{Programs, play};

/// How long is played when nobody says it.
const MINUTES: f64 = 1.0;
/// How many histories a short run plays at most: the same ones on every machine that is fast
/// enough.
const HISTORIES: u64 = 3_000;
/// Worlds at once: most of the time all of them wait.
const AT_ONCE: usize = 24;

fn programs() -> Programs {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_seawall"));
    let relay = built.with_file_name("seawall-relay");
    assert!(relay.exists(), "{} is missing: run `cargo build --workspace` first", relay.display());
    let seawall = var("SEAWALL").map_or(built, PathBuf::from);
    let keys = Keys::of(&seawall).unwrap();
    Programs { seawall, relay, keys }
}

fn rules() -> Vec<Rule> {
    let only = var("SEAWALL_WORLD_ONLY").unwrap_or_default();
    let is_wanted =
        |rule: &Rule| only.is_empty() || only.split(',').any(|name| name == rule.to_string());
    Rule::ALL.into_iter().filter(is_wanted).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_history_of_a_misbehaving_world_breaks_a_promise() {
    let programs = programs();
    if let Ok(seed) = var("SEAWALL_WORLD_SEED") {
        return alone(seed.parse().unwrap(), &programs).await;
    }
    let minutes = var("SEAWALL_WORLD").map_or(MINUTES, |minutes| minutes.parse().unwrap());
    // A short run plays the same seeds each time; a long one goes where nobody was.
    let is_long = minutes > 10.0;
    let (first, count) =
        if is_long { (u64::from(std::process::id()) << 24, u64::MAX >> 1) } else { (1, HISTORIES) };
    // A race that needs a loaded machine is told by a short run and fails a long one: CI must not
    // depend on its neighbours.
    let is_strict = is_long;
    let time = Duration::from_secs_f64(minutes * 60.0);
    let campaign = Campaign {
        first,
        count,
        time,
        at_once: AT_ONCE,
        rules: rules(),
        shrunk: 1,
        told: 1,
        is_strict,
    };
    let report = run(&campaign, &programs, |line| println!("{line}")).await;
    println!("{report}");
    assert!(report.is_well(), "{report}");
}

async fn alone(seed: u64, programs: &Programs) {
    let history = generate::history(seed);
    println!("{history}");
    let record = play(&history, programs).await.unwrap();
    println!("{record}");
    let rules = rules();
    let violations: Vec<_> =
        check(&record).into_iter().filter(|found| rules.contains(&found.rule)).collect();
    assert!(violations.is_empty(), "{violations:#?}");
}
