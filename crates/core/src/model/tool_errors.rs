//! Decides which of a tool's own answers are failures: errors that the tool marked, and errors that
//! it dressed as success.
//!
//! An answer proves that a server lives, so by default only a marked error that plainly carries an
//! upstream status is a failure. For tools that report errors as ordinary results the operator
//! lists patterns: a field of their JSON answer, or the beginning or a part of their text. Patterns
//! are literal, not regular expressions, so no answer can make matching slow.

#[cfg(feature = "pipeline")]
mod find;

#[cfg(feature = "pipeline")]
pub use find::Content;
#[cfg(feature = "pipeline")]
pub(crate) use find::FoundError;

use super::invalid::Invalid;

/// More patterns than this are a mistake.
const MOST: usize = 32;
/// How many bytes of an answer are searched for errors: error texts are short.
pub const LOOKED_AT: usize = 64 * 1024;

/// The rules by which a tool's own answers count as failures.
///
/// ```
/// # use seawall::{ErrorMatcher, ErrorMode, ErrorPattern, ToolErrors, TransientErrors};
/// let pattern = ErrorPattern {
///     find: ErrorMatcher::Json("status.error".into()),
///     transient: TransientErrors::Saying(vec!["not ready".into()]),
///     mode: ErrorMode::Fail,
/// };
/// assert!(ToolErrors { marked: true, patterns: vec![pattern] }.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolErrors {
    /// Whether errors that the tool marked (`isError`) are failures, if they plainly carry an
    /// upstream status.
    pub marked: bool,
    /// Patterns of errors that the tool did not mark; the first pattern that fits decides. Up to
    /// 32.
    pub patterns: Vec<ErrorPattern>,
}

/// A pattern of errors that a tool does not mark as such.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPattern {
    /// How to recognise the error.
    pub find: ErrorMatcher,
    /// Which of these errors are transient. The others are the caller's fault: not retried, and not
    /// counted against the server.
    pub transient: TransientErrors,
    /// The action on a match.
    pub mode: ErrorMode,
}

/// How an error is recognised in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorMatcher {
    /// The answer is a JSON object, as its text or as structured content, with a value at this path
    /// (`error`, `status.error`). `null`, `false` and empty values do not count.
    Json(String),
    /// The text contains this; behind a `^` it begins with it. ASCII case does not matter.
    Text(String),
}

/// Which errors are transient.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TransientErrors {
    /// Errors that plainly carry an upstream status.
    #[default]
    Plain,
    /// Those, and errors that contain one of these phrases. ASCII case does not matter.
    Saying(Vec<String>),
    /// All errors.
    All,
}

/// The action on an error that a pattern finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorMode {
    /// The error is a failure.
    #[default]
    Fail,
    /// Listeners of events hear of the error; the client gets the answer unchanged.
    Count,
}

impl ToolErrors {
    /// Marked errors that plainly carry an upstream status are failures.
    pub const MARKED: ToolErrors = ToolErrors { marked: true, patterns: Vec::new() };
    /// No answer of a tool is a failure.
    pub const NONE: ToolErrors = ToolErrors { marked: false, patterns: Vec::new() };

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        if self.patterns.len() > MOST {
            return Err(Invalid::new(
                "tool_errors",
                format!("must not have more than {MOST} patterns"),
            ));
        }
        self.patterns.iter().try_for_each(ErrorPattern::validate)
    }
}

