//! HTTP by hand: requests as a client library would send them, and bytes as only an attacker would.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::within;

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// All messages: one as JSON, or those of a stream.
    pub(crate) fn messages(&self) -> Vec<Value> {
        let is_stream =
            self.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
        if !is_stream {
            return serde_json::from_slice(&self.body).into_iter().collect();
        }
        let text = self.text();
        text.lines()
            .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
            .collect()
    }

    /// The answer itself.
    pub(crate) fn message(&self) -> Value {
        let messages = self.messages();
        let is_answer = |message: &&Value| message.get("result").or(message.get("error")).is_some();
        messages
            .iter()
            .rfind(is_answer)
            .cloned()
            .unwrap_or_else(|| panic!("{} no answer: {}", self.status, self.text()))
    }

    /// The code and the text of the error it must be.
    pub(crate) fn error(&self) -> (i64, String) {
        let error = &self.message()["error"];
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }
}

/// Sends one request on a connection of its own; the response is not read yet.
pub(crate) async fn send(
    address: SocketAddr,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Response<Incoming> {
    let tcp = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(tcp)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", address.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    within(30, "a response", sender.send_request(request.body(Full::new(body)).unwrap()))
        .await
        .unwrap()
}

/// Reads a response to its end.
pub(crate) async fn whole(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = within(30, "the body", body.collect()).await.unwrap().to_bytes();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// One POST of JSON.
pub(crate) async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Answer {
    let plain =
        [("content-type", "application/json"), ("accept", "application/json, text/event-stream")];
    let headers: Vec<_> = plain.into_iter().chain(headers.iter().copied()).collect();
    whole(send(address, Method::POST, path, &headers, body.into()).await).await
}

/// One POST of JSON by a client that takes nothing of what comes back.
pub(crate) async fn unread(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> TcpStream {
    // A window that does not grow: else the system takes megabytes that nobody reads.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(128 << 10).unwrap();
    let mut tcp = socket.connect(address).await.unwrap();
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{headers}"
    );
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    tcp.write_all(request.as_bytes()).await.unwrap();
    tcp
}

/// Writes bytes on a new connection and reads what comes until the other side closes.
pub(crate) async fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    let mut all = Vec::new();
    // A reset after the answer is as good as an end.
    let _reset = within(15, "the connection closes", tcp.read_to_end(&mut all)).await;
    String::from_utf8_lossy(&all).into_owned()
}
