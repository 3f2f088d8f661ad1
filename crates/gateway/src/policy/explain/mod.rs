//! How a tool is treated and why: every value of its policy, where it comes from, and what follows
//! in plain words.
//!
//! The layers are those of `rules`, laid in the same order by the same code (`origin`); `told`
//! gives each value its place, `words` answers what people ask, `show` writes it down. Nothing is
//! started, nothing is asked.

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
use crate::config::layers::{PolicyPlace, PolicyRules, ServerRules, fit};
use crate::config::rules::spelled_rate;

/// Of which tool, and what is known.
#[derive(Clone, Copy)]
pub(crate) struct ExplainQuery<'a> {
    /// The file that all of it was read from.
    pub file: Option<&'a Path>,
    /// What the configuration says.
    pub rules: &'a PolicyRules,
    /// The server's name.
    pub server: &'a str,
    /// What the configuration says of the server.
    pub of_server: &'a ServerRules,
    /// Whether the server itself listed the tool, or was only remembered.
    pub is_heard: bool,
    /// How long a call waits for this server.
    pub wait: Duration,
    /// Whether there is a store, where calls can wait.
    pub has_store: bool,
    /// The tool's own name.
    pub tool: &'a str,
    /// What its server says of it, if that is known.
    pub listed: Option<&'a ListedTool>,
    /// The environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
}

/// How a tool is treated, and why.
pub(crate) struct ExplainedTool {
    server: String,
    tool: String,
    file: Option<PathBuf>,
    is_listed: bool,
    values: Vec<ExplainedValue>,
    answers: Vec<words::ExplainedAnswer>,
    /// What else is to be known.
    pub notes: Vec<String>,
}

/// Says how a tool is treated, and why.
pub(crate) fn explain(asked: &ExplainQuery<'_>) -> ExplainedTool {
    let (traced, ignored) = trace(asked);
    let mut values: Vec<ExplainedValue> = Vec::new();
    for ((key, value), origin) in traced.values().into_iter().zip(&traced.origins) {
        let dropped = ignored.iter().find(|(of, ..)| *of == key);
        let said = asked.told(key, value, *origin);
        values.push(match dropped {
            None => said,
            Some((_, dropped, why)) => said.without(dropped.clone(), why, |key, value| match key {
                // What is left of a list is still said there.
                "fallback" => asked.told(key, value, *origin),
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

/// The policy with the origin of each value, as `Listed::decide` resolves it.
/// What is said and does not hold is given with it: its key, what was said, and why it does not.
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

/// Of a list, what is not on the other.
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

/// A breaker that is shared is as those who share it have it.
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
    let mut shared = TracedPolicy {
        policy: seawall::Policy {
            breaker: Some(of_server.policy.shared.clone()),
            ..traced.policy.clone()
        },
        own: traced.own,
        origins: vec![Origin::BuiltIn; traced.origins.len()],
    };
    for (place, layer) in layers {
        shared.lay(*place, layer);
        // One that is off there is off for each tool; those that have one share the built-in one.
        shared.policy.breaker.get_or_insert_default();
    }
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
