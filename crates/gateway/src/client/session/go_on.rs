//! Decides how a session goes on: after a restart of the gateway, and after its idle connections
//! were given back.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Session;
use crate::protocol::edit::JsonObject;
use crate::protocol::scan;
use crate::upstream::ConnectionSupervisor;
use crate::upstream::handshake::HandshakeParams;

impl Session {
    /// Restores the session that a previous process of this gateway had with the client. The first
    /// call that needs a server opens its connection; the client's log level and subscriptions are
    /// replayed there.
    pub(crate) fn go_on(
        &self,
        initialize: &str,
        log_level: Option<String>,
        subscribed: BTreeMap<String, Vec<String>>,
    ) {
        self.take_initialize(initialize.as_bytes());
        self.restore_choices(log_level, subscribed);
        // Answers to questions of the previous process must not match questions of this one, so the
        // ids start elsewhere.
        self.next.store(u64::from(seed()) << 20 | 1, Ordering::Relaxed);
        self.greet();
        // A client that presents a session id has completed its handshake, and servers take no call
        // before theirs.
        self.initialized.store(true, Ordering::SeqCst);
    }

    /// The protocol revision that the client asked for.
    pub(crate) fn asked_version(&self) -> String {
        let version = |handshake: &HandshakeParams| {
            let params = JsonObject::of(&handshake.initialize);
            params.get("protocolVersion").and_then(scan::text).map(|version| version.into_owned())
        };
        self.handshake.get().and_then(version).unwrap_or_default()
    }

    /// Whether the session is in use: a call is in flight, or its stream is read.
    pub(crate) fn is_in_use(&self) -> bool {
        self.general.is_read() || !self.calls.is_empty()
    }

    /// Takes out the session's own connections, to be closed; the next call opens new ones.
    pub(crate) fn give_back(&self) -> Vec<Arc<ConnectionSupervisor>> {
        let mut supervisors = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner);
        supervisors
            .extract_if(|_, kept| !kept.server.shared)
            .map(|(_, kept)| kept.supervisor)
            .collect()
    }
}

/// A random odd number: shifted by 20 bits, and with some millions added, it is still an integer
/// that every JSON parser reads exactly.
fn seed() -> u32 {
    u32::from_str_radix(&crate::runtime::random::secret()[..8], 16).unwrap_or_default() | 1
}
