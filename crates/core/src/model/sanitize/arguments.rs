//! Decides which parts of a call's arguments may be shown.

use serde_json::{Map, Value};

use super::{REDACTED, cut, is_option, is_secret, without_credentials};

/// Longer texts are cut to this many characters.
const LONGEST: usize = 1000;
/// Values nested deeper are left out.
const DEEPEST: usize = 32;

/// The arguments of a call without secrets: values behind names of secrets are replaced, long texts
/// cut, user names and passwords removed from URLs.
pub fn sanitize(value: &Value) -> Value {
    sanitize_at(value, 0)
}

fn sanitize_at(value: &Value, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::String("[TOO DEEP]".into());
    }
    match value {
        Value::String(text) => Value::String(cut(&without_credentials(text), LONGEST)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(at, item)| {
                // `["--token", "…"]`: an option before an item makes the item a secret.
                let before = at.checked_sub(1).and_then(|before| items[before].as_str());
                if before.is_some_and(is_option) {
                    REDACTED.into()
                } else {
                    sanitize_at(item, depth + 1)
                }
            })
            .collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| {
                let is_hidden = is_secret(name) || (name == "value" && is_named_secret(members));
                let shown = if is_hidden { REDACTED.into() } else { sanitize_at(value, depth + 1) };
                (name.clone(), shown)
            })
            .collect(),
        other => other.clone(),
    }
}

/// Whether an object is a header or variable that names a secret, as tools like to take it:
/// `{"name": "Authorization", "value": "…"}`.
fn is_named_secret(members: &Map<String, Value>) -> bool {
    let is_telling = |name: &str| members.get(name).and_then(Value::as_str).is_some_and(is_secret);
    ["name", "key", "header"].into_iter().any(is_telling)
}