impl ErrorPattern {
    fn validate(&self) -> Result<(), Invalid> {
        let is_empty = match &self.find {
            ErrorMatcher::Json(path) => path.split('.').any(str::is_empty),
            ErrorMatcher::Text(text) => text.trim_start_matches('^').trim().is_empty(),
        };
        if is_empty {
            return Err(Invalid::new(
                "tool_errors",
                "a pattern that is empty would fit every answer",
            ));
        }
        match &self.transient {
            TransientErrors::Saying(phrases)
                if phrases.iter().any(|phrase| phrase.trim().is_empty()) =>
            {
                Err(Invalid::new(
                    "tool_errors",
                    "transient must not hold an empty text; write true for every error",
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(all(test, feature = "pipeline"))]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(
        find: ErrorMatcher,
        transient: TransientErrors,
        content: &Content,
    ) -> Option<(String, bool)> {
        let errors = ToolErrors {
            marked: true,
            patterns: vec![ErrorPattern { find, transient, mode: ErrorMode::Fail }],
        };
        errors.find(content).map(|found| (found.words, found.may_pass))
    }

    fn text(text: &str) -> Content {
        Content { text: text.to_owned(), structured: None }
    }

    #[test]
    fn an_object_that_says_something_at_the_path_is_an_error() {
        let at = |path: &str, content: &Content| {
            found(ErrorMatcher::Json(path.into()), TransientErrors::Plain, content).map(|it| it.0)
        };
        let said = |words: &str| Some(words.to_owned());
        assert_eq!(at("error", &text(r#"{"error": "no such group"}"#)), said("no such group"));
        assert_eq!(
            at("error", &text("\n {\"error\": \"not ready\"}\n\n---\n**Next:** read")),
            said("not ready")
        );
        assert_eq!(at("status.error", &text(r#"{"status": {"error": "x"}}"#)), said("x"));
        assert_eq!(
            at("error", &text(r#"{"error":true,"message":"m"}"#)),
            said(r#"{"error":true,"message":"m"}"#)
        );
        let structured =
            Content { structured: Some(json!({"error": {"code": 7}})), ..Content::default() };
        assert_eq!(at("error", &structured), said(r#"{"error":{"code":7}}"#));
        for fine in [
            r#"{"error": null}"#,
            r#"{"error": false}"#,
            r#"{"error": ""}"#,
            r#"{"error": []}"#,
            r#"{"error": {}}"#,
            r#"{"errors": "x"}"#,
            r#"{"result": {"error": "in a part of the answer"}}"#,
            r#"[{"error": "of one item"}]"#,
            r#"{"error": "cut of"#,
            "the word error",
            "\"error\"",
            "",
        ] {
            assert_eq!(at("error", &text(fine)), None, "{fine}");
        }
    }

    #[test]
    fn a_text_is_found_by_its_beginning_or_by_a_part() {
        let by = |pattern: &str, said: &str| {
            found(ErrorMatcher::Text(pattern.into()), TransientErrors::Plain, &text(said)).is_some()
        };
        assert!(
            by("^Error:", "error: no such file")
                && by("^Error:", "  Error: x")
                && by("failed to", "It FAILED TO start")
        );
        assert!(
            !by("^Error:", "There was an Error: x")
                && !by("^Error:", "Err")
                && !by("failed to", "it worked")
        );
        assert!(by("^é", "éa") && !by("^e", "éa"), "letters are whole");
    }

    #[test]
    fn which_may_pass_is_said_by_words() {
        let may_pass = |transient: TransientErrors, said: &str| {
            found(ErrorMatcher::Json("error".into()), transient, &text(said))
                .map(|it| it.1)
                .unwrap()
        };
        let words = || TransientErrors::Saying(vec!["retry later".into(), "not ready".into()]);
        assert!(may_pass(words(), r#"{"error": "LadybugDB Not Ready."}"#));
        assert!(may_pass(words(), r#"{"error": true, "hint": "Retry later"}"#));
        assert!(!may_pass(words(), r#"{"error": "no such group"}"#));
        assert!(may_pass(TransientErrors::All, r#"{"error": "no such group"}"#));
    }

    #[test]
    fn patterns_that_would_fit_everything_are_refused() {
        let check = |find: ErrorMatcher, transient: TransientErrors| {
            let pattern = ErrorPattern { find, transient, mode: ErrorMode::Fail };
            ToolErrors { marked: true, patterns: vec![pattern] }.validate().is_ok()
        };
        assert!(
            check(ErrorMatcher::Json("a.b".into()), TransientErrors::Plain)
                && check(ErrorMatcher::Text("^x".into()), TransientErrors::All)
        );
        for empty in [
            ErrorMatcher::Json(String::new()),
            ErrorMatcher::Json("a.".into()),
            ErrorMatcher::Text("^".into()),
            ErrorMatcher::Text(" ".into()),
        ] {
            assert!(!check(empty.clone(), TransientErrors::Plain), "{empty:?}");
        }
        assert!(!check(
            ErrorMatcher::Text("x".into()),
            TransientErrors::Saying(vec![String::new()])
        ));
    }
}
