//! Decides whether an error says that a batch has too many items, so that smaller batches may
//! succeed.

use super::text::Prepared;

/// Names of batch items. Requests and messages are missing on purpose: too many of those are a rate
/// limit.
const ITEMS: &[&str] = &[
    "item",
    "items",
    "element",
    "elements",
    "entry",
    "entries",
    "id",
    "ids",
    "record",
    "records",
    "row",
    "rows",
    "issue",
    "issues",
    "key",
    "keys",
    "url",
    "urls",
    "file",
    "files",
    "path",
    "paths",
    "object",
    "objects",
    "number",
    "numbers",
    "value",
    "values",
    "document",
    "documents",
];
/// Words somewhere before the number: "a maximum of", "Too big: expected array to have <=", …
const BOUNDS: &[&str] = &["maximum", "max", "limit", "exceed", "exceeds", "exceeded", "big"];
/// How many words before the number are read.
const BEFORE: usize = 6;
/// How many bytes of an error are read.
const READ: usize = 4096;

/// Whether an error says that there are too many items: by its status (413), or in the words of
/// validators.
pub fn says_too_many_items(text: &str) -> bool {
    let cut = (0..=READ.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let text = text[..cut].to_ascii_lowercase();
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let is_item = |at: usize| words.get(at).is_some_and(|word| ITEMS.contains(word));
    let is_number = |at: usize| {
        words.get(at).is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let is_bounded =
        |at: usize| match (at.checked_sub(2).map(|before| words[before]), words[at - 1]) {
            (Some("at"), "most") | (Some("more"), "than") => true,
            (Some(_), "to") => is_number(at - 2),
            _ => words[at.saturating_sub(BEFORE)..at].iter().any(|word| BOUNDS.contains(word)),
        };
    let names_a_bound =
        (1..words.len()).any(|at| is_number(at) && is_item(at + 1) && is_bounded(at));
    let is_too_many = words
        .windows(3)
        .any(|three| three[0] == "too" && three[1] == "many" && ITEMS.contains(&three[2]));
    let is_large = |three: &[&str]| three[1] == "too" && matches!(three[2], "large" | "big");
    let is_batch =
        |word: &str| matches!(word, "batch" | "payload" | "entity" | "content" | "array" | "list");
    let is_too_large = words.windows(3).any(|three| is_large(three) && is_batch(three[0]))
        || words
            .windows(4)
            .any(|four| is_batch(four[0]) && four[1] == "is" && is_large(&four[1..]));
    names_a_bound
        || is_too_many
        || is_too_large
        || Prepared::new([text.as_str()]).status() == Some(413)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_validators_and_servers_say_of_too_many_items_is_known() {
        for text in [
            "MCP error -32602: Input validation error: Array must contain at most 25 element(s)",
            "Too big: expected array to have <=25 items",
            "List should have at most 25 items after validation, not 30",
            "issue_numbers: must be 1 to 25 items, not 30",
            "data/ids must NOT have more than 10 items",
            "Too many ids: the limit is 50",
            "The batch is too large",
            "Request failed: payload too large",
            "A maximum of 100 records is allowed per request",
            "413 Request Entity Too Large",
            "HTTP 413",
        ] {
            assert!(says_too_many_items(text), "{text}");
        }
    }

    #[test]
    fn other_limits_are_no_limit_of_items() {
        for text in [
            "per_page must be at most 100",
            "title: must be 1 to 256 characters, not 300",
            "at most 100 requests per minute",
            "Too many requests",
            "timeout too large",
            "the number is too large",
            "issue 413 not found",
            "failed to label 3 items",
            "copied from 3 to items",
            "no such issue",
            "",
        ] {
            assert!(!says_too_many_items(text), "{text}");
        }
    }
}
