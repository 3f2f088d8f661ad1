//! A request's place in a conversation, and how a server hears that nobody waits for its answer any
//! more.

use std::sync::Arc;

use super::Connection;
use super::liveness::SentRequest;
use crate::protocol::build;
use crate::protocol::edit::JsonObject;
use crate::protocol::names::Era;
use crate::upstream::Wire;
use crate::upstream::call::CallCancel;

/// A place among the pending requests: given back when the request is over, however it ends.
pub(super) struct RequestTicket {
    pub(super) connection: Arc<Connection>,
    pub(super) number: u64,
    pub(super) cancel: Arc<CallCancel>,
    /// What is known of it as long as its server has work with it.
    pub(super) sent: Option<SentRequest>,
    /// Whether the server knows of it and must hear when it is called off.
    pub(super) is_told: bool,
}

impl RequestTicket {
    /// Tells the server that nobody waits any more, once; whether its answer can come all the same.
    pub(super) fn call_off(&mut self) -> bool {
        // A modern server on HTTP takes the closed stream as the word.
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
        let was_pending = self.connection.open().pending.remove(&self.number).is_some();
        if was_pending {
            self.call_off();
            if let Some(sent) = self.sent.take() {
                self.connection.suspect(sent);
            }
        }
    }
}
