//! Decides how the script of `seawall chaos` is spelled: which faults strike which calls, drawn
//! from which seed.

use std::path::Path;

use seawall_demo::faults::{Fault, FaultPlan, ListFault, Strike};
use seawall_demo::faulty::TOOLS;

use super::problem::Problems;
use super::tree::ConfigField;
use super::{duration, source, suggest, toml};
use crate::config::policy::value::one_of;

const KEYS: [&str; 3] = ["seed", "list", "faults"];
const FAULT_KEYS: [&str; 7] =
    ["fault", "percent", "tool", "attempts", "delay", "retry_after", "status"];

/// The faults of calls, by the word that a script has for each.
const FAULTS: [(&str, Fault); 15] = [
    ("hang", Fault::Hang),
    ("slow", Fault::Slow),
    ("crash_before", Fault::DieBefore),
    ("crash_after", Fault::DieAfter),
    ("cut_off", Fault::Reset),
    ("throttled", Fault::Throttled),
    ("throttled_for", Fault::ThrottledFor),
    ("unavailable", Fault::Unavailable),
    ("expired", Fault::Expired),
    ("lost_session", Fault::Forgotten),
    ("noise", Fault::Noise),
    ("tool_error", Fault::Soft),
    ("refused", Fault::Refused),
    ("rpc_error", Fault::Broken),
    ("disguised", Fault::Disguised),
];

/// The faults of the tool list.
const LISTS: [(&str, ListFault); 3] =
    [("empty", ListFault::Empty), ("bad_schema", ListFault::BadSchema), ("hang", ListFault::Hang)];

/// The script that `seawall chaos` plays if it is given none.
pub(crate) const DEFAULT: &str = include_str!("chaos_script.toml");

/// The longest `Retry-After` of a script, in seconds.
const LONGEST_WAIT: u32 = 3600;

/// Reads the script in a file.
pub(crate) fn load(path: &Path) -> Result<FaultPlan, Problems> {
    let mut problems = Problems::default();
    let text = problems.keep(source::read(path)).map(|file| file.text);
    let plan = text.and_then(|text| parse(&text, &mut problems));
    problems.in_file(path).finish(plan)
}

/// The default script.
pub(crate) fn default() -> Result<FaultPlan, Problems> {
    let mut problems = Problems::default();
    let plan = parse(DEFAULT, &mut problems);
    problems.finish(plan)
}

fn parse(text: &str, problems: &mut Problems) -> Option<FaultPlan> {
    let root = toml::parse(text, problems)?;
    let mut plan = FaultPlan { seed: 1, ..FaultPlan::default() };
    for (key, value) in ConfigField::root(&root).entries(problems) {
        match key {
            "seed" => plan.seed = problems.keep(value.count()).map_or(plan.seed, u64::from),
            "list" => plan.list = problems.keep(one_of(&value, &LISTS)),
            "faults" => plan.strikes = strikes(&value, problems),
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    Some(plan)
}

fn strikes(list: &ConfigField<'_>, problems: &mut Problems) -> Vec<Strike> {
    let items = list.items(problems);
    let strikes: Vec<Strike> = items.iter().filter_map(|entry| strike(entry, problems)).collect();
    // Each call is struck at most once, so the shares of what can strike one tool are parts of one
    // hundred.
    let of_tool = |name: &str| -> u64 {
        let hits = strikes.iter().filter(|one| one.tool.as_deref().is_none_or(|only| only == name));
        hits.map(|one| one.percent).sum()
    };
    if let Some((name, sum)) =
        TOOLS.iter().map(|(name, ..)| (*name, of_tool(name))).find(|(_, sum)| *sum > 100)
    {
        let text = format!(
            "strike {sum} of a hundred calls of {name}; at most one fault strikes a call, so lower percent until they are 100"
        );
        problems.push(list.place.problem(text));
    }
    strikes
}

fn strike(entry: &ConfigField<'_>, problems: &mut Problems) -> Option<Strike> {
    let before = problems.count();
    let mut strike = Strike::any(Fault::Slow, 0);
    let tools = TOOLS.map(|(name, ..)| (name, name));
    for (key, value) in entry.entries(problems) {
        match key {
            "fault" => {
                strike.fault = problems.keep(one_of(&value, &FAULTS)).unwrap_or(strike.fault)
            }
            "percent" => {
                strike.percent = problems.keep(value.whole(1, 100)).unwrap_or_default().into()
            }
            "tool" => strike.tool = problems.keep(one_of(&value, &tools)).map(str::to_owned),
            "attempts" => strike.attempts = problems.keep(value.whole(1, u32::MAX)),
            "delay" => strike.delay = problems.keep(duration::read(&value)),
            "retry_after" => {
                let seconds = problems.keep(value.whole(0, LONGEST_WAIT));
                strike.retry_after = seconds.map(u64::from);
            }
            "status" => {
                let status = problems.keep(value.whole(500, 599));
                strike.status = status.and_then(|status| u16::try_from(status).ok());
            }
            _ => problems.push(value.place.problem(suggest::unknown(key, &FAULT_KEYS))),
        }
    }
    for key in ["fault", "percent"] {
        if entry.is_table() && !entry.has(key) {
            problems.push(entry.place.problem(format!("needs {key}")));
        }
    }
    // Without a mistake above, what the fault is is known.
    if problems.count() == before {
        check_fit(entry, strike.fault, problems);
    }
    (problems.count() == before).then_some(strike)
}

/// Reports keys that mean nothing to the fault: the user meant something by them.
fn check_fit(entry: &ConfigField<'_>, fault: Fault, problems: &mut Problems) {
    let fits = |key: &str| match key {
        "delay" => fault == Fault::Slow,
        "retry_after" => matches!(fault, Fault::ThrottledFor | Fault::Unavailable),
        _ => fault == Fault::Unavailable,
    };
    for (key, owners) in [
        ("delay", "slow"),
        ("retry_after", "throttled_for and unavailable"),
        ("status", "unavailable"),
    ] {
        if let Some(value) = entry.find(key).filter(|_| !fits(key)) {
            problems.push(value.place.problem(format!("is for {owners} only; remove it")));
        }
    }
}
