//! HTTP/1.1 by hand, one request for each connection: a peer that is made by hand can leave, cut
//! and stall wherever it likes, which no library lets it do.

use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The most that one message of a world may have; none comes near it.
const MOST: usize = 32 << 20;

/// Request or status line with the headers, in lower case, and what stands behind them.
pub(crate) struct Head {
    text: String,
    /// What was read of the body with the head.
    pub(crate) rest: Vec<u8>,
}

impl Head {
    /// Reads up to the empty line; `None`: the peer left.
    pub(crate) async fn read(tcp: &mut TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                let rest = bytes.split_off(end + 4);
                return Some(Self { text: String::from_utf8_lossy(&bytes).into_owned(), rest });
            }
            if bytes.len() > MOST || tcp.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.text.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// The second word of a status line.
    pub(crate) fn status(&self) -> u16 {
        self.text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
    }

    /// The first word of a request line.
    pub(crate) fn method(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }

    /// The whole body of a request.
    pub(crate) async fn body(&self, tcp: &mut TcpStream) -> Option<Value> {
        let length = self.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut bytes = self.rest.clone();
        while bytes.len() < length {
            if bytes.len() > MOST || tcp.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        Some(serde_json::from_slice(&bytes).unwrap_or_default())
    }
}

/// A request with a body.
pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &str,
) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n");
    text += "content-type: application/json\r\naccept: application/json, text/event-stream\r\n";
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n{body}", body.len());
    text.into_bytes()
}

/// A response that ends its connection.
pub(crate) fn response(status: u16, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} Said\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
        .into_bytes()
}

/// The head of a stream of events that lasts as long as its connection.
pub(crate) const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n";

/// One event.
pub(crate) fn event(message: &Value) -> Vec<u8> {
    format!("event: message\ndata: {message}\n\n").into_bytes()
}

pub(crate) async fn write(tcp: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    tcp.write_all(bytes).await?;
    tcp.flush().await
}

/// The messages in the body of a response, one by one as they come: a body of JSON, or the events
/// of a stream.
pub(crate) struct Messages {
    is_stream: bool,
    chunks: Option<Chunks>,
    /// What came and is not read yet.
    text: Vec<u8>,
    is_over: bool,
    slowly: bool,
}

impl Messages {
    /// `slowly`: a little at a time, with pauses.
    pub(crate) fn of(head: &Head, slowly: bool) -> Self {
        let is = |name, what: &str| {
            head.header(name).is_some_and(|value| value.to_ascii_lowercase().contains(what))
        };
        let mut messages = Self {
            is_stream: is("content-type", "text/event-stream"),
            chunks: is("transfer-encoding", "chunked").then(Chunks::default),
            text: Vec::new(),
            is_over: false,
            slowly,
        };
        messages.take(&head.rest);
        messages
    }

    fn take(&mut self, bytes: &[u8]) {
        match &mut self.chunks {
            Some(chunks) => self.text.extend(chunks.decode(bytes)),
            None => self.text.extend_from_slice(bytes),
        }
    }

    /// The next message; `None`: there is no more.
    pub(crate) async fn next(&mut self, tcp: &mut TcpStream) -> Option<Value> {
        loop {
            if self.is_stream
                && let Some(message) = self.event()
            {
                return Some(message);
            }
            if self.is_over {
                let all = std::mem::take(&mut self.text);
                return if self.is_stream { None } else { serde_json::from_slice(&all).ok() };
            }
            let mut bytes = Vec::with_capacity(16 << 10);
            if self.slowly {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            match tcp.read_buf(&mut bytes).await {
                Ok(read) if read > 0 && self.text.len() < MOST => self.take(&bytes),
                _ => self.is_over = true,
            }
        }
    }

    /// The next whole event that has data.
    fn event(&mut self) -> Option<Value> {
        loop {
            let end = self.text.windows(2).position(|two| two == b"\n\n")?;
            let rest = self.text.split_off(end + 2);
            let event = std::mem::replace(&mut self.text, rest);
            let event = String::from_utf8_lossy(&event);
            let data: String =
                event.lines().filter_map(|line| line.strip_prefix("data:")).collect();
            if let Ok(message) = serde_json::from_str(data.trim()) {
                return Some(message);
            }
        }
    }
}

/// What is known of a body in chunks.
#[derive(Default)]
struct Chunks {
    pending: Vec<u8>,
}

impl Chunks {
    /// The content of all chunks that are whole by now.
    fn decode(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let mut content = Vec::new();
        while let Some(line) = self.pending.windows(2).position(|two| two == b"\r\n") {
            let size = String::from_utf8_lossy(&self.pending[..line]);
            let Ok(size) =
                usize::from_str_radix(size.trim().split(';').next().unwrap_or_default(), 16)
            else {
                break;
            };
            let (begin, end) = (line + 2, line + 2 + size);
            if self.pending.len() < end + 2 {
                break;
            }
            content.extend_from_slice(&self.pending[begin..end]);
            self.pending.drain(..end + 2);
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_wherever_they_were_cut() {
        let whole = b"5\r\ndata:\r\n4\r\n 1\n\n\r\n0\r\n\r\n";
        for cut in 0..whole.len() {
            let mut chunks = Chunks::default();
            let mut content = chunks.decode(&whole[..cut]);
            content.extend(chunks.decode(&whole[cut..]));
            assert_eq!(content, b"data: 1\n\n", "cut at {cut}");
        }
    }
}
