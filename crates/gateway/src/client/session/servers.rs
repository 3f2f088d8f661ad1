//! Decides a session's view of its servers: the supervisor of each, the info the client was given
//! before the server answered, and the state to replay after a reconnection.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use super::Session;
use super::warm::{ConnectionUser, WarmConnection};
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::Era;
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{Message, build};
use crate::upstream::call::ClientSink;
use crate::upstream::handshake::{self, HandshakeParams};
use crate::upstream::startup::ListingProgress;
use crate::upstream::supervisor::PrepareConnection;
use crate::upstream::{Connection, ConnectionSupervisor, Server, UpstreamFailure};

impl Session {
    /// Takes the client's `initialize` parameters; returns whether they are the first.
    pub(crate) fn take_initialize(&self, initialize: &[u8]) -> bool {
        let initialize = Bytes::copy_from_slice(initialize);
        let handshake = HandshakeParams {
            prefer: Era::Legacy,
            meta: handshake::meta(&initialize),
            initialize,
            headers: self.headers.clone(),
        };
        self.handshake.set(handshake).is_ok()
    }

    /// The client's `initialize` as a request, for whoever decides whether it may still be greeted.
    pub(crate) fn greeting(&self) -> Option<Message> {
        let params = &self.handshake.get()?.initialize;
        let before = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":"#.as_slice();
        Message::parse([before, params, b"}"].concat().into()).ok()
    }

    /// The catalog cache key for this server and clients like this one; clients that have not sent
    /// `initialize` share a key of their own.
    pub(crate) fn key(&self, server: &Server) -> String {
        self.handshake.get().map_or_else(
            || format!("{}-", server.remembered_as()),
            |handshake| handshake.key(server),
        )
    }

    /// Notes that the client's `initialize` was answered.
    pub(crate) fn greet(&self) {
        self.greeted.store(true, Ordering::Release);
    }

