//! Decides from the schema of a tool's arguments which argument holds the items of a batch, and
//! which is the idempotency key of a write.

use serde_json::Value;

/// The argument that holds the items of a batch, if the schema leaves no doubt: the only list, or
/// the only required list. A list that must have more than one item cannot be split.
pub(crate) fn items(schema: &Value) -> Option<&str> {
    let lists: Vec<(&String, &Value)> = schema["properties"]
        .as_object()?
        .iter()
        .filter(|(_, property)| is_list(property))
        .collect();
    let required = schema["required"].as_array();
    let is_required =
        |name: &str| required.is_some_and(|names| names.iter().any(|required| required == name));
    let (name, list) = match lists.as_slice() {
        [only] => only,
        several => {
            let mut needed = several.iter().filter(|(name, _)| is_required(name));
            needed.next().filter(|_| needed.next().is_none())?
        }
    };
    (list["minItems"].as_u64().unwrap_or(0) <= 1).then_some(name.as_str())
}

/// Whether a property is a list: by its own type, or by one of the types it may have.
fn is_list(property: &Value) -> bool {
    let is_array = |property: &Value| match &property["type"] {
        Value::String(kind) => kind == "array",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "array"),
        _ => false,
    };
    let may_be =
        |any: &str| property[any].as_array().is_some_and(|types| types.iter().any(is_array));
    is_array(property) || may_be("anyOf") || may_be("oneOf")
}

/// The idempotency key: the argument by which a server recognizes a write that it has seen before.
pub(crate) fn key(schema: &Value) -> Option<&str> {
    let is_key = |name: &str| name.replace(['_', '-'], "").eq_ignore_ascii_case("idempotencykey");
    schema["properties"].as_object()?.keys().find(|name| is_key(name)).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_items_are_the_only_list_or_the_only_required_one() {
        let list = json!({"type": "array"});
        for (properties, required, expected) in [
            (json!({"issues": list, "repo": {"type": "string"}}), json!([]), Some("issues")),
            (json!({"issues": {"type": ["array", "null"]}}), json!(null), Some("issues")),
            (json!({"issues": {"anyOf": [list, {"type": "null"}]}}), json!(null), Some("issues")),
            (
                json!({"issues": {"oneOf": [{"type": "string"}, list]}, "repo": {"anyOf": []}}),
                json!([]),
                Some("issues"),
            ),
            (json!({"issues": list, "labels": list}), json!(["issues", "repo"]), Some("issues")),
            (json!({"issues": list, "labels": list}), json!(["issues", "labels"]), None),
            (json!({"issues": list, "labels": list}), json!([]), None),
            (json!({"pair": {"type": "array", "minItems": 2}}), json!(["pair"]), None),
            (json!({"repo": {"type": "string"}}), json!(["repo"]), None),
            (json!(null), json!(7), None),
        ] {
            assert_eq!(
                items(&json!({"properties": properties, "required": required})),
                expected,
                "{properties}"
            );
        }
    }

    #[test]
    fn a_key_is_known_by_its_name() {
        for (name, is_key) in [
            ("idempotency_key", true),
            ("idempotencyKey", true),
            ("Idempotency-Key", true),
            ("key", false),
        ] {
            assert_eq!(
                key(&json!({"properties": {name: {"type": "string"}}})),
                is_key.then_some(name)
            );
        }
    }
}
