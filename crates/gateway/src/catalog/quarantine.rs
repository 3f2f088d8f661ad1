//! Tools that would cost a client the whole list: left out and named; the others stay as they are, byte for byte.
//!
//! Clients read a list with a schema of their own, and one entry that does not fit makes them refuse all of it. What is
//! checked here is what they check: the shape that the protocol gives a tool.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use crate::bridge::to_modern::with_body;
use crate::upstream::{Server, beginning};
use crate::wire::edit::{self, Object};
use crate::wire::{Kind, Message, scan};

/// Where a list says what was left out of it.
pub const QUARANTINED: &str = "seawall/quarantined";
/// Tools that are named; more are only counted.
const NAMED: usize = 20;
/// Letters of a name that are shown.
const SHOWN: usize = 100;

/// A list of tools without those that no client can read; anything else as it is.
pub fn cleaned(server: &Server, method: &str, answer: Message) -> Message {
    let Some(list) = answer.field("tools").filter(|_| method == "tools/list" && answer.kind() == Kind::Result) else {
        return answer;
    };
    let mut seen = HashSet::new();
    let (mut kept, mut broken) = (Vec::new(), Vec::new());
    for entry in scan::elements(answer.raw(), list).into_iter().map(|span| span.of(answer.raw())) {
        match fault(entry, &mut seen) {
            None => kept.push(entry),
            Some((name, reason)) => broken.push((name, reason)),
        }
    }
    if broken.is_empty() {
        server.load.note_quarantined("");
        return answer;
    }
    let listed: Vec<Value> =
        broken.iter().take(NAMED).map(|(name, reason)| json!({"tool": name, "reason": reason})).collect();
    let names: Vec<String> = broken.iter().take(NAMED).map(|(name, reason)| format!("{name:?} ({reason})")).collect();
    let text = format!("{}: {} tools are left out of its list: {}", server.name, broken.len(), names.join(", "));
    if server.load.note_quarantined(&text) {
        crate::ops::log::line(&text);
    }
    let mut result = Object::of(answer.body_json());
    result.set("tools", edit::array(kept));
    result.change("_meta", |meta| {
        meta.set(QUARANTINED, json!({server.name.as_str(): listed}).to_string());
    });
    let body = result.json();
    with_body(&answer, &body).unwrap_or(answer)
}

/// The name of a tool that no client can read, and why; nothing if it is fine.
fn fault(entry: &[u8], seen: &mut HashSet<String>) -> Option<(String, &'static str)> {
    let tool: Value = serde_json::from_slice(entry).unwrap_or_default();
    let name = tool["name"].as_str().unwrap_or_default();
    let reason = if !tool.is_object() {
        "it is no object"
    } else if name.is_empty() {
        "its name is missing or not a string"
    } else if !seen.insert(name.to_owned()) {
        "its name stands in the list already"
    } else if !matches!(tool.get("description"), None | Some(Value::String(_))) {
        "its description is not a string"
    } else {
        schema_fault(tool.get("inputSchema"), "its inputSchema is missing or not an object")
            .or_else(|| tool.get("outputSchema").and_then(|schema| output_fault(schema)))?
    };
    Some((beginning(name).chars().take(SHOWN).collect(), reason))
}

/// What clients take for a schema of arguments: an object with properties that are schemas.
fn schema_fault(schema: Option<&Value>, missing: &'static str) -> Option<&'static str> {
    let Some(Value::Object(schema)) = schema else { return Some(missing) };
    let is_texts = |list: &Value| list.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let is_schemas = |table: &Value| table.as_object().is_some_and(|table| table.values().all(is_schema));
    if schema.get("type") != Some(&json!("object")) {
        Some("the type of its inputSchema is not \"object\"")
    } else if !has_only(schema, "properties", is_schemas) {
        Some("the properties of its inputSchema are not schemas")
    } else if !has_only(schema, "required", is_texts) {
        Some("the required properties of its inputSchema are not a list of names")
    } else {
        None
    }
}

fn output_fault(schema: &Value) -> Option<&'static str> {
    (!schema.is_object()).then_some("its outputSchema is not an object")
}

fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}

fn has_only(schema: &Map<String, Value>, key: &str, is_fine: impl Fn(&Value) -> bool) -> bool {
    schema.get(key).is_none_or(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_refuse_is_found_and_what_they_take_is_not() {
        let mut seen = HashSet::new();
        for (fine, tool) in [
            (true, r#"{"name":"a","inputSchema":{"type":"object"}}"#),
            (true, r#"{"name":"b","inputSchema":{"type":"object","properties":{"x":{},"y":true},"required":["x"]}}"#),
            (true, r#"{"name":"c","inputSchema":{"type":"object","$defs":{},"x":1},"outputSchema":{"type":"object"}}"#),
            (false, r#"{"name":"a","inputSchema":{"type":"object"}}"#),
            (false, r#"{"inputSchema":{"type":"object"}}"#),
            (false, r#"{"name":7,"inputSchema":{"type":"object"}}"#),
            (false, r#"{"name":"d"}"#),
            (false, r#"{"name":"e","inputSchema":null}"#),
            (false, r#"{"name":"f","inputSchema":{}}"#),
            (false, r#"{"name":"g","inputSchema":{"type":["object"]}}"#),
            (false, r#"{"name":"h","inputSchema":{"type":"object","properties":[]}}"#),
            (false, r#"{"name":"i","inputSchema":{"type":"object","properties":{"x":"string"}}}"#),
            (false, r#"{"name":"j","inputSchema":{"type":"object","required":true}}"#),
            (false, r#"{"name":"k","inputSchema":{"type":"object"},"outputSchema":[]}"#),
            (false, r#"{"name":"l","inputSchema":{"type":"object"},"description":1}"#),
            (false, r#""m""#),
        ] {
            assert_eq!(fault(tool.as_bytes(), &mut seen).is_none(), fine, "{tool}");
        }
    }
}
