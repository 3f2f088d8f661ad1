//! Decides when the queued calls of a server are sent: when the server is healthy again, in the
//! order of their arrival, one at a time, with a growing backoff after each failure.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seawall::{Backoff, Cause, Env, Failure, Jitter, QueuedWrite};
use tokio_util::sync::CancellationToken;

use super::{ItemState, NextItem, NotDurable, QueueStore, StateCounts};
use crate::runtime::log::{self, Level, LogSubject};

/// The backoff after a failed attempt, and after a failure of the store itself.
pub(super) const PAUSES: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(60),
    jitter: Jitter::Additive(0.2),
    clamp: false,
};

/// The longest pause that one refusal can ask for: items behind the first must not expire because
/// of it.
const LONGEST: Duration = Duration::from_secs(300);

/// The path to one server.
pub trait Delivery: Send + Sync {
    /// Held while an attempt is in flight: shutdown waits for it, because an attempt that is cut
    /// off is uncertain.
    type Turn: Send;

    /// Waits until the server counts as healthy and this tool may be called.
    fn ready(&self, tool: &str) -> impl Future<Output = Self::Turn> + Send;

    /// Waits until the server proves to be healthy again, which ends its pause.
    fn back(&self) -> impl Future<Output = ()> + Send;

    /// Makes one attempt and returns the tool's result as JSON. Must not retry: the queue does.
    /// Must take the permit after all waiting, right before the call is sent.
    fn send(
        &self,
        call: QueuedWrite,
        leave: &SendPermit<'_>,
    ) -> impl Future<Output = Result<String, Failure>> + Send;
}

/// Permission to send one item. Once it is taken, an attempt that is cut off is uncertain.
pub struct SendPermit<'a> {
    store: &'a QueueStore,
    server: &'a str,
    id: &'a str,
    is_taken: AtomicBool,
    attempts: OnceLock<u32>,
}

impl SendPermit<'_> {
    /// Durably marks the item as delivering. `false` means that the item is no longer first and
    /// must not be sent.
    pub async fn take(&self) -> bool {
        // Set before the mark is written: from then on the mark may be on the disk, and only a
        // finished attempt can settle it.
        self.is_taken.store(true, Ordering::Relaxed);
        match self.store.begin_item(self.server, self.id).await {
            Ok(NextItem::Due(_, item)) => self.attempts.set(item.attempts).is_ok(),
            _ => false,
        }
    }
}

/// Delivers to one server until `stop`. There must be only one delivery task per server.
///
/// On `stop` an attempt in flight is waited for. If this future is dropped instead, the item stays
/// marked as delivering, and the next delivery task treats it as after a crash.
pub async fn deliver(
    store: &QueueStore,
    server: &str,
    to: &impl Delivery,
    env: &Env,
    stop: &CancellationToken,
) {
    let line = ServerQueue { store, server, env, stop };
    let mut changes = store.changes();
    let mut failures = 0;
    while !stop.is_cancelled() {
        // Marked before the queue is read: a change after that wakes the waits below and is not
        // missed.
        changes.mark_unchanged();
        let step = line.step(to, &mut changes).await;
        // If the store itself fails, it is asked again with a growing backoff.
        match step {
            Ok(()) => failures = 0,
            Err(_) => {
                failures += 1;
                let pause = PAUSES.delay(failures, &env.rng);
                line.unless_stopped(tokio::time::timeout(pause, changes.changed())).await;
            }
        }
    }
}

/// How long to wait after a breaker rejected the attempt: it is half-open, or has just closed and
/// its slow start lets few attempts pass. That is not an attempt, and the item stays as it is.
fn refused(end: &Result<String, Failure>) -> Option<Duration> {
    let failure = end.as_ref().err().filter(|failure| failure.cause == Cause::CircuitOpen)?;
    Some(failure.retry_after.unwrap_or_default().clamp(PAUSES.base, LONGEST))
}

struct ServerQueue<'a> {
    store: &'a QueueStore,
    server: &'a str,
    env: &'a Env,
    stop: &'a CancellationToken,
}

