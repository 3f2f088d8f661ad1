//! Makes a failing history smaller: drops what is not needed for the same rule to be violated.

use futures_util::StreamExt;

use super::check::{Rule, Violation, check};
use super::plan::{Face, History, Way, What};
use super::play::{Programs, play};

/// How many rounds of smaller histories are tried.
const ROUNDS: usize = 12;
/// How many are played at once.
const AT_ONCE: usize = 8;

/// The smallest history that was found to violate the rule, and what was seen of it then.
pub async fn shrink(
    history: &History,
    rule: Rule,
    programs: &Programs,
) -> Option<(History, Violation)> {
    // Real time makes no two plays alike: the whole is played a few times before it is believed to
    // be well.
    let (mut best, mut seen) =
        first_that_fails(vec![history.clone(); 5], 1, rule, programs).await?;
    for _ in 0..ROUNDS {
        match first_that_fails(smaller(&best), AT_ONCE, rule, programs).await {
            Some(found) => (best, seen) = found,
            None => break,
        }
    }
    Some((best, seen))
}

/// The first of several histories, in their order, that violates the rule; some are played at once.
async fn first_that_fails(
    all: Vec<History>,
    at_once: usize,
    rule: Rule,
    programs: &Programs,
) -> Option<(History, Violation)> {
    let plays = all.into_iter().map(|history| async move {
        let violation = fails(&history, rule, programs).await?;
        Some((history, violation))
    });
    let plays = futures_util::stream::iter(plays).buffered(at_once).filter_map(std::future::ready);
    std::pin::pin!(plays).next().await
}

async fn fails(history: &History, rule: Rule, programs: &Programs) -> Option<Violation> {
    let record = play(history, programs).await.ok()?;
    check(&record).into_iter().find(|violation| violation.rule == rule)
}

/// Histories with one thing less, the largest steps first.
fn smaller(history: &History) -> Vec<History> {
    let mut all = Vec::new();
    let changed = |change: &dyn Fn(&mut History)| {
        let mut copy = history.clone();
        change(&mut copy);
        copy
    };
    if history.steps.len() > 1 {
        all.extend(
            (0..history.steps.len()).map(|place| changed(&|copy| _ = copy.steps.remove(place))),
        );
    }
    all.extend(unused_client(history));
    all.extend(unused_server(history));
    for (place, step) in history.steps.iter().enumerate() {
        let What::Intend(intent) = &step.what else { continue };
        let with = |change: &dyn Fn(&mut super::plan::Intent)| {
            changed(&|copy: &mut History| {
                if let What::Intend(intent) = &mut copy.steps[place].what {
                    change(intent);
                }
            })
        };
        if intent.twin.is_some() {
            all.push(with(&|intent| intent.twin = None));
        }
        if intent.rounds.len() > 1 {
            all.extend(
                (0..intent.rounds.len())
                    .map(|round| with(&|intent| _ = intent.rounds.remove(round))),
            );
        }
        if intent.fates.len() > 1 {
            all.extend(
                (0..intent.fates.len()).map(|fate| with(&|intent| _ = intent.fates.remove(fate))),
            );
        }
        for round in (0..intent.rounds.len()).filter(|round| intent.rounds[*round].times > 1) {
            all.push(with(&|intent| intent.rounds[round].times -= 1));
        }
    }
    all
}

/// Without the last client, if no step needs it.
fn unused_client(history: &History) -> Option<History> {
    let last = history.clients.len().checked_sub(1).filter(|last| *last > 0)?;
    let needs = history.steps.iter().any(|step| match &step.what {
        What::Intend(intent) => intent.client == last || intent.twin == Some(last),
        What::List(client) | What::Reconnect(client) | What::KillWrapper(client) => *client == last,
        _ => false,
    });
    let mut copy = history.clone();
    copy.clients.pop();
    (!needs).then_some(copy)
}

/// Without the last server, if nobody needs it.
fn unused_server(history: &History) -> Option<History> {
    let last = history.servers.len().checked_sub(1).filter(|last| *last > 0)?;
    let needs = history.steps.iter().any(|step| match &step.what {
        What::Intend(intent) => intent.server == last,
        What::Trouble(server, _) => *server == last,
        _ => false,
    });
    let is_wrapped = history.clients.iter().any(|client| client.way == Way::Run(last));
    let mut copy = history.clone();
    copy.servers.pop();
    debug_assert!(!is_wrapped || history.servers[last].face == Face::Stdio);
    (!needs && !is_wrapped).then_some(copy)
}
