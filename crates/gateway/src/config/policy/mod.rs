//! Decides how one policy table is read: `[defaults]`, `[kinds.K]`, `[servers.S.policy]`,
//! `[tools."S/T"]`.
//!
//! `keys` describes every key once; `value`, `steps` and `tool_errors` are the types of their
//! values. Every key and value is checked here, where its line is known; so is the table as a
//! whole, applied to a tool that reads.

pub(crate) mod key;
pub(crate) mod keys;
mod steps;
mod tool_errors;
pub(crate) mod value;

use seawall::{Effect, Fallback, HedgePolicy, Preset, Tiers, ToolFacts};

use super::duration;
use super::problem::Problems;
use super::suggest;
use super::tree::ConfigField;
use crate::config::layer::{GatewayPolicy, PolicyLayer};
use crate::config::layers::{agree_backoff, agree_cooldown};

/// Reads one policy table.
pub(super) fn read(table: &ConfigField<'_>, problems: &mut Problems) -> PolicyLayer {
    let before = problems.count();
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
    if problems.count() == before {
        check(&layer, table, problems);
    }
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

/// Validates the policy that a read-only tool would get; every value out of bounds is reported by
/// its name.
fn check(layer: &PolicyLayer, table: &ConfigField<'_>, problems: &mut Problems) {
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
        policy.hedge = policy
            .hedge
            .filter(|hedge| !matches!(hedge, HedgePolicy::After(delay) if !delay.is_zero()));
    }
    // Of two values of which this place sets only one, the other may stand elsewhere.
    let sets = |one, other| layer.says(one) && layer.says(other);
    if !sets("retry.base", "retry.max") {
        agree_backoff(&mut policy);
    }
    if !sets("breaker.cooldown", "breaker.max_cooldown") {
        agree_cooldown(&mut policy);
    }
    if let Err(invalid) = policy.validate() {
        problems.push(table.place.problem(invalid.to_string()));
    }
}

/// The layer that a file with this content would give.
#[cfg(test)]
pub(crate) fn layer(written: &serde_json::Value) -> PolicyLayer {
    let node = super::json::parse(&written.to_string()).unwrap();
    read(&ConfigField::root(&node), &mut Problems::default())
}
