//! A request's entry among the pending requests, and its cancellation when the caller stops
//! waiting.

use std::sync::Arc;

use super::Connection;
use super::liveness::SentRequest;
use crate::protocol::build;
use crate::protocol::edit::JsonObject;
use crate::protocol::names::Era;
use crate::upstream::Wire;
use crate::upstream::call::CallCancel;

/// An entry among the pending requests, removed when the request is over, however it ends.
pub(super) struct RequestTicket {
    pub(super) connection: Arc<Connection>,
    pub(super) number: u64,
    pub(super) cancel: Arc<CallCancel>,
    /// The request as the liveness check knows it, while the server may be working on it.
    pub(super) sent: Option<SentRequest>,
    /// Whether the server has the request and must be sent its cancellation.
    pub(super) is_told: bool,
}

impl RequestTicket {
    /// Sends the cancellation to the server, once; returns whether an answer can still arrive.
    pub(super) fn call_off(&mut self) -> bool {
        // A modern server on HTTP takes the closed stream as the cancellation.
        let is_heard_otherwise =
            matches!(self.connection.wire, Wire::Http(_)) && self.connection.era() == Era::Modern;
        if std::mem::take(&mut self.is_told) && !is_heard_otherwise {
            let mut params =
                JsonObject::of(self.cancel.params().map(AsRef::as_ref).unwrap_or_default());
            params.set("requestId", self.number.to_string());
            self.connection
                .tell_soon(build::notification("notifications/cancelled", Some(&params.json())));
        }
        !is_heard_otherwise
    }
}

impl Drop for RequestTicket {
    fn drop(&mut self) {
        // The lock is released within this statement: `call_off` and `suspect` take it again.
        let was_pending = self.connection.open().pending.remove(&self.number).is_some();
        if was_pending {
            self.call_off();
            if let Some(sent) = self.sent.take() {
                self.connection.suspect(sent);
            }
        }
    }
}
