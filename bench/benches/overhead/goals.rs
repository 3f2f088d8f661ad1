//! What the gateway set out to reach. A missed goal is told, never enforced: another machine has
//! other numbers.

use seawall_bench::verdict;

use super::rounds::{Row, SESSIONS};
use super::session::Size;
use super::show;
use super::targets::{AUTHZ, DIRECT, ENVOY, RELAY, REMEMBERED, SEAWALL, TOKEN};

/// Idle memory, in MiB.
const IDLE: f64 = 12.0;
/// Memory under load, in MiB.
const LOADED: f64 = 40.0;
/// A large result may cost so many times what copying it costs.
const TIMES: f64 = 2.0;

/// One line for each goal that can be judged.
pub(crate) fn judge(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    for size in [Size::Small, Size::Large] {
        lines.extend(SESSIONS.iter().flat_map(|sessions| against_envoy(rows, size, *sessions)));
    }
    lines.extend(SESSIONS.iter().flat_map(|sessions| against_the_relay(rows, *sessions)));
    lines.extend(of_authorization(rows));
    lines.extend(memory(rows));
    lines
}

/// A decision costs one round trip and nothing else; one that is remembered costs nothing. A round
/// trip between two processes of this machine is what a direct call takes.
fn of_authorization(rows: &[Row]) -> Vec<String> {
    let of = |target| find(rows, target, Size::Small, 1).map(|row| row.p50);
    let (Some(direct), Some(token)) = (of(DIRECT), of(TOKEN)) else { return Vec::new() };
    let mut lines = Vec::new();
    if let Some(asked) = of(AUTHZ) {
        let added = asked - token;
        let text = format!(
            "1 session: a decision adds {added:.0} µs at p50, one round trip takes {direct:.0}"
        );
        lines.push(verdict(added <= direct, &text));
    }
    if let Some(plain) = of(SEAWALL) {
        lines.push(format!("1 session: a token adds {:.0} µs at p50", token - plain));
    }
    if let Some(remembered) = of(REMEMBERED) {
        let text =
            format!("1 session: a remembered decision adds {:.0} µs at p50", remembered - token);
        lines.push(text);
    }
    lines
}

fn find<'a>(rows: &'a [Row], target: &str, size: Size, sessions: usize) -> Option<&'a Row> {
    rows.iter().find(|row| row.target == target && row.size == size && row.sessions == sessions)
}

/// Not slower than a proxy that knows nothing of MCP.
fn against_envoy(rows: &[Row], size: Size, sessions: usize) -> Vec<String> {
    let found = find(rows, SEAWALL, size, sessions).zip(find(rows, ENVOY, size, sessions));
    let Some((ours, theirs)) = found else { return Vec::new() };
    let load = show::name(size, sessions);
    if sessions == 1 {
        let (our, their) = (ours.added_p50, theirs.added_p50);
        return vec![verdict(
            our <= their,
            &format!("{load}: adds {our:.0} µs at p50, Envoy {their:.0}"),
        )];
    }
    let rate = format!("{load}: {:.0} calls/s, Envoy {:.0}", ours.rate, theirs.rate);
    let mut lines = vec![verdict(ours.rate >= theirs.rate, &rate)];
    if let Some((our, their)) = ours.cpu.zip(theirs.cpu) {
        let text = format!("{load}: {our:.2} s of CPU for 10,000 calls, Envoy {their:.2}");
        lines.push(verdict(our <= their, &text));
    }
    lines
}

/// A large result costs little more than carrying its bytes.
fn against_the_relay(rows: &[Row], sessions: usize) -> Vec<String> {
    let found =
        find(rows, SEAWALL, Size::Large, sessions).zip(find(rows, RELAY, Size::Large, sessions));
    let Some((ours, floor)) = found else { return Vec::new() };
    let load = show::name(Size::Large, sessions);
    let mut lines = Vec::new();
    let mut compare = |what: &str, ours: f64, floor: f64| {
        let times = ours / floor;
        let text =
            format!("{load}: {what} is {times:.2} times the raw relay's, goal at most {TIMES}");
        lines.push(verdict(times <= TIMES, &text));
    };
    if sessions == 1 {
        compare("the time it adds at p50", ours.added_p50, floor.added_p50);
    }
    if let Some((ours, floor)) = ours.cpu.zip(floor.cpu) {
        compare("its CPU", ours, floor);
    }
    lines
}

fn memory(rows: &[Row]) -> Vec<String> {
    let ours = || rows.iter().filter(|row| row.target == SEAWALL);
    let idle = ours().find_map(|row| row.idle);
    let mut lines: Vec<String> = idle
        .map(|idle| verdict(idle <= IDLE, &format!("idle: {idle:.1} MiB, goal at most {IDLE}")))
        .into_iter()
        .collect();
    for size in [Size::Small, Size::Large] {
        let loaded = ours()
            .filter(|row| row.size == size)
            .filter_map(|row| row.memory.map(|memory| (row, memory)));
        if let Some((row, memory)) = loaded.max_by(|(_, one), (_, other)| one.total_cmp(other)) {
            let load = show::name(row.size, row.sessions);
            lines.push(verdict(
                memory <= LOADED,
                &format!("{load}: {memory:.1} MiB, goal at most {LOADED}"),
            ));
        }
    }
    lines
}
