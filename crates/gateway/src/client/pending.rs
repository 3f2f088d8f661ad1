//! Answers that wait for their clients to read them: how many bytes they may take, over all
//! clients.
//!
//! An answer is held from when it is there until its last byte was given to the system, by its
//! bytes themselves, wherever they go. What does not fit is not held: its call fails instead, and
//! nobody else's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::stream::ClientStream;
use crate::protocol::budget::ByteBudget;
use crate::protocol::limits;
use crate::protocol::pieces::TwoPieces;

/// Streams whose clients may leave that are remembered before those that are gone are looked for.
const REMEMBERED: usize = 1024;

/// The answers that wait.
#[derive(Debug)]
pub(crate) struct PendingAnswers {
    budget: Arc<ByteBudget>,
    /// Streams that are kept for clients that may come back, the oldest first.
    kept: Mutex<VecDeque<Weak<ClientStream>>>,
}

impl PendingAnswers {
    /// Answers of so many bytes may wait.
    pub(crate) fn new(limit: usize) -> Self {
        Self { budget: ByteBudget::new(limit), kept: Mutex::default() }
    }

    /// How many bytes may wait.
    pub(crate) fn limit(&self) -> usize {
        self.budget.limit()
    }

    /// The answer, held as long as anybody has it; `None` if it does not fit. Answers that nobody
    /// reads give way to it.
    pub(crate) fn hold(&self, answer: TwoPieces) -> Option<TwoPieces> {
        let size = answer.size();
        // What is small is bounded by the number of calls.
        if size <= limits::COPIED {
            return Some(answer);
        }
        let mut share = self.budget.share();
        let fits = share.grow(size)
            || self.oldest_left().any(|stream| stream.forget() && share.grow(size));
        fits.then(|| answer.held(share))
    }

    /// A stream is kept for a client that may come back to it.
    pub(crate) fn keep(&self, stream: &Arc<ClientStream>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= REMEMBERED {
            kept.retain(|stream| stream.strong_count() > 0);
        }
        kept.push_back(Arc::downgrade(stream));
    }

    /// Streams whose answer is there and is read by nobody.
    fn oldest_left(&self) -> impl Iterator<Item = Arc<ClientStream>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
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
