//! The reference page of the policy keys equals the descriptions in `policy::keys`.
//!
//! `SEAWALL_REFERENCE=write cargo test -p seawall-gateway reference` writes it anew.

use std::fmt::Write as _;

use seawall::{Effect, Kind, Preset, Tiers, ToolFacts};
use serde_json::Value as Json;

use crate::config::layer::GatewayPolicy;
use crate::config::policy::key::PolicyKey;
use crate::config::policy::keys::KEYS;
use crate::config::policy::value::KINDS;

/// A value as people read it.
fn plain(value: &Json) -> String {
    match value {
        Json::Null => "none".to_owned(),
        Json::Array(items) if items.is_empty() => "none".to_owned(),
        Json::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The values that a key takes.
fn values(key: &PolicyKey) -> String {
    let schema = key.schema();
    let bound = |of: &str| plain(&schema[of]);
    match (schema["enum"].as_array(), schema["type"].as_str(), schema["$ref"].as_str()) {
        (Some(words), ..) => {
            let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            words.join(", ")
        }
        (None, Some("integer"), _) => format!("{} to {}", bound("minimum"), bound("maximum")),
        (None, Some("number"), _) if schema["minimum"].is_null() => "above 0, to 1".to_owned(),
        (None, Some("number"), _) => "0 to 1".to_owned(),
        (None, Some("boolean"), _) => "`true`, `false`".to_owned(),
        (None, _, Some("#/$defs/some_time")) => "a time, not zero".to_owned(),
        (None, _, Some("#/$defs/time")) => "a time".to_owned(),
        (None, _, Some(_)) => "`true`, `false`, or a list of patterns".to_owned(),
        (None, Some("array"), _) => "a list of steps".to_owned(),
        (None, ..) => "`\"off\"`, a time, or `\"p1\"` to `\"p99\"`".to_owned(),
    }
}

/// The default of a key: for all tools, or kind by kind.
fn default(key: &PolicyKey) -> String {
    let of_kind = |(name, kind)| {
        let reads = matches!(kind, Kind::Read | Kind::Search | Kind::List);
        let effect = reads.then_some(Effect::ReadOnly);
        let facts = ToolFacts { kind: Some(kind), effect, ..ToolFacts::default() };
        let policy = Preset::Default.policy(&facts, &Tiers::default());
        (name, plain(&key.get(&policy, &GatewayPolicy::default())))
    };
    let defaults = KINDS.map(of_kind);
    match key.name {
        "kind" | "effect" => "by annotation, else by name".to_owned(),
        "timeout" => "`[timeouts]` quick: 60s; heavy: 120s".to_owned(),
        _ if defaults.iter().all(|(_, value)| *value == defaults[0].1) => defaults[0].1.clone(),
        _ => defaults.map(|(kind, value)| format!("{kind}: {value}")).join("; "),
    }
}

fn page() -> String {
    let mut page = String::from(
        "# Policy keys\n\n\
         Every key may stand in `[defaults]`, `[kinds.K]`, `[servers.S.policy]` and `[tools.\"S/T\"]`; the last of\n\
         these that says something wins, key by key. `seawall explain SERVER/TOOL` shows what holds for a tool and\n\
         where each value comes from. A time is a number with its unit: `\"250ms\"`, `\"30s\"`, `\"2m\"`, `\"1h\"`. The\n\
         defaults are those of `preset = \"default\"`, by the tool's kind where they differ.\n\n\
         This page is written by a test from the list that the gateway itself reads\n\
         (`crates/gateway/src/config/policy/keys.rs`).\n",
    );
    let mut heading = "";
    for key in KEYS.iter() {
        if key.heading != heading {
            heading = key.heading;
            write!(
                page,
                "\n## {heading}\n\n| key | values | default | what it means |\n|---|---|---|---|\n"
            )
            .unwrap();
        }
        let (name, doc) = (key.name, key.doc);
        writeln!(page, "| `{name}` | {} | {} | {doc} |", values(key), default(key)).unwrap();
    }
    page
}

#[test]
fn the_reference_of_the_policy_keys_is_what_the_gateway_reads() {
    seawall_testkit::page::is_current("policy-keys.md", &page());
}
