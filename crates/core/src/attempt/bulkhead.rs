//! Decides how many attempts run at one server, or of one tool, at a time, and which others wait in
//! a queue of bounded length.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::line::WaitingLine;
use crate::model::invalid::Invalid;
use crate::model::policy::bulkhead::BulkheadPolicy;
use crate::time::deadline::within;

/// All permits are taken, and the queue is full or was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all slots are taken")]
pub struct BulkheadFull;

/// The bulkhead of one server or tool: it limits concurrent attempts. First come, first served.
///
/// ```
/// # use seawall::{Bulkhead, BulkheadFull, BulkheadPolicy};
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), seawall::Invalid> {
/// let bulkhead = Bulkhead::new(BulkheadPolicy { waiting: 0, ..BulkheadPolicy::new(1) })?;
/// let slot = bulkhead.take(Duration::from_secs(1)).await;
/// assert_eq!(bulkhead.take(Duration::from_secs(1)).await.err(), Some(BulkheadFull));
/// drop(slot);
/// assert!(bulkhead.take(Duration::from_secs(1)).await.is_ok());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Bulkhead {
    policy: BulkheadPolicy,
    free: Semaphore,
    line: WaitingLine,
}

/// One permit of a bulkhead; dropping it frees the place.
pub type BulkheadPermit<'a> = SemaphorePermit<'a>;

impl Bulkhead {
    /// A bulkhead with all permits free.
    pub fn new(policy: BulkheadPolicy) -> Result<Self, Invalid> {
        policy.validate()?;
        Ok(Self {
            policy,
            free: Semaphore::new(as_count(policy.concurrency)),
            line: WaitingLine::default(),
        })
    }

    /// Takes a permit, waiting in the queue for as long as the policy and `remaining` allow.
    pub async fn take(&self, remaining: Duration) -> Result<BulkheadPermit<'_>, BulkheadFull> {
        match self.try_take() {
            Some(slot) => Ok(slot),
            None => self.wait(remaining).await,
        }
    }

    /// Takes a permit if one is free now.
    pub fn try_take(&self) -> Option<BulkheadPermit<'_>> {
        self.free.try_acquire().ok()
    }

    async fn wait(&self, remaining: Duration) -> Result<BulkheadPermit<'_>, BulkheadFull> {
        let _place = self.line.join_within(self.policy.waiting).ok_or(BulkheadFull)?;
        match within(self.policy.patience.min(remaining), self.free.acquire()).await {
            Ok(Ok(slot)) => Ok(slot),
            Ok(Err(_)) | Err(_) => Err(BulkheadFull),
        }
    }

    /// Attempts in flight now.
    pub fn in_flight(&self) -> usize {
        as_count(self.policy.concurrency).saturating_sub(self.free.available_permits())
    }

    /// Calls waiting in the queue now.
    pub fn waiting(&self) -> usize {
        as_count(self.line.length())
    }
}

fn as_count(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(concurrency: u32, waiting: u32, patience: Duration) -> Bulkhead {
        Bulkhead::new(BulkheadPolicy { concurrency, waiting, patience }).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_line_refuses_at_once() {
        let slots = slots(1, 0, Duration::from_secs(30));
        let _held = slots.take(Duration::MAX).await.unwrap();

        let start = tokio::time::Instant::now();
        assert_eq!(slots.take(Duration::MAX).await.err(), Some(BulkheadFull));
        assert!(start.elapsed().is_zero());
    }

    #[tokio::test(start_paused = true)]
    async fn patience_and_the_deadline_both_end_the_wait() {
        let slots = slots(1, 4, Duration::from_secs(30));
        let _held = slots.take(Duration::MAX).await.unwrap();

        for (remaining, waits) in [(Duration::MAX, 30), (Duration::from_secs(7), 7)] {
            let start = tokio::time::Instant::now();
            assert_eq!(slots.take(remaining).await.err(), Some(BulkheadFull));
            assert_eq!(start.elapsed().as_secs(), waits);
        }
        assert_eq!(slots.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_freed_slot_goes_to_the_first_in_line() {
        let slots = slots(1, 4, Duration::from_secs(30));
        let held = slots.take(Duration::MAX).await.unwrap();

        let (waited, ()) = tokio::join!(slots.take(Duration::MAX), async {
            assert_eq!((slots.in_flight(), slots.waiting()), (1, 1));
            drop(held);
        });

        assert!(waited.is_ok());
        assert_eq!((slots.in_flight(), slots.waiting()), (1, 0));
    }

    #[test]
    fn bad_settings_name_their_field() {
        let field = |policy: BulkheadPolicy| Bulkhead::new(policy).unwrap_err().field;

        assert_eq!(field(BulkheadPolicy::new(0)), "concurrency");
        assert_eq!(
            field(BulkheadPolicy { patience: Duration::MAX, ..BulkheadPolicy::new(1) }),
            "patience"
        );
    }
}
