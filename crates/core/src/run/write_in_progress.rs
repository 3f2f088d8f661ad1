//! Decides what a write leaves behind when it ends, in whatever way: what was read before it is no
//! longer fresh, and one that was cut off is in doubt.

use crate::model::effect::Effect;
use crate::model::failure::{Failure, Sent};
use crate::registry::Tool;
use crate::run::context::Run;

/// A write under way; nothing for a tool that only reads.
pub(crate) struct WriteInProgress<'a, T> {
    run: &'a Run<'a, T>,
    /// The tool that writes, until the end is known.
    tool: Option<&'a Tool>,
}

impl<'a, T> WriteInProgress<'a, T> {
    pub(crate) fn by(run: &'a Run<'a, T>, tool: &'a Tool) -> Self {
        Self { run, tool: (tool.policy.effect != Effect::ReadOnly).then_some(tool) }
    }

    /// Ends it; one that certainly never arrived changed nothing.
    pub(crate) fn unless_never_sent(mut self, failure: Option<&Failure>) {
        let is_sent = failure.is_none_or(|failure| failure.sent != Sent::Never);
        if let Some(tool) = self.tool.take().filter(|_| is_sent) {
            tool.server.count_write();
        }
    }
}

impl<T> Drop for WriteInProgress<'_, T> {
    fn drop(&mut self) {
        if let Some(tool) = self.tool {
            tool.server.count_write();
            self.run.note_cut(tool.policy.effect);
        }
    }
}
