//! Decides when the calls that wait for a server are made: when it is well again, in the order in
//! which they came, one at a time, with a growing pause after each failure.

use std::future::Future;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use seawall::{Backoff, Cause, Env, Failure, Jitter, QueuedWrite};
use tokio_util::sync::CancellationToken;

use super::{ItemState, NextItem, NotDurable, QueueStore, StateCounts};

/// After a failed attempt, and after a failure of the store itself.
pub(super) const PAUSES: Backoff = Backoff {
    base: Duration::from_secs(1),
    max: Duration::from_secs(60),
    jitter: Jitter::Additive(0.2),
    clamp: false,
};

/// What a server can ask for with one refusal: whoever stands behind must not expire because of it.
const LONGEST: Duration = Duration::from_secs(300);

/// The way to one server.
pub trait Delivery: Send + Sync {
    /// Held while an attempt is under way: whoever ends the gateway waits for it, for an attempt
    /// that is cut off is in doubt.
    type Turn: Send;

    /// Waits until the server is thought well, and this tool of it may be called.
    fn ready(&self, tool: &str) -> impl Future<Output = Self::Turn> + Send;

    /// Waits until the server shows that it is well again: what it was pausing for is over.
    fn back(&self) -> impl Future<Output = ()> + Send;

    /// Makes one attempt and gives the tool's result as JSON. No retries: they are made here.
    /// Whatever it waits for before the call goes out, it takes its leave after it.
    fn send(
        &self,
        call: QueuedWrite,
        leave: &SendPermit<'_>,
    ) -> impl Future<Output = Result<String, Failure>> + Send;
}

/// Leave to send one item. From when it is taken, an attempt that is cut off is in doubt.
pub struct SendPermit<'a> {
    store: &'a QueueStore,
    server: &'a str,
    id: &'a str,
    is_taken: AtomicBool,
    attempts: OnceLock<u32>,
}

impl SendPermit<'_> {
    /// Marks the item, durably. `false`: it is not its turn any more, and it must not be sent.
    pub async fn take(&self) -> bool {
        self.is_taken.store(true, Ordering::Relaxed);
        match self.store.begin_item(self.server, self.id).await {
            Ok(NextItem::Due(_, item)) => self.attempts.set(item.attempts).is_ok(),
            _ => false,
        }
    }
}

/// Delivers to one server until `stop`. There must be one of these per server.
///
/// An attempt that is under way then is waited for. If this future is dropped instead, the item
/// stays marked, and the next one to deliver treats it as after a crash.
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
        changes.mark_unchanged();
        let step = line.step(to, &mut changes).await;
        // The store itself failed: it is asked again, later and later.
        match step {
            Ok(()) => failures = 0,
            Err(_) => {
                failures += 1;
                line.unless_stopped(tokio::time::sleep(PAUSES.delay(failures, &env.rng))).await;
            }
        }
    }
}

/// How long to wait after a breaker let nobody pass: it is on probation, or has just closed and
/// lets few pass. That is no try, and the item stays as it is.
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
    /// Waits for the next item to be due and its server to be well, and makes one attempt.
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
        // What is dropped or let in before it is not waited for in its place.
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
        let (is_taken, attempts) = (AtomicBool::new(false), OnceLock::new());
        let leave =
            SendPermit { store: self.store, server: self.server, id: &id, is_taken, attempts };
        let mut sending = pin!(to.send(call, &leave));
        let end = tokio::select! {
            biased;
            end = sending.as_mut() => end,
            () = self.stop.cancelled() => match leave.is_taken.load(Ordering::Relaxed) {
                true => sending.await,
                // It was held up before it went out: it waits for the next gateway.
                false => return Ok(()),
            },
        };
        let attempts = match (leave.attempts.get(), refused(&end)) {
            (Some(attempts), _) => *attempts,
            (None, Some(pause)) => {
                self.unless_stopped(tokio::time::timeout(pause, changes.changed())).await;
                return Ok(());
            }
            // It did not go out. That is a try too, if it is still its turn: the next one comes
            // later.
            (None, None) => match self.store.begin_item(self.server, &id).await? {
                NextItem::Due(_, item) => item.attempts,
                _ => return Ok(()),
            },
        };
        self.record(&id, attempts, end).await;
        Ok(())
    }

    /// Waits until the first item is due, or its server is back: then it is due at once.
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

    /// Records how an attempt ended, as often as it takes: what is not recorded is not known after
    /// a restart.
    async fn record(&self, id: &str, attempts: u32, end: Result<String, Failure>) {
        let asked = end.as_ref().err().and_then(|failure| failure.retry_after).unwrap_or_default();
        let pause = PAUSES.delay(attempts, &self.env.rng).max(asked.min(LONGEST));
        let mut tries = 0;
        loop {
            match self.store.settle(id, end.clone(), pause).await {
                Ok(_) => return self.tell_if_bad(id).await,
                Err(unkept) => {
                    tries += 1;
                    crate::runtime::log::warn(&format!(
                        "the end of {id} is not recorded yet: {unkept}"
                    ));
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

    /// Somebody was promised this call, and nobody else is there to notice.
    async fn tell_if_bad(&self, id: &str) {
        let Ok(Some(item)) = self.store.item(id).await else { return };
        let what = match item.state {
            ItemState::Dead => format!("is given up: {}", item.note.unwrap_or_default()),
            // What it says is its client's.
            ItemState::Delivered if item.is_error => {
                "was answered with an error, and is not sent again".to_owned()
            }
            _ => return,
        };
        crate::runtime::log::line(&format!("{id} ({} at {}) {what}", item.call.tool, self.server));
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
