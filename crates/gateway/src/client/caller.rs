//! Decides who a client is: to the ledger, to the queue, to the servers.

use std::sync::Arc;

use crate::client::session::Session;
use crate::client::stream::ClientStream;
use crate::config::layer::Rejoining;
use crate::protocol::Message;
use crate::protocol::edit::JsonObject;
use crate::protocol::names::{CLIENT_INFO, Era};

/// Who asks.
#[derive(Clone)]
pub(crate) enum Caller {
    /// A session, on one of its streams.
    Legacy(Arc<Session>, Arc<ClientStream>),
    /// Somebody who says everything with each request; by what name, if it gave a secret of its
    /// own.
    Modern(Arc<str>),
}

impl Caller {
    /// The era of the client.
    pub(crate) fn era(&self) -> Era {
        match self {
            Self::Legacy(..) => Era::Legacy,
            Self::Modern(_) => Era::Modern,
        }
    }

    /// Who counts as the same caller when the identical call is made again, and whether one of them
    /// may get another's answer. `None`: nobody does.
    pub(crate) fn rejoins(&self, request: &Message, rejoin: Rejoining) -> Option<(Arc<str>, bool)> {
        let named =
            |name: &str, info: &[u8]| format!("{name} {}", String::from_utf8_lossy(info)).into();
        match (self, rejoin) {
            (_, Rejoining::Off) => None,
            (Self::Legacy(session, _), Rejoining::Caller) if !session.identity.is_empty() => {
                let params = session
                    .handshake
                    .get()
                    .map(|handshake| handshake.initialize.clone())
                    .unwrap_or_default();
                let info = JsonObject::of(&params).get("clientInfo").unwrap_or_default().to_vec();
                Some((named(&session.identity, &info), true))
            }
            (Self::Legacy(session, _), _) => Some((Arc::clone(&session.id), true)),
            (Self::Modern(_), Rejoining::Session) => None,
            // Clients that cannot be told apart must not get each other's answers.
            (Self::Modern(name), Rejoining::Caller) => {
                let info = request.meta_json(CLIENT_INFO).unwrap_or_default();
                Some((named(name, info), !name.is_empty()))
            }
        }
    }

    /// Who the client is. Clients that cannot be told apart, neither by a secret nor by what they
    /// say of themselves, are one.
    pub(crate) fn identity(&self, request: &Message) -> Arc<str> {
        match self {
            Self::Legacy(session, _) => session.owner(),
            Self::Modern(name) if name.is_empty() => self.conversation(request, Rejoining::Caller),
            Self::Modern(name) => Arc::clone(name),
        }
    }

    /// What one conversation with it is. A client that is known may open a session for each call,
    /// so all of them are one, unless it speaks for many.
    pub(crate) fn conversation(&self, request: &Message, rejoin: Rejoining) -> Arc<str> {
        match self {
            Self::Legacy(session, _) if rejoin == Rejoining::Caller => session.owner(),
            Self::Legacy(session, _) => Arc::clone(&session.id),
            Self::Modern(name) => {
                let info = request.meta_json(CLIENT_INFO).unwrap_or_default();
                format!("{name} {}", String::from_utf8_lossy(info)).into()
            }
        }
    }
}
