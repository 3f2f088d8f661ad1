//! Decides how `tool_errors` is read: which of a tool's own errors count as failures.
//!
//! `true`, `false`, or a list of patterns: `{ json = "error" }` or `{ text = "^Error:" }`, each
//! with `transient` and `mode`.

use seawall::{ErrorMatcher, ErrorMode, ErrorPattern, ToolErrors, TransientErrors};
use serde_json::{Value as Json, json};

use super::value::{ValueType, one_of};
use crate::config::problem::{Problem, Problems};
use crate::config::suggest;
use crate::config::tree::{ConfigField, ConfigString};

const KEYS: [&str; 4] = ["json", "text", "transient", "mode"];

/// Which of a tool's own errors count as failures.
pub(super) struct Errors;

impl ValueType for Errors {
    type Value = ToolErrors;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<ToolErrors> {
        read(field, problems)
    }

    fn spell(&self, value: &ToolErrors) -> Json {
        match value.patterns.as_slice() {
            [] => json!(value.marked),
            patterns => patterns.iter().map(spelled).collect(),
        }
    }

    fn schema(&self) -> Json {
        json!({"$ref": "#/$defs/tool_errors"})
    }
}

/// A pattern, as a config file writes it.
fn spelled(pattern: &ErrorPattern) -> Json {
    let mut written = match &pattern.find {
        ErrorMatcher::Json(path) => json!({"json": path}),
        ErrorMatcher::Text(text) => json!({"text": text}),
    };
    match &pattern.transient {
        TransientErrors::Plain => {}
        TransientErrors::Saying(words) => written["transient"] = json!(words),
        TransientErrors::All => written["transient"] = json!(true),
    }
    if pattern.mode == ErrorMode::Count {
        written["mode"] = json!("count");
    }
    written
}

fn read(value: &ConfigField<'_>, problems: &mut Problems) -> Option<ToolErrors> {
    if !value.is_list() {
        let flag = value
            .flag()
            .map_err(|_| value.place.problem("must be true, false, or a list of patterns"));
        return problems
            .keep(flag)
            .map(|on| if on { ToolErrors::MARKED } else { ToolErrors::NONE });
    }
    let items = value.items(problems);
    let patterns = items.iter().filter_map(|item| pattern(item, problems)).collect();
    Some(ToolErrors { patterns, ..ToolErrors::MARKED })
}

fn pattern(item: &ConfigField<'_>, problems: &mut Problems) -> Option<ErrorPattern> {
    let before = problems.count();
    let (mut finds, mut transient, mut mode) =
        (Vec::new(), TransientErrors::default(), ErrorMode::default());
    for (key, value) in item.entries(problems) {
        match key {
            "json" => finds.extend(problems.keep(path(&value)).map(ErrorMatcher::Json)),
            "text" => finds.extend(problems.keep(words(&value)).map(ErrorMatcher::Text)),
            "transient" => transient = may_pass(&value, problems),
            "mode" => {
                let modes = [("fail", ErrorMode::Fail), ("count", ErrorMode::Count)];
                mode = problems.keep(one_of(&value, &modes)).unwrap_or_default();
            }
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    let mut finds = finds.into_iter();
    match (finds.next(), finds.next()) {
        (Some(find), None) => return Some(ErrorPattern { find, transient, mode }),
        (None, _) if problems.count() > before => {}
        _ => problems.push(
            item.place.problem("needs one of json = \"error\" and text = \"^Error:\", not both"),
        ),
    }
    None
}

/// A path within an object: names with dots between them.
fn path(value: &ConfigField<'_>) -> Result<String, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.split('.').any(str::is_empty) {
        true => Err(place.problem(format!(
            "{text:?} is no path; write for example \"error\" or \"status.error\""
        ))),
        false => Ok(text),
    }
}

/// A text to search for; behind a `^`, only at the start.
fn words(value: &ConfigField<'_>) -> Result<String, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.chars().all(|letter| letter.is_whitespace() || letter == '^') {
        true => Err(place.problem("must not be empty: it would fit every answer")),
        false => Ok(text),
    }
}

/// Which of the matching errors are transient: all (`true`), plainly transient ones (`false`), or
/// those with one of these words.
fn may_pass(value: &ConfigField<'_>, problems: &mut Problems) -> TransientErrors {
    if !value.is_list() {
        let flag = value
            .flag()
            .map_err(|_| value.place.problem("must be true, false, or a list of words"));
        return if problems.keep(flag) == Some(true) {
            TransientErrors::All
        } else {
            TransientErrors::Plain
        };
    }
    let words = value.items(problems);
    let words = words.iter().filter_map(|word| problems.keep(self::words(word)));
    TransientErrors::Saying(words.collect())
}
