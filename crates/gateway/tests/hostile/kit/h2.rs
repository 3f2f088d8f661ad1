//! HTTP/2 by hand: just enough frames to attack with.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// One frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The head of a POST of JSON to `/mcp`, as the static table and literals write it.
pub(crate) fn post_head(authority: &str) -> Vec<u8> {
    let literal = |index: u8, value: &str| {
        [&[index, u8::try_from(value.len()).unwrap()], value.as_bytes()].concat()
    };
    let kind = [&[0x0f], literal(0x10, "application/json").as_slice()].concat();
    [vec![0x83, 0x86], literal(0x04, "/mcp"), literal(0x01, authority), kind].concat()
}

/// A connection past its preface.
pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    tcp.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    tcp
}

/// The next frame: its kind, its stream and its payload; `None` when the other side is gone.
pub(crate) async fn next(tcp: &mut TcpStream) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    tcp.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    tcp.read_exact(&mut payload).await.ok()?;
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}
