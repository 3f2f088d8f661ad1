//! Decides how messages reach one client over one of its streams: notifications pass, questions get
//! ids of the session.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use seawall::Question;

use super::{ClientQuestion, Session};
use crate::client::stream::ClientStream;
use crate::protocol::Message;
use crate::protocol::edit::{self, JsonObject};
use crate::upstream::Connection;
use crate::upstream::call::ClientSink;

/// The sink to one client over one of its streams.
pub(super) struct SessionSink {
    pub(super) session: Weak<Session>,
    pub(super) stream: Arc<ClientStream>,
}

impl ClientSink for SessionSink {
    fn notify(&self, connection: &Arc<Connection>, notification: Message) {
        // All clients of a shared server hear it; what one of them follows is no news for the
        // others.
        if notification.method() == "notifications/resources/updated"
            && let (Some(session), Some(uri)) =
                (self.session.upgrade(), notification.field_text("uri"))
            && session.set().is_shared(&connection.server)
            && !session.subscribed(&connection.server).iter().any(|known| *known == uri)
        {
            return;
        }
        if notification.method() != "notifications/cancelled" {
            return self.stream.notify(notification.raw().clone());
        }
        // The server withdraws a question; the client knows it under the session's id.
        let (Some(session), Some(span)) = (self.session.upgrade(), notification.field("requestId"))
        else {
            return;
        };
        let is_it = |asked: &ClientQuestion| {
            matches!(asked, ClientQuestion::Server { connection: from, id, .. }
                if Weak::as_ptr(from) == Arc::as_ptr(connection) && id.json() == span.of(notification.raw()))
        };
        let number =
            session.asked().iter().find(|(_, asked)| is_it(asked)).map(|(number, _)| *number);
        if let Some(number) = number {
            session.asked().remove(&number);
            self.stream.say(edit::splice(
                notification.raw(),
                &mut [(span, number.to_string().as_bytes())],
            ));
        }
    }

    fn say(&self, notification: Message) {
        self.stream.notify(notification.into_raw());
    }

    fn ask(&self, connection: &Arc<Connection>, question: Message, open: Option<Question>) {
        let (Some(session), Some(id), Some(id_span)) =
            (self.session.upgrade(), question.id(), question.id_span())
        else {
            return connection.refuse(&question, "the client is gone");
        };
        if let Some(capability) = undeclared(&session, question.method()) {
            let why = format!("the client did not declare the capability {capability}");
            return connection.refuse(&question, &why);
        }
        connection.note_private();
        if Arc::ptr_eq(&self.stream, &session.general) && session.holds_back(connection, &question)
        {
            return;
        }
        let number = session.next.fetch_add(1, Ordering::Relaxed);
        let token_span = question.meta("progressToken");
        let token = token_span.map(|span| Bytes::copy_from_slice(span.of(question.raw())));
        // Remembered before it is sent: the client's answer may arrive before `ask` returns.
        if !session.remember(
            number,
            ClientQuestion::Server {
                connection: Arc::downgrade(connection),
                id: id.detached(),
                token,
                _open: open,
            },
        ) {
            return connection
                .refuse(&question, "the client has too many questions to answer already");
        }
        let text = number.to_string();
        let mut cuts: Vec<_> = [Some(id_span), token_span]
            .into_iter()
            .flatten()
            .map(|span| (span, text.as_bytes()))
            .collect();
        if !self.stream.ask(edit::splice(question.raw(), &mut cuts)) {
            session.asked().remove(&number);
            connection.refuse(&question, "the client has not taken what was said before");
        }
    }

    fn listed(&self, connection: &Arc<Connection>, changed: &[&'static str]) {
        if let Some(session) = self.session.upgrade() {
            session.listed(connection, changed);
        }
    }

    fn can_be_asked(&self) -> bool {
        true
    }

    fn pause(&self) {
        self.stream.pause();
    }

    fn is_open(&self) -> bool {
        self.stream.is_read()
    }
}

/// The capability that a question needs, if the client has not declared it in its handshake. Such a
/// client may never answer.
fn undeclared(session: &Session, method: &str) -> Option<&'static str> {
    let capability = match method {
        "sampling/createMessage" => "sampling",
        "elicitation/create" => "elicitation",
        "roots/list" => "roots",
        _ => return None,
    };
    let initialize = JsonObject::of(&session.handshake.get()?.initialize);
    let declared = JsonObject::of(initialize.get("capabilities").unwrap_or(b"{}"));
    declared.get(capability).is_none().then_some(capability)
}
