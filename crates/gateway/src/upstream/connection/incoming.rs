//! Routes a server's messages: an answer to its call, a notification or question to the client it
//! concerns.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Connection, PendingRequest};
use crate::protocol::names::{Era, SUBSCRIPTION_ID};
use crate::protocol::{Id, Message, MessageKind, build, edit, scan};
use crate::upstream::call::ClientSink;
use crate::upstream::{UpstreamFailure, beginning};

impl Connection {
    /// Takes a message of the server; `on` is the request on whose answer stream it came.
    pub(crate) fn receive(self: &Arc<Self>, message: Message, on: Option<u64>) {
        self.hear();
        match message.kind() {
            MessageKind::Result | MessageKind::Error => {
                let number = message.id().and_then(Id::as_number);
                // Ids start at one and rise, so an id from `next` on was never given to a request.
                if number
                    .is_none_or(|number| number == 0 || number >= self.next.load(Ordering::Relaxed))
                {
                    self.astray(&message);
                }
                self.settle(number, Ok(message));
            }
            MessageKind::Notification => self.notified(message, on),
            MessageKind::Request if message.method() == "ping" => {
                if let Some(id) = message.id() {
                    self.tell_soon(build::result(id, b"{}"));
                }
            }
            MessageKind::Request => self.sink(on, true).ask(self, message, None),
        }
    }

    /// Counts an answer to a request that was never sent here. Its call cannot be known, so the
    /// answer is dropped, and the call that it was meant for keeps waiting. A late or repeated
    /// answer is not counted: its id was given to a call that has ended.
    fn astray(&self, answer: &Message) {
        if let Some(status) = self.status.get() {
            status.stray();
        }
        if !self.has_strays.swap(true, Ordering::Relaxed) {
            let id = answer.id().map_or_else(
                || "null".to_owned(),
                |id| beginning(&String::from_utf8_lossy(id.json())),
            );
            let text =
                format!("answered under an id that nothing was asked with ({id}); passed over");
            crate::runtime::log::warn_of(&self.server, &text);
        }
    }

    fn notified(self: &Arc<Self>, notification: Message, on: Option<u64>) {
        let number =
            |json: &[u8]| std::str::from_utf8(json).ok().and_then(|text| text.parse::<u64>().ok());
        if let Some(span) = notification.meta(SUBSCRIPTION_ID) {
            let listener = number(
                scan::text(span.of(notification.raw())).as_deref().unwrap_or_default().as_bytes(),
            )
            .or_else(|| number(span.of(notification.raw())));
            let found = listener.and_then(|number| {
                self.open()
                    .pending
                    .get(&number)
                    .map(|pending| (pending.id.clone(), Arc::clone(&pending.sink)))
            });
            if let Some((id, sink)) = found {
                return self.pass(&notification, span, id.json(), &sink);
            }
        }
        if notification.method() == "notifications/tools/list_changed" {
            // Lists read before this notification are stale, and so are the header params learned
            // from them.
            self.forget_unread_list();
            if let Some(header_params) = self.header_params.get() {
                header_params.forget();
            }
        }
        match notification.method() {
            "notifications/progress" => {
                let Some(span) = notification.field("progressToken") else { return };
                let found = number(span.of(notification.raw())).and_then(|number| {
                    let open = self.open();
                    let pending = open.pending.get(&number)?;
                    Some((pending.token.clone()?, Arc::clone(&pending.sink)))
                });
                if let Some((token, sink)) = found {
                    self.pass(&notification, span, &token, &sink);
                }
            }
            // A modern server sends no requests that it could cancel, so this ends a subscription.
            "notifications/cancelled" if self.era() == Era::Modern => {
                let ended = notification
                    .field("requestId")
                    .and_then(|span| number(span.of(notification.raw())));
                self.settle(
                    ended,
                    Err(UpstreamFailure::Lost("it ended the subscription".to_owned())),
                );
            }
            "notifications/message" | "notifications/cancelled" => {
                self.sink(on, false).notify(self, notification)
            }
            _ => match on {
                Some(_) => self.sink(on, false).notify(self, notification),
                None => self.general.notify(self, notification),
            },
        }
    }

    fn pass(
        self: &Arc<Self>,
        notification: &Message,
        span: scan::Span,
        with: &[u8],
        sink: &Arc<dyn ClientSink>,
    ) {
        if let Ok(spliced) = Message::parse(edit::splice(notification.raw(), &mut [(span, with)])) {
            sink.notify(self, spliced);
        }
    }

    /// The sink of a message that names no call: the call on whose stream it came, or the only call
    /// it can be about, or the connection's general sink. If no client listens there, the newest
    /// call, as long as all calls belong to one client: a client is never asked in another's place.
    fn sink(&self, on: Option<u64>, is_question: bool) -> Arc<dyn ClientSink> {
        let open = self.open();
        let named = on.and_then(|number| open.pending.get(&number));
        let fits = |pending: &&PendingRequest| {
            !pending.sink.is_nobody() && (!is_question || pending.sink.can_be_asked())
        };
        let mut fitting = open.pending.values().filter(fits);
        let only = fitting.next().filter(|_| fitting.next().is_none());
        let newest = || {
            let numbered = open.pending.iter().filter(|(_, pending)| fits(pending));
            numbered.max_by_key(|(number, _)| **number).map(|(_, pending)| pending)
        };
        let found = named.or(only).or_else(|| {
            newest().filter(|_| !self.general.is_open() && self.general.is_one_client())
        });
        found.map_or_else(|| Arc::clone(&self.general), |pending| Arc::clone(&pending.sink))
    }
}
