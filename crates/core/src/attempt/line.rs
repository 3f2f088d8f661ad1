//! Decides who stands in a line, and whether one more fits into it: how many there are, in one
//! atomic word.

use super::atomic::{AtomicU32, Ordering};

/// A line; nobody in it at first.
#[derive(Debug, Default)]
pub(crate) struct WaitingLine(AtomicU32);

impl WaitingLine {
    /// How many stand in it now.
    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Joins it, however long it is.
    pub(crate) fn join(&self) -> LinePlace<'_> {
        LinePlace { line: self, ahead: self.0.fetch_add(1, Ordering::Relaxed) }
    }

    /// Joins it unless `longest` stand in it.
    pub(crate) fn join_within(&self, longest: u32) -> Option<LinePlace<'_>> {
        let room = |length: u32| (length < longest).then(|| length + 1);
        let ahead = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        Some(LinePlace { line: self, ahead })
    }
}

/// A place in line; dropped, it is given up.
#[derive(Debug)]
pub(crate) struct LinePlace<'a> {
    line: &'a WaitingLine,
    /// How many stood in line before.
    pub(crate) ahead: u32,
}

impl Drop for LinePlace<'_> {
    fn drop(&mut self) {
        self.line.0.fetch_sub(1, Ordering::Relaxed);
    }
}
