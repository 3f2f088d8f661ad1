//! Decides the facts read from an MCP tool result (`CallToolResult`) in JSON: its error, its
//! completeness, its size.

use serde_json::Value;

use crate::model::tool_errors::{Content, LOOKED_AT};

/// The text of a result that the tool itself marked as failed; empty if the result has no text.
pub(crate) fn error_text(result: &Value) -> Option<String> {
    if result.get("isError") != Some(&Value::Bool(true)) {
        return None;
    }
    let blocks = result.get("content").and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<&str> = blocks.filter_map(|block| block.get("text")?.as_str()).collect();
    Some(texts.join("\n"))
}

/// The content that is searched for an error that the tool did not mark.
pub(crate) fn content(result: &Value) -> Content {
    let blocks = result.get("content").and_then(Value::as_array).into_iter().flatten();
    let mut text = String::new();
    for block in blocks.filter_map(|block| block.get("text")?.as_str()) {
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(beginning(block));
        if text.len() >= LOOKED_AT {
            break;
        }
    }
    let structured =
        result.get("structuredContent").filter(|structured| weigh(structured) <= LOOKED_AT);
    Content { text, structured: structured.cloned() }
}

/// The part of a text that is searched.
pub(crate) fn beginning(text: &str) -> &str {
    let cut =
        (0..=LOOKED_AT.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..cut]
}

/// Whether the result ends the call, and is not a question back to the client.
pub(crate) fn is_complete(result: &Value) -> bool {
    // Legacy servers send no `resultType`; modern ones send `input_required` for a question.
    result.get("resultType").is_none_or(|kind| kind == "complete")
}

/// The size of a result in memory, exact enough to bound a cache.
pub(crate) fn weigh(result: &Value) -> usize {
    size_of::<Value>()
        + match result {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weigh).sum(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| name.len() + weigh(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_tool_marked_is_an_error() {
        let said = json!({"isError": true, "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]});
        assert_eq!(error_text(&said), Some("a\nb".to_owned()));
        assert_eq!(error_text(&json!({"isError": true})), Some(String::new()));
        for fine in [
            json!({"isError": false, "content": []}),
            json!({"content": []}),
            json!("isError"),
            json!({"isError": "true"}),
        ] {
            assert_eq!(error_text(&fine), None, "{fine}");
        }
    }

    #[test]
    fn a_question_back_is_not_the_end() {
        assert!(is_complete(&json!({"content": []})));
        assert!(is_complete(&json!({"resultType": "complete"})));
        assert!(!is_complete(&json!({"resultType": "input_required"})));
    }

    #[test]
    fn large_results_weigh_more() {
        assert!(weigh(&json!({"content": [{"text": "x".repeat(1000)}]})) > 1000);
    }
}
