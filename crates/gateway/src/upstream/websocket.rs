//! A connection over a WebSocket: one message per text frame, both ways at once, until either side
//! closes it.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderValue, Uri};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, interval_at, timeout};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message as Frame, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, connect_async_with_config};
use tokio_util::sync::CancellationToken;

use super::pipe::{self, PipeMessage, PipeWriter};
use super::{Connection, Server, UpstreamFailure, Wire, beginning, response};
use crate::protocol::{Message, Reject, limits};
use crate::upstream::call::ClientSink;

/// The subprotocol of MCP on a WebSocket.
const PROTOCOL: HeaderValue = HeaderValue::from_static("mcp");
/// The initial read buffer; it grows for larger messages.
const READ: usize = 16 << 10;

/// Connects to a server and opens a connection over the socket.
pub(super) async fn open(
    server: &Server,
    url: &Uri,
    headers: HeaderMap,
    general: Arc<dyn ClientSink>,
) -> Result<Arc<Connection>, UpstreamFailure> {
    let ended = server.lifecycle.ended.child_token();
    let request = request(url, headers).map_err(refused)?;
    let connecting = async {
        let connected = connect_async_with_config(request, Some(bounds()), true).await;
        connected.map(|(socket, _)| socket).map_err(refused)
    };
    let socket = pipe::connected(&ended, connecting).await?;
    let (pipe, outgoing) = PipeWriter::new();
    let connection = Connection::new(&server.name, Wire::Pipe(pipe), general, ended.clone());
    server.lifecycle.spawn(converse(socket, outgoing, Arc::downgrade(&connection), ended));
    Ok(connection)
}

/// Limits for frames and messages of the server.
fn bounds() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ)
        .max_frame_size(Some(limits::FROM_SERVER))
        .max_message_size(Some(limits::FROM_SERVER))
}

/// The upgrade request, with the operator's headers; the headers of the WebSocket handshake itself
/// cannot be overridden.
fn request(url: &Uri, headers: HeaderMap) -> Result<Request, Error> {
    let mut request = url.clone().into_client_request()?;
    let is_ours = |name: &http::HeaderName| {
        *name == CONNECTION || *name == UPGRADE || name.as_str().starts_with("sec-websocket-")
    };
    for (name, value) in headers.iter().filter(|(name, _)| !is_ours(name)) {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
    Ok(request)
}

/// Why the socket could not be opened.
fn refused(error: Error) -> UpstreamFailure {
    match error {
        Error::Http(answer) if answer.status().is_success() => {
            UpstreamFailure::Handshake("it answers as plain HTTP, not as a WebSocket".to_owned())
        }
        Error::Http(answer) => UpstreamFailure::Status {
            status: answer.status().as_u16(),
            text: beginning(&String::from_utf8_lossy(answer.body().as_deref().unwrap_or_default())),
            retry_after: response::retry_after(answer.headers()),
        },
        Error::Protocol(ProtocolError::SecWebSocketSubProtocolError(_)) => {
            UpstreamFailure::Handshake("it does not speak \"mcp\" on its WebSocket".to_owned())
        }
        error => UpstreamFailure::Unreachable(error.to_string()),
    }
}

/// Carries messages both ways until the connection or the socket ends, then closes the socket.
async fn converse<S>(
    socket: WebSocketStream<S>,
    outgoing: PipeMessage,
    connection: Weak<Connection>,
    ended: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut to, mut from) = socket.split();
    let why = tokio::select! {
        () = ended.cancelled() => UpstreamFailure::Lost("the session was closed".to_owned()),
        why = read(&mut from, &connection) => why,
        why = write(&mut to, outgoing) => why,
    };
    let code = close_code(&why);
    if let Some(connection) = connection.upgrade() {
        connection.lose(why);
    }
    if let Ok(socket) = from.reunite(to) {
        let _in_time = timeout(limits::CHILD_GRACE, say_goodbye(socket, code)).await;
    }
}

/// Hands the server's messages to the connection until the socket ends. Returns why it ended.
async fn read<S>(
    from: &mut SplitStream<WebSocketStream<S>>,
    connection: &Weak<Connection>,
) -> UpstreamFailure
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let text = match timeout(limits::SILENCE, from.next()).await {
            Ok(Some(Ok(Frame::Text(text)))) => text,
            Ok(Some(Ok(Frame::Binary(_)))) => {
                return UpstreamFailure::Broken(Reject::Shape(
                    "it came as a binary frame, not as text",
                ));
            }
            Ok(Some(Ok(Frame::Close(frame)))) => {
                return UpstreamFailure::Lost(closed(frame.as_ref()));
            }
            // tungstenite answers pings while it reads.
            Ok(Some(Ok(Frame::Ping(_) | Frame::Pong(_) | Frame::Frame(_)))) => continue,
            Ok(Some(Err(error))) => return broken(error),
            Ok(None) => return UpstreamFailure::Lost(closed(None)),
            Err(_) => {
                return UpstreamFailure::Lost(format!(
                    "it was silent for {} s",
                    limits::SILENCE.as_secs()
                ));
            }
        };
        let Some(connection) = connection.upgrade() else { return UpstreamFailure::Cancelled };
        match Message::parse(Bytes::from(text)) {
            Ok(message) => connection.receive(message, None),
            Err(reject) => return UpstreamFailure::Broken(reject),
        }
    }
}

