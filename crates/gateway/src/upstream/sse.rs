//! A connection over HTTP with server-sent events, as before streamable HTTP: one stream carries
//! every message of the server, and each message to the server is a POST to the address that the
//! stream names first. The connection lasts as long as the stream.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::Full;

use super::endpoint;
use super::pipe::{self, PipeMessage, PipeWriter};
use super::response::{self, ResponseEvents};
use super::{Connection, Server, UpstreamFailure, Wire, redirect};
use crate::protocol::{Id, Message, MessageKind, limits};
use crate::runtime::http_client::HttpClient;
use crate::upstream::call::ClientSink;

const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// How long a message waits for the POST before it to finish. The wait keeps messages in order; its
/// limit lets the gateway answer a question of a server that finishes the POST only when it has
/// handled the message.
const IN_ORDER: Duration = Duration::from_millis(500);

/// Opens the event stream of a server and a connection over it.
pub(super) async fn open(
    server: &Server,
    url: &Uri,
    headers: HeaderMap,
    general: Arc<dyn ClientSink>,
) -> Result<Arc<Connection>, UpstreamFailure> {
    let ended = server.lifecycle.ended.child_token();
    let client = server.http.get().map_err(UpstreamFailure::Impossible)?;
    let (events, endpoint) = pipe::connected(&ended, stream(&client, url, &headers)).await?;
    let (pipe, outgoing) = PipeWriter::new();
    let connection = Connection::new(&server.name, Wire::Pipe(pipe), general, ended.clone());
    let weak = Arc::downgrade(&connection);
    let posts = SsePosts { client, endpoint, headers, connection: weak.clone() };
    server.lifecycle.spawn(async move {
        let why = tokio::select! {
            () = ended.cancelled() => UpstreamFailure::Lost("the session was closed".to_owned()),
            why = read(events, &weak) => why,
            () = posts.send(outgoing) => UpstreamFailure::Cancelled,
        };
        if let Some(connection) = weak.upgrade() {
            connection.lose(why);
        }
    });
    Ok(connection)
}

/// Opens the stream; its first event names the address for messages.
async fn stream(
    client: &HttpClient,
    url: &Uri,
    headers: &HeaderMap,
) -> Result<(ResponseEvents, Uri), UpstreamFailure> {
    let mut get = request(Method::GET, url, headers, Bytes::new());
    get.headers_mut().insert(ACCEPT, STREAM);
    let (response, url) = redirect::send(client, get).await?;
    if !response.status().is_success() {
        return Err(response::refusal(response).await.0);
    }
    if !response::is_stream(response.headers()) {
        return Err(UpstreamFailure::Handshake(
            "it answers with something else than a stream of events".to_owned(),
        ));
    }
    let mut events = ResponseEvents::new(response.into_body());
    while let Some(event) = events.next().await? {
        if event.event == "endpoint" {
            return Ok((events, endpoint::of(&url, &event.data)?));
        }
        if event.is_message() {
            return Err(UpstreamFailure::Handshake(
                "its stream does not begin with the address for messages".to_owned(),
            ));
        }
    }
    Err(UpstreamFailure::Handshake(
        "its stream ended before it named the address for messages".to_owned(),
    ))
}

fn request(method: Method, url: &Uri, headers: &HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = url.clone();
    request.headers_mut().clone_from(headers);
    request
}

/// Hands the server's messages to the connection until the stream ends. Returns why it ended.
async fn read(mut events: ResponseEvents, connection: &Weak<Connection>) -> UpstreamFailure {
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return UpstreamFailure::Lost("its stream of events ended".to_owned()),
            Err(failure) => return failure,
        };
        if !event.is_message() {
            continue;
        }
        let Some(connection) = connection.upgrade() else { return UpstreamFailure::Cancelled };
        match Message::parse(event.data) {
            Ok(message) => connection.receive(message, None),
            Err(reject) => return UpstreamFailure::Broken(reject),
        }
    }
}

/// The POSTs to the server.
struct SsePosts {
    client: HttpClient,
    endpoint: Uri,
    headers: HeaderMap,
    connection: Weak<Connection>,
}

impl SsePosts {
    /// Sends queued messages until the queue is closed.
    async fn send(&self, mut outgoing: PipeMessage) {
        let mut slow = FuturesUnordered::new();
        loop {
            let message = tokio::select! {
                Some(()) = slow.next() => continue,
                message = outgoing.recv(), if slow.len() < limits::CALLS => message,
            };
            let Some(message) = message else { return };
            let mut post = Box::pin(self.post(message));
            // A slow POST goes on among the others; dropping it would lose the message.
            if tokio::time::timeout(IN_ORDER, &mut post).await.is_err() {
                slow.push(post);
            }
        }
    }

    /// Sends one message. A request whose POST fails has failed; the connection goes on, unless the
    /// address, which names the session, is no longer known.
    async fn post(&self, message: Bytes) {
        let mut post = request(Method::POST, &self.endpoint, &self.headers, message.clone());
        post.headers_mut().insert(CONTENT_TYPE, JSON);
        let response = redirect::send(&self.client, post).await.map(|(response, _)| response);
        if let (Ok(_), Some(connection)) = (&response, self.connection.upgrade()) {
            connection.hear();
        }
        let failure = match response {
            Ok(response) if response.status().is_success() => {
                let _said_nothing = response::body(response, limits::SSE_FIELD).await;
                return;
            }
            Ok(response) => response::refusal(response).await.0,
            Err(failure) => failure,
        };
        if let (Some(connection), Ok(message)) =
            (self.connection.upgrade(), Message::parse(message))
            && message.kind() == MessageKind::Request
        {
            let is_lost = matches!(failure, UpstreamFailure::Status { status: 404, .. })
                && connection.info().is_some();
            let failure = if is_lost { UpstreamFailure::SessionLost } else { failure };
            if is_lost {
                connection.retire(&failure);
            }
            connection.settle(message.id().and_then(Id::as_number), Err(failure));
        }
    }
}
