//! Decides which events an attempt emits: its start and its end. Reads the clock only if a listener
//! or the caller wants the elapsed time.

use std::time::Duration;

use crate::env::Env;
use crate::model::failure::Cause;
use crate::report::event::Event;
use crate::time::clock::Moment;

/// An attempt in flight. Dropped before [`Self::stop`], it was cancelled.
pub(crate) struct AttemptWatch<'a> {
    env: &'a Env,
    /// Server and tool.
    names: (&'a str, &'a str),
    attempt: u32,
    since: Option<Moment>,
}

impl<'a> AttemptWatch<'a> {
    /// `is_measured`: the elapsed time is wanted even without listeners.
    pub(crate) fn start(
        env: &'a Env,
        names: (&'a str, &'a str),
        attempt: u32,
        is_measured: bool,
    ) -> Self {
        env.events.emit(|| Event::AttemptStarted {
            server: names.0.into(),
            tool: names.1.into(),
            attempt,
        });
        let is_wanted = env.events.has_listeners() || is_measured;
        Self { env, names, attempt, since: is_wanted.then(|| env.clock.now()) }
    }

    /// Ends the attempt; returns the elapsed time if it was measured.
    pub(crate) fn stop(mut self, cause: Option<Cause>) -> Option<Duration> {
        let took = self.tell(cause);
        // Without a start `Drop` reports nothing, so the attempt is not reported as cancelled too.
        self.since = None;
        took
    }

    fn tell(&self, cause: Option<Cause>) -> Option<Duration> {
        let elapsed = self.env.clock.now().since(self.since?);
        let ((server, tool), attempt) = (self.names, self.attempt);
        self.env.events.emit(|| Event::AttemptEnded {
            server: server.into(),
            tool: tool.into(),
            attempt,
            elapsed,
            cause,
        });
        Some(elapsed)
    }
}

impl Drop for AttemptWatch<'_> {
    fn drop(&mut self) {
        self.tell(Some(Cause::Cancelled));
    }
}
