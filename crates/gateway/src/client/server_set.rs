//! Decides which servers a session sees, which connections its clients share, and the hooks that
//! run on new connections.

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

/// Hooks of higher layers on a session's connections.
pub(crate) trait SessionHooks: Send + Sync {
    /// Subscribes the session to the notifications that a modern server sends by itself.
    fn follow(&self, session: &Arc<Session>, connection: &Arc<Connection>);
    /// After a reconnection: notifies the client of every list that differs from the one cached
    /// under `key`.
    fn compare(&self, session: &Arc<Session>, key: String, connection: &Arc<Connection>);
}

/// The servers that an endpoint offers to sessions.
pub(crate) struct ServerSet {
    /// In the order of the configuration.
    pub servers: Vec<Arc<Server>>,
    /// All servers of the gateway: a fallback may lead to one that the endpoint does not offer.
    pub(crate) everywhere: Arc<[Arc<Server>]>,
    /// Warm children that wait for their next client.
    pub warm: Arc<WarmConnections>,
    pub(crate) shared: Arc<SharedConnections>,
    pub(crate) conversations: Arc<dyn SessionHooks>,
}

pub(crate) type SharedConnections = HashMap<String, Arc<SharedConnection>>;

/// The one connection that all clients of a shared server use.
#[derive(Default)]
pub(crate) struct SharedConnection {
    supervisor: OnceLock<Arc<ConnectionSupervisor>>,
    everyone: Arc<SharedClients>,
}

impl SharedConnection {
    /// The supervisor of the connection, if a client needed it.
    pub(crate) fn opened(&self) -> Option<Arc<ConnectionSupervisor>> {
        self.supervisor.get().cloned()
    }
}

impl ServerSet {
    /// The server of this name, whether the endpoint offers it or not.
    pub(crate) fn known(&self, name: &str) -> Option<&Arc<Server>> {
        self.everywhere.iter().find(|known| known.name == name)
    }

    /// The server of this name, if the endpoint offers it.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|known| known.name == name)
    }

    /// Whether all clients share one connection to this server.
    pub(crate) fn is_shared(&self, server: &str) -> bool {
        self.find(server).is_some_and(|known| known.shared)
    }

    /// The supervisor of a shared server's one connection; `sink` joins the clients that get
    /// messages which belong to no call.
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

    /// Closes the connections that no client owns: warm and shared ones.
    pub(crate) async fn close(&self) {
        self.warm.close().await;
        for supervisor in self.shared.values().filter_map(|shared| shared.supervisor.get()) {
            supervisor.close().await;
        }
    }
}

/// All clients that share a connection.
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

    // Upgraded under the lock, called after it: a sink may take other locks.
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
        // With several clients a question has no addressee, and a wrong guess would leak it to a
        // stranger.
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
