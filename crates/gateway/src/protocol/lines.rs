//! Messages on a pipe: one per line, none longer than the limit, and a line too long costs itself
//! only.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::limits;
use super::outline::{Outline, Outliner};

/// What came down the pipe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PipeLine {
    /// A whole line, without its end.
    Whole(Bytes),
    /// A line over the limit, which was thrown away. Said once: when the limit is passed, or at the
    /// end of the line if its outline is wanted and may hold something.
    TooLong(Outline),
}

/// Cuts a stream of bytes into lines.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    from: R,
    limit: usize,
    buffer: BytesMut,
    /// How much of the buffer was looked at and holds no line end.
    seen: usize,
    skipping: bool,
    is_outlined: bool,
    /// Looks at the line that is thrown away, until that is said.
    outliner: Option<Outliner>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Lines of at most `limit` bytes.
    pub(crate) fn new(from: R, limit: usize) -> Self {
        let (buffer, outliner) = (BytesMut::new(), None);
        Self { from, limit, buffer, seen: 0, skipping: false, is_outlined: false, outliner }
    }

    /// The same, where whoever wrote a line that is too long waits for an answer to it.
    pub(crate) fn outlined(from: R, limit: usize) -> Self {
        Self { is_outlined: true, ..Self::new(from, limit) }
    }

    /// The next line; `None` at the end. Safe to drop while it waits: nothing read is lost.
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

    /// What is said of a line that is thrown away, when it is time: `part` of it comes next, which
    /// may be its last.
    fn outline(&mut self, part: &[u8], is_last: bool) -> Option<Outline> {
        let outliner = self.outliner.as_mut()?;
        if self.is_outlined {
            outliner.feed(part);
        }
        let is_time = is_last || !self.is_outlined || outliner.is_hopeless();
        self.outliner.take_if(|_| is_time).map(Outliner::finish)
    }

    /// Takes a line of so many bytes out of the buffer, and its end. A large one takes the buffer
    /// along.
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

/// Bytes in a buffer that is no larger than they are: a message may be kept, and is counted by its
/// length.
pub(crate) fn fitted(bytes: impl Into<Vec<u8>>) -> Bytes {
    let mut bytes = bytes.into();
    bytes.shrink_to_fit();
    bytes.into()
}
