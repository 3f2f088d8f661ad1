//! The clients' notes: each request that was sent, and everything that came back under its id.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::plan::Leave;

/// One request of a client.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its name, which it carries in `_meta`.
    pub tag: String,
    /// What it is for.
    pub intent: String,
    /// Whose it is.
    pub client: usize,
    /// Who the gateway can know it comes from.
    pub caller: String,
    /// In which life of the gateway it was sent.
    pub life: usize,
    /// When.
    pub sent: Instant,
    /// When its client left it, and how.
    pub left: Option<(Instant, Leave)>,
    /// What came as its answer.
    pub answers: Vec<(Instant, Value)>,
    /// How else it ended: a connection that could not be made or ended without an answer, a status.
    pub broke: Option<(Instant, String)>,
    /// How often its client was asked something meanwhile.
    pub questions: usize,
    /// The session it was sent in, where there are such.
    pub session: String,
}

impl Request {
    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        !self.answers.is_empty() || self.broke.is_some()
    }
}

/// A list of tools as a client got it.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Who asked.
    pub client: usize,
    /// In which life of the gateway it was asked for.
    pub life: usize,
    /// When it was asked for.
    pub sent: Instant,
    /// When it came.
    pub came: Instant,
    /// The names; or what came instead.
    pub names: Result<Vec<String>, String>,
}

/// What the clients of a world saw.
#[derive(Default)]
pub struct Notes {
    requests: Mutex<Vec<Request>>,
    listings: Mutex<Vec<Listing>>,
    /// Things that must never be seen, in words.
    strange: Mutex<Vec<String>>,
    changed: Notify,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Notes {
    pub(crate) fn begin(&self, request: Request) {
        lock(&self.requests).push(request);
    }

    /// Changes what is known of a request.
    pub(crate) fn change<T>(&self, tag: &str, change: impl FnOnce(&mut Request) -> T) -> Option<T> {
        let changed =
            lock(&self.requests).iter_mut().find(|request| request.tag == tag).map(change);
        self.changed.notify_waiters();
        changed
    }

    pub(crate) fn answer(&self, tag: &str, message: Value) {
        self.change(tag, |request| request.answers.push((Instant::now(), message)));
    }

    /// A request ended without an answer.
    pub(crate) fn broke(&self, tag: &str, why: impl Into<String>) {
        self.change(tag, |request| {
            if request.answers.is_empty() {
                request.broke.get_or_insert_with(|| (Instant::now(), why.into()));
            }
        });
    }

    /// Waits until a request is over.
    pub(crate) async fn over(&self, tag: &str) {
        loop {
            let changed = self.changed.notified();
            if self.look(tag).is_none_or(|request| request.is_over()) {
                return;
            }
            changed.await;
        }
    }

    /// What is known of a request.
    pub(crate) fn look(&self, tag: &str) -> Option<Request> {
        lock(&self.requests).iter().find(|request| request.tag == tag).cloned()
    }

    pub(crate) fn listed(&self, listing: Listing) {
        lock(&self.listings).push(listing);
    }

    pub(crate) fn strange(&self, what: String) {
        lock(&self.strange).push(what);
    }

    /// All requests.
    pub fn requests(&self) -> Vec<Request> {
        lock(&self.requests).clone()
    }

    /// All lists.
    pub fn listings(&self) -> Vec<Listing> {
        lock(&self.listings).clone()
    }

    /// What must never be seen and was.
    pub fn strangers(&self) -> Vec<String> {
        lock(&self.strange).clone()
    }
}