/// Sends queued messages, and a ping when there are none, so that a dead socket is noticed. Returns
/// why it ended.
async fn write<S>(
    to: &mut SplitSink<WebSocketStream<S>, Frame>,
    mut outgoing: PipeMessage,
) -> UpstreamFailure
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut alive = interval_at(Instant::now() + limits::KEEP_ALIVE, limits::KEEP_ALIVE);
    loop {
        let frame = tokio::select! {
            message = outgoing.recv() => match message.map(Utf8Bytes::try_from) {
                Some(Ok(text)) => Frame::Text(text),
                Some(Err(error)) => return UpstreamFailure::Broken(Reject::Utf8(error.valid_up_to())),
                None => return UpstreamFailure::Cancelled,
            },
            _ = alive.tick() => Frame::Ping(Bytes::new()),
        };
        if let Err(error) = to.send(frame).await {
            return broken(error);
        }
    }
}

/// The failure for a socket error.
fn broken(error: Error) -> UpstreamFailure {
    match error {
        Error::Capacity(_) => UpstreamFailure::Broken(Reject::Size(limits::FROM_SERVER)),
        Error::Utf8(_) => UpstreamFailure::Broken(Reject::Shape("its text is not UTF-8")),
        Error::ConnectionClosed | Error::AlreadyClosed => UpstreamFailure::Lost(closed(None)),
        error => UpstreamFailure::Lost(error.to_string()),
    }
}

fn closed(frame: Option<&CloseFrame>) -> String {
    match frame {
        Some(frame) => {
            let said = beginning(&frame.reason);
            let colon = if said.is_empty() { "" } else { ": " };
            format!("it closed the connection with code {}{colon}{said}", u16::from(frame.code))
        }
        None => "it closed the connection".to_owned(),
    }
}

fn close_code(why: &UpstreamFailure) -> CloseCode {
    match why {
        UpstreamFailure::Broken(Reject::Size(_)) => CloseCode::Size,
        UpstreamFailure::Broken(_) => CloseCode::Unsupported,
        _ => CloseCode::Normal,
    }
}

/// Sends or answers the close frame, and waits until the server hangs up.
async fn say_goodbye<S>(mut socket: WebSocketStream<S>, code: CloseCode)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _gone = socket.close(Some(CloseFrame { code, reason: Utf8Bytes::default() })).await;
    while let Some(Ok(_)) = socket.next().await {}
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;
    use crate::upstream::call::NoClient;

    /// A connection in memory, and the server's end of it.
    async fn conversation() -> (Arc<Connection>, WebSocketStream<DuplexStream>) {
        let (near, far) = duplex(1 << 10);
        let (pipe, outgoing) = PipeWriter::new();
        let ended = CancellationToken::new();
        let connection = Connection::new("it", Wire::Pipe(pipe), Arc::new(NoClient), ended.clone());
        let socket = WebSocketStream::from_raw_socket(near, Role::Client, Some(bounds())).await;
        tokio::spawn(converse(socket, outgoing, Arc::downgrade(&connection), ended));
        (connection, WebSocketStream::from_raw_socket(far, Role::Server, None).await)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_pings_is_kept_and_one_that_does_not_is_given_up() {
        let (connection, mut server) = conversation().await;
        let began = Instant::now();
        // The server's end answers pings as long as frames are read.
        for _ in 0..20 {
            assert_eq!(server.next().await.unwrap().unwrap(), Frame::Ping(Bytes::new()));
        }
        assert_eq!(began.elapsed(), limits::KEEP_ALIVE * 20);
        assert!(connection.is_alive());

        let began = Instant::now();
        let asked =
            timeout(limits::SILENCE * 2, connection.ask("tools/list", b"{}")).await.unwrap();

        assert_eq!(asked.unwrap_err(), UpstreamFailure::Lost("it was silent for 60 s".to_owned()));
        assert!(began.elapsed() <= limits::SILENCE);
        assert!(!connection.is_alive());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_read_can_still_be_heard() {
        let (connection, mut server) = conversation().await;
        let asking = tokio::spawn({
            let connection = Arc::clone(&connection);
            let params = format!("{{\"big\":\"{}\"}}", "x".repeat(1 << 16));
            async move { connection.ask("tools/list", params.as_bytes()).await }
        });
        // More than the pipe between the two holds, both ways at once: neither side waits for the
        // other to read first.
        let answer =
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"big":"{}"}}}}"#, "y".repeat(1 << 16));
        server.send(Frame::text(answer.clone())).await.unwrap();
        assert_eq!(asking.await.unwrap().unwrap().raw(), answer.as_bytes());
    }

    #[tokio::test(start_paused = true)]
    async fn a_conversation_that_nobody_holds_is_over() {
        let (connection, mut server) = conversation().await;
        drop(connection);
        let Some(Ok(Frame::Close(Some(frame)))) = server.next().await else { panic!("no goodbye") };
        assert_eq!(frame.code, CloseCode::Normal);
    }

    #[test]
    fn the_operators_headers_do_not_change_what_makes_it_a_websocket() {
        let mut headers = HeaderMap::new();
        for name in [
            "x-key",
            "upgrade",
            "connection",
            "sec-websocket-protocol",
            "sec-websocket-key",
            "host",
        ] {
            headers.insert(http::HeaderName::from_static(name), HeaderValue::from_static("mine"));
        }
        let request = request(&"ws://a.example/ws".parse().unwrap(), headers).unwrap();
        let changed: Vec<&str> = request
            .headers()
            .iter()
            .filter(|(_, value)| *value == "mine")
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(changed, ["host", "x-key"]);
        assert_eq!(request.headers()[SEC_WEBSOCKET_PROTOCOL], "mcp");
    }
}
