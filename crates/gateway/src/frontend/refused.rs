//! Decides the reply to a message that is not taken: a request is answered under its own id, even
//! if it is broken.
//!
//! A client that gets no answer under its id waits for ever, and a client that reads an HTTP error
//! ends its session. So a tool call fails like any other call, and any other request with a
//! protocol error.

use std::time::Duration;

use bytes::Bytes;
use seawall::{Cause, ErrorCode, Failure, FailureReport, Sent};

use crate::catalog::names;
use crate::client::event_id::StreamRequest;
use crate::protocol::build::{self, RpcError};
use crate::protocol::{Message, Outline, Reject, limits};
use crate::route::Route;

/// Why a message is not taken.
#[derive(Debug)]
pub(super) enum RefusedMessage {
    /// The message breaks a rule or a limit.
    Rejected(Reject),
    /// Too many bytes of other requests are held already.
    Crowded,
}

/// The addressee of the reply to a refused message.
pub(super) enum RefusedId {
    /// The sender waits for this answer.
    Sender(Bytes),
    /// A server waits for the sender's answer, and gets this error instead.
    Server(Message),
    /// No addressee is known.
    Nobody(RpcError),
}

/// Parses bytes into a message, or into the reason and outline of a refusal.
pub(super) fn parsed(bytes: Bytes) -> Result<Message, (RefusedMessage, Outline)> {
    Message::parse(bytes.clone())
        .map_err(|reject| (RefusedMessage::Rejected(reject), Outline::of(&bytes)))
}

impl RefusedMessage {
    /// The reply to a refused message, and its addressee.
    pub(super) fn tell(&self, route: &Route, outline: &Outline) -> RefusedId {
        let error = self.error();
        // Text that is no JSON may be anything: its id counts only if it is one object from start
        // to end.
        let is_readable = outline.is_whole
            || !matches!(self, Self::Rejected(Reject::Syntax(_) | Reject::Utf8(_)));
        let Some(id) = outline.id.as_ref().filter(|_| is_readable) else {
            return RefusedId::Nobody(error);
        };
        if outline.is_answer {
            return Message::parse(build::error(Some(id), &error))
                .map_or(RefusedId::Nobody(error), RefusedId::Server);
        }
        match self.of_a_call(outline).filter(|_| outline.method.as_deref() == Some("tools/call")) {
            Some(text) => {
                let report = self.report(route, outline.name.as_deref().unwrap_or_default(), text);
                let mut result = report.to_tool_result(route.policies.rendering(true));
                if outline.is_modern {
                    result["resultType"] = "complete".into();
                }
                RefusedId::Sender(build::result(id, result.to_string().as_bytes()))
            }
            None => RefusedId::Sender(build::error(Some(id), &error)),
        }
    }

    fn error(&self) -> RpcError {
        match self {
            Self::Rejected(reject) => RpcError::from(reject),
            Self::Crowded => RpcError::new(build::OVERLOADED, crowded()),
        }
    }

    /// The text for the model that made the call; `None` for faults of the client, which the model
    /// cannot mend.
    fn of_a_call(&self, outline: &Outline) -> Option<String> {
        let tool = outline.name.as_deref().map_or_else(|| "the tool".to_owned(), seawall::quote);
        match self {
            Self::Rejected(Reject::Size(limit)) => Some(format!(
                "The call of {tool} has {} bytes; at most {limit} are taken. It was not executed. Make it smaller: split \
                 what it carries over several calls, or name a file or an address that the tool can read instead.",
                outline.bytes
            )),
            Self::Rejected(Reject::Depth) => Some(format!(
                "The arguments of {tool} are nested deeper than {} levels. It was not executed. Make them flatter, or \
                 pass the inner part as text if the tool takes it so.",
                limits::DEPTH
            )),
            Self::Rejected(Reject::Members) => Some(format!(
                "The call of {tool} has an object of more than {} members. It was not executed. Split it over several \
                 calls.",
                limits::MEMBERS
            )),
            Self::Rejected(_) => None,
            Self::Crowded => Some(format!("The call of {tool} was not executed: {}", crowded())),
        }
    }

    fn report(&self, route: &Route, public: &str, message: String) -> FailureReport {
        let (server, tool) = match route.single() {
            Some(server) => (server.name.clone(), public),
            None => names::split(&route.set.servers, public).map_or_else(
                || (String::new(), public),
                |(server, tool)| (server.name.clone(), tool),
            ),
        };
        let (code, cause, retry_after) = match self {
            Self::Rejected(_) => (ErrorCode::ValidationError, Cause::InvalidInput, None),
            Self::Crowded => {
                (ErrorCode::Overloaded, Cause::Overloaded, Some(Duration::from_secs(1)))
            }
        };
        FailureReport {
            code,
            classic: message.clone(),
            failure: Failure::local(cause, retry_after, message.clone()),
            message,
            retry_after,
            tool: tool.to_owned(),
            server,
            attempts: 0,
            may_have_executed: false,
            debug: None,
            is_error: true,
        }
    }
}

/// The answer to a request that was in flight when the previous process of this gateway ended.
pub(super) fn interrupted(route: &Route, asked: &StreamRequest) -> Bytes {
    let text = "The gateway was restarted while this was under way. It may have been executed: check before you repeat it.";
    if !asked.is_call {
        return build::error(Some(&asked.id), &RpcError::new(build::SERVER_LOST, text));
    }
    let report = FailureReport {
        code: ErrorCode::ConnectionLost,
        message: text.to_owned(),
        classic: text.to_owned(),
        retry_after: None,
        tool: String::new(),
        server: route.single().map(|server| server.name.clone()).unwrap_or_default(),
        attempts: 1,
        may_have_executed: true,
        debug: None,
        is_error: true,
        failure: Failure { sent: Sent::Maybe, ..Failure::local(Cause::Network, None, text) },
    };
    let result = report.to_tool_result(route.policies.rendering(true));
    build::result(&asked.id, result.to_string().as_bytes())
}

fn crowded() -> String {
    format!(
        "large requests of {} bytes in all are under way already; try again in a moment",
        limits::REQUEST_BYTES
    )
}
