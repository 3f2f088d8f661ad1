//! Limits how much of a server's stderr and stdout noise reaches the log: a noisy server does not
//! fill the disk.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The most lines of one server per window.
const LINES: u32 = 1_000;
/// The most bytes of one server per window.
const BYTES: usize = 1 << 20;
/// The length of a window.
const EVERY: Duration = Duration::from_secs(10);

/// The rest of one server's allowance, over all its processes.
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
    /// Takes a line of `bytes`: `None` if it is left out, else the number of lines left out before
    /// it and not reported yet.
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

    /// The number of lines left out and not reported yet; resets it.
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
