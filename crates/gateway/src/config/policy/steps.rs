//! Decides how `fallback` is read: the steps to take when a tool fails, in their order.

use seawall::Fallback;
use serde_json::{Value as Json, json};

use super::value::ValueType;
use crate::config::problem::Problems;
use crate::config::suggest;
use crate::config::tree::{ConfigField, ConfigString};

/// The steps of a fallback chain.
pub(super) struct Steps;

impl ValueType for Steps {
    type Value = Vec<Fallback>;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<Vec<Fallback>> {
        Some(fallback(field, problems))
    }

    fn spell(&self, value: &Vec<Fallback>) -> Json {
        value.iter().map(spelled).collect()
    }

    fn schema(&self) -> Json {
        json!({"type": "array", "items": {"$ref": "#/$defs/step"}, "examples": [["cached"]]})
    }
}

/// A step, as a config file writes it.
pub(crate) fn spelled(step: &Fallback) -> Json {
    let named = |word: &str, argument: &Option<String>| match argument {
        Some(argument) => json!({word: argument}),
        None => json!(word),
    };
    match step {
        Fallback::Cached => json!("cached"),
        Fallback::Simplify(argument) => named("simplify", argument),
        Fallback::PreviousPage(argument) => named("previous_page", argument),
        Fallback::OneByOne(argument) => named("split_batch", argument),
        Fallback::Queue => json!("queue"),
        Fallback::Alternate { server, tool, map } if map.is_empty() => {
            json!({"tool": format!("{server}/{tool}")})
        }
        Fallback::Alternate { server, tool, map } => {
            json!({"tool": format!("{server}/{tool}"), "map": map})
        }
        Fallback::Text(text) => json!({"text": text}),
    }
}

fn fallback(list: &ConfigField<'_>, problems: &mut Problems) -> Vec<Fallback> {
    let items = list.items(problems);
    items
        .iter()
        .filter_map(
            |item| if item.is_table() { table_step(item, problems) } else { word(item, problems) },
        )
        .collect()
}

/// A step by its name.
fn word(item: &ConfigField<'_>, problems: &mut Problems) -> Option<Fallback> {
    let known = ["cached", "simplify", "previous_page", "split_batch", "queue"];
    let ConfigString { place, text } = problems.keep(item.text())?;
    let step = match text.as_str() {
        "cached" => Fallback::Cached,
        "simplify" => Fallback::Simplify(None),
        "previous_page" => Fallback::PreviousPage(None),
        "split_batch" => Fallback::OneByOne(None),
        "queue" => Fallback::Queue,
        _ => {
            let text = format!(
                "{text:?} is no fallback; known are {}, {{ tool = \"server/tool\" }} and {{ text = \"…\" }}",
                known.join(", ")
            );
            problems.push(place.problem(text));
            return None;
        }
    };
    Some(step)
}

/// A step with settings: another tool, a text, or the argument that a step works on.
fn table_step(item: &ConfigField<'_>, problems: &mut Problems) -> Option<Fallback> {
    let mut step = None;
    let mut map = None;
    for (key, value) in item.entries(problems) {
        if key == "map" {
            map = Some(
                value
                    .pairs(problems)
                    .into_iter()
                    .map(|(theirs, ours)| (theirs, ours.text))
                    .collect(),
            );
            continue;
        }
        let Some(ConfigString { place, text }) = problems.keep(value.text()) else { continue };
        let read = match (key, text.split_once('/')) {
            ("tool", Some((server, tool))) if !server.is_empty() && !tool.is_empty() => {
                Ok(Fallback::Alternate {
                    server: server.to_owned(),
                    tool: tool.to_owned(),
                    map: [].into(),
                })
            }
            ("tool", _) => {
                Err(place.problem(format!("{text:?} is no tool; write \"server/tool\"")))
            }
            ("text", _) => Ok(Fallback::Text(text)),
            ("simplify", _) => Ok(Fallback::Simplify(Some(text))),
            ("previous_page", _) => Ok(Fallback::PreviousPage(Some(text))),
            ("split_batch", _) => Ok(Fallback::OneByOne(Some(text))),
            _ => Err(place.problem(suggest::unknown(
                key,
                &["tool", "map", "text", "simplify", "previous_page", "split_batch"],
            ))),
        };
        if step.is_some() {
            problems.push(item.place.problem("says two things; make two steps of it"));
        }
        step = problems.keep(read).or(step);
    }
    match &mut step {
        Some(Fallback::Alternate { map: place, .. }) => *place = map.unwrap_or_default(),
        Some(_) if map.is_some() => {
            problems.push(item.place.problem("has a map, which is for { tool = \"server/tool\" }"))
        }
        None => problems.push(
            item.place
                .problem("says nothing; write { tool = \"server/tool\" } or { text = \"…\" }"),
        ),
        Some(_) => {}
    }
    step
}
