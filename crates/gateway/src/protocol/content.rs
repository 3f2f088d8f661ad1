//! Decides which parts of a tool result count as its content: its blocks, their texts, and the text
//! of an error.

use std::borrow::Cow;

use seawall::{Content, LOOKED_AT};
use serde_json::json;

use super::{Message, MessageKind, scan};

/// The content blocks of an answer, each as its bytes.
pub(crate) fn blocks(answer: &Message) -> impl Iterator<Item = &[u8]> {
    let list =
        answer.field("content").map(|list| scan::elements(answer.raw(), list)).unwrap_or_default();
    list.into_iter().map(|block| block.of(answer.raw()))
}

/// The text of a block; `None` if the block is not a text block.
pub(crate) fn text(block: &[u8]) -> Option<Cow<'_, str>> {
    let whole = scan::Span { start: 0, end: block.len() };
    let field = scan::members(block, whole).into_iter().find(|field| field.is(block, "text"))?;
    scan::text(field.value.of(block))
}

/// A text block.
pub(crate) fn text_block(text: &str) -> Vec<u8> {
    json!({"type": "text", "text": text}).to_string().into_bytes()
}

/// The content in which the library looks for an error that the tool did not mark, at most
/// `LOOKED_AT` bytes of text.
pub(crate) fn looked_at(answer: &Message) -> Content {
    let mut text = String::new();
    for block in blocks(answer).filter(|block| block.len() <= LOOKED_AT).filter_map(self::text) {
        if text.len() + block.len() > LOOKED_AT {
            break;
        }
        text.push_str(if text.is_empty() { "" } else { "\n" });
        text.push_str(&block);
    }
    let structured = answer.field_json("structuredContent").filter(|json| json.len() <= LOOKED_AT);
    Content { text, structured: structured.and_then(|json| serde_json::from_slice(json).ok()) }
}

/// The text of an error answer: a JSON-RPC error, or a result that the tool marked with `isError`.
pub(crate) fn error_text(answer: &Message) -> Option<String> {
    if answer.kind() == MessageKind::Error {
        return Some(answer.field_text("message").unwrap_or_default().into_owned());
    }
    if answer.field_json("isError") != Some(b"true") {
        return None;
    }
    Some(blocks(answer).filter_map(text).collect::<Vec<_>>().join("\n"))
}
