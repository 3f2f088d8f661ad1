//! Decides whether one more call fits into a waiting line: its length, in one atomic word.

use super::atomic::{AtomicU32, Ordering};

/// A waiting line; empty at first.
#[derive(Debug, Default)]
pub(crate) struct WaitingLine(AtomicU32);

impl WaitingLine {
    /// How many calls wait now.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Joins the line at any length.
    pub(crate) fn join(&self) -> LinePlace<'_> {
        LinePlace { line: self, ahead: self.0.fetch_add(1, Ordering::Relaxed) }
    }

    /// Joins the line unless `longest` calls wait in it already.
    pub(crate) fn join_within(&self, longest: u32) -> Option<LinePlace<'_>> {
        // Check and increment are one atomic step: two calls cannot both take the last place.
        let room = |length: u32| (length < longest).then(|| length + 1);
        let ahead = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(LinePlace { line: self, ahead })
    }
}

/// A place in the line; dropping it leaves the line.
#[derive(Debug)]
pub(crate) struct LinePlace<'a> {
    line: &'a WaitingLine,
    /// How many calls were in the line before this one.
    pub(crate) ahead: u32,
}

impl Drop for LinePlace<'_> {
    fn drop(&mut self) {
        self.line.0.fetch_sub(1, Ordering::Relaxed);
    }
}
