//! Answers that come after their client gave up: kept for a while, for the same client when it asks the same again.
//!
//! A client that lost patience repeats its call; without this, a write would run twice and long work would start anew.
//! An answer is given once, only to whoever asked for it first, and marked. Clients that cannot be told apart get none.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use seawall::{CallKey, Keys};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::dispatch::{Refusal, Reply};
use crate::wire::limits;

/// All answers that wait for their client to come back.
#[derive(Default)]
pub struct Late {
    keys: Keys,
    kept: Mutex<HashMap<CallKey, Entry>>,
    /// How many there are: most of the time none, and then nobody looks.
    count: AtomicUsize,
}

/// One call whose client left.
struct Entry {
    /// When it ended; nobody knows yet while it runs.
    ended: watch::Receiver<Option<Instant>>,
    reply: Arc<Mutex<Option<Reply>>>,
    begun: Instant,
}

/// Whose call it was, and which.
#[derive(Clone)]
pub struct Whose {
    /// The client's name; empty if it cannot be told from others.
    pub client: Arc<str>,
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Arc<Value>,
}

impl Late {
    fn kept(&self) -> MutexGuard<'_, HashMap<CallKey, Entry>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(&self, whose: &Whose) -> CallKey {
        self.keys.key(&[&whose.client, &whose.server, &whose.tool], &whose.arguments)
    }

    /// The answer to the same call that the client gave up before, and how long ago it came; waited for if it still runs.
    pub async fn join(&self, whose: &Whose, patience: Duration) -> Option<(Reply, Duration)> {
        if self.count.load(Ordering::Relaxed) == 0 || whose.client.is_empty() {
            return None;
        }
        let key = self.key(whose);
        let (mut ended, reply) = {
            let kept = self.kept();
            let entry = kept.get(&key)?;
            (entry.ended.clone(), Arc::clone(&entry.reply))
        };
        let at = tokio::time::timeout(patience, ended.wait_for(Option::is_some)).await.ok()?.ok().and_then(|at| *at)?;
        let reply = reply.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.forget(&key);
        reply.filter(|_| at.elapsed() < limits::LATE_KEPT).map(|reply| (reply, at.elapsed()))
    }

    fn forget(&self, key: &CallKey) {
        let mut kept = self.kept();
        kept.remove(key);
        self.count.store(kept.len(), Ordering::Relaxed);
    }

    /// Lets a call run on whose client left, for as long as `limit`, and keeps what it comes to.
    pub fn adopt(self: &Arc<Self>, whose: &Whose, work: BoxFuture<'static, Reply>, limit: Duration) {
        if whose.client.is_empty() {
            return;
        }
        let key = self.key(whose);
        let (tell, ended) = watch::channel(None);
        let reply = Arc::new(Mutex::new(None));
        let entry = Entry { ended, reply: Arc::clone(&reply), begun: Instant::now() };
        if !self.make_room(key, entry) {
            return;
        }
        let late = Arc::clone(self);
        tokio::spawn(async move {
            let came = tokio::time::timeout(limit, work).await.ok().filter(is_worth_keeping);
            let Some(came) = came else { return late.forget(&key) };
            *reply.lock().unwrap_or_else(PoisonError::into_inner) = Some(came);
            tell.send_replace(Some(Instant::now()));
            tokio::time::sleep(limits::LATE_KEPT).await;
            late.forget(&key);
        });
    }

    /// A place for an entry; the oldest gives way, and a call that waits already keeps its place.
    fn make_room(&self, key: CallKey, entry: Entry) -> bool {
        let mut kept = self.kept();
        if kept.contains_key(&key) {
            return false;
        }
        if kept.len() >= limits::LATE {
            let oldest = kept.iter().min_by_key(|(_, entry)| entry.begun).map(|(key, _)| *key);
            oldest.map(|oldest| kept.remove(&oldest));
        }
        kept.insert(key, entry);
        self.count.store(kept.len(), Ordering::Relaxed);
        true
    }
}

/// A good answer of bounded size, or the word that something may have been done.
fn is_worth_keeping(reply: &Reply) -> bool {
    match reply {
        Ok(answer) => answer.raw().len() <= limits::LATE_BYTES,
        Err(Refusal::Reported(report, _)) => report.may_have_executed,
        Err(_) => false,
    }
}

/// A call that goes on when nobody waits for it any more.
pub struct Abandonable {
    work: Option<BoxFuture<'static, Reply>>,
    late: Arc<Late>,
    whose: Whose,
    /// What is to be done when the client leaves: it says how long the call may go on.
    left: Box<dyn Fn() -> Duration + Send>,
}

impl Abandonable {
    /// A call; `left` is asked once, when its client leaves.
    pub fn new(
        late: &Arc<Late>,
        whose: Whose,
        work: BoxFuture<'static, Reply>,
        left: impl Fn() -> Duration + Send + 'static,
    ) -> Self {
        Self { work: Some(work), late: Arc::clone(late), whose, left: Box::new(left) }
    }
}

impl Future for Abandonable {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Reply> {
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let reply = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(reply)
    }
}

impl Drop for Abandonable {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            let limit = (self.left)();
            // At the very end there is nobody left to run it.
            if tokio::runtime::Handle::try_current().is_ok() {
                self.late.adopt(&self.whose, work, limit);
            }
        }
    }
}
