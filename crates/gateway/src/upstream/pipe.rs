//! A connection over a pipe: one writer, one reader, messages in order, a bounded queue.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Connection, UpstreamFailure};
use crate::protocol::lines::{LineReader, PipeLine};
use crate::protocol::{Id, Message, MessageKind, Reject, edit, limits};

/// The writing end of a pipe.
#[derive(Debug)]
pub struct PipeWriter {
    to: mpsc::Sender<Bytes>,
}

/// The queue of messages to be written.
pub(crate) type PipeMessage = mpsc::Receiver<Bytes>;

impl PipeWriter {
    /// A pipe's writing end, and the queue of messages to be written.
    pub fn new() -> (Self, PipeMessage) {
        let (to, outgoing) = mpsc::channel(limits::PENDING_EVENTS);
        (Self { to }, outgoing)
    }

    /// Queues a message; waits for room. A closed pipe has not taken the message, so a repeat
    /// reaches the next connection.
    pub async fn send(&self, message: Bytes) -> Result<(), UpstreamFailure> {
        self.to.send(message).await.map_err(|_| UpstreamFailure::NotTaken)
    }

    /// Queues a message if there is room, else gives it back. A closed pipe drops the message.
    pub(crate) fn try_send(&self, message: Bytes) -> Option<Bytes> {
        match self.to.try_send(message) {
            Err(mpsc::error::TrySendError::Full(message)) => Some(message),
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => None,
        }
    }
}

/// Awaits `connecting` within the connect timeout, unless the gateway shuts down first. Every
/// failure here means that no message was sent yet.
pub(super) async fn connected<T>(
    ended: &CancellationToken,
    connecting: impl Future<Output = Result<T, UpstreamFailure>>,
) -> Result<T, UpstreamFailure> {
    match ended.run_until_cancelled(tokio::time::timeout(limits::CONNECT, connecting)).await {
        Some(Ok(connected)) => connected.map_err(|failure| match failure {
            UpstreamFailure::Lost(text) => UpstreamFailure::Unreachable(text),
            UpstreamFailure::Broken(reject) => UpstreamFailure::Handshake(reject.to_string()),
            failure => failure,
        }),
        Some(Err(_)) => Err(UpstreamFailure::Unreachable(format!(
            "no connection within {} s",
            limits::CONNECT.as_secs()
        ))),
        None => Err(UpstreamFailure::Unreachable("the gateway is going down".to_owned())),
    }
}

/// Writes messages as lines until the connection ends.
pub(crate) async fn write_lines(
    mut outgoing: PipeMessage,
    mut to: impl AsyncWrite + Unpin,
    ended: CancellationToken,
) {
    while let Some(Some(message)) = ended.run_until_cancelled(outgoing.recv()).await {
        let mut line = Vec::with_capacity(message.len() + 1);
        line.extend_from_slice(&edit::one_line(&message));
        line.push(b'\n');
        let written = async {
            to.write_all(&line).await?;
            to.flush().await
        };
        if !matches!(ended.run_until_cancelled(written).await, Some(Ok(()))) {
            return;
        }
    }
}

/// Reads lines until the pipe ends, and hands them to the connection. Returns why the pipe ended.
pub(crate) async fn read_lines(
    from: impl AsyncRead + Unpin,
    connection: Weak<Connection>,
    noise: impl Fn(&[u8]),
) -> UpstreamFailure {
    let mut lines = LineReader::new(from, limits::FROM_SERVER);
    loop {
        let line = match lines.next().await {
            Ok(Some(PipeLine::Whole(line))) => line,
            Ok(Some(PipeLine::TooLong(_))) => {
                return UpstreamFailure::Broken(Reject::Size(limits::FROM_SERVER));
            }
            Ok(None) => return UpstreamFailure::Lost("it closed its output".to_owned()),
            Err(error) => return UpstreamFailure::Lost(error.to_string()),
        };
        // Held for one line only, so that the connection can be dropped while this task waits.
        let Some(connection) = connection.upgrade() else { return UpstreamFailure::Cancelled };
        connection.hear();
        match Message::parse(line.clone()) {
            Ok(message) => connection.receive(message, None),
            Err(reject) => broken_line(&connection, &line, reject, &noise),
        }
    }
}

/// Handles a line that is no message: noise, unless it was meant to be one. A broken answer fails
/// its call; if its id cannot be read, the connection fails.
fn broken_line(connection: &Arc<Connection>, line: &Bytes, reject: Reject, noise: &impl Fn(&[u8])) {
    match reject {
        Reject::Depth | Reject::Members | Reject::Repeated(_) | Reject::Id => {
            connection.lose(UpstreamFailure::Broken(reject))
        }
        Reject::Syntax(_) | Reject::Utf8(_)
            if memchr::memmem::find(line, b"\"jsonrpc\"").is_some() =>
        {
            match meant(line) {
                Some(answer) => connection.settle(
                    answer.id().and_then(Id::as_number),
                    Err(UpstreamFailure::Broken(reject)),
                ),
                None => connection.lose(UpstreamFailure::Broken(reject)),
            }
        }
        _ => noise(line),
    }
}

/// The answer that a line was meant to be, if it can be made out; only its id is used.
fn meant(line: &[u8]) -> Option<Message> {
    let text = String::from_utf8_lossy(line);
    let clean: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let message =
        Message::parse(Bytes::copy_from_slice(clean.trim_matches(['\u{feff}', ' ']).as_bytes()))
            .ok()?;
    matches!(message.kind(), MessageKind::Result | MessageKind::Error).then_some(message)
}
