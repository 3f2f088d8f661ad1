//! Decides what `tool_errors` says: which of a tool's own errors are failures.
//!
//! `true`, `false`, or a list of patterns: `{ json = "error" }` or `{ text = "^Error:" }`, each
//! with `transient` and `mode`.

use seawall::{ErrorMatcher, ErrorMode, ErrorPattern, ToolErrors, TransientErrors};

use super::problem::{Problem, Problems};
use super::tree::{ConfigField, ConfigString};
use super::{policy, suggest};

const KEYS: [&str; 4] = ["json", "text", "transient", "mode"];

/// Reads the setting.
pub(super) fn read(value: &ConfigField<'_>, problems: &mut Problems) -> Option<ToolErrors> {
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
                mode = problems.keep(policy::one_of(&value, &modes)).unwrap_or_default();
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

/// What a text contains, or behind a `^` begins with.
fn words(value: &ConfigField<'_>) -> Result<String, Problem> {
    let ConfigString { place, text } = value.text()?;
    match text.chars().all(|letter| letter.is_whitespace() || letter == '^') {
        true => Err(place.problem("must not be empty: it would fit every answer")),
        false => Ok(text),
    }
}

/// `true`, `false`, or the words of those that may pass.
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
