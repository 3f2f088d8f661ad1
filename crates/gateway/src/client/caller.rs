//! Decides the identity of a client: for the ledger, the queue and the servers.

use std::sync::Arc;

use crate::client::session::Session;
use crate::client::stream::ClientStream;
use crate::config::layer::Rejoining;
use crate::protocol::Message;
use crate::protocol::edit::JsonObject;
use crate::protocol::names::{CLIENT_INFO, Era};

/// The client that makes a call.
#[derive(Clone)]
pub(crate) enum Caller {
    /// A legacy client: its session, and one of the session's streams.
    Legacy(Arc<Session>, Arc<ClientStream>),
    /// A modern client, which sends its whole state with each request; named by its own secret, or
    /// empty if it gave none.
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

    /// The scope within which an identical call counts as a repeat, and whether a client in it may
    /// take the answer of the earlier call. `None`: no call is ever rejoined.
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

    /// The identity of the client. Clients that differ neither in secret nor in client info share
    /// one.
    pub(crate) fn identity(&self, request: &Message) -> Arc<str> {
        match self {
            Self::Legacy(session, _) => session.owner(),
            Self::Modern(name) if name.is_empty() => self.conversation(request, Rejoining::Caller),
            Self::Modern(name) => Arc::clone(name),
        }
    }

    /// The scope of one conversation with the client, in which a read resolves an uncertain write.
    /// A client with an identity may open a session for each call, so its sessions are one scope;
    /// if `rejoin` is not `caller` each session stands alone, for one identity may speak for many
    /// users.
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