    /// Whether the client's `initialize` was answered.
    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted.load(Ordering::Acquire)
    }

    /// Notes the cached info that the client was given before the server itself answered.
    pub(crate) fn promise(&self, server: &Server, info: Bytes) {
        self.promised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(server.name.clone(), Some(info));
    }

    /// Notes that the client got no list of this server, not even a cached one.
    pub(crate) fn miss(&self, server: &Server) {
        self.promised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(server.name.clone(), None);
    }

    /// Tells the client to read the lists of a server that was missing; once.
    pub(super) fn appeared(&self, connection: &Connection) {
        let promised =
            self.promised.lock().unwrap_or_else(PoisonError::into_inner).remove(&connection.server);
        if let (Some(None), Some(info)) = (promised, connection.info()) {
            self.lists_changed(info);
        }
    }

    /// The gateway has read a server's lists: notifies the client once of every list that differs
    /// from the one it has seen.
    pub(super) fn listed(&self, connection: &Connection, changed: &[&'static str]) {
        // The client has read nothing yet, and will read the current lists.
        if !self.initialized.load(Ordering::SeqCst) {
            return;
        }
        let promised =
            self.promised.lock().unwrap_or_else(PoisonError::into_inner).remove(&connection.server);
        let capabilities =
            |info: &[u8]| JsonObject::of(info).get("capabilities").map(<[u8]>::to_vec);
        match (promised, connection.info()) {
            (Some(None), Some(info)) => self.lists_changed(info),
            (Some(Some(before)), Some(info))
                if capabilities(&before) != capabilities(&info.result) =>
            {
                self.lists_changed(info);
            }
            _ => {
                changed.iter().for_each(|name| self.general.notify(build::notification(name, None)))
            }
        }
    }

    /// Clears the promises about servers that are listed by now: the client will read from them
    /// directly.
    pub(super) fn keep_promises(&self, connections: &[Arc<Connection>]) {
        let is_there = |server: &str| {
            connections
                .iter()
                .any(|connection| connection.server == server && is_listed(connection))
        };
        let mut promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        promised.retain(|server, _| !is_there(server));
    }

    /// The supervisor of the connection to a server; created on first use.
    pub(crate) fn supervisor(
        self: &Arc<Self>,
        server: &Arc<Server>,
    ) -> Result<Arc<ConnectionSupervisor>, UpstreamFailure> {
        let Some(handshake) = self.handshake.get() else {
            return Err(UpstreamFailure::Handshake(
                "the client has not sent initialize yet".to_owned(),
            ));
        };
        // A call that began under an earlier configuration reaches the server as it is reached now.
        let set = self.set();
        let server = set.known(&server.name).ok_or_else(|| {
            UpstreamFailure::Handshake("the configuration has this server no longer".to_owned())
        })?;
        // The lock is held to the end: two calls at once must not start two child processes.
        let mut supervisors = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = supervisors.get(&server.name) {
            return Ok(Arc::clone(&kept.supervisor));
        }
        server.reconnect.forgive();
        let kept = if server.shared {
            let sink = self.sink(&self.general);
            let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
            sinks.insert(server.name.clone(), Arc::clone(&sink));
            WarmConnection::new(
                server,
                handshake,
                set.common(server, handshake, &sink),
                Arc::default(),
            )
        } else {
            set.warm.take(server, handshake).unwrap_or_else(|| own(server, handshake))
        };
        kept.seat.take(self);
        let supervisor = Arc::clone(&kept.supervisor);
        supervisors.insert(server.name.clone(), kept);
        Ok(supervisor)
    }

    /// Brings a connection that was opened, perhaps again, to the state that the client assumes:
    /// handshake completed, log level and subscriptions replayed.
    pub(super) async fn opened(
        self: &Arc<Self>,
        server: &Arc<Server>,
        connection: &Arc<Connection>,
    ) {
        // Not initialized yet: `notified` completes the handshake of every open connection later.
        if !self.initialized.load(Ordering::SeqCst) {
            return;
        }
        self.ready(connection).await;
        self.replay(connection).await;
        self.set().conversations.compare(self, self.key(server), connection);
    }

    /// Tells the client to read again every list that the server has.
    fn lists_changed(&self, info: &ServerInfo) {
        for list in ["tools", "prompts", "resources"] {
            if info.can(list) {
                self.general.notify(build::notification(
                    &format!("notifications/{list}/list_changed"),
                    None,
                ));
            }
        }
    }

    /// Replays the client's log level and subscriptions to a legacy server.
    async fn replay(&self, connection: &Arc<Connection>) {
        if connection.era() != Era::Legacy {
            return;
        }
        if let Some(level) = self.log_level() {
            connection.note_private();
            let _not_every_server_logs = connection
                .ask("logging/setLevel", format!(r#"{{"level":{}}}"#, quoted(&level)).as_bytes())
                .await;
        }
        for uri in self.subscribed(&connection.server) {
            connection.note_private();
            let _gone = connection
                .ask("resources/subscribe", format!(r#"{{"uri":{}}}"#, quoted(&uri)).as_bytes())
                .await;
        }
    }
}

/// The supervisor of a session's own connection. The hook looks up the session when a connection
/// opens, for a warm connection may have changed hands by then.
fn own(server: &Arc<Server>, handshake: &HandshakeParams) -> WarmConnection {
    let seat: Arc<ConnectionUser> = Arc::default();
    let (user, opened) = (Arc::downgrade(&seat), Arc::downgrade(server));
    let prepare: PrepareConnection = Box::new(move |connection| {
        let (session, server) = (user.upgrade().and_then(|seat| seat.session()), opened.upgrade());
        Box::pin(async move {
            if let (Some(session), Some(server)) = (session, server) {
                session.opened(&server, &connection).await;
            }
        })
    });
    let sink: Arc<dyn ClientSink> = Arc::clone(&seat) as Arc<dyn ClientSink>;
    WarmConnection::new(
        server,
        handshake,
        ConnectionSupervisor::new(server, handshake.clone(), sink, prepare),
        seat,
    )
}

/// Whether the server is complete for a waiting client: its tools were listed, or no listing is
/// due.
pub(super) fn is_listed(connection: &Connection) -> bool {
    matches!(connection.listing(), ListingProgress::Done | ListingProgress::Unasked)
}
