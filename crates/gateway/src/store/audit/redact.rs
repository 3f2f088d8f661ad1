//! Decides what the audit log tells of arguments without telling them.

use serde_json::{Map, Value, json};

use super::chain::hash;

/// Values inside one another that are described; deeper ones are only counted.
const DEPTH: usize = 4;
/// Fields of one object that are named.
const FIELDS: usize = 64;

/// The hash of the arguments; their order of keys does not matter.
pub(super) fn digest(arguments: &Value) -> String {
    format!("sha256:{}", hash(&sorted(arguments).to_string()))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| name.as_str());
            let sorted = |(name, value): (&String, &Value)| (name.clone(), sorted(value));
            Value::Object(fields.into_iter().map(sorted).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// The names of the fields and the kinds of their values.
pub(super) fn redacted(arguments: &Value) -> Value {
    describe(arguments, DEPTH)
}

fn describe(value: &Value, depth: usize) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => json!("<true or false>"),
        Value::Number(_) => json!("<number>"),
        Value::String(text) => json!(format!("<text of {} characters>", text.chars().count())),
        Value::Array(items) => json!(format!("<{} items>", items.len())),
        Value::Object(fields) if depth == 0 => json!(format!("<{} fields>", fields.len())),
        Value::Object(fields) => {
            let described = |(name, value): (&String, &Value)| {
                (name.chars().take(FIELDS).collect(), describe(value, depth - 1))
            };
            Value::Object(fields.iter().take(FIELDS).map(described).collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_knows_the_same_arguments_in_any_order_and_no_others() {
        let of = |text: &str| digest(&serde_json::from_str(text).unwrap());
        assert_eq!(of(r#"{"a":1,"b":{"c":2,"d":3}}"#), of(r#"{"b":{"d":3,"c":2},"a":1}"#));
        assert_ne!(of(r#"{"a":1}"#), of(r#"{"a":2}"#));
    }

    #[test]
    fn redacted_arguments_name_their_fields_and_hold_no_value() {
        let told =
            redacted(&json!({"to": "ann@example.org", "n": 7, "cc": ["x"], "o": {"p": true}}));
        let expected = json!({
            "to": "<text of 15 characters>", "n": "<number>", "cc": "<1 items>",
            "o": {"p": "<true or false>"},
        });
        assert_eq!(told, expected);
    }
}
