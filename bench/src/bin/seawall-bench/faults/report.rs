//! The page: what was measured, how, and what falls short of the goals.

use std::fs;
use std::path::Path;
use std::time::Duration;

use seawall_bench::{Setup, grid, verdict};

use super::arms::{Arm, settings};
use super::chart;
use super::run::Played;
use super::tally::{Tally, percentile};
use super::{scenarios, spread};

/// Where a run comes from.
pub(crate) struct Head {
    pub(crate) machine: String,
    pub(crate) command: String,
    pub(crate) absent: Vec<&'static str>,
    pub(crate) took: Duration,
}

/// All cells of an arm together.
fn sum<'a>(played: impl Iterator<Item = &'a Played>) -> Tally {
    let mut sum = Tally::default();
    played.for_each(|played| sum.add(&played.tally));
    sum
}

fn of_arm(played: &[Played], arm: Arm) -> Tally {
    sum(played.iter().filter(|played| played.arm == arm))
}

/// The whole page.
pub(crate) fn page(head: &Head, arms: &[Arm], played: &[Played], pairs: &[String]) -> String {
    let Head { machine, command, absent, took } = head;
    let absent = if absent.is_empty() { "none".to_owned() } else { absent.join(", ") };
    let seeds =
        spread::seeds(played, |_| true).iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "# Faults: what agents get, with Seawall and without\n\nMade by `{command}` in {:.0} s on {machine}. Seeds: {seeds}. Not \
         installed: {absent}.\n\n{METHOD}\n```toml\n{}```\n\n## All faults together\n\n![How things ended](faults.svg)\n\n{}\n{LEGEND}\n",
        took.as_secs_f64(),
        settings(""),
        overall(arms, played)
    );
    text.push_str(&format!("\n## Goals\n\n```text\n{}\n```\n", goals(played).join("\n")));
    text.push_str(&format!(
        "\n## From seed to seed\n\n{SPREAD}\n{}\n",
        spread::table(arms, played)
    ));
    let parts: Vec<Arm> =
        arms.iter().copied().filter(|arm| arm.name() == "Seawall" || is_part(*arm)).collect();
    let arms = &arms.iter().copied().filter(|arm| !is_part(*arm)).collect::<Vec<Arm>>();
    text.push_str(&format!(
        "\n## Useful answers by fault, %\n\n{}\n",
        by_fault(arms, played, spread::useful)
    ));
    text.push_str(&format!(
        "\n## What each part is worth: useful answers by fault, %\n\n{}\n",
        by_fault(&parts, played, spread::useful)
    ));
    text.push_str(&format!(
        "\n## Writes executed again, by fault\n\n{}\n",
        by_fault(arms, played, duplicates)
    ));
    text.push_str(&format!(
        "\n## Half of the calls took at most, ms\n\n{}\n",
        by_fault(arms, played, p50)
    ));
    text.push_str(&format!(
        "\n## Until a live answer came after the trouble, at most, ms\n\n{}\n",
        by_fault(arms, played, recovery)
    ));
    text.push_str("\n## Two servers, one in trouble\n\n");
    text.push_str(&pairs.iter().map(|line| format!("- {line}.\n")).collect::<String>());
    text.push_str("- F5, an authorization service that never answers: Seawall asks none yet.\n");
    let odd: Vec<String> = played
        .iter()
        .filter(|played| played.arm.name().starts_with("Seawall"))
        .flat_map(|played| {
            let (name, on) = (played.arm.name(), if played.is_web { "HTTP" } else { "stdio" });
            let (scenario, seed) = (played.scenario.name, played.seed);
            played
                .tally
                .oddities
                .iter()
                .map(move |odd| format!("- {name}, {scenario} on {on}, seed {seed}: {odd}\n"))
        })
        .collect();
    eprintln!("{}", odd.concat());
    text
}

