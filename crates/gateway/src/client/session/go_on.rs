//! A session that goes on: after a restart of the gateway, and after its servers were given back
//! because nobody used it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use super::Session;
use crate::protocol::edit::JsonObject;
use crate::protocol::scan;
use crate::upstream::ConnectionSupervisor;
use crate::upstream::handshake::HandshakeParams;

impl Session {
    /// Takes up what the client and a former self of this gateway had come to. Conversations with
    /// servers are opened by the first call that needs them, and are told again what the client
    /// told the ones before them.
    pub(crate) fn go_on(
        &self,
        initialize: &str,
        log_level: Option<String>,
        subscribed: BTreeMap<String, Vec<String>>,
    ) {
        self.take_initialize(initialize.as_bytes());
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = log_level;
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner).extend(subscribed);
        // The answer to a question of before must not be taken for the answer to one of now.
        self.next.store(u64::from(seed()) << 20 | 1, Ordering::Relaxed);
        self.greet();
        // A client that comes with an id has its handshake behind it, and servers take no call
        // before theirs.
        self.initialized.store(true, Ordering::SeqCst);
    }

    /// The revision that the client asked for.
    pub(crate) fn asked_version(&self) -> String {
        let version = |handshake: &HandshakeParams| {
            let params = JsonObject::of(&handshake.initialize);
            params.get("protocolVersion").and_then(scan::text).map(|version| version.into_owned())
        };
        self.handshake.get().and_then(version).unwrap_or_default()
    }

    /// Whether somebody uses it: a call is under way, or its stream is read.
    pub(crate) fn is_in_use(&self) -> bool {
        self.general.is_read() || !self.calls.is_empty()
    }

    /// Takes out the conversations with servers of its own, which are to be closed; the next call
    /// opens others.
    pub(crate) fn give_back(&self) -> Vec<Arc<ConnectionSupervisor>> {
        let mut supervisors = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner);
        supervisors
            .extract_if(|server, _| !self.set.is_shared(server))
            .map(|(_, kept)| kept.supervisor)
            .collect()
    }
}

/// A number that nobody had before, small enough for every reader of JSON with some millions more
/// on top.
fn seed() -> u32 {
    u32::from_str_radix(&crate::runtime::random::secret()[..8], 16).unwrap_or_default() | 1
}
