//! Decides how messages are framed as server-sent events: written in one form, read in every form
//! that the standard allows, within limits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::limits;
use super::lines::fitted;
use super::pieces::TwoPieces;
use super::scan::Reject;

/// One message as an event, with the id from which a client can resume.
pub(crate) fn event(id: Option<&str>, message: &TwoPieces) -> Bytes {
    let message = message.one_line();
    let [head, tail] = message.parts();
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    [id.as_bytes(), b"event: message\ndata: ", head, tail, b"\n\n"].concat().into()
}

/// The same for a large message that must not be copied: everything but the end of the event, which
/// is [`END`].
pub(crate) fn large_event(id: Option<&str>, message: &TwoPieces) -> TwoPieces {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    message.one_line().after(&format!("{id}event: message\ndata: "))
}

/// The end of an event.
pub(crate) const END: &[u8] = b"\n\n";

/// The first event of a stream: carries no message, only the id at which the stream begins and how
/// soon to reconnect when it breaks.
pub(crate) fn priming(id: &str, retry: Duration) -> Bytes {
    format!("id: {id}\nretry: {}\ndata: \n\n", retry.as_millis()).into()
}

/// A keep-alive comment.
pub(crate) const COMMENT: &[u8] = b": alive\n\n";

/// One event of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// The type of the event; empty if none was given, which means `message`.
    pub event: String,
    /// The data; may be empty.
    pub data: Bytes,
    /// The id to resume from.
    pub id: Option<String>,
    /// How long to wait before reconnecting.
    pub retry: Option<Duration>,
}

impl SseEvent {
    /// Whether the event carries a message; other types, and events without data, carry none.
    pub(crate) fn is_message(&self) -> bool {
        !self.data.is_empty() && (self.event.is_empty() || self.event == "message")
    }
}

/// Decodes events from pieces of a stream.
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
    /// A decoder for events of at most `limit` bytes of data.
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

    /// One line, whichever of the three line ends it has.
    fn line(&mut self) -> Result<Option<Bytes>, Reject> {
        // A byte order mark is skipped once. It may arrive in pieces, so the check waits for three
        // bytes.
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
            // A line of data is longer than its data: 16 bytes leave room for the field name.
            return if self.buffer.len() > self.limit + 16 {
                Err(Reject::Size(self.limit))
            } else {
                Ok(None)
            };
        };
        let ending = match (self.buffer[end], self.buffer.get(end + 1)) {
            // The `\n` of a `\r\n` may be in the next piece. Ending the line now would read that
            // `\n` as an empty line, which ends the event.
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
            // The standard has readers ignore an id that contains NUL.
            b"id" if !value.contains(&0) => self.current.id = Some(text()),
            b"event" => self.current.event = text(),
            b"retry" => self.current.retry = text().parse().ok().map(Duration::from_millis),
            _ => return Ok(()),
        }
        self.touched = true;
        Ok(())
    }
}
