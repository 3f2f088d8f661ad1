//! Decides how many bytes of answers may wait for their clients to read them, over all clients.
//!
//! The bytes of an answer carry their share of the budget, from the moment the answer exists until
//! the operating system has taken its last byte. If an answer does not fit, only its own call
//! fails.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::stream::ClientStream;
use crate::protocol::budget::ByteBudget;
use crate::protocol::limits;
use crate::protocol::pieces::TwoPieces;

/// How many kept streams are remembered before streams that no longer exist are removed.
const REMEMBERED: usize = 1024;

/// The answers that wait for their clients.
#[derive(Debug)]
pub(crate) struct PendingAnswers {
    budget: Arc<ByteBudget>,
    /// Streams kept for clients that may come back, the oldest first.
    kept: Mutex<VecDeque<Weak<ClientStream>>>,
}

impl PendingAnswers {
    /// Lets answers of up to `limit` bytes wait.
    pub(crate) fn new(limit: usize) -> Self {
        Self { budget: ByteBudget::new(limit), kept: Mutex::default() }
    }

    /// How many bytes of answers may wait.
    pub(crate) fn limit(&self) -> usize {
        self.budget.limit()
    }

    /// The answer with its share of the budget, held until the last copy is dropped; `None` if it
    /// does not fit. Unread answers on abandoned streams give way to it, the oldest first.
    pub(crate) fn hold(&self, answer: TwoPieces) -> Option<TwoPieces> {
        let size = answer.size();
        // Small answers are not counted: the number of calls bounds them.
        if size <= limits::COPIED {
            return Some(answer);
        }
        let mut share = self.budget.share();
        let fits = share.grow(size)
            || self.oldest_left().any(|stream| stream.forget() && share.grow(size));
        fits.then(|| answer.held(share))
    }

    /// Remembers a stream that is kept for a client that may come back.
    pub(crate) fn keep(&self, stream: &Arc<ClientStream>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= REMEMBERED {
            kept.retain(|stream| stream.strong_count() > 0);
        }
        kept.push_back(Arc::downgrade(stream));
    }

    /// Streams that have their answer but no reader.
    fn oldest_left(&self) -> impl Iterator<Item = Arc<ClientStream>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // Collected under the lock, used after it: `forget` takes the lock of each stream.
        let left: Vec<_> =
            kept.iter().filter_map(Weak::upgrade).filter(|stream| stream.is_left()).collect();
        left.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: usize) -> TwoPieces {
        vec![b'x'; bytes].into()
    }

    #[test]
    fn answers_wait_within_a_budget_and_what_nobody_reads_gives_way() {
        let pending = PendingAnswers::new(1 << 20);
        let first = pending.hold(answer(700 << 10)).unwrap();
        assert!(pending.hold(answer(400 << 10)).is_none());
        assert!(pending.hold(answer(1 << 10)).is_some(), "what is small always fits");
        drop(first);

        let left = ClientStream::resumable(true);
        pending.keep(&left);
        let reader = left.reader(0);
        left.answer(pending.hold(answer(700 << 10)).unwrap());
        assert!(pending.hold(answer(400 << 10)).is_none(), "it is read");
        drop(reader);
        let second = pending.hold(answer(400 << 10)).unwrap();
        assert_eq!((left.bytes(), left.is_forgotten(), second.size()), (0, true, 400 << 10));
    }
}
