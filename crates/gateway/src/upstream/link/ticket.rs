//! A request's place in a conversation, and how a server hears that nobody waits for its answer any more.

use std::sync::Arc;

use super::Link;
use super::liveness::Sent;
use crate::protocol::build;
use crate::protocol::edit::Object;
use crate::protocol::names::Era;
use crate::upstream::Wire;
use crate::upstream::call::Cancel;

/// A place among the pending requests: given back when the request is over, however it ends.
pub(super) struct Ticket {
    pub(super) link: Arc<Link>,
    pub(super) number: u64,
    pub(super) cancel: Arc<Cancel>,
    /// What is known of it as long as its server has work with it.
    pub(super) sent: Option<Sent>,
    /// Whether the server knows of it and must hear when it is called off.
    pub(super) is_told: bool,
}

impl Ticket {
    /// Tells the server that nobody waits any more, once; whether its answer can come all the same.
    pub(super) fn call_off(&mut self) -> bool {
        // A modern server on HTTP takes the closed stream as the word.
        let is_heard_otherwise = matches!(self.link.wire, Wire::Http(_)) && self.link.era() == Era::Modern;
        if std::mem::take(&mut self.is_told) && !is_heard_otherwise {
            let mut params = Object::of(self.cancel.params().map(AsRef::as_ref).unwrap_or_default());
            params.set("requestId", self.number.to_string());
            self.link.tell_soon(build::notification("notifications/cancelled", Some(&params.json())));
        }
        !is_heard_otherwise
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let was_pending = self.link.open().pending.remove(&self.number).is_some();
        if was_pending {
            self.call_off();
            if let Some(sent) = self.sent.take() {
                self.link.suspect(sent);
            }
        }
    }
}