impl ServerQueue<'_> {
    /// Waits until the first item is due and its server is healthy, and makes one attempt.
    async fn step(
        &self,
        to: &impl Delivery,
        changes: &mut tokio::sync::watch::Receiver<StateCounts>,
    ) -> Result<(), NotDurable> {
        let (id, call) = match self.store.peek(self.server).await? {
            NextItem::Nothing => {
                self.unless_stopped(changes.changed()).await;
                return Ok(());
            }
            NextItem::Later(wait) => {
                return self.rest(Duration::from_millis(wait), to, changes).await;
            }
            NextItem::Due(id, item) => (id, item.call),
        };
        // If the queue changes while the server is awaited, another item may be first, so the step
        // starts over.
        let ready = async {
            tokio::select! {
                turn = to.ready(&call.tool) => Some(turn),
                _ = changes.changed() => None,
            }
        };
        let Some(Some(_turn)) =
            self.stop.run_until_cancelled(ready).await.filter(|_| !self.stop.is_cancelled())
        else {
            return Ok(());
        };
        // Another gateway may have the line by now, or another item may be first.
        let Some(claim) = self.store.claim(self.server, &id).await? else { return Ok(()) };
        let made = self.attempt(id, call, to, changes).await;
        self.store.release(claim).await;
        made
    }

    /// Makes one attempt on the first item, and records how it ended.
    async fn attempt(
        &self,
        id: String,
        call: QueuedWrite,
        to: &impl Delivery,
        changes: &mut tokio::sync::watch::Receiver<StateCounts>,
    ) -> Result<(), NotDurable> {
        let (is_taken, attempts) = (AtomicBool::new(false), OnceLock::new());
        let leave =
            SendPermit { store: self.store, server: self.server, id: &id, is_taken, attempts };
        let mut sending = pin!(to.send(call, &leave));
        // Biased: if the attempt and `stop` are ready together, the end of the attempt is recorded.
        let end = tokio::select! {
            biased;
            end = sending.as_mut() => end,
            () = self.stop.cancelled() => match leave.is_taken.load(Ordering::Relaxed) {
                true => sending.await,
                // The call was not sent yet: it waits for the next gateway.
                false => return Ok(()),
            },
        };
        let attempts = match (leave.attempts.get(), refused(&end)) {
            (Some(attempts), _) => *attempts,
            (None, Some(pause)) => {
                self.unless_stopped(tokio::time::timeout(pause, changes.changed())).await;
                return Ok(());
            }
            // The call was not sent. That counts as an attempt too, if the item is still first, so
            // that the next attempt comes later.
            (None, None) => match self.store.begin_item(self.server, &id).await {
                Ok(NextItem::Due(_, item)) => item.attempts,
                Ok(_) => return Ok(()),
                // The store failed at the mark, and the mark may be there all the same: unless its
                // end is recorded, the item counts as sent.
                Err(_) if leave.is_taken.load(Ordering::Relaxed) => 1,
                Err(unkept) => return Err(unkept),
            },
        };
        self.record(&id, attempts, end).await;
        Ok(())
    }

    /// Waits until the first item is due. If its server is back before that, makes it due at once.
    async fn rest(
        &self,
        wait: Duration,
        to: &impl Delivery,
        changes: &mut tokio::sync::watch::Receiver<StateCounts>,
    ) -> Result<(), NotDurable> {
        let is_back = async {
            tokio::select! {
                () = tokio::time::sleep(wait) => false,
                _ = changes.changed() => false,
                () = to.back() => true,
            }
        };
        if self.stop.run_until_cancelled(is_back).await == Some(true) {
            self.store.hurry(self.server).await?;
        }
        Ok(())
    }

    /// Records how an attempt ended, and repeats that until it works: an end that is not recorded
    /// is unknown after a restart.
    async fn record(&self, id: &str, attempts: u32, end: Result<String, Failure>) {
        let asked = end.as_ref().err().and_then(|failure| failure.retry_after).unwrap_or_default();
        let pause = PAUSES.delay(attempts, &self.env.rng).max(asked.min(LONGEST));
        let mut tries = 0;
        loop {
            match self.store.settle(id, end.clone(), pause).await {
                Ok(_) => return self.tell_if_bad(id).await,
                Err(unkept) => {
                    tries += 1;
                    log::warn(&format!("the end of {id} is not recorded yet: {unkept}"));
                    if !self
                        .unless_stopped(tokio::time::sleep(PAUSES.delay(tries, &self.env.rng)))
                        .await
                    {
                        return;
                    }
                }
            }
        }
    }

    /// Logs a bad end: a client was promised this call, and no client waits that would notice.
    async fn tell_if_bad(&self, id: &str) {
        let Ok(Some(item)) = self.store.item(id).await else { return };
        let what = match item.state {
            ItemState::Dead => format!("is given up: {}", item.note.unwrap_or_default()),
            // The text of the error belongs to the client and is not logged.
            ItemState::Delivered if item.is_error => {
                "was answered with an error, and is not sent again".to_owned()
            }
            _ => return,
        };
        let text = format!("{id} ({} at {}) {what}", item.call.tool, self.server);
        let (server, tool) = (self.server, item.call.tool.as_str());
        let subject = LogSubject { server, tool, is_named: true, ..LogSubject::default() };
        log::about(Level::Info, subject, &text);
    }

    /// Whether `wait` ended before the delivery was stopped.
    async fn unless_stopped(&self, wait: impl Future) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            _ = wait => true,
        }
    }
}
