//! Decides whether a tool's answer is a failure: an error in its own words, or a match of an
//! operator's pattern.

use crate::classify::says_too_many_items;
use crate::model::effect::Kind;
use crate::model::failure::{Cause, Disposition, Failure, Sent};
use crate::model::sanitize::without_credentials;
use crate::model::tool_errors::ErrorMode;
use crate::registry::Tool;
use crate::report::event::Event;
use crate::run::context::Run;

use crate::run::attempt::{AttemptFailed, OwnWords};

impl<T: Clone> Run<'_, T> {
    /// A tool's own error is an answer, unless it plainly carries an upstream failure or an
    /// operator's pattern matches it.
    pub(super) fn judge(&self, tool: &Tool, value: T) -> Result<T, AttemptFailed<T>> {
        let Some((failure, is_unmarked)) = self.own_failure(tool, &value) else { return Ok(value) };
        // The tool's text alone allows no retry of a write: its text does not prove that nothing
        // ran.
        let failure = match tool.policy.effect.is_replayable() || failure.sent == Sent::Never {
            true => failure,
            false => Failure { disposition: Disposition::Permanent, sent: Sent::Yes, ..failure },
        };
        Err(Box::new((failure, Some(OwnWords { value, is_unmarked }))))
    }

    /// The failure that a tool's answer means, and whether the tool left it unmarked.
    fn own_failure(&self, tool: &Tool, value: &T) -> Option<(Failure, bool)> {
        let errors = &tool.policy.tool_errors;
        if let Some(text) = self.error_text(value) {
            let soft = || self.classifier().classify_soft(&text).filter(|_| errors.marked);
            return too_many_items(tool, &text).or_else(soft).map(|failure| (failure, false));
        }
        if errors.patterns.is_empty() {
            return None;
        }
        let content = (self.pipeline.content)(value);
        let found = errors.find(&content)?;
        let is_counted = found.pattern.mode == ErrorMode::Count;
        self.emit(|server, tool| Event::ToolErrorFound { server, tool, counted_only: is_counted });
        (!is_counted).then(|| (self.classifier().classify_found(&found), true))
    }
}

/// The failure of a batch with too many items by its tool's own words. Only the exact code for
/// wrong arguments, as the SDKs write it before a tool's error, proves that no item was executed.
fn too_many_items(tool: &Tool, text: &str) -> Option<Failure> {
    if tool.policy.kind != Some(Kind::Batch) || !says_too_many_items(text) {
        return None;
    }
    let sent = if refuses_arguments(&tool.name, text) { Sent::Never } else { Sent::Yes };
    let words = without_credentials(text);
    Some(Failure { sent, too_large: true, ..Failure::local(Cause::InvalidInput, None, words) })
}

/// Whether the text is exactly a framework's refusal of the arguments, made before the tool is
/// called: the TypeScript SDK by its code, FastMCP by pydantic's wording.
fn refuses_arguments(tool: &str, text: &str) -> bool {
    let of_tool = [
        format!("validation error for {tool}Arguments\n"),
        format!("validation error for call[{tool}]\n"),
    ];
    let is_pydantic =
        of_tool.iter().any(|words| text.contains(words)) && text.contains(" [type=too_long, ");
    text.starts_with("MCP error -32602:") || is_pydantic
}
