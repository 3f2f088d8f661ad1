//! Messages as server-sent events: written one way, read in every way the standard allows, within
//! limits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::limits;
use super::lines::fitted;
use super::pieces::TwoPieces;
use super::scan::Reject;

/// One message as an event, with the id that a client can come back with.
pub(crate) fn event(id: Option<&str>, message: &TwoPieces) -> Bytes {
    let message = message.one_line();
    let [head, tail] = message.parts();
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    [id.as_bytes(), b"event: message\ndata: ", head, tail, b"\n\n"].concat().into()
}

/// The same for a message that is large and is not to be copied: all but the end of the event,
/// which is [`END`].
pub(crate) fn large_event(id: Option<&str>, message: &TwoPieces) -> TwoPieces {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    message.one_line().after(&format!("{id}event: message\ndata: "))
}

/// The end of an event.
pub(crate) const END: &[u8] = b"\n\n";

/// The event that says nothing but where the stream begins, and how soon to come back when it
/// breaks.
pub(crate) fn priming(id: &str, retry: Duration) -> Bytes {
    format!("id: {id}\nretry: {}\ndata: \n\n", retry.as_millis()).into()
}

/// A sign of life.
pub(crate) const COMMENT: &[u8] = b": alive\n\n";

/// What one event said.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Its type; `message` if nothing was said.
    pub event: String,
    /// The data; may be empty.
    pub data: Bytes,
    /// The id to come back with.
    pub id: Option<String>,
    /// How long to wait before coming back.
    pub retry: Option<Duration>,
}

impl SseEvent {
    /// Whether it carries a message; other types, and events without data, carry none.
    pub(crate) fn is_message(&self) -> bool {
        !self.data.is_empty() && (self.event.is_empty() || self.event == "message")
    }
}

/// Reads events from pieces of a stream.
#[derive(Debug)]
pub(crate) struct SseDecoder {
    limit: usize,
    buffer: BytesMut,
    seen: usize,
    current: SseEvent,
    data: Vec<u8>,
    has_data: bool,
    touched: bool,
    first: bool,
}

impl SseDecoder {
    /// Events of at most `limit` bytes of data.
    pub(crate) fn new(limit: usize) -> Self {
        let (buffer, current, data) = (BytesMut::new(), SseEvent::default(), Vec::new());
        Self { limit, buffer, seen: 0, current, data, has_data: false, touched: false, first: true }
    }

    /// Takes the next piece of the stream.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole event, if there is one.
    pub(crate) fn event(&mut self) -> Result<Option<SseEvent>, Reject> {
        while let Some(line) = self.line()? {
            if line.is_empty() {
                if std::mem::take(&mut self.touched) {
                    self.has_data = false;
                    let data = fitted(std::mem::take(&mut self.data));
                    return Ok(Some(SseEvent { data, ..std::mem::take(&mut self.current) }));
                }
                continue;
            }
            self.field(&line)?;
        }
        Ok(None)
    }

    /// One line, whichever of the three ends it has. A `\r` at the end of a piece waits for what
    /// follows.
    fn line(&mut self) -> Result<Option<Bytes>, Reject> {
        if self.first && self.buffer.len() >= 3 {
            self.first = false;
            if self.buffer.starts_with(b"\xef\xbb\xbf") {
                let _mark = self.buffer.split_to(3);
                self.seen = 0;
            }
        }
        let Some(end) =
            memchr::memchr2(b'\n', b'\r', &self.buffer[self.seen..]).map(|end| self.seen + end)
        else {
            self.seen = self.buffer.len();
            return if self.buffer.len() > self.limit + 16 {
                Err(Reject::Size(self.limit))
            } else {
                Ok(None)
            };
        };
        let ending = match (self.buffer[end], self.buffer.get(end + 1)) {
            (b'\r', None) => {
                self.seen = end;
                return Ok(None);
            }
            (b'\r', Some(b'\n')) => 2,
            _ => 1,
        };
        let line = self.buffer.split_to(end + ending).freeze();
        self.seen = 0;
        Ok(Some(line.slice(..end)))
    }

    fn field(&mut self, line: &Bytes) -> Result<(), Reject> {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let name = &line[..colon];
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        if name != b"data" && value.len() > limits::SSE_FIELD {
            return Err(Reject::Size(limits::SSE_FIELD));
        }
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                if self.data.len() + value.len() > self.limit {
                    return Err(Reject::Size(self.limit));
                }
                self.data.extend_from_slice(value);
            }
            b"id" if !value.contains(&0) => self.current.id = Some(text()),
            b"event" => self.current.event = text(),
            b"retry" => self.current.retry = text().parse().ok().map(Duration::from_millis),
            _ => return Ok(()),
        }
        self.touched = true;
        Ok(())
    }
}
