//! Decides the form of an answer as an MCP tool result (`CallToolResult`), in JSON.

use serde_json::{Map, Value, json};

use crate::model::answer::{Answer, BatchItem, FallbackAnswer, FallbackBody, Outcome, ToolError};
use crate::model::report::{ErrorCode, FailureReport};
use crate::model::style::TextStyle;
use crate::time::clock::whole_seconds;

/// The format of a failure's text block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// A sentence.
    #[default]
    Text,
    /// The error object, pretty-printed.
    Json,
}

/// How an answer is rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rendering {
    /// The style of the text.
    pub style: TextStyle,
    /// A sentence or an object.
    pub format: Format,
    /// Whether failures carry `structuredContent`; not for tools that declare an `outputSchema`.
    pub structured: bool,
}

impl Default for Rendering {
    fn default() -> Self {
        Self { style: TextStyle::Plain, format: Format::Text, structured: true }
    }
}

impl Answer<Value> {
    /// The answer as an MCP tool result; the values are results themselves.
    ///
    /// The server's own result is passed on unchanged. A fallback's result gets its note as first
    /// text block. A failure is a result with `isError`, never an empty one; see
    /// [`FailureReport::is_error`].
    pub fn to_tool_result(&self, rendering: Rendering) -> Value {
        match &self.outcome {
            Outcome::Live(value) => value.clone(),
            Outcome::ToolError(error) => self.tool_error(error),
            Outcome::Served(served) => self.served(served),
            Outcome::Failed(report) => report.to_tool_result(rendering),
        }
    }

    /// The tool's own error, with the failure report where more was done than to pass the error on.
    fn tool_error(&self, error: &ToolError<Value>) -> Value {
        let mut result = error.value.clone();
        if !result.is_object() || !error.is_told() {
            return result;
        }
        result["isError"] = true.into();
        if !result["_meta"].is_object() {
            result["_meta"] = json!({});
        }
        result["_meta"]["seawall/failure"] = error.report.object();
        result
    }

    fn served(&self, served: &FallbackAnswer<Value>) -> Value {
        let mut result = match &served.body {
            FallbackBody::Value(value) if value.is_object() => value.clone(),
            FallbackBody::Value(value) => {
                json!({"content": [{"type": "text", "text": value.to_string()}]})
            }
            FallbackBody::Items(items) => items_result(items),
            FallbackBody::Nothing => json!({"content": []}),
        };
        result["isError"] = false.into();
        let content = result["content"].as_array().cloned().unwrap_or_default();
        let note = json!({"type": "text", "text": served.note});
        result["content"] = std::iter::once(note).chain(content).collect();
        let mut meta = Map::from_iter([
            ("by".to_owned(), served.by.clone().into()),
            ("warnings".to_owned(), json!(self.warnings)),
        ]);
        if let Some(age) = served.age {
            meta.insert("age".into(), age.as_secs().into());
        }
        if let Some(id) = &served.id {
            meta.insert("code".into(), "QUEUED".into());
            meta.insert("id".into(), id.clone().into());
        }
        if !result["_meta"].is_object() {
            result["_meta"] = json!({});
        }
        result["_meta"]["seawall/served"] = Value::Object(meta);
        result
    }
}

/// One line for each item, then the content of each successful item.
fn items_result(items: &[BatchItem<Value>]) -> Value {
    let mut content = Vec::new();
    for item in items {
        let line = match &item.result {
            Ok(_) => format!("{}: ok", item.input),
            Err(failure) => {
                let fate = if item.may_have_executed { "; it may have been executed" } else { "" };
                format!(
                    "{}: failed ({}{fate})",
                    item.input,
                    crate::model::sanitize::quote(&failure.message)
                )
            }
        };
        content.push(json!({"type": "text", "text": line}));
        let own = item.result.as_ref().ok().and_then(|value| value["content"].as_array());
        content.extend(own.into_iter().flatten().cloned());
    }
    json!({"content": content})
}

impl FailureReport {
    /// The failure as an MCP tool result.
    pub fn to_tool_result(&self, rendering: Rendering) -> Value {
        let text = match rendering.format {
            Format::Text => self.text(rendering.style),
            Format::Json => serde_json::to_string_pretty(&self.error_object(rendering.style))
                .unwrap_or_default(),
        };
        let mut result = json!({
            "content": [{"type": "text", "text": text}],
            // A client drops a result unread that is no error and lacks the content its tool's
            // schema promises.
            "isError": self.is_error || !rendering.structured,
            "_meta": {"seawall/failure": self.object()},
        });
        if rendering.structured {
            result["structuredContent"] = self.object();
        }
        result
    }

    /// The failure in one text.
    pub fn text(&self, style: TextStyle) -> String {
        match style {
            TextStyle::Plain => self.message.clone(),
            TextStyle::Classic => self.classic.clone(),
            TextStyle::Gitnexus => self.gitnexus_message(),
        }
    }

    /// The failure as one object: `error`, `code`, `message`, `retryable`, `retryAfter`, and in
    /// GitNexus's style also `suggestion`.
    pub fn error_object(&self, style: TextStyle) -> Value {
        let mut object = Map::from_iter([
            ("error".to_owned(), true.into()),
            ("code".to_owned(), self.code.as_str().into()),
            ("message".to_owned(), self.text(style).into()),
            ("retryable".to_owned(), self.code.is_retryable().into()),
        ]);
        if self.may_have_executed {
            object.insert("mayHaveExecuted".into(), true.into());
        }
        if let (TextStyle::Gitnexus, Some(suggestion)) = (style, self.suggestion()) {
            object.insert("suggestion".into(), suggestion.into());
        }
        if let Some(wait) = self.retry_after {
            object.insert("retryAfter".into(), whole_seconds(wait).into());
        }
        if let Some(debug) = &self.debug {
            object.insert("details".into(), self.details(debug));
        }
        Value::Object(object)
    }

    fn gitnexus_message(&self) -> String {
        match self.code {
            ErrorCode::Timeout => self.failure.message.clone(),
            ErrorCode::CircuitOpen => format!(
                "Circuit breaker open {}. Will retry in {} seconds. Consider checking browser connection or graph status.",
                match self.failure.is_of_slowness() {
                    true => "because calls were too slow",
                    false => "due to repeated failures",
                },
                whole_seconds(self.retry_after.unwrap_or_default())
            ),
            ErrorCode::ConnectionLost => format!("Connection lost: {}", self.failure.message),
            ErrorCode::ValidationError => "Invalid input parameters".to_owned(),
            ErrorCode::ToolNotFound => format!("Tool '{}' not found", self.tool),
            _ => self.failure.message.clone(),
        }
    }

    fn suggestion(&self) -> Option<&'static str> {
        match self.code {
            ErrorCode::Timeout => Some(
                "The operation took too long. Try again with a simpler query or check if the browser is responsive.",
            ),
            ErrorCode::ConnectionLost => Some(
                "Ensure GitNexus is running in your browser. The connection will be retried automatically.",
            ),
            ErrorCode::RetryExhausted => Some(
                "Could not reconnect to GitNexus. Please restart the MCP server and ensure GitNexus is running in your browser.",
            ),
            ErrorCode::InternalError => Some(
                "This is an unexpected error. Please try again or report the issue if it persists.",
            ),
            _ => None,
        }
    }
}
