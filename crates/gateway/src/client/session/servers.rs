//! A session's servers: who keeps each, what the client was promised of it, and what it must be told when it is back.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;

use super::Session;
use super::warm::{Kept, Seat};
use crate::protocol::edit::{Object, quoted};
use crate::protocol::names::Era;
use crate::protocol::server_info::Hello;
use crate::protocol::{Message, build, limits};
use crate::upstream::call::Outlet;
use crate::upstream::handshake::{self, Opening};
use crate::upstream::keeper::Prepare;
use crate::upstream::startup::Listing;
use crate::upstream::{Failure, Keeper, Link, Server};

impl Session {
    /// Takes what the client says in `initialize`; whether it had said nothing before.
    pub fn take_initialize(&self, initialize: &[u8]) -> bool {
        let initialize = Bytes::copy_from_slice(initialize);
        let opening = Opening { prefer: Era::Legacy, meta: handshake::meta(&initialize), initialize };
        self.opening.set(opening).is_ok()
    }

    /// The name under which is remembered what a server says to clients like this one; a client that has not said what it is
    /// like is one of its own kind.
    pub fn key(&self, server: &Server) -> String {
        self.opening.get().map_or_else(|| format!("{}-", server.remembered_as()), |opening| opening.key(server))
    }

    /// The handshake with the client was answered.
    pub fn greet(&self) {
        self.greeted.store(true, Ordering::Release);
    }

    /// Whether the handshake with the client was answered.
    pub fn is_greeted(&self) -> bool {
        self.greeted.load(Ordering::Acquire)
    }