const METHOD: &str = "\
A server with eight tools (read, search, list, batch, idempotent write, append with a ledger, slow, large), on stdio and on
HTTP, is well, then has one kind of fault, then is well again. Seven scripted agents use it at the same time: one never repeats
a call; one repeats as often as twelve models were seen to (mcp-chaos); one does the same but heeds what a failure says; one
makes every call five times if it must; one makes 24 calls at a time; one gives up after 250 ms, cancels, and makes the call again,
twice; one does the same and tells nobody that it gave up, as clients with the Python SDK 1.30 do. Everything that can be read was
read once before the trouble. Faults are drawn from the seed by tool and arguments, so all arms meet the same; what was executed is
read from the server's ledger. A direct client starts a dead child again and opens a lost session anew with its next call, which is
kinder than most. All times are a thirtieth of real ones: the 60 s that clients wait are 2 s here, a cool-down of 30 s is 1 s; a
server on HTTP that died is back after 150 ms. Every cell is played with each seed (fastmcp with the first, it takes too much of
the machine). Each cell has a gateway of its own, with the defaults. What it is told is only how long they take here, a thirtieth of
what they are; so a call that is not answered ends when its client gives up too:
";

const LEGEND: &str = "\
All seeds together. `reads`: of what was read before, how much was answered with use; `answerable`: the same without what the server
says no to (a 401, a call that makes no sense), for which nothing may stand in. `queued`: told to be made later. `no answer`: timeout
or lost connection. `duplicates`: writes executed more often than agents wanted; `own`: those of them whose agent called once.
`not made`: queued, and not executed 20 s after the trouble: what was lost on its way is in doubt, and is not sent twice.
`doubts`: failures that say \"may have been executed\" of a write that never arrived at the server. `attempts`: those that
arrived for each useful answer while nothing worked; `wasted`: all of them. `opens`: breakers that opened though nothing was
wrong with the server. `lists`: lists that changed. `lost`: clients without a live answer 6 s after the trouble. Times in ms.";

const SPREAD: &str = "\
The least and the most of the seeds. An arm is behind or ahead of Seawall where their useful answers do not overlap; a difference within
the spread says nothing.
";

fn overall(arms: &[Arm], played: &[Played]) -> String {
    const HEAD: [&str; 19] = [
        "arm",
        "useful %",
        "reads %",
        "answerable %",
        "queued %",
        "failure %",
        "no answer %",
        "false",
        "duplicates",
        "own",
        "not made",
        "doubts",
        "attempts",
        "wasted",
        "opens",
        "lists",
        "lost",
        "p50",
        "p99",
    ];
    let mut lines = vec![HEAD.map(str::to_owned)];
    for arm in arms {
        let tally = of_arm(played, *arm);
        let percent = |part| format!("{:.1}", Tally::percent(part, tally.wanted));
        lines.push([
            arm.name().to_owned(),
            percent(tally.useful),
            format!("{:.2}", tally.reads_percent()),
            format!("{:.2}", tally.answerable_percent()),
            percent(tally.queued),
            percent(tally.failed),
            percent(tally.dark),
            tally.wrong.to_string(),
            tally.duplicates.to_string(),
            tally.own_duplicates.to_string(),
            tally.never_made.to_string(),
            tally.needless_doubts.to_string(),
            format!("{:.2}", tally.attempts_in_outage()),
            tally.wasted.to_string(),
            tally.false_opens.to_string(),
            tally.list_changes.to_string(),
            tally.lost_for_ever.to_string(),
            format!("{:.0}", percentile(&tally.took, 50)),
            format!("{:.0}", percentile(&tally.took, 99)),
        ]);
    }
    grid(&lines)
}

type Figure = fn(&[&Played]) -> String;

fn duplicates(played: &[&Played]) -> String {
    sum(played.iter().copied()).duplicates.to_string()
}

fn p50(played: &[&Played]) -> String {
    format!("{:.0}", percentile(&sum(played.iter().copied()).took, 50))
}

