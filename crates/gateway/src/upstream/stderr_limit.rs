//! How much of what a server says outside the protocol reaches our log: a server that shouts does
//! not fill the disk.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lines of one server that are shown at once, and again after a while.
const LINES: u32 = 1_000;
/// Bytes of them.
const BYTES: usize = 1 << 20;
/// How long it takes until as much is shown again.
const EVERY: Duration = Duration::from_secs(10);

/// What one server may still say, over all its processes.
#[derive(Debug, Default)]
pub(super) struct StderrLimit {
    state: Mutex<StderrWindow>,
}

#[derive(Debug, Default)]
struct StderrWindow {
    began: Option<Instant>,
    lines: u32,
    bytes: usize,
    left_out: u64,
}

impl StderrLimit {
    /// Whether a line of so many bytes is shown; and how many were left out before it, if they were
    /// not told yet.
    pub(super) fn lets(&self, bytes: usize) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.is_none_or(|began| began.elapsed() >= EVERY) {
            *state = StderrWindow {
                began: Some(Instant::now()),
                left_out: state.left_out,
                ..StderrWindow::default()
            };
        }
        if state.lines >= LINES || state.bytes + bytes > BYTES {
            state.left_out += 1;
            return None;
        }
        state.lines += 1;
        state.bytes += bytes;
        Some(std::mem::take(&mut state.left_out))
    }

    /// How many were left out and not told yet.
    pub(super) fn left_out(&self) -> u64 {
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_is_counted_and_told_once() {
        let flood = StderrLimit::default();
        assert!((0..LINES).all(|_| flood.lets(10) == Some(0)));
        assert!((0..500).all(|_| flood.lets(10).is_none()));
        tokio::time::advance(EVERY).await;
        assert_eq!((flood.lets(10), flood.lets(10)), (Some(500), Some(0)));
        assert_eq!(
            (flood.lets(BYTES), flood.left_out(), flood.left_out()),
            (None, 1, 0),
            "also by bytes"
        );
    }
}
