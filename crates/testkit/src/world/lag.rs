//! How late this machine is: what a loaded machine delays is not the gateway's fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

const BEAT: Duration = Duration::from_millis(10);

/// Watches until it is dropped.
pub(crate) struct Lag {
    worst: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Lag {
    pub(crate) fn watch() -> Self {
        let worst: Arc<AtomicU64> = Arc::default();
        let seen = Arc::clone(&worst);
        let task = tokio::spawn(async move {
            loop {
                let begun = Instant::now();
                sleep(BEAT).await;
                let late = begun.elapsed().saturating_sub(BEAT).as_millis();
                seen.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Self { worst, task: task.abort_handle() }
    }

    /// The worst so far.
    pub(crate) fn worst(&self) -> Duration {
        Duration::from_millis(self.worst.load(Ordering::Relaxed))
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.task.abort();
    }
}
