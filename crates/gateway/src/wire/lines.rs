//! Messages on a pipe: one per line, none longer than the limit, and a line too long costs itself only.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::limits;

/// What came down the pipe.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A whole line, without its end.
    Whole(Bytes),
    /// A line over the limit; said once, when the limit is passed. What follows of it is thrown away.
    TooLong,
}

/// Cuts a stream of bytes into lines.
#[derive(Debug)]
pub struct Lines<R> {
    from: R,
    limit: usize,
    buffer: BytesMut,
    /// How much of the buffer was looked at and holds no line end.
    seen: usize,
    skipping: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of at most `limit` bytes.
    pub fn new(from: R, limit: usize) -> Self {
        Self { from, limit, buffer: BytesMut::new(), seen: 0, skipping: false }
    }

    /// The next line; `None` at the end. Safe to drop while it waits: nothing read is lost.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer[self.seen..]) {
                let line = self.take(self.seen + end);
                self.seen = 0;
                if std::mem::take(&mut self.skipping) {
                    continue;
                }
                if line.len() > self.limit {
                    return Ok(Some(Line::TooLong));
                }
                return Ok(Some(Line::Whole(line)));
            }
            self.seen = self.buffer.len();
            if self.buffer.len() > self.limit || (self.skipping && !self.buffer.is_empty()) {
                self.buffer.clear();
                self.seen = 0;
                if !std::mem::replace(&mut self.skipping, true) {
                    return Ok(Some(Line::TooLong));
                }
            }
            self.buffer.reserve(16 << 10);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                let rest = self.buffer.split().freeze();
                self.seen = 0;
                return Ok((!rest.is_empty() && !self.skipping).then_some(Line::Whole(rest)));
            }
        }
    }

    /// Takes a line of so many bytes out of the buffer, and its end. A large one takes the buffer along.
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

/// Bytes in a buffer that is no larger than they are: a message may be kept, and is counted by its length.
pub fn fitted(bytes: impl Into<Vec<u8>>) -> Bytes {
    let mut bytes = bytes.into();
    bytes.shrink_to_fit();
    bytes.into()
}
