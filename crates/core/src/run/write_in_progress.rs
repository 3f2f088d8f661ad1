//! Decides which traces a write leaves when it ends in any way: cached responses from before it are
//! no longer fresh, and a write that was cut off is uncertain.

use crate::model::effect::Effect;
use crate::model::failure::{Failure, Sent};
use crate::registry::Tool;
use crate::run::context::Run;

/// A write in flight; for a read-only tool this guard does nothing.
pub(crate) struct WriteInProgress<'a, T> {
    run: &'a Run<'a, T>,
    /// The tool that writes, until the end is known.
    tool: Option<&'a Tool>,
}

impl<'a, T> WriteInProgress<'a, T> {
    pub(crate) fn by(run: &'a Run<'a, T>, tool: &'a Tool) -> Self {
        Self { run, tool: (tool.policy.effect != Effect::ReadOnly).then_some(tool) }
    }

    /// Ends the write; a write that certainly never arrived changed nothing.
    pub(crate) fn unless_never_sent(mut self, failure: Option<&Failure>) {
        let is_sent = failure.is_none_or(|failure| failure.sent != Sent::Never);
        if let Some(tool) = self.tool.take().filter(|_| is_sent) {
            tool.server.count_write();
        }
    }
}

impl<T> Drop for WriteInProgress<'_, T> {
    // Reached only if the attempt was cancelled: `unless_never_sent` takes the tool out.
    fn drop(&mut self) {
        if let Some(tool) = self.tool {
            tool.server.count_write();
            self.run.note_cut(tool.policy.effect);
        }
    }
}
