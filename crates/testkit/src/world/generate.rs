//! A seed becomes a history. The same seed gives the same history on every machine.

use fastrand::Rng;

use super::plan::{
    Blow, ClientPlan, Effect, Era, Face, Fate, History, Intent, Leave, Manners, Ms, Round,
    ServerPlan, SettingsPlan, Step, Trouble, Way, What,
};

/// How long the steps of a history are spread over.
const LENGTH: Ms = 900;

const QUESTIONS: [&str; 4] =
    ["elicitation/create", "sampling/createMessage", "roots/list", "unknown/question"];

/// Answers that executed the call, and look as if they had not.
const STATUSES: [(u16, &str); 12] = [
    (400, "the possession record was written, but its session log was not"),
    (401, "session of the ledger closed after the write"),
    (403, "request timeout while the audit log was written"),
    (408, ""),
    (409, "conflict after commit"),
    (422, "session"),
    (500, "connection refused by the mail relay"),
    (502, "bad gateway"),
    (503, "try again"),
    (504, "gateway timeout"),
    (
        500,
        "{\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32603,\"message\":\"Session not found\"},\"id\":null}",
    ),
    (200, ""),
];

const ERRORS: [(i64, &str); 5] = [
    (-32603, "database is locked"),
    (-32603, "timeout"),
    (-32602, "no such note"),
    (-32000, "Connection closed"),
    (-32000, "upstream said: session not found"),
];

/// The history of a seed.
pub fn history(seed: u64) -> History {
    let mut chance = Rng::with_seed(seed);
    let servers = servers(&mut chance);
    let clients = clients(&mut chance, &servers);
    let settings = SettingsPlan {
        reconnect: if chance.u8(..4) == 0 { 3_000 } else { 20 },
        on_abandon: if chance.bool() { "cancel" } else { "finish" },
        store: chance.u8(..4) == 0,
        alone: chance.u8(..4) == 0,
    };
    let count = chance.usize(1..=6);
    let mut steps: Vec<Step> =
        (0..count).map(|number| step(&mut chance, number, &servers, &clients)).collect();
    steps.sort_by_key(|step| step.at);
    History { seed, settings, servers, clients, steps }
}

fn servers(chance: &mut Rng) -> Vec<ServerPlan> {
    let one = |chance: &mut Rng| ServerPlan {
        face: if chance.u8(..3) == 0 { Face::Stdio } else { Face::Http },
        era: if chance.u8(..4) == 0 { Era::Modern } else { Era::Legacy },
        shared: chance.u8(..3) == 0,
        slow_start: if chance.u8(..6) == 0 { chance.u64(50..400) } else { 0 },
        names_the_call: chance.bool(),
    };
    (0..chance.usize(1..=2)).map(|_| one(chance)).collect()
}

fn clients(chance: &mut Rng, servers: &[ServerPlan]) -> Vec<ClientPlan> {
    let one = |chance: &mut Rng| {
        let children: Vec<usize> =
            (0..servers.len()).filter(|place| servers[*place].face == Face::Stdio).collect();
        let is_wrapped = !children.is_empty() && chance.u8(..3) == 0;
        ClientPlan {
            era: if chance.u8(..3) == 0 { Era::Modern } else { Era::Legacy },
            way: if is_wrapped {
                Way::Run(children[chance.usize(..children.len())])
            } else {
                Way::Merged
            },
            has_identity: chance.bool(),
            manners: match chance.u8(..4) {
                0 | 1 => Manners::Answers(chance.u64(0..200)),
                2 => Manners::Refuses,
                _ => Manners::Ignores,
            },
        }
    };
    (0..chance.usize(1..=2)).map(|_| one(chance)).collect()
}

