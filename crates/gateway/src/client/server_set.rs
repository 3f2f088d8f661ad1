//! The servers that a session sees: who keeps the conversations that clients share, and what is done with new ones.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use seawall::Question;

use super::session::Session;
use super::session::warm::Warm;
use crate::protocol::Message;
use crate::upstream::call::Outlet;
use crate::upstream::handshake::Opening;
use crate::upstream::keeper::Prepare;
use crate::upstream::{Keeper, Link, Server};

/// What the layers above do with a session's conversations.
pub trait Conversations: Send + Sync {
    /// A modern server may speak by itself: the session hears what it says.
    fn follow(&self, session: &Arc<Session>, link: &Arc<Link>);
    /// A conversation was opened again: the client hears which lists are not what it was shown, which is known under `key`.
    fn compare(&self, session: &Arc<Session>, key: String, link: &Arc<Link>);
}

/// The servers that an endpoint offers to sessions.
pub struct ServerSet {
    /// In the order of the configuration.
    pub servers: Vec<Arc<Server>>,
    /// Children that wait for their next client.
    pub warm: Arc<Warm>,
    pub(crate) shared: Arc<SharedConnections>,
    pub(crate) conversations: Arc<dyn Conversations>,
}

pub(crate) type SharedConnections = HashMap<String, SharedConnection>;

/// The one conversation that all clients of a server have.
#[derive(Default)]
pub(crate) struct SharedConnection {
    keeper: OnceLock<Arc<Keeper>>,
    everyone: Arc<Everyone>,
}

impl ServerSet {
    /// Whether all clients talk to this server over one conversation.
    pub fn is_shared(&self, server: &str) -> bool {
        self.servers.iter().any(|known| known.name == server && known.shared)
    }

    /// Who keeps the one conversation of a shared server; `outlet` hears what belongs to nobody in particular.
    pub fn common(&self, server: &Arc<Server>, opening: &Opening, outlet: &Arc<dyn Outlet>) -> Arc<Keeper> {
        let open = || {
            let everyone = self.shared.get(&server.name).map(|common| Arc::clone(&common.everyone)).unwrap_or_default();
            let prepare: Prepare = Box::new(|link| Box::pin(async move { link.initialized().await }));
            Keeper::new(server, opening.clone(), everyone, prepare)
        };
        let Some(common) = self.shared.get(&server.name) else { return open() };
        common.everyone.join(outlet);
        Arc::clone(common.keeper.get_or_init(open))
    }

    /// Ends what no client owns.
    pub async fn close(&self) {
        self.warm.close().await;
        for keeper in self.shared.values().filter_map(|shared| shared.keeper.get()) {
            keeper.close().await;
        }
    }
}

/// All clients that share a conversation.
#[derive(Default)]
struct Everyone {
    outlets: Mutex<Vec<Weak<dyn Outlet>>>,
}

impl Everyone {
    fn join(&self, outlet: &Arc<dyn Outlet>) {
        let mut outlets = self.outlets.lock().unwrap_or_else(PoisonError::into_inner);
        outlets.retain(|known| known.strong_count() > 0);
        let is_known = outlets.iter().any(|known| std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(outlet)));
        if !is_known {
            outlets.push(Arc::downgrade(outlet));
        }
    }

    fn present(&self) -> Vec<Arc<dyn Outlet>> {
        self.outlets.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Outlet for Everyone {
    fn notify(&self, link: &Arc<Link>, notification: Message) {
        for outlet in self.present() {
            outlet.notify(link, notification.clone());
        }
    }

    fn ask(&self, link: &Arc<Link>, question: Message, open: Option<Question>) {
        match self.present().as_slice() {
            [only] => only.ask(link, question, open),
            _ => link.refuse(&question, "several clients share this server; it is not clear which one to ask"),
        }
    }

    fn is_one_client(&self) -> bool {
        self.present().len() <= 1
    }

    fn listed(&self, link: &Arc<Link>, changed: &[&'static str]) {
        for outlet in self.present() {
            outlet.listed(link, changed);
        }
    }

    fn is_open(&self) -> bool {
        self.present().iter().any(|outlet| outlet.is_open())
    }
}