fn recovery(played: &[&Played]) -> String {
    let tally = sum(played.iter().copied());
    let most = percentile(&tally.recovery, 100);
    if tally.lost_for_ever > 0 {
        format!("{} lost", tally.lost_for_ever)
    } else {
        format!("{most:.0}")
    }
}

fn is_part(arm: Arm) -> bool {
    matches!(arm, Arm::Seawall(name, ..) if name != "Seawall")
}

/// A line for each fault and transport, a column for each of these arms.
fn by_fault(arms: &[Arm], played: &[Played], figure: Figure) -> String {
    let line = |first: String, text: &dyn Fn(Arm) -> String| -> Vec<String> {
        [first].into_iter().chain(arms.iter().map(|arm| text(*arm))).collect()
    };
    let mut lines = vec![line("fault".to_owned(), &|arm| arm.name().to_owned())];
    for scenario in &scenarios::ALL {
        for is_web in [false, true] {
            let here = |arm: Arm| {
                let is_it = |it: &&Played| {
                    it.arm == arm && it.scenario.name == scenario.name && it.is_web == is_web
                };
                let here: Vec<&Played> = played.iter().filter(is_it).collect();
                if here.is_empty() { "-".to_owned() } else { figure(&here) }
            };
            if arms.iter().any(|arm| here(*arm) != "-") {
                let on = if is_web { "HTTP" } else { "stdio" };
                lines.push(line(format!("{}, {on}", scenario.name), &here));
            }
        }
    }
    grid(&lines)
}

fn goals(played: &[Played]) -> Vec<String> {
    let ours = || played.iter().filter(|played| played.arm.name() == "Seawall");
    let tally = sum(ours());
    // Where the server says no, no answer of use can exist, so that no number of attempts is few
    // for each.
    let outage = sum(ours().filter(|played| !played.scenario.says_no));
    let (reads, answerable, attempts) =
        (tally.reads_percent(), tally.answerable_percent(), outage.attempts_in_outage());
    let none = |count: u64, what: &str| verdict(count == 0, &format!("{what}: {count}, goal none"));
    vec![
        verdict(
            answerable >= 99.9,
            &format!(
                "reads of use, where a copy, a retry or a second attempt can give one: {answerable:.2} %, goal at least 99.9"
            ),
        ),
        verdict(
            reads >= 99.9,
            &format!("reads of use, over all faults: {reads:.2} %, goal at least 99.9"),
        ),
        none(tally.duplicates, "writes executed again, agents' own repeats included"),
        none(tally.own_duplicates, "writes executed again though their agent called once"),
        none(tally.false_claims, "\"not executed\" of a write that was"),
        none(tally.wrong, "false answers"),
        none(tally.false_opens, "breakers that opened without reason"),
        none(tally.list_changes, "lists that changed"),
        verdict(
            attempts <= 1.25,
            &format!(
                "attempts for each useful answer in an outage (refused, or 503 for long): {attempts:.2}, goal at most 1.25"
            ),
        ),
        none(tally.lost_for_ever, "clients that never recovered"),
    ]
}

/// What people wrote below the numbers begins here, and stays.
const BY_HAND: &str = "\n## What this showed\n";

/// Writes the page and its chart where the evidence is kept.
pub(crate) fn write(text: &str, arms: &[Arm], played: &[Played]) -> Setup<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/evidence");
    let rows: Vec<(&str, Tally)> =
        arms.iter().map(|arm| (arm.name(), of_arm(played, *arm))).collect();
    let old = fs::read_to_string(folder.join("faults.md")).unwrap_or_default();
    let kept =
        old.split_once(BY_HAND).map(|(_, rest)| format!("{BY_HAND}{rest}")).unwrap_or_default();
    fs::write(folder.join("faults.md"), format!("{text}{kept}"))?;
    fs::write(folder.join("faults.svg"), chart::draw(&rows))?;
    Ok(())
}
