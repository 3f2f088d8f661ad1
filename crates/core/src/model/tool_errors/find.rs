//! Decides whether an answer that its tool did not mark contains an error.

use serde_json::Value;

use super::{ErrorMatcher, ErrorPattern, ToolErrors, TransientErrors};

/// How many characters of an error text are kept for the report.
const KEPT: usize = 1000;

/// The parts of an answer that are searched for errors, each at most [`crate::LOOKED_AT`] long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// The text of the answer.
    pub text: String,
    /// The structured content of the answer.
    pub structured: Option<Value>,
}

/// An error that a pattern found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundError<'a> {
    pub(crate) pattern: &'a ErrorPattern,
    /// The error text.
    pub(crate) words: String,
    /// The operator's pattern says that the error is transient.
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

/// The error at a path of an answer: the text there, or the whole object if the value is no text.
fn said_at(path: &str, content: &Content) -> Option<String> {
    // GitNexus appends advice after the object, so only the beginning of the text has to parse.
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
