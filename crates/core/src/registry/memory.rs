//! Decides how writes are queued in memory: in order, bounded, and lost with the process.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::durable::{DurableQueue, EarlierWrite, NotQueued, Promise, QueuedWrite, WriteFate};

/// A queue for tests, and for programs that can afford to lose queued writes when they end.
///
/// ```
/// # use seawall::{MemoryQueue, Settings};
/// # use std::sync::Arc;
/// let queue = Arc::new(MemoryQueue::new(100));
/// let settings = Settings::<String> { durable: Some(queue), ..Settings::default() };
/// ```
#[derive(Debug)]
pub struct MemoryQueue {
    capacity: usize,
    items: Mutex<MemoryItems>,
}

#[derive(Debug, Default)]
struct MemoryItems {
    last_id: u64,
    waiting: VecDeque<(String, QueuedWrite)>,
}

impl MemoryQueue {
    /// A queue for `capacity` items; more are refused.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, items: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryItems> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, item: QueuedWrite) -> Result<String, NotQueued> {
        let mut items = self.lock();
        if items.waiting.len() >= self.capacity {
            return Err(NotQueued::Refused(format!("{} calls are waiting already", self.capacity)));
        }
        items.last_id += 1;
        let id = format!("q{}", items.last_id);
        items.waiting.push_back((id.clone(), item));
        Ok(id)
    }
}

impl DurableQueue for MemoryQueue {
    fn enqueue(&self, item: QueuedWrite) -> Promise<'_, Result<String, NotQueued>> {
        Box::pin(async { self.keep(item) })
    }

    fn next<'a>(&'a self, server: &'a str) -> Promise<'a, Option<(String, QueuedWrite)>> {
        Box::pin(async move {
            self.lock().waiting.iter().find(|(_, item)| item.server == server).cloned()
        })
    }

    fn find<'a>(
        &'a self,
        item: &'a QueuedWrite,
    ) -> Promise<'a, Result<Option<EarlierWrite>, NotQueued>> {
        // The queue does not know whether a reader of `next` is sending the item right now, so the
        // state is always `Waits`.
        let found = |(id, waiting): &(String, QueuedWrite)| {
            waiting
                .is_same_call(item)
                .then(|| EarlierWrite { id: id.clone(), fate: WriteFate::Waits })
        };
        Box::pin(async move { Ok(self.lock().waiting.iter().find_map(found)) })
    }

    fn is_idle(&self, server: &str) -> bool {
        self.lock().waiting.iter().all(|(_, item)| item.server != server)
    }

    fn remove<'a>(&'a self, id: &'a str) -> Promise<'a, bool> {
        Box::pin(async move {
            let mut items = self.lock();
            let before = items.waiting.len();
            items.waiting.retain(|(waiting, _)| waiting != id);
            items.waiting.len() < before
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::effect::Effect;
    use serde_json::json;

    fn item(server: &str, n: u32) -> QueuedWrite {
        let (tool, effect) = ("t".into(), Effect::Write);
        QueuedWrite {
            server: server.into(),
            tool,
            arguments: json!(n),
            caller: String::new(),
            effect,
            principal: None,
        }
    }

    #[tokio::test]
    async fn items_of_a_server_leave_in_order_and_the_queue_is_bounded() {
        let queue = MemoryQueue::new(3);
        let first = queue.enqueue(item("a", 1)).await.unwrap();
        queue.enqueue(item("b", 2)).await.unwrap();
        queue.enqueue(item("a", 3)).await.unwrap();
        assert!(queue.enqueue(item("a", 4)).await.is_err());

        assert_eq!(queue.next("a").await, Some((first.clone(), item("a", 1))));
        assert!(queue.remove(&first).await);
        assert!(!queue.remove(&first).await);
        assert_eq!(queue.next("a").await.map(|(_, item)| item.arguments), Some(json!(3)));
        assert_eq!(queue.next("c").await, None);
        assert!(queue.is_idle("c") && !queue.is_idle("a") && !queue.is_idle("b"));
    }
}
