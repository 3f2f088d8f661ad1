//! An answer of a server, or why there is none.

use bytes::Bytes;
use seawall::FailureReport;

use super::UpstreamFailure;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{self, JsonObject};
use crate::protocol::{Id, Message};

/// An answer with whatever id, or why there is none.
pub(crate) type Reply = Result<Message, Refusal>;

/// Why there is no answer of a server.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// A server failed.
    Failed(String, UpstreamFailure),
    /// A call under a policy failed; and whether its tool has an output schema.
    Reported(Box<FailureReport>, bool),
    /// The request is wrong, or we are.
    Wrong(RpcError),
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        Self::Wrong(error)
    }
}

/// A message with another `params` or `result`.
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

/// An answer of our own; its id is replaced by the client's on the way out.
pub(crate) fn answered(result: &[u8]) -> Reply {
    parsed(build::result(&Id::number(0), result))
}

/// Reads what we have just written.
pub(crate) fn parsed(bytes: Bytes) -> Reply {
    Message::parse(bytes).map_err(|reject| Refusal::Wrong(RpcError::from(&reject)))
}
