//! The content of a tool's result: its blocks, and their texts.

use std::borrow::Cow;

use serde_json::json;

use super::{Message, scan};

/// The blocks of an answer, each as it is.
pub fn blocks(answer: &Message) -> impl Iterator<Item = &[u8]> {
    let list = answer.field("content").map(|list| scan::elements(answer.raw(), list)).unwrap_or_default();
    list.into_iter().map(|block| block.of(answer.raw()))
}

/// The text of a block, if it is one of text.
pub fn text(block: &[u8]) -> Option<Cow<'_, str>> {
    let whole = scan::Span { start: 0, end: block.len() };
    let field = scan::members(block, whole).into_iter().find(|field| field.is(block, "text"))?;
    scan::text(field.value.of(block))
}

/// A block of text.
pub fn text_block(text: &str) -> Vec<u8> {
    json!({"type": "text", "text": text}).to_string().into_bytes()
}
