//! Decides where a call runs whose client may come back for the answer: in the task of the client's
//! connection while the client waits there, in a task of its own once it does not.
//!
//! A task for each call would be another to wake, on another thread, at the start and at the end of
//! every call.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::sessions::HttpSession;
use crate::client::calls::CallInProgress;
use crate::client::stream::ClientStream;
use crate::protocol::pieces::TwoPieces;

/// The work of a call; `None`: the client cancelled the call and waits for no answer.
pub(super) type CallWork = BoxFuture<'static, Option<TwoPieces>>;

/// A call that its client waits for. Dropped before its end, it runs on in a task of its own.
pub(super) struct AttendedCall {
    running: Option<(CallWork, CallEnd)>,
}

/// What the end of a call changes.
pub(super) struct CallEnd {
    /// The session that keeps the answer.
    pub owner: Arc<HttpSession>,
    /// The stream that carries the answer.
    pub to: Arc<ClientStream>,
    /// The call among those of its client.
    pub began: CallInProgress,
}

impl AttendedCall {
    pub(super) fn new(work: CallWork, end: CallEnd) -> Self {
        Self { running: Some((work, end)) }
    }

    /// Waits for the answer, and changes nothing: who waits for the stream meanwhile would be woken
    /// for an answer that is in its hands.
    pub(super) async fn answer(&mut self) -> Option<TwoPieces> {
        match &mut self.running {
            Some((work, _)) => work.await,
            None => std::future::pending().await,
        }
    }

    /// Puts the answer on the stream.
    pub(super) fn end(&mut self, answer: Option<TwoPieces>) {
        if let Some((_, end)) = self.running.take() {
            end.with(answer);
        }
    }
}

impl CallEnd {
    fn with(self, answer: Option<TwoPieces>) {
        // Dropped before the answer is visible: a client may reuse the id as soon as it reads the
        // answer.
        drop(self.began);
        self.to.finish(answer);
        self.owner.make_room();
    }
}

impl Drop for AttendedCall {
    fn drop(&mut self) {
        // During shutdown there may be no runtime left to spawn on.
        if let Some((work, end)) = self.running.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(async move { end.with(work.await) });
        }
    }
}
