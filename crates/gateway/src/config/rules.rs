//! Decides the file's policy settings as a whole: preset, timeouts, layers, and the form of failure
//! messages.

use seawall::{BulkheadPolicy, Preset, Rate, Scope, TextStyle};

use super::problem::{Problem, Problems};
use super::reconnect::some_time;
use super::tree::{ConfigField, ConfigString};
use super::{duration, policy, suggest};
use crate::config::layer::PolicyLayer;
use crate::config::layers::{PolicyRules, ServerRules};
use crate::config::policy::value::{KINDS, named, one_of};

/// The keys [`set`] knows.
pub(super) const KEYS: [&str; 7] =
    ["preset", "timeouts", "caller_rate", "defaults", "kinds", "tools", "messages"];
/// A larger count is no limit in practice.
const MOST_CALLS: u32 = 999_999_999;
/// The keys [`set_server`] knows.
pub(super) const SERVER_KEYS: [&str; 5] =
    ["trust_annotations", "concurrency", "rate", "hint", "policy"];

/// Applies one setting; false if `key` is unknown.
pub(super) fn set(
    rules: &mut PolicyRules,
    key: &str,
    value: &ConfigField<'_>,
    problems: &mut Problems,
) -> bool {
    match key {
        "preset" => {
            let known = [
                ("default", Preset::Default),
                ("blog", Preset::Blog),
                ("gitnexus", Preset::Gitnexus),
                ("caipe", Preset::Caipe),
            ];
            rules.preset = problems.keep(one_of(value, &known)).unwrap_or_default();
        }
        "timeouts" => timeouts(rules, value, problems),
        "caller_rate" => rules.caller_rate = problems.keep(rate(value)),
        "defaults" => rules.defaults = policy::read(value, problems),
        "kinds" => {
            for (name, field) in value.entries(problems) {
                match named(&KINDS, name) {
                    Some(kind) => {
                        if let Some(again) = field.find("kind") {
                            problems.push(
                                again.place.problem("the table's own name is the kind; remove it"),
                            );
                        }
                        rules.kinds.push((kind, of_some_tools(&field, problems)));
                    }
                    None => {
                        let known = KINDS.map(|(name, _)| name);
                        problems.push(field.place.problem(suggest::unknown(name, &known)));
                    }
                }
            }
        }
        "tools" => tools(rules, value, problems),
        "messages" => messages(rules, value, problems),
        _ => return false,
    }
    true
}

fn timeouts(rules: &mut PolicyRules, table: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in table.entries(problems) {
        let tiers = &mut rules.tiers;
        match key {
            "quick" => tiers.quick = problems.keep(some_time(&value)).unwrap_or(tiers.quick),
            "heavy" => tiers.heavy = problems.keep(some_time(&value)).unwrap_or(tiers.heavy),
            "heavy_tools" => {
                let names = value.texts(problems).into_iter().map(|ConfigString { text, .. }| text);
                tiers.heavy_tools = Some(names.collect());
            }
            _ => problems.push(
                value.place.problem(suggest::unknown(key, &["quick", "heavy", "heavy_tools"])),
            ),
        }
    }
}

/// Plain names are nearer than globs, independent of their order in the file.
fn tools(rules: &mut PolicyRules, table: &ConfigField<'_>, problems: &mut Problems) {
    for (pattern, field) in table.entries(problems) {
        if !pattern.contains('/') {
            let text = format!(
                "{pattern:?} names no server; write \"server/tool\", or \"*/{pattern}\" for every server"
            );
            problems.push(field.place.problem(text));
        }
        rules.tools.push((pattern.to_owned(), of_some_tools(&field, problems)));
    }
    rules.tools.sort_by_key(|(pattern, _)| !pattern.contains('*'));
}

/// Reads the settings for some tools of a server. They may share its breaker, but cannot configure
/// the shared breaker from here.
fn of_some_tools(table: &ConfigField<'_>, problems: &mut Problems) -> PolicyLayer {
    let layer = policy::read(table, problems);
    if let Some(scope @ (Scope::Server | Scope::Global)) = layer.scope() {
        let place = if scope == Scope::Server {
            "[servers.NAME.policy] or [defaults]"
        } else {
            "[defaults]"
        };
        only_shared(&layer, table, place, problems);
    }
    layer
}

