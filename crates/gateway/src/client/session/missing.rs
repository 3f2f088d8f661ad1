//! Decides when a client is told about missing servers: once per status; the servers are watched
//! until they appear.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::Session;
use super::servers::is_listed;
use crate::client::missing;
use crate::upstream::{ConnectionSupervisor, Server};

/// How often a missing server is checked.
const LOOK: Duration = Duration::from_secs(1);
/// Log levels at which a client does not want warnings.
const QUIET: [&str; 4] = ["error", "critical", "alert", "emergency"];

/// A missing server, and the statuses that the client was told already.
pub(super) struct MissingServer {
    server: Arc<Server>,
    told: Vec<&'static str>,
}

impl Session {
    /// Notes that the handshake was answered without this server.
    pub(crate) fn lacks(&self, server: &Arc<Server>) {
        self.miss(server);
        let missing = MissingServer { server: Arc::clone(server), told: Vec::new() };
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).push(missing);
    }

    /// The client is initialized: tells it which servers are missing, and watches those.
    pub(super) fn tell_missing(self: &Arc<Self>) {
        let mut missing =
            std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner));
        missing.retain_mut(|missing| self.is_missing(missing));
        if !missing.is_empty() {
            tokio::spawn(attend(Arc::downgrade(self), missing));
        }
    }

    /// Whether a server is still missing; tells the client when its status has changed.
    fn is_missing(&self, MissingServer { server, told }: &mut MissingServer) -> bool {
        let Some(supervisor) = self.kept(server) else { return false };
        if let Some(connection) = supervisor.now().filter(|connection| is_listed(connection)) {
            self.appeared(&connection);
            return false;
        }
        let outcome = server.missing(&supervisor.starting());
        let status = outcome.status();
        if status == "permanent" {
            // Startup has given up, but a host may come up and a program may be installed: keep
            // trying.
            supervisor.begin();
        }
        if !told.contains(&status) {
            told.push(status);
            if !self.log_level().is_some_and(|level| QUIET.contains(&level.as_str())) {
                for line in missing::warnings(vec![outcome], server.startup.denied_text()).streamed
                {
                    self.general.notify(missing::message(&line));
                }
            }
        }
        true
    }

    /// The supervisor of a server's connection, if the session has one.
    fn kept(&self, server: &Server) -> Option<Arc<ConnectionSupervisor>> {
        let supervisors = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner);
        supervisors.get(&server.name).map(|kept| Arc::clone(&kept.supervisor))
    }
}

/// Watches missing servers until none is left, or the session ends.
async fn attend(session: Weak<Session>, mut missing: Vec<MissingServer>) {
    while !missing.is_empty() {
        tokio::time::sleep(LOOK).await;
        // A weak reference between checks: this task must not keep a closed session alive.
        let Some(session) = session.upgrade() else { return };
        missing.retain_mut(|missing| session.is_missing(missing));
    }
}
