//! What a client has chosen for its session: the log level and the resources it follows. Both are
//! replayed to a server that reconnects and kept for a restarted gateway.

use std::collections::{BTreeMap, HashMap};
use std::sync::{MutexGuard, PoisonError};

use super::Session;
use crate::protocol::{Message, limits};
use crate::upstream::Server;

impl Session {
    /// The log level that the client set.
    pub(crate) fn log_level(&self) -> Option<String> {
        self.level().clone()
    }

    /// Notes the client's log level.
    pub(crate) fn set_log_level(&self, request: &Message) {
        *self.level() = request.field_text("level").map(|level| level.into_owned());
    }

    /// The resources of a server that the client subscribed to.
    pub(crate) fn subscribed(&self, server: &str) -> Vec<String> {
        self.subscriptions_by_server().get(server).cloned().unwrap_or_default()
    }

    /// All resources that the client subscribed to, by server.
    pub(crate) fn subscriptions(&self) -> BTreeMap<String, Vec<String>> {
        let subscribed = self.subscriptions_by_server();
        subscribed.iter().map(|(server, uris)| (server.clone(), uris.clone())).collect()
    }

    /// Subscribes the client to a resource, or ends its subscription. A session follows a bounded
    /// number of resources of each server.
    pub(crate) fn subscribe(&self, server: &str, uri: &str, wanted: bool) {
        let mut subscribed = self.subscriptions_by_server();
        let uris = subscribed.entry(server.to_owned()).or_default();
        uris.retain(|known| known != uri);
        if wanted && uris.len() < limits::LISTED {
            uris.push(uri.to_owned());
        }
    }

    /// Notes requests that must be replayed when the server reconnects.
    pub(crate) fn note(&self, server: &Server, request: &Message) {
        let uri = || request.field_text("uri").unwrap_or_default();
        match request.method() {
            "logging/setLevel" => self.set_log_level(request),
            "resources/subscribe" => self.subscribe(&server.name, &uri(), true),
            "resources/unsubscribe" => self.subscribe(&server.name, &uri(), false),
            _ => {}
        }
    }

    /// Takes over the choices that a session made before the gateway restarted.
    pub(super) fn restore_choices(
        &self,
        log_level: Option<String>,
        subscribed: BTreeMap<String, Vec<String>>,
    ) {
        *self.level() = log_level;
        self.subscriptions_by_server().extend(subscribed);
    }

    fn level(&self) -> MutexGuard<'_, Option<String>> {
        self.log_level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscriptions_by_server(&self) -> MutexGuard<'_, HashMap<String, Vec<String>>> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