/// Reports breaker settings beside a shared scope: a shared breaker is configured at the place that
/// covers all tools sharing it.
fn only_shared(layer: &PolicyLayer, table: &ConfigField<'_>, place: &str, problems: &mut Problems) {
    let is_described = layer.describes_breaker() && !layer.switches_breaker_off();
    if let Some(breaker) = table.find("breaker").filter(|_| is_described) {
        problems.push(
            breaker
                .place
                .problem(format!("a shared breaker is set in {place}; keep only its scope here")),
        );
    }
}

fn messages(rules: &mut PolicyRules, table: &ConfigField<'_>, problems: &mut Problems) {
    for (key, value) in table.entries(problems) {
        let messages = &mut rules.messages;
        match key {
            "style" => {
                let known = [("plain", TextStyle::Plain), ("classic", TextStyle::Classic)];
                messages.style = problems.keep(one_of(&value, &known));
            }
            "format" => {
                let known = [("text", false), ("json", true)];
                messages.as_json = problems.keep(one_of(&value, &known));
            }
            "debug" => messages.debug = problems.keep(value.flag()).unwrap_or_default(),
            "debug_on_request" => {
                messages.no_debug_on_request = problems.keep(value.flag()) == Some(false)
            }
            _ => {
                let known = ["style", "format", "debug", "debug_on_request"];
                problems.push(value.place.problem(suggest::unknown(key, &known)));
            }
        }
    }
}

/// Applies one setting of a server; false if `key` is unknown.
pub(super) fn set_server(
    rules: &mut ServerRules,
    key: &str,
    value: &ConfigField<'_>,
    problems: &mut Problems,
) -> bool {
    value.note(key, &mut rules.written);
    match key {
        "trust_annotations" => {
            rules.distrust_annotations = problems.keep(value.flag()) == Some(false)
        }
        "concurrency" => {
            let slots = value.count().map(BulkheadPolicy::new);
            let checked = slots.and_then(|slots| {
                let checked = slots.validate().map(|()| slots);
                checked.map_err(|invalid| value.place.problem(invalid.problem))
            });
            rules.policy.slots = problems.keep(checked);
        }
        "rate" => rules.policy.rate = problems.keep(rate(value)),
        "hint" => {
            rules.policy.hint = problems.keep(value.text()).map(|ConfigString { text, .. }| text)
        }
        "policy" => {
            rules.layer = policy::read(value, problems);
            if rules.layer.scope() == Some(Scope::Global) {
                only_shared(&rules.layer, value, "[defaults]", problems);
            }
        }
        _ => return false,
    }
    true
}

/// Parses `"20/s"`, `"100/m"`, `"1000/h"`.
fn rate(value: &ConfigField<'_>) -> Result<Rate, Problem> {
    let ConfigString { place, text } = value.text()?;
    let unreadable = || {
        place.problem(format!(
            "{text:?} is no rate; write for example \"20/s\", \"100/m\" or \"1000/h\""
        ))
    };
    let (count, unit) = text.split_once('/').ok_or_else(unreadable)?;
    let seconds = match unit.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(unreadable()),
    };
    let digits =
        Some(count.trim()).filter(|count| count.bytes().all(|digit| digit.is_ascii_digit()));
    let count = digits
        .and_then(|count| count.parse().ok())
        .filter(|count| *count <= MOST_CALLS)
        .ok_or_else(unreadable)?;
    let rate = Rate { count, per: std::time::Duration::from_secs(seconds), burst: count };
    rate.validate().map(|()| rate).map_err(|invalid| place.problem(invalid.problem))
}

/// A rate as a config file spells it.
pub(crate) fn spelled_rate(rate: &Rate) -> String {
    let unit = match rate.per.as_secs() {
        1 => "s".to_owned(),
        60 => "m".to_owned(),
        3600 => "h".to_owned(),
        _ => duration::spelled(rate.per),
    };
    format!("{}/{unit}", rate.count)
}
