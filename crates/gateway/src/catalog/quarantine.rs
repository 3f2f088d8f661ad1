//! Decides which tools are left out of a list because they would make a client refuse all of it.
//! They are named in the answer; the other tools stay as they are, byte for byte.
//!
//! Clients validate a list with a schema of their own, and refuse the whole list if one entry does
//! not fit. The checks here are those of the clients: the shape that the protocol gives a tool.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::protocol::edit::{self, JsonObject};
use crate::protocol::names::Era;
use crate::protocol::{Message, MessageKind, scan};
use crate::runtime::plural::counted;
use crate::upstream::reply::with_body;
use crate::upstream::{Server, beginning};

/// The `_meta` key under which a list names the tools that were left out.
pub(crate) const QUARANTINED: &str = "seawall/quarantined";
/// Tools that are named; further tools are only counted.
const NAMED: usize = 20;
/// Characters of a name that are shown.
const SHOWN: usize = 100;

/// A list of tools without those that clients of this era cannot read; any other answer unchanged.
pub(crate) fn cleaned(server: &Server, era: Era, method: &str, answer: Message) -> Message {
    let Some(list) = answer
        .field("tools")
        .filter(|_| method == "tools/list" && answer.kind() == MessageKind::Result)
    else {
        return answer;
    };
    let mut seen = HashSet::new();
    let (mut kept, mut broken) = (Vec::new(), Vec::new());
    for entry in scan::elements(answer.raw(), list).into_iter().map(|span| span.of(answer.raw())) {
        match fault(entry, era, &mut seen) {
            None => kept.push(entry),
            Some((name, reason)) => broken.push((name, reason)),
        }
    }
    if broken.is_empty() {
        server.startup.note_quarantined("");
        return answer;
    }
    let listed: Vec<Value> = broken
        .iter()
        .take(NAMED)
        .map(|(name, reason)| json!({"tool": name, "reason": reason}))
        .collect();
    let names: Vec<String> =
        broken.iter().take(NAMED).map(|(name, reason)| format!("{name:?} ({reason})")).collect();
    let are = if broken.len() == 1 { "is" } else { "are" };
    let count = counted(broken.len(), "tool");
    let text = format!("{}: {count} {are} left out of its list: {}", server.name, names.join(", "));
    if server.startup.note_quarantined(&text) {
        crate::runtime::log::warn(&text);
    }
    let mut result = JsonObject::of(answer.body_json());
    result.set("tools", edit::array(kept));
    result.change("_meta", |meta| {
        meta.set(QUARANTINED, json!({server.name.as_str(): listed}).to_string());
    });
    let body = result.json();
    with_body(&answer, &body).unwrap_or(answer)
}

/// The name of a tool that clients of this era cannot read, and the reason; `None` if the tool is
/// fine.
fn fault(entry: &[u8], era: Era, seen: &mut HashSet<String>) -> Option<(String, String)> {
    let tool: Value = serde_json::from_slice(entry).unwrap_or_default();
    let name = tool["name"].as_str().unwrap_or_default();
    let reason = if !tool.is_object() {
        "it is no object".to_owned()
    } else if name.is_empty() {
        "its name is missing or not a string".to_owned()
    } else if !seen.insert(name.to_owned()) {
        "its name stands in the list already".to_owned()
    } else if !matches!(tool.get("description"), None | Some(Value::String(_))) {
        "its description is not a string".to_owned()
    } else {
        // Since 2026-07-28 an output schema may describe any value, not only an object.
        let output = tool.get("outputSchema").filter(|_| era == Era::Legacy);
        let output = output.and_then(|output| schema_fault(Some(output), "outputSchema"));
        schema_fault(tool.get("inputSchema"), "inputSchema").or(output)?
    };
    Some((beginning(name).chars().take(SHOWN).collect(), reason))
}

/// Why clients refuse a schema: its type must be "object", and its properties must be objects too.
fn schema_fault(schema: Option<&Value>, of: &str) -> Option<String> {
    let Some(schema) = schema.and_then(Value::as_object) else {
        return Some(format!("its {of} is missing or not an object"));
    };
    let is_names =
        |list: &Value| list.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    let is_schemas =
        |table: &Value| table.as_object().is_some_and(|table| table.values().all(Value::is_object));
    if schema.get("type") != Some(&json!("object")) {
        Some(format!("the type of its {of} is not \"object\""))
    } else if !schema.get("properties").is_none_or(is_schemas) {
        Some(format!("the properties of its {of} are not all objects"))
    } else if !schema.get("required").is_none_or(is_names) {
        Some(format!("what its {of} requires is not a list of names"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_refuse_is_found_and_what_they_take_is_not() {
        let mut seen = HashSet::new();
        for (fine, tool) in [
            (true, r#"{"name":"a","inputSchema":{"type":"object"}}"#),
            (
                true,
                r#"{"name":"b","inputSchema":{"type":"object","properties":{"x":{}},"required":["x"]}}"#,
            ),
            (
                true,
                r#"{"name":"c","inputSchema":{"type":"object","$defs":{},"x":1},"outputSchema":{"type":"object"}}"#,
            ),
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
            (
                false,
                r#"{"name":"k","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}"#,
            ),
            (false, r#"{"name":"n","inputSchema":{"type":"object","properties":{"x":true}}}"#),
            (false, r#"{"name":"l","inputSchema":{"type":"object"},"description":1}"#),
            (false, r#""m""#),
        ] {
            assert_eq!(fault(tool.as_bytes(), Era::Legacy, &mut seen).is_none(), fine, "{tool}");
        }
        let output =
            br#"{"name":"o","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}"#;
        assert_eq!(fault(output, Era::Modern, &mut seen), None);
    }
}
