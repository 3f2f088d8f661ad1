//! Decides what one place of the file says about policies: `[defaults]`, `[kinds.K]`,
//! `[servers.S.policy]`, `[tools."S/T"]`.
//!
//! `keys` describes every key once; `value`, `steps` and `tool_errors` are the types of their
//! values. Every key and value is checked here, where its line is known; so is what is said as a
//! whole, laid over a tool that reads.

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

/// Reads what one table says.
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

/// Takes over what stands under one key; `written` is its name where it stands, and in which table.
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

/// What a tool that only reads would get: whatever is out of bounds is told with its name.
fn check(layer: &PolicyLayer, table: &ConfigField<'_>, problems: &mut Problems) {
    let effect = layer.effect().unwrap_or(Effect::ReadOnly);
    let facts = ToolFacts { kind: layer.kind(), effect: Some(effect), ..ToolFacts::named("tool") };
    let mut policy = Preset::Default.policy(&facts, &Tiers::default());
    layer.apply(&mut policy, &mut GatewayPolicy::default());
    if layer.effect().is_none() {
        // Which of these steps a tool can take is seen when its effect is known.
        policy.fallback.retain(|step| !matches!(step, Fallback::Queue));
    }
    // So is which limit is the shorter one, unless both stand here.
    if !layer.says("timeout") {
        policy.timeout = duration::LONGEST;
    }
    if !layer.says("timeout") && !layer.says("attempt_timeout") {
        policy.hedge = policy
            .hedge
            .filter(|hedge| !matches!(hedge, HedgePolicy::After(delay) if !delay.is_zero()));
    }
    if let Err(invalid) = policy.validate() {
        problems.push(table.place.problem(invalid.to_string()));
    }
}

/// A layer that says what a file would.
#[cfg(test)]
pub(crate) fn layer(written: &serde_json::Value) -> PolicyLayer {
    let node = super::json::parse(&written.to_string()).unwrap();
    read(&ConfigField::root(&node), &mut Problems::default())
}
