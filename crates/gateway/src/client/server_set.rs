//! The servers that a session sees: who keeps the conversations that clients share, and what is
//! done with new ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use seawall::Question;

use super::session::Session;
use super::session::warm::WarmConnections;
use crate::protocol::Message;
use crate::upstream::call::ClientSink;
use crate::upstream::handshake::HandshakeParams;
use crate::upstream::supervisor::PrepareConnection;
use crate::upstream::{Connection, ConnectionSupervisor, Server};

/// What the layers above do with a session's conversations.
pub(crate) trait SessionHooks: Send + Sync {
    /// A modern server may speak by itself: the session hears what it says.
    fn follow(&self, session: &Arc<Session>, connection: &Arc<Connection>);
    /// A conversation was opened again: the client hears which lists are not what it was shown,
    /// which is known under `key`.
    fn compare(&self, session: &Arc<Session>, key: String, connection: &Arc<Connection>);
}

/// The servers that an endpoint offers to sessions.
pub(crate) struct ServerSet {
    /// In the order of the configuration.
    pub servers: Vec<Arc<Server>>,
    /// Children that wait for their next client.
    pub warm: Arc<WarmConnections>,
    pub(crate) shared: Arc<SharedConnections>,
    pub(crate) conversations: Arc<dyn SessionHooks>,
}

pub(crate) type SharedConnections = HashMap<String, SharedConnection>;

/// The one conversation that all clients of a server have.
#[derive(Default)]
pub(crate) struct SharedConnection {
    supervisor: OnceLock<Arc<ConnectionSupervisor>>,
    everyone: Arc<SharedClients>,
}

impl ServerSet {
    /// Whether all clients talk to this server over one conversation.
    pub(crate) fn is_shared(&self, server: &str) -> bool {
        self.servers.iter().any(|known| known.name == server && known.shared)
    }

    /// Who keeps the one conversation of a shared server; `sink` hears what belongs to nobody in
    /// particular.
    pub(crate) fn common(
        &self,
        server: &Arc<Server>,
        handshake: &HandshakeParams,
        sink: &Arc<dyn ClientSink>,
    ) -> Arc<ConnectionSupervisor> {
        let open = || {
            let everyone = self
                .shared
                .get(&server.name)
                .map(|common| Arc::clone(&common.everyone))
                .unwrap_or_default();
            let prepare: PrepareConnection =
                Box::new(|connection| Box::pin(async move { connection.initialized().await }));
            ConnectionSupervisor::new(server, handshake.clone(), everyone, prepare)
        };
        let Some(common) = self.shared.get(&server.name) else { return open() };
        common.everyone.join(sink);
        Arc::clone(common.supervisor.get_or_init(open))
    }

    /// Ends what no client owns.
    pub(crate) async fn close(&self) {
        self.warm.close().await;
        for supervisor in self.shared.values().filter_map(|shared| shared.supervisor.get()) {
            supervisor.close().await;
        }
    }
}

/// All clients that share a conversation.
#[derive(Default)]
struct SharedClients {
    sinks: Mutex<Vec<Weak<dyn ClientSink>>>,
}

impl SharedClients {
    fn join(&self, sink: &Arc<dyn ClientSink>) {
        let mut sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        sinks.retain(|known| known.strong_count() > 0);
        let is_known =
            sinks.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(sink)));
        if !is_known {
            sinks.push(Arc::downgrade(sink));
        }
    }

    fn present(&self) -> Vec<Arc<dyn ClientSink>> {
        self.sinks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .filter_map(Weak::upgrade)
            .collect()
    }
}

impl ClientSink for SharedClients {
    fn notify(&self, connection: &Arc<Connection>, notification: Message) {
        for sink in self.present() {
            sink.notify(connection, notification.clone());
        }
    }

    fn ask(&self, connection: &Arc<Connection>, question: Message, open: Option<Question>) {
        match self.present().as_slice() {
            [only] => only.ask(connection, question, open),
            _ => connection.refuse(
                &question,
                "several clients share this server; it is not clear which one to ask",
            ),
        }
    }

    fn is_one_client(&self) -> bool {
        self.present().len() <= 1
    }

    fn listed(&self, connection: &Arc<Connection>, changed: &[&'static str]) {
        for sink in self.present() {
            sink.listed(connection, changed);
        }
    }

    fn is_open(&self) -> bool {
        self.present().iter().any(|sink| sink.is_open())
    }
}
