//! Decides how a session goes on under another configuration: servers that do not change keep their
//! connections, and the client is told of lists that do.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Session;
use crate::client::server_set::ServerSet;
use crate::protocol::build;
use crate::upstream::Server;

/// How long a new server may take before the client is told that it is missing.
const PATIENCE: Duration = Duration::from_secs(4);

impl Session {
    /// Goes on with the servers of `next`. Connections to servers that are not among them close
    /// when their last call is over.
    pub(crate) fn move_to(self: &Arc<Self>, next: &Arc<ServerSet>) {
        let before = {
            let mut set = self.set.write().unwrap_or_else(PoisonError::into_inner);
            if Arc::ptr_eq(&set, next) {
                return;
            }
            std::mem::replace(&mut *set, Arc::clone(next))
        };
        self.leave_servers(&next.everywhere);
        if !self.initialized.load(Ordering::SeqCst) {
            return;
        }
        if before.servers.iter().any(|server| next.find(&server.name).is_none()) {
            self.tell_lists_changed();
        }
        for server in &next.servers {
            match before.find(&server.name) {
                Some(known) if Arc::ptr_eq(known, server) => {}
                // Its lists are known; a difference is told when it is open again.
                Some(_) if server.life.lazy => {}
                Some(_) => {
                    if let Ok(supervisor) = self.supervisor(server) {
                        supervisor.begin();
                    }
                }
                None => self.meet(server),
            }
        }
    }

    /// Ends the session, for the configuration has its endpoint no longer. Calls in flight are
    /// answered before their connections close.
    pub(crate) fn retire(&self) {
        self.general.end();
        self.leave_servers(&[]);
    }

    /// Gives up the connections to servers that are not in `next`.
    fn leave_servers(&self, next: &[Arc<Server>]) {
        let is_left = |server: &Arc<Server>| !next.iter().any(|it| Arc::ptr_eq(it, server));
        let left: Vec<_> = self
            .supervisors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extract_if(|_, kept| is_left(&kept.server))
            .collect();
        for (name, kept) in left {
            let sinks = &self.sinks;
            sinks.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            let follower =
                self.followers.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            if let Some(follower) = follower {
                follower.abort();
            }
            // Others may use a shared connection; the gateway closes it.
            if !kept.server.shared {
                tokio::spawn(async move { kept.supervisor.close_when_idle().await });
            }
        }
    }

    /// Opens a connection to a server that is new to the client, and tells the client of its lists.
    fn meet(self: &Arc<Self>, server: &Arc<Server>) {
        let Ok(supervisor) = self.supervisor(server) else { return };
        let (session, server) = (Arc::downgrade(self), Arc::clone(server));
        tokio::spawn(async move {
            if let Ok(connection) = supervisor.connection(PATIENCE).await {
                let _in_time = tokio::time::timeout(PATIENCE, connection.listed()).await;
            }
            if let Some(session) = session.upgrade() {
                session.lacks(&server);
                session.tell_missing();
            }
        });
    }

    fn tell_lists_changed(&self) {
        for list in ["tools", "prompts", "resources"] {
            let name = format!("notifications/{list}/list_changed");
            self.general.notify(build::notification(&name, None));
        }
    }
}
