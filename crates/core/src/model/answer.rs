//! Decides what a client gets: the server's own answer, a fallback's, or an honest failure.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::failure::Failure;
use crate::model::report::FailureReport;

/// What became of a call.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// What the client gets.
    pub outcome: Outcome<T>,
    /// The tool that was called.
    pub tool: Arc<str>,
    /// How often a tool was really executed for it, fallbacks included.
    pub attempts: u32,
    /// How long it took.
    pub elapsed: Duration,
    /// What went wrong on the way, one line for each step.
    pub warnings: Vec<String>,
    /// It is the answer of an identical call whose client had gone, and came this long ago; this
    /// call was not sent.
    pub rejoined: Option<Duration>,
}

/// What the client gets.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// The server's own answer.
    Live(T),
    /// The tool's own error that means a failure, where nothing better was found: its words, and
    /// what they mean.
    ToolError(Box<ToolError<T>>),
    /// A fallback's answer, to be labelled as such.
    Served(Box<FallbackAnswer<T>>),
    /// No answer, and why.
    Failed(Box<FailureReport>),
}

/// A tool's own error that stayed.
#[derive(Clone, Debug)]
pub struct ToolError<T> {
    /// The tool's own answer.
    pub value: T,
    /// What it means.
    pub report: FailureReport,
    /// The tool did not mark it as an error; a pattern of the operator did
    /// ([`crate::ToolErrors::patterns`]).
    pub is_unmarked: bool,
}

impl<T> ToolError<T> {
    /// Whether the answer is told to be a failure: its tool did not say so, or attempts were spent
    /// on it.
    pub fn is_told(&self) -> bool {
        self.is_unmarked || self.report.attempts > 1
    }
}

/// A fallback's answer.
#[derive(Clone, Debug)]
pub struct FallbackAnswer<T> {
    /// Which fallback: `cached`, `simplify`, `queue` …
    pub by: String,
    /// What it says about itself, for people and models.
    pub note: String,
    /// How old it is, where that matters.
    pub age: Option<Duration>,
    /// The queue's number for it, where it was queued.
    pub id: Option<String>,
    /// The answer.
    pub body: FallbackBody<T>,
}

/// The substance of a fallback's answer.
#[derive(Clone, Debug)]
pub enum FallbackBody<T> {
    /// A tool's answer.
    Value(T),
    /// One answer for each item of a batch.
    Items(Vec<BatchItem<T>>),
    /// The note is all there is.
    Nothing,
}

/// What became of one item of a batch.
#[derive(Clone, Debug)]
pub struct BatchItem<T> {
    /// The item, as it stood in the arguments.
    pub input: Value,
    /// Its answer.
    pub result: Result<T, Failure>,
    /// It failed, and may have been executed all the same.
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

    /// Why there is no answer.
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
