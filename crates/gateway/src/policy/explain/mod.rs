//! Decides how the policy of a tool is explained: every value, its origin, and the consequences in
//! plain words.
//!
//! The layers are those of `rules`, applied in the same order by the same code (`origin`). `told`
//! gives each value its place in the configuration, `words` answers common questions, `show` writes
//! the explanation. No server is started or asked.

pub(crate) mod find;
mod origin;
mod show;
mod told;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use seawall::{Annotations, Effect, Scope};
use serde_json::{Value, json};

use self::origin::{Origin, TracedPolicy};
use self::told::ExplainedValue;
use crate::catalog::listed::ListedTool;
use crate::config::layer::{PolicyLayer, is_of_breaker};
use crate::config::layers::{PolicyPlace, PolicyRules, ServerRules, agree, fit};
use crate::config::rules::spelled_rate;

/// The tool to explain, and the facts known about it.
#[derive(Clone, Copy)]
pub(crate) struct ExplainQuery<'a> {
    /// The configuration file.
    pub file: Option<&'a Path>,
    /// The policy rules of the configuration.
    pub rules: &'a PolicyRules,
    /// The server's name.
    pub server: &'a str,
    /// The server's own part of the configuration.
    pub of_server: &'a ServerRules,
    /// Whether the server itself listed the tool, or only the catalog cache knows it.
    pub is_heard: bool,
    /// How long a call waits for this server.
    pub wait: Duration,
    /// Whether there is a store, where writes can be queued.
    pub has_store: bool,
    /// The tool's own name.
    pub tool: &'a str,
    /// The tool's definition in its server's list, if known.
    pub listed: Option<&'a ListedTool>,
    /// The environment variables.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// The policy of a tool, explained.
pub(crate) struct ExplainedTool {
    server: String,
    tool: String,
    file: Option<PathBuf>,
    is_listed: bool,
    values: Vec<ExplainedValue>,
    answers: Vec<words::ExplainedAnswer>,
    /// Further remarks.
    pub notes: Vec<String>,
}

/// Explains the policy of a tool.
pub(crate) fn explain(asked: &ExplainQuery<'_>) -> ExplainedTool {
    let (traced, ignored) = trace(asked);
    let mut values: Vec<ExplainedValue> = Vec::new();
    for ((key, value), origin) in traced.values().into_iter().zip(&traced.origins) {
        let dropped = ignored.iter().find(|(of, ..)| *of == key);
        let said = asked.told(key, value, *origin);
        values.push(match dropped {
            None => said,
            Some((_, dropped, why)) => said.without(dropped.clone(), why, |key, value| match key {
                // The steps that are left of a list still come from where the list was written.
                "fallback" | "retry.max" | "breaker.max_cooldown" | "loop.repeats" => {
                    asked.told(key, value, *origin)
                }
                "attempt_timeout" => asked.told(key, value, Origin::BuiltIn),
                _ => asked.told(key, value, Origin::OfEffect(traced.policy.effect)),
            }),
        });
        if key == "client_timeout" {
            values.push(asked.wait());
        }
    }
    share_breaker(asked, &traced, &mut values);
    let policy = &asked.of_server.policy;
    let slots = policy.slots.map_or(Value::Null, |slots| json!(slots.concurrency));
    let rate = policy.rate.as_ref().map_or(Value::Null, |rate| json!(spelled_rate(rate)));
    values.extend([asked.of_server("concurrency", slots), asked.of_server("rate", rate)]);
    values.push(asked.caller_rate());
    let mut explained = ExplainedTool {
        server: asked.server.to_owned(),
        tool: asked.tool.to_owned(),
        file: asked.file.map(Path::to_owned),
        is_listed: asked.listed.is_some(),
        values,
        answers: Vec::new(),
        notes: Vec::new(),
    };
    explained.answers = words::answers(asked, &traced, &explained);
    let says_something =
        asked.listed.is_some_and(|listed| listed.hints.annotations != Annotations::default());
    if asked.of_server.distrust_annotations && says_something {
        let why = match asked.is_heard {
            true => "its server is not trusted (trust_annotations = false)",
            false => "its server was not heard yet, only remembered",
        };
        explained
            .notes
            .push(format!("{why}: its annotations may forbid repeats, never allow them"));
    }
    explained
}

