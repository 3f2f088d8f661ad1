//! Decides the forms of an answer to a client: the server's own answer, a fallback's, or an honest
//! failure.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::failure::Failure;
use crate::model::report::FailureReport;

/// The outcome of a call, with the effort behind it.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// The answer, or the failure.
    pub outcome: Outcome<T>,
    /// The tool that was called.
    pub tool: Arc<str>,
    /// Attempts that were made for the call, fallbacks included.
    pub attempts: u32,
    /// How long the call took.
    pub elapsed: Duration,
    /// One line for each step that failed before the answer.
    pub warnings: Vec<String>,
    /// The answer belongs to an identical call whose client had left, and arrived this long ago;
    /// this call was not sent.
    pub rejoined: Option<Duration>,
}

/// The answer to a call, or its failure.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// The server's own answer.
    Live(T),
    /// The tool's own error, where it means a failure and no fallback had a better answer: the
    /// tool's words and their meaning.
    ToolError(Box<ToolError<T>>),
    /// A fallback's answer, to be labelled as such.
    Served(Box<FallbackAnswer<T>>),
    /// No answer, and the reason.
    Failed(Box<FailureReport>),
}

/// A tool's own error that became the outcome of the call.
#[derive(Clone, Debug)]
pub struct ToolError<T> {
    /// The tool's own answer.
    pub value: T,
    /// The meaning of the error.
    pub report: FailureReport,
    /// The tool did not mark the answer as an error; a pattern of the operator did
    /// ([`crate::ToolErrors::patterns`]).
    pub is_unmarked: bool,
}

impl<T> ToolError<T> {
    /// Whether the client gets the failure report beside the answer: the tool did not mark its
    /// answer as an error, or several attempts were spent on the call.
    pub fn is_told(&self) -> bool {
        self.is_unmarked || self.report.attempts > 1
    }
}

/// A fallback's answer, and how to label it.
#[derive(Clone, Debug)]
pub struct FallbackAnswer<T> {
    /// The fallback step: `cached`, `simplify`, `queue` …
    pub by: String,
    /// The label, for people and models.
    pub note: String,
    /// The age of a cached response.
    pub age: Option<Duration>,
    /// The id of the queue item, where the write was queued.
    pub id: Option<String>,
    /// The answer itself.
    pub body: FallbackBody<T>,
}

/// The substance of a fallback's answer.
#[derive(Clone, Debug)]
pub enum FallbackBody<T> {
    /// A tool's answer.
    Value(T),
    /// One answer for each item of a batch.
    Items(Vec<BatchItem<T>>),
    /// No value: the note is the whole answer.
    Nothing,
}

/// The outcome of one item of a batch.
#[derive(Clone, Debug)]
pub struct BatchItem<T> {
    /// The item, as it stood in the arguments.
    pub input: Value,
    /// The item's answer, or its failure.
    pub result: Result<T, Failure>,
    /// The item failed, and may have been executed all the same.
    pub may_have_executed: bool,
}

impl<T> Answer<T> {
    /// The tool's value, whether live or from a fallback.
    pub fn value(&self) -> Option<&T> {
        match &self.outcome {
            Outcome::Live(value) => Some(value),
            Outcome::ToolError(error) => Some(&error.value),
            Outcome::Served(served) => match &served.body {
                FallbackBody::Value(value) => Some(value),
                FallbackBody::Items(_) | FallbackBody::Nothing => None,
            },
            Outcome::Failed(_) => None,
        }
    }

    /// The failure report, if the call has no answer.
    pub fn report(&self) -> Option<&FailureReport> {
        match &self.outcome {
            Outcome::Failed(report) => Some(report),
            Outcome::Live(_) | Outcome::ToolError(_) | Outcome::Served(_) => None,
        }
    }

    /// The step that answered: the tool, `<tool>-<fallback>`, or `graceful-degradation`.
    pub fn final_step(&self) -> String {
        match &self.outcome {
            Outcome::Live(_) | Outcome::ToolError(_) => self.tool.to_string(),
            Outcome::Served(served) => format!("{}-{}", self.tool, served.by),
            Outcome::Failed(report) if report.is_degradation() => "graceful-degradation".to_owned(),
            Outcome::Failed(_) => self.tool.to_string(),
        }
    }
}