fn step(chance: &mut Rng, number: usize, servers: &[ServerPlan], clients: &[ClientPlan]) -> Step {
    let what = match chance.u8(..20) {
        0..=11 => What::Intend(intent(chance, number, servers, clients)),
        12 => What::List(chance.usize(..clients.len())),
        13 => {
            let client = chance.usize(..clients.len());
            let kills = clients[client].way != Way::Merged && chance.bool();
            if kills { What::KillWrapper(client) } else { What::Reconnect(client) }
        }
        14..=18 => What::Trouble(chance.usize(..servers.len()), trouble(chance)),
        _ => {
            let blow = if chance.bool() { Blow::Killed } else { Blow::Terminated };
            What::Blow(blow, chance.u64(0..200))
        }
    };
    Step { at: chance.u64(..LENGTH), what }
}

fn trouble(chance: &mut Rng) -> Trouble {
    match chance.u8(..7) {
        0 => Trouble::Dies,
        1 | 2 => Trouble::Away(chance.u64(100..1_500)),
        3 => Trouble::Hangs(chance.u64(100..1_000)),
        4 => Trouble::Forgets,
        5 => {
            Trouble::ListFails(chance.u64(200..1_000), [200, 403, 404, 500, 503][chance.usize(..5)])
        }
        _ => Trouble::ListChanges,
    }
}

fn intent(
    chance: &mut Rng,
    number: usize,
    servers: &[ServerPlan],
    clients: &[ClientPlan],
) -> Intent {
    let client = chance.usize(..clients.len());
    let server = match clients[client].way {
        Way::Run(server) => server,
        Way::Merged => chance.usize(..servers.len()),
    };
    let fates = (0..chance.usize(1..=2)).map(|_| fate(chance)).collect();
    let rounds = rounds(chance);
    let effect = if chance.u8(..4) == 0 { Effect::Read } else { Effect::Write };
    let is_merged = |place: &usize| *place != client && clients[*place].way == Way::Merged;
    let others: Vec<usize> = (0..clients.len()).filter(is_merged).collect();
    let has_twin = clients[client].way == Way::Merged && !others.is_empty() && chance.u8(..6) == 0;
    let twin = has_twin.then(|| others[chance.usize(..others.len())]);
    Intent { name: format!("i{number}"), client, twin, server, effect, fates, rounds }
}

fn fate(chance: &mut Rng) -> Fate {
    match chance.u8(..25) {
        0..=2 => Fate::Answer,
        3..=9 => Fate::Late(chance.u64(100..900)),
        10 => Fate::Twice,
        11 => Fate::WrongId,
        12..=14 => {
            let (status, body) = STATUSES[chance.usize(..STATUSES.len())];
            Fate::Status(status, body)
        }
        15 => {
            let (code, text) = ERRORS[chance.usize(..ERRORS.len())];
            Fate::Error(code, text)
        }
        16 => Fate::ToolError(
            ["no such note", "GitHub API: 503 Service Unavailable"][chance.usize(..2)],
        ),
        17 => Fate::Garbage,
        18 => Fate::Cut,
        19 => Fate::Hang,
        20 => Fate::Ask(QUESTIONS[chance.usize(..QUESTIONS.len())]),
        21 => Fate::AskAndHang(QUESTIONS[chance.usize(..QUESTIONS.len())]),
        22 => Fate::Forget,
        23 => Fate::Large(chance.usize(1_000..1_500_000)),
        _ => Fate::Refuse,
    }
}

fn rounds(chance: &mut Rng) -> Vec<Round> {
    let count = chance.usize(1..=3);
    let one = |place: usize, chance: &mut Rng| {
        let leaves = match chance.u8(..3) {
            0 => Leave::Silently,
            1 => Leave::Dropping,
            _ => Leave::Cancelling,
        };
        let is_last = place + 1 == count;
        Round {
            times: if chance.u8(..4) == 0 { chance.usize(2..=3) } else { 1 },
            leaves: (!is_last).then(|| (chance.u64(50..400), leaves)),
            reconnects: place > 0 && chance.u8(..6) == 0,
            hastes: chance.u8(..6) == 0,
            reads_slowly: chance.u8(..8) == 0,
        }
    };
    (0..count).map(|place| one(place, chance)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_history_each_time_and_another_seed_another() {
        let told = |seed| history(seed).to_string();
        assert_eq!(told(7), told(7));
        assert_ne!(told(7), told(8));
    }
}
