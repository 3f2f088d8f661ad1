//! Decides how messages are read from a pipe: one per line, none longer than the limit. A line that
//! is too long is dropped alone; the lines after it are read.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::limits;
use super::outline::{Outline, Outliner};

/// A line from the pipe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PipeLine {
    /// A whole line, without its line end.
    Whole(Bytes),
    /// A line over the limit, which was dropped. Reported once: as soon as the limit is passed, or,
    /// for an outlined reader, at the end of the line or when its outline is hopeless.
    TooLong(Outline),
}

/// Cuts a stream of bytes into lines.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    from: R,
    limit: usize,
    buffer: BytesMut,
    /// How much of the buffer was searched and holds no line end.
    seen: usize,
    skipping: bool,
    is_outlined: bool,
    /// Scans the line that is being dropped, until that line is reported.
    outliner: Option<Outliner>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// A reader for lines of at most `limit` bytes.
    pub(crate) fn new(from: R, limit: usize) -> Self {
        let (buffer, outliner) = (BytesMut::new(), None);
        Self { from, limit, buffer, seen: 0, skipping: false, is_outlined: false, outliner }
    }

    /// The same, for a peer that waits for an answer to a line that is too long: the outline finds
    /// its id.
    pub(crate) fn outlined(from: R, limit: usize) -> Self {
        Self { is_outlined: true, ..Self::new(from, limit) }
    }

    /// The next line; `None` at the end. Cancel safe: bytes that were read stay in the buffer.
    pub(crate) async fn next(&mut self) -> io::Result<Option<PipeLine>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer[self.seen..]) {
                let line = self.take(self.seen + end);
                self.seen = 0;
                let was_skipping = std::mem::take(&mut self.skipping);
                if !was_skipping && line.len() <= self.limit {
                    return Ok(Some(PipeLine::Whole(line)));
                }
                if !was_skipping {
                    self.outliner = Some(Outliner::default());
                }
                if let Some(outline) = self.outline(&line, true) {
                    return Ok(Some(PipeLine::TooLong(outline)));
                }
                continue;
            }
            self.seen = self.buffer.len();
            if self.buffer.len() > self.limit || (self.skipping && !self.buffer.is_empty()) {
                let part = self.buffer.split();
                self.seen = 0;
                if !std::mem::replace(&mut self.skipping, true) {
                    self.outliner = Some(Outliner::default());
                }
                if let Some(outline) = self.outline(&part, false) {
                    return Ok(Some(PipeLine::TooLong(outline)));
                }
            }
            // The only await of the loop, and `read_buf` is cancel safe: a dropped future loses no
            // bytes.
            self.buffer.reserve(16 << 10);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                let rest = self.buffer.split().freeze();
                self.seen = 0;
                if std::mem::take(&mut self.skipping) {
                    return Ok(self.outline(&rest, true).map(PipeLine::TooLong));
                }
                return Ok((!rest.is_empty()).then_some(PipeLine::Whole(rest)));
            }
        }
    }

    /// Feeds the next `part` of a dropped line to its outline. Returns the outline when the line is
    /// to be reported.
    fn outline(&mut self, part: &[u8], is_last: bool) -> Option<Outline> {
        let outliner = self.outliner.as_mut()?;
        if self.is_outlined {
            outliner.feed(part);
        }
        let is_time = is_last || !self.is_outlined || outliner.is_hopeless();
        self.outliner.take_if(|_| is_time).map(Outliner::finish)
    }

    /// Takes a line of `length` bytes and its line end out of the buffer. A long line takes the
    /// buffer itself, and the rest is copied to a new one.
    fn take(&mut self, length: usize) -> Bytes {
        if length <= limits::COPIED {
            return self.buffer.split_to(length + 1).freeze().slice(..length);
        }
        let rest = BytesMut::from(&self.buffer[length + 1..]);
        let mut line = std::mem::replace(&mut self.buffer, rest);
        line.truncate(length);
        fitted(line)
    }
}

/// The bytes in a buffer of exactly their size: a message may be kept, and its memory is counted by
/// its length.
pub(crate) fn fitted(bytes: impl Into<Vec<u8>>) -> Bytes {
    let mut bytes = bytes.into();
    bytes.shrink_to_fit();
    bytes.into()
}
