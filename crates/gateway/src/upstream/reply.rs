//! A server's answer to a call, or the reason why there is none.

use bytes::Bytes;
use seawall::FailureReport;

use super::UpstreamFailure;
use crate::authz::AuthzRefusal;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{self, JsonObject};
use crate::protocol::{Id, Message};

/// An answer with any id, or the reason why there is none.
pub(crate) type Reply = Result<Message, Refusal>;

/// Why a call has no answer of a server.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The named server failed.
    Failed(String, UpstreamFailure),
    /// A call under a policy failed; and whether its tool has an output schema.
    Reported(Box<FailureReport>, bool),
    /// The call to the named server is not allowed, or nobody can say now.
    NotAllowed(String, Box<AuthzRefusal>),
    /// The request is wrong, or the gateway made a mistake.
    Wrong(RpcError),
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self::Wrong(error)
    }
}

/// The message with its `params` or `result` replaced.
pub(crate) fn with_body(message: &Message, body: &[u8]) -> Reply {
    match message.body() {
        Some(span) => parsed(edit::splice(message.raw(), &mut [(span, body)])),
        None => {
            let mut whole = JsonObject::of(message.raw());
            whole.set("params", body);
            parsed(whole.json().into())
        }
    }
}

/// An answer of the gateway's own; its id is replaced by the client's on the way out.
pub(crate) fn answered(result: &[u8]) -> Reply {
    parsed(build::result(&Id::number(0), result))
}

/// Parses a message that the gateway has just built.
pub(crate) fn parsed(bytes: Bytes) -> Reply {
    Message::parse(bytes).map_err(|reject| Refusal::Wrong(RpcError::from(&reject)))
}