    /// What the client was told the server had said, before it said it.
    pub fn promise(&self, server: &Server, hello: Bytes) {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner).insert(server.name.clone(), Some(hello));
    }

    /// The client asked for a list while the server was away, and there was nothing to stand in.
    pub fn miss(&self, server: &Server) {
        self.promised.lock().unwrap_or_else(PoisonError::into_inner).insert(server.name.clone(), None);
    }

    /// A server is there that the client was told was missing, unless it was told already that it is there.
    pub(super) fn appeared(&self, link: &Link) {
        let promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner).remove(&link.server);
        if let (Some(None), Some(hello)) = (promised, link.hello()) {
            self.lists_changed(hello);
        }
    }

    /// The gateway has read a server's lists: the client hears of all that is not what it was shown, once.
    pub(super) fn listed(&self, link: &Link, changed: &[&'static str]) {
        // It has read nothing yet, and reads what is there now.
        if !self.initialized.load(Ordering::SeqCst) {
            return;
        }
        let promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner).remove(&link.server);
        let capabilities = |hello: &[u8]| Object::of(hello).get("capabilities").map(<[u8]>::to_vec);
        match (promised, link.hello()) {
            (Some(None), Some(hello)) => self.lists_changed(hello),
            (Some(Some(before)), Some(hello)) if capabilities(&before) != capabilities(&hello.result) => {
                self.lists_changed(hello);
            }
            _ => changed.iter().for_each(|name| self.general.notify(build::notification(name, None))),
        }
    }

    /// The client will read from servers that are there what it was promised of them.
    pub(super) fn keep_promises(&self, links: &[Arc<Link>]) {
        let is_there = |server: &str| links.iter().any(|link| link.server == server && is_listed(link));
        let mut promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        promised.retain(|server, _| !is_there(server));
    }

    /// Who keeps the conversation with a server.
    pub fn keeper(self: &Arc<Self>, server: &Arc<Server>) -> Result<Arc<Keeper>, Failure> {
        let Some(opening) = self.opening.get() else {
            return Err(Failure::Handshake("the client has not sent initialize yet".to_owned()));
        };
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = keepers.get(&server.name) {
            return Ok(Arc::clone(&kept.keeper));
        }
        server.reconnect.forgive();
        let kept = if server.shared {
            let outlet = self.outlet(&self.general);
            let mut outlets = self.outlets.lock().unwrap_or_else(PoisonError::into_inner);
            outlets.insert(server.name.clone(), Arc::clone(&outlet));
            Kept::new(server, opening, self.set.common(server, opening, &outlet), Arc::default())
        } else {
            self.set.warm.take(server, opening).unwrap_or_else(|| own(server, opening))
        };
        kept.seat.take(self);
        let keeper = Arc::clone(&kept.keeper);
        keepers.insert(server.name.clone(), kept);
        Ok(keeper)
    }

    /// A conversation was opened, perhaps again: it is brought to where the client believes it to be.
    pub(super) async fn opened(self: &Arc<Self>, server: &Arc<Server>, link: &Arc<Link>) {
        if !self.initialized.load(Ordering::SeqCst) {
            return;
        }
        self.ready(link).await;
        self.replay(link).await;
        self.set.conversations.compare(self, self.key(server), link);
    }

    /// Tells the client to read again whatever the server can list.
    fn lists_changed(&self, hello: &Hello) {
        for list in ["tools", "prompts", "resources"] {
            if hello.can(list) {
                self.general.notify(build::notification(&format!("notifications/{list}/list_changed"), None));
            }
        }
    }

    /// Tells a legacy server again what the client told the one before it.
    async fn replay(&self, link: &Arc<Link>) {
        if link.era() != Era::Legacy {
            return;
        }
        let level = self.log_level.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(level) = level {
            link.note_private();
            let _not_every_server_logs =
                link.ask("logging/setLevel", format!(r#"{{"level":{}}}"#, quoted(&level)).as_bytes()).await;
        }
        for uri in self.subscribed(&link.server) {
            link.note_private();
            let _gone = link.ask("resources/subscribe", format!(r#"{{"uri":{}}}"#, quoted(&uri)).as_bytes()).await;
        }
    }

    /// The resources of a server that the client subscribed to.
    fn subscribed(&self, server: &str) -> Vec<String> {
        self.subscribed.lock().unwrap_or_else(PoisonError::into_inner).get(server).cloned().unwrap_or_default()
    }

    /// Notes how much the client wants to hear.
    pub fn set_log_level(&self, request: &Message) {
        let level = request.field_text("level").map(|level| level.into_owned());
        *self.log_level.lock().unwrap_or_else(PoisonError::into_inner) = level;
    }

    /// Notes what a server must be told again when it comes back.
    pub fn note(&self, server: &Server, request: &Message) {
        if !matches!(request.method(), "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe") {
            return;
        }
        let mut subscribed = self.subscribed.lock().unwrap_or_else(PoisonError::into_inner);
        let uris = subscribed.entry(server.name.clone()).or_default();
        let uri = request.field_text("uri").unwrap_or_default().into_owned();
        match request.method() {
            "logging/setLevel" => self.set_log_level(request),
            "resources/subscribe" if uris.len() < limits::LISTED && !uris.contains(&uri) => uris.push(uri),
            "resources/unsubscribe" => uris.retain(|known| *known != uri),
            _ => {}
        }
    }
}

/// Who keeps a conversation of a session's own; whichever session that is when it is opened.
fn own(server: &Arc<Server>, opening: &Opening) -> Kept {
    let seat: Arc<Seat> = Arc::default();
    let (user, opened) = (Arc::downgrade(&seat), Arc::downgrade(server));
    let prepare: Prepare = Box::new(move |link| {
        let (session, server) = (user.upgrade().and_then(|seat| seat.session()), opened.upgrade());
        Box::pin(async move {
            if let (Some(session), Some(server)) = (session, server) {
                session.opened(&server, &link).await;
            }
        })
    });
    let outlet: Arc<dyn Outlet> = Arc::clone(&seat) as Arc<dyn Outlet>;
    Kept::new(server, opening, Keeper::new(server, opening.clone(), outlet, prepare), seat)
}

/// Whether all is known of a server that a client waits for: its tools were listed, or nobody lists them.
pub(super) fn is_listed(link: &Link) -> bool {
    matches!(link.listing(), Listing::Done | Listing::Unasked)
}
