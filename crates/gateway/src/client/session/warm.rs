//! Warm children: what a client started and left before it used it is kept for the next client that greets alike.
//!
//! A start that was begun is finished, whoever waits: clients that open a session for each call would else start a server
//! again and again. Only a child that knows nothing of its client is handed on: it was greeted and listed, and nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use seawall::Question;

use super::Session;
use crate::protocol::{Message, limits};
use crate::upstream::call::Outlet;
use crate::upstream::handshake::Opening;
use crate::upstream::{Keeper, Link, Server};

/// How often it is looked whether a child has started.
const LOOK: Duration = Duration::from_secs(1);

/// Who uses a conversation now: the session that began it, or the one it was handed on to.
#[derive(Default)]
pub struct Seat {
    session: Mutex<Weak<Session>>,
}

impl Seat {
    /// The conversation is this session's from now on.
    pub fn take(&self, session: &Arc<Session>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(session);
    }

    /// Whose it is now.
    pub fn session(&self) -> Option<Arc<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    fn leave(&self) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
    }

    fn outlet(&self) -> Option<Arc<dyn Outlet>> {
        self.session().map(|session| session.outlet(&session.general))
    }
}

impl Outlet for Seat {
    fn notify(&self, link: &Arc<Link>, notification: Message) {
        if let Some(outlet) = self.outlet() {
            outlet.notify(link, notification);
        }
    }

    fn ask(&self, link: &Arc<Link>, question: Message, open: Option<Question>) {
        match self.outlet() {
            Some(outlet) => outlet.ask(link, question, open),
            None => {
                link.note_private();
                link.refuse(&question, "no client is connected that could be asked");
            }
        }
    }

    fn say(&self, notification: Message) {
        if let Some(outlet) = self.outlet() {
            outlet.say(notification);
        }
    }

    fn listed(&self, link: &Arc<Link>, changed: &[&'static str]) {
        if let Some(outlet) = self.outlet() {
            outlet.listed(link, changed);
        }
    }

    fn can_be_asked(&self) -> bool {
        true
    }

    fn pause(&self) {
        if let Some(outlet) = self.outlet() {
            outlet.pause();
        }
    }

    fn is_open(&self) -> bool {
        self.outlet().is_some_and(|outlet| outlet.is_open())
    }
}

/// A conversation of a session's own, and what it takes to hand it on.
pub struct Kept {
    /// Who keeps it.
    pub keeper: Arc<Keeper>,
    /// Who uses it.
    pub seat: Arc<Seat>,
    server: Arc<Server>,
    /// How the server was greeted in it.
    greeting: Bytes,
}

impl Kept {
    /// A conversation that begins with this greeting.
    pub fn new(server: &Arc<Server>, opening: &Opening, keeper: Arc<Keeper>, seat: Arc<Seat>) -> Self {
        Self { keeper, seat, server: Arc::clone(server), greeting: opening.initialize.clone() }
    }

    /// Whether it is the first to give way when there is no room for another process.
    fn spare(&self, is_spare: bool) {
        if let Some(link) = self.keeper.now() {
            link.set_spare(is_spare);
        }
    }

    /// Whether another client may have it: a child that is starting, or was greeted and listed and nothing else.
    fn is_neutral(&self) -> bool {
        let is_well = self.server.is_child() && self.server.reconnect.last().is_none();
        let is_neutral = match self.keeper.now() {
            Some(link) => !link.is_private(),
            None => self.keeper.is_opening(),
        };
        is_well && is_neutral && !self.server.life.keep_warm.is_zero()
    }
}

/// The children that wait for their next client, of all servers.
#[derive(Default)]
pub struct Warm {
    kept: Mutex<Vec<Arc<Kept>>>,
}

impl Warm {
    fn kept(&self) -> MutexGuard<'_, Vec<Arc<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what another client may have; gives back what is to be closed.
    pub fn keep(self: &Arc<Self>, kept: Kept) -> Option<Arc<Keeper>> {
        kept.seat.leave();
        if !kept.is_neutral() {
            return Some(kept.keeper);
        }
        kept.spare(true);
        let kept = Arc::new(kept);
        let surplus = {
            let mut all = self.kept();
            all.push(Arc::clone(&kept));
            (all.len() > limits::WARM).then(|| Arc::clone(&all.remove(0).keeper))
        };
        tokio::spawn(cool_down(Arc::downgrade(self), Arc::downgrade(&kept)));
        surplus
    }

    fn remove(&self, kept: &Arc<Kept>) -> bool {
        let mut all = self.kept();
        let place = all.iter().position(|known| Arc::ptr_eq(known, kept));
        place.map(|place| all.remove(place)).is_some()
    }

    /// A child of this server that was greeted like this.
    pub fn take(&self, server: &Arc<Server>, opening: &Opening) -> Option<Kept> {
        let is_it = |kept: &Arc<Kept>| {
            kept.server.name == server.name && kept.greeting == opening.initialize && kept.is_neutral()
        };
        let mut all = self.kept();
        let place = all.iter().position(is_it)?;
        let kept = all.remove(place);
        kept.spare(false);
        let Kept { keeper, seat, .. } = &*kept;
        Some(Kept::new(server, opening, Arc::clone(keeper), Arc::clone(seat)))
    }

    /// Ends the one that has waited longest, so that there is room for a process; whether there was one.
    async fn give_way(&self) -> bool {
        let oldest = {
            let mut all = self.kept();
            if all.is_empty() { None } else { Some(all.remove(0)) }
        };
        match oldest {
            Some(oldest) => {
                oldest.keeper.close().await;
                true
            }
            None => false,
        }
    }

    /// Ends all of them.
    pub async fn close(&self) {
        while self.give_way().await {}
    }
}

/// Ends a child that nobody came for. One that is still starting has its time from when it is there.
async fn cool_down(warm: Weak<Warm>, kept: Weak<Kept>) {
    // Held only while it is looked at: whoever takes it decides how long it lives.
    let mut looks = limits::HANDSHAKE.as_secs();
    while kept.upgrade().is_some_and(|kept| kept.keeper.is_opening()) && looks > 0 {
        looks -= 1;
        tokio::time::sleep(LOOK).await;
    }
    let Some(time) = kept.upgrade().map(|kept| kept.server.life.keep_warm) else { return };
    tokio::time::sleep(time).await;
    let (Some(warm), Some(kept)) = (warm.upgrade(), kept.upgrade()) else { return };
    if warm.remove(&kept) {
        kept.keeper.close().await;
    }
}
