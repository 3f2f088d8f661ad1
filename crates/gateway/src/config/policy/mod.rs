//! Decides how one policy table is read: `[defaults]`, `[kinds.K]`, `[servers.S.policy]`,
//! `[tools."S/T"]`.
//!
//! `keys` describes every key once; `value`, `steps` and `tool_errors` are the types of their
//! values. Every value is checked by its type where it is read; then the table as a whole is, as it
//! would apply to a tool that reads. All mistakes are told, each with the line of its own key.

pub(crate) mod key;
pub(crate) mod keys;
mod steps;
mod tool_errors;
pub(crate) mod value;

use seawall::{Effect, Fallback, HedgePolicy, Invalid, Policy, Preset, Tiers, ToolFacts};

use super::duration;
use super::problem::{ConfigPlace, Problems};
use super::suggest;
use super::tree::ConfigField;
use crate::config::layer::{GatewayPolicy, PolicyLayer};
use crate::config::layers::{agree_backoff, agree_cooldown};

/// Reads one policy table.
pub(super) fn read(table: &ConfigField<'_>, problems: &mut Problems) -> PolicyLayer {
    let mut layer = PolicyLayer::default();
    for (name, field) in table.entries(problems) {
        if keys::TABLES.iter().any(|(table, _)| *table == name) {
            for (inner, field) in field.entries(problems) {
                let full = format!("{name}.{inner}");
                say(&mut layer, &full, (inner, Some(name)), &field, problems);
            }
        } else {
            say(&mut layer, name, (name, None), &field, problems);
        }
    }
    check(&layer, table, problems);
    layer
}

/// Reads the value of one key; `written` is the key's name as it stands in the file, and its table.
fn say(
    layer: &mut PolicyLayer,
    full: &str,
    written: (&str, Option<&str>),
    field: &ConfigField<'_>,
    problems: &mut Problems,
) {
    match keys::find(full) {
        Some(key) => key.read(field, problems).into_iter().for_each(|setting| layer.say(setting)),
        None => {
            let known = keys::known(written.1);
            problems.push(field.place.problem(suggest::unknown(written.0, &known)));
        }
    }
}

/// Checks how the values of a table fit together, each of which is within its own bounds. The value
/// that does not fit is reported under its own key and left out, until the others fit.
fn check(layer: &PolicyLayer, table: &ConfigField<'_>, problems: &mut Problems) {
    // A switch hides the values beside it from the policy, and not from whoever reads the file.
    let mut layer = layer.without_switches();
    loop {
        let policy = of_a_reader(&layer);
        let Err(invalid) = policy.validate() else { return };
        let Some(key) = blamed(&layer, &invalid.field) else {
            return problems.push(table.place.problem(invalid.to_string()));
        };
        let place = place(table, key);
        match key {
            "fallback" => problems.append(steps_that_do_not_fit(&policy, table, &invalid)),
            "breaker.max_cooldown" => {
                problems.push(place.problem("must not be shorter than cooldown"));
            }
            "loop.window" => {
                problems.push(place.problem(format!(
                    "must not be below repeats, which is {}",
                    policy.loops.repeats
                )))
            }
            _ => problems.push(place.problem(invalid.problem)),
        }
        layer = layer.without(key);
    }
}

/// The policy that a tool with these settings would get if it reads.
fn of_a_reader(layer: &PolicyLayer) -> Policy {
    let effect = layer.effect().unwrap_or(Effect::ReadOnly);
    let facts = ToolFacts { kind: layer.kind(), effect: Some(effect), ..ToolFacts::named("tool") };
    let mut policy = Preset::Default.policy(&facts, &Tiers::default());
    layer.apply(&mut policy, &mut GatewayPolicy::default());
    if layer.effect().is_none() {
        // Only the tool's effect decides whether a call may be queued, and it is not known here.
        policy.fallback.retain(|step| !matches!(step, Fallback::Queue));
    }
    // Limits are compared only if both are in this table; the other one may come from elsewhere.
    if !layer.says("timeout") {
        policy.timeout = duration::LONGEST;
    }
    if !layer.says("timeout") && !layer.says("attempt_timeout") {
        policy.hedge = policy.hedge.filter(|hedge| !matches!(hedge, HedgePolicy::After(_)));
    }
    // Of two values of which this place sets only one, the other may stand elsewhere.
    let sets = |one, other| layer.says(one) && layer.says(other);
    if !sets("retry.base", "retry.max") {
        agree_backoff(&mut policy);
    }
    if !sets("breaker.cooldown", "breaker.max_cooldown") {
        agree_cooldown(&mut policy);
    }
    policy
}

/// The key of this layer whose value makes a field of the policy wrong.
fn blamed(layer: &PolicyLayer, field: &str) -> Option<&'static str> {
    let keys: &[&str] = match field {
        "breaker.cooldown.max" => &["breaker.max_cooldown"],
        "loop.repeats" => &["loop.repeats", "loop.window"],
        field if field.starts_with("hedge") => &["hedge"],
        field if field.starts_with("tool_errors") => &["tool_errors"],
        field => &[field],
    };
    let said = keys.iter().find(|key| layer.says(key))?;
    keys::find(said).map(|key| key.name)
}

/// The place of a key in a policy table.
fn place(table: &ConfigField<'_>, key: &str) -> ConfigPlace {
    let found = match key.split_once('.') {
        Some((of, key)) => table.find(of).and_then(|of| of.find(key)),
        None => table.find(key),
    };
    found.map_or_else(|| table.place.clone(), |field| field.place)
}

/// The problems of all steps that a tool with this policy cannot take.
fn steps_that_do_not_fit(policy: &Policy, table: &ConfigField<'_>, whole: &Invalid) -> Problems {
    let (mut problems, list) = (Problems::default(), table.find("fallback"));
    let items = list.iter().flat_map(|list| list.items(&mut Problems::default()));
    for (item, step) in items.zip(&policy.fallback) {
        let alone = Policy { fallback: vec![step.clone()], ..policy.clone() };
        if let Err(invalid) = alone.validate() {
            problems.push(item.place.problem(invalid.problem));
        }
    }
    if problems.count() == 0 {
        problems.push(place(table, "fallback").problem(whole.problem.clone()));
    }
    problems
}

/// The layer that a file with this content would give.
#[cfg(test)]
pub(crate) fn layer(written: &serde_json::Value) -> PolicyLayer {
    let node = super::json::parse(&written.to_string()).unwrap();
    read(&ConfigField::root(&node), &mut Problems::default())
}
