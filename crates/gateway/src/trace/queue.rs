//! Holds ended spans until they are exported. The queue is bounded: spans that find no room are
//! dropped and counted, and no call waits for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::span::EndedSpan;

/// Spans that may wait.
pub(super) const MOST: usize = 8192;
/// So many spans wait no longer for others.
pub(super) const BATCH: usize = 1024;

/// Spans that have ended.
#[derive(Default)]
pub(crate) struct SpanQueue {
    waiting: Mutex<Vec<EndedSpan>>,
    full: Notify,
    exported: AtomicU64,
    dropped: AtomicU64,
}

/// What became of the spans so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExportCounts {
    /// Spans that a collector took.
    pub exported: u64,
    /// Spans that were dropped: the queue was full, or the collector did not take them.
    pub dropped: u64,
}

impl SpanQueue {
    /// Takes a span that has ended.
    pub(super) fn push(&self, span: EndedSpan) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MOST {
            drop(waiting);
            return self.note_dropped(1);
        }
        waiting.push(span);
        if waiting.len() == BATCH {
            self.full.notify_one();
        }
    }

    /// The spans that wait.
    pub(super) fn take(&self) -> Vec<EndedSpan> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            return Vec::new();
        }
        std::mem::replace(&mut *waiting, Vec::with_capacity(BATCH))
    }

    /// Waits until a whole batch waits.
    pub(super) async fn full(&self) {
        self.full.notified().await;
    }

    pub(super) fn note_exported(&self, spans: usize) {
        self.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }

    pub(super) fn note_dropped(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
    }

    /// What became of the spans so far.
    pub(super) fn counts(&self) -> ExportCounts {
        let (exported, dropped) = (&self.exported, &self.dropped);
        ExportCounts {
            exported: exported.load(Ordering::Relaxed),
            dropped: dropped.load(Ordering::Relaxed),
        }
    }
}
