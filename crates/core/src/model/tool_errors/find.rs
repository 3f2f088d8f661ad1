//! Decides whether an answer that its tool did not mark holds an error.

use serde_json::Value;

use super::{ErrorMatcher, ErrorPattern, ToolErrors, TransientErrors};

/// How much of an error is kept to tell what it said.
const KEPT: usize = 1000;

/// What is read off an answer to look for errors in it; no more than [`crate::LOOKED_AT`] of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// Its text.
    pub text: String,
    /// Its structured content.
    pub structured: Option<Value>,
}

/// An error that a pattern found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundError<'a> {
    pub(crate) pattern: &'a ErrorPattern,
    /// What it says.
    pub(crate) words: String,
    /// The operator says that it may pass.
    pub(crate) may_pass: bool,
}

impl ToolErrors {
    /// The first error that a pattern finds.
    pub(crate) fn find(&self, content: &Content) -> Option<FoundError<'_>> {
        self.patterns.iter().find_map(|pattern| pattern.find(content))
    }
}

impl ErrorPattern {
    fn find(&self, content: &Content) -> Option<FoundError<'_>> {
        let text = content.text.trim_start();
        let words = match &self.find {
            ErrorMatcher::Json(path) => said_at(path, content)?,
            ErrorMatcher::Text(pattern) => match pattern.strip_prefix('^') {
                Some(start) => begins_with(text, start),
                None => contains(text, pattern),
            }
            .then(|| text.to_owned())?,
        };
        let may_pass = match &self.transient {
            TransientErrors::Plain => false,
            TransientErrors::Saying(phrases) => {
                phrases.iter().any(|phrase| contains(&words, phrase) || contains(text, phrase))
            }
            TransientErrors::All => true,
        };
        Some(FoundError { pattern: self, words: words.chars().take(KEPT).collect(), may_pass })
    }
}

/// What an answer says at a path: the text there, or all of the object if that is no text.
fn said_at(path: &str, content: &Content) -> Option<String> {
    // GitNexus writes advice behind the object: only the beginning has to be one.
    let read = || {
        serde_json::Deserializer::from_str(content.text.trim_start())
            .into_iter::<Value>()
            .next()?
            .ok()
    };
    let objects = content.structured.clone().into_iter().chain(
        Some(()).filter(|()| content.text.trim_start().starts_with('{')).and_then(|()| read()),
    );
    objects.filter(Value::is_object).find_map(|object| {
        let said = path.split('.').try_fold(&object, |at, name| at.get(name))?;
        match said {
            Value::Null | Value::Bool(false) => None,
            Value::String(text) => (!text.trim().is_empty()).then(|| text.clone()),
            Value::Array(items) if items.is_empty() => None,
            Value::Object(members) if members.is_empty() => None,
            _ => Some(object.to_string()),
        }
    })
}

fn begins_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

fn contains(text: &str, part: &str) -> bool {
    text.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}