/// The policy with the origin of each value, resolved as `ListedTool::decide` does. Settings that
/// have no effect are returned with it: key, value, and the reason.
fn trace<'a>(
    asked: &ExplainQuery<'a>,
) -> (TracedPolicy<'a>, Vec<(&'static str, Value, &'static str)>) {
    let ExplainQuery { rules, server, of_server, tool, .. } = *asked;
    let listed = asked.listed.cloned().unwrap_or_default();
    let known = rules.known(server, of_server, tool, listed.hints);
    let mut traced = TracedPolicy::built_in(rules, &known);
    for (place, layer) in rules.layers(server, of_server, tool, traced.policy.kind) {
        traced.lay(place, layer);
    }
    // `fit` drops values that cannot hold for this tool; comparing before and after finds them.
    let said = traced.values();
    fit(&mut traced.policy);
    let dropped =
        said.into_iter().zip(traced.values()).filter(|((_, said), (_, holds))| said != holds);
    let ignored = dropped
        .map(|((key, said), (_, holds))| {
            (key, without(said, &holds), why_not(key, traced.policy.effect))
        })
        .collect();
    listed.name_items(&mut traced.policy);
    (traced, ignored)
}

/// The items of a list that are missing in the other list; any other value unchanged.
fn without(said: Value, holds: &Value) -> Value {
    match (said, holds) {
        (Value::Array(said), Value::Array(holds)) => {
            said.into_iter().filter(|step| !holds.contains(step)).collect()
        }
        (said, _) => said,
    }
}

fn why_not(key: &str, effect: Effect) -> &'static str {
    match key {
        "attempt_timeout" => "the whole call has less time",
        "retry.max" | "breaker.max_cooldown" => "the first time is longer",
        "loop.repeats" => "the window has fewer calls",
        "hedge" if effect == Effect::ReadOnly => "the attempt has less time",
        "cache.ttl" => {
            "only tools that read are answered from a copy; a write has to reach its server"
        }
        "hedge" => "only tools that read get a second attempt; a write could act twice",
        _ => {
            "an old answer helps only who reads, and only what writes and does not destroy can wait"
        }
    }
}

/// Replaces a tool's breaker values by those of the shared breaker, if it shares one.
fn share_breaker(
    asked: &ExplainQuery<'_>,
    traced: &TracedPolicy<'_>,
    values: &mut [ExplainedValue],
) {
    let (rules, of_server) = (asked.rules, asked.of_server);
    let layers: &[(PolicyPlace<'_>, &PolicyLayer)] = match traced.policy.scope {
        _ if traced.policy.breaker.is_none() => return,
        Scope::Tool => return,
        Scope::Server => {
            &[(PolicyPlace::Defaults, &rules.defaults), (PolicyPlace::Server, &of_server.layer)]
        }
        Scope::Global => &[(PolicyPlace::Defaults, &rules.defaults)],
    };
    let built_in =
        seawall::Policy { breaker: Some(of_server.policy.shared.clone()), ..traced.policy.clone() };
    let mut shared = TracedPolicy::of(built_in, vec![Origin::BuiltIn; traced.origins.len()]);
    for (place, layer) in layers {
        shared.lay(*place, layer);
    }
    // A breaker that is off in a shared layer is off for each tool; tools that have one share the
    // built-in breaker.
    shared.policy.breaker.get_or_insert_default();
    agree(&mut shared.policy);
    let why = "the breaker is shared, and set where all who share it are meant";
    for ((key, value), origin) in shared.values().into_iter().zip(&shared.origins) {
        let is_shared = is_of_breaker(key);
        let Some(told) = values.iter_mut().find(|told| told.key == key).filter(|_| is_shared)
        else {
            continue;
        };
        let holds = asked.told(key, value, *origin);
        let is_said = told.from == "config" && told.value != holds.value;
        *told = if is_said {
            told.clone().without(told.value.clone(), why, |_, _| holds)
        } else {
            holds
        };
    }
}

impl ExplainedTool {
    fn value(&self, key: &str) -> Option<&ExplainedValue> {
        self.values.iter().find(|told| told.key == key)
    }
}
