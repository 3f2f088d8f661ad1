//! Servers that a client has to do without: it is told once, and they are looked after until they
//! are there.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::Session;
use super::servers::is_listed;
use crate::client::missing;
use crate::upstream::{ConnectionSupervisor, Server};

/// How often it is looked whether something has changed about a server that is missing.
const LOOK: Duration = Duration::from_secs(1);
/// Log levels at which a client does not want to hear warnings.
const QUIET: [&str; 4] = ["error", "critical", "alert", "emergency"];

/// A server that is missing, and what the client was told of it already.
pub(super) struct MissingServer {
    server: Arc<Server>,
    told: Vec<&'static str>,
}

impl Session {
    /// The handshake was answered without this server.
    pub(crate) fn lacks(&self, server: &Arc<Server>) {
        self.miss(server);
        let missing = MissingServer { server: Arc::clone(server), told: Vec::new() };
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).push(missing);
    }

    /// The client is ready to hear which servers are missing.
    pub(super) fn tell_missing(self: &Arc<Self>) {
        let mut missing =
            std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner));
        missing.retain_mut(|missing| self.is_missing(missing));
        if !missing.is_empty() {
            tokio::spawn(attend(Arc::downgrade(self), missing));
        }
    }

    /// Whether a server is still missing; the client hears when that has come to mean something
    /// else.
    fn is_missing(&self, MissingServer { server, told }: &mut MissingServer) -> bool {
        let Some(supervisor) = self.kept(server) else { return false };
        if let Some(connection) = supervisor.now().filter(|connection| is_listed(connection)) {
            self.appeared(&connection);
            return false;
        }
        let outcome = server.missing(&supervisor.starting());
        let status = outcome.status();
        if status == "permanent" {
            // Not in this load; but an address can be answered one day, and a program installed.
            supervisor.begin();
        }
        if !told.contains(&status) {
            told.push(status);
            let level = self.log_level.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if !level.is_some_and(|level| QUIET.contains(&level.as_str())) {
                for line in missing::warnings(vec![outcome], server.startup.denied_text()).streamed
                {
                    self.general.notify(missing::message(&line));
                }
            }
        }
        true
    }

    /// Who keeps the conversation with a server, if somebody does.
    fn kept(&self, server: &Server) -> Option<Arc<ConnectionSupervisor>> {
        let supervisors = self.supervisors.lock().unwrap_or_else(PoisonError::into_inner);
        supervisors.get(&server.name).map(|kept| Arc::clone(&kept.supervisor))
    }
}

/// Looks after missing servers as long as there are any, and the session.
async fn attend(session: Weak<Session>, mut missing: Vec<MissingServer>) {
    while !missing.is_empty() {
        tokio::time::sleep(LOOK).await;
        let Some(session) = session.upgrade() else { return };
        missing.retain_mut(|missing| session.is_missing(missing));
    }
}
