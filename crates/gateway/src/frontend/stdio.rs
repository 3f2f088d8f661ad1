//! Serves one client on a pipe, in either era: the frontend of `run`, and of `serve --stdio`.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::task::coop::consume_budget;
use tokio_util::task::TaskTracker;

use super::modern::RequestStreamSink;
use super::refused::{self, RefusedId, RefusedMessage};
use super::versions;
use crate::authz::CallOrigin;
use crate::call::authorize::may_hear;
use crate::call::dispatch;
use crate::client::caller::Caller;
use crate::client::session::Session;
use crate::client::stream::{ClientStream, NextEvent, StreamReader};
use crate::gateway::Gateway;
use crate::platform;
use crate::protocol::lines::{LineReader, PipeLine};
use crate::protocol::names::Era;
use crate::protocol::pieces::TwoPieces;
use crate::protocol::{Message, MessageKind, Outline, Reject, build, hash, limits};
use crate::store::journal::JournalPlace;
use crate::upstream::call::{DeliveryReceipt, GatewayCall};

/// The session id of the client on the pipe, the same at each start: queued writes belong to the
/// owner of the store's file.
const ON_A_PIPE: &str = "pipe";

/// Serves the client until it closes its end, then lets calls in flight finish within `grace`; or
/// until the gateway drains, then until it has closed. The answers are written before this returns.
pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    grace: Duration,
) {
    let max_request = gateway.now().config.max_request;
    gateway.serve_one_client();
    gateway.note_writes(&place(gateway), JournalPlace::ForMany(variables()));
    let out = Arc::new(ClientStream::default());
    let session =
        Session::new(ON_A_PIPE, Arc::default(), Arc::clone(&gateway.all().set), Arc::clone(&out));
    let receipts: Arc<WriteReceipts> = Arc::default();
    let end = Arc::new(ClientEnd { gateway: Arc::clone(gateway), is_closed: false.into() });
    let writer =
        tokio::spawn(write(out.reader(0), output, Arc::clone(&receipts), Arc::clone(&end)));
    let frontend = StdioServer {
        gateway: Arc::clone(gateway),
        session,
        out,
        receipts,
        calls: TaskTracker::new(),
    };
    let mut lines = LineReader::outlined(input, max_request);
    let (draining, closing) = (&gateway.lifecycle.draining, &gateway.lifecycle.closing);
    let moving = tokio::spawn(move_on(Arc::clone(gateway), Arc::clone(&frontend.session)));
    loop {
        // Backpressure: while the client does not read its answers, its requests are not read
        // either.
        let next = async {
            // Lines that were read together are taken together, but not all of them before the
            // first of their calls goes on.
            consume_budget().await;
            frontend.out.room().await;
            lines.next().await
        };
        let Some(read) = draining.run_until_cancelled(next).await else { break };
        let Ok(Some(line)) = read else {
            end.closed();
            break;
        };
        if !frontend.out.is_read() {
            break;
        }
        match line {
            PipeLine::Whole(line) if line.iter().all(u8::is_ascii_whitespace) => {}
            PipeLine::Whole(line) => frontend.take(line).await,
            PipeLine::TooLong(outline) => {
                frontend.refuse(&RefusedMessage::Rejected(Reject::Size(max_request)), &outline)
            }
        }
    }
    moving.abort();
    frontend.calls.close();
    // The gateway's own grace bounds calls while it drains; those that it then cuts off still have
    // an answer for their client.
    let cut_off = async {
        closing.cancelled().await;
        tokio::time::sleep(limits::LAST_ANSWER * 2).await;
    };
    // A client that only closed its end may still read: calls that outlast the grace are cut off
    // like those of a gateway that drains.
    let out_of_grace = async {
        tokio::time::sleep(grace).await;
        closing.cancel();
        std::future::pending::<()>().await
    };
    let is_draining = draining.is_cancelled();
    tokio::select! {
        () = frontend.calls.wait() => {}
        () = out_of_grace, if !is_draining => {}
        () = cut_off => {}
    }
    frontend.out.end();
    let _in_time = tokio::time::timeout(limits::CHILD_GRACE, writer).await;
    frontend.session.close().await;
}

/// Moves the session whenever another configuration is in force.
async fn move_on(gateway: Arc<Gateway>, session: Arc<Session>) {
    let mut changes = gateway.changes();
    while changes.changed().await.is_ok() {
        session.move_to(&gateway.all().set);
    }
}

/// Delivery receipts of answers, by their places on the stream: an answer counts as delivered once
/// the pipe has taken it.
#[derive(Default)]
struct WriteReceipts(Mutex<HashMap<u64, Arc<DeliveryReceipt>>>);

impl WriteReceipts {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Arc<DeliveryReceipt>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends an answer. The lock is held until its receipt is noted, so the writer cannot confirm
    /// it earlier.
    fn say(&self, out: &ClientStream, answer: TwoPieces, receipt: Arc<DeliveryReceipt>) {
        if out.is_read() {
            receipt.sent();
        }
        let mut waiting = self.waiting();
        waiting.insert(out.say(answer), receipt);
    }

    fn written(&self, place: u64) {
        let receipt = self.waiting().remove(&place);
        receipt.iter().for_each(|receipt| receipt.taken());
    }
}

/// The client's end of the pipe that requests come from.
struct ClientEnd {
    gateway: Arc<Gateway>,
    is_closed: AtomicBool,
}

impl ClientEnd {
    /// The client closed its end: the writes that it had given up by now are in doubt.
    fn closed(&self) {
        if !self.is_closed.swap(true, Ordering::Relaxed) {
            self.gateway.all().journal.leave();
        }
    }

    /// Asks the system whether the end is closed. The reader hears of it later, and an answer that
    /// overtakes it would count as read by a client that has gone.
    fn look(&self) {
        if platform::stdin_is_closed() {
            self.closed();
        }
    }
}

/// Writes every message of the stream, one line each.
async fn write(
    mut reader: StreamReader,
    output: impl AsyncWrite + Unpin,
    receipts: Arc<WriteReceipts>,
    end: Arc<ClientEnd>,
) {
    // Small messages leave in one write, large ones without a copy.
    let mut output = BufWriter::new(output);
    while let NextEvent::Said(said) = reader.next().await {
        let line = said.message.one_line();
        let written = async {
            for piece in line.parts() {
                output.write_all(piece).await?;
            }
            output.write_all(b"\n").await?;
            output.flush().await
        };
        if written.await.is_err() {
            return;
        }
        end.look();
        receipts.written(said.place);
    }
}

/// The journal's name for writes on a pipe: derived from its servers and the current folder, so
/// that the next process with both finds them.
fn place(gateway: &Gateway) -> String {
    let mut servers: Vec<String> =
        gateway.now().servers.iter().map(|server| server.remembered_as()).collect();
    servers.push(std::env::current_dir().unwrap_or_default().display().to_string());
    format!(
        "pipe-{}",
        hash::key(&servers.iter().map(|server| server.as_bytes()).collect::<Vec<_>>())
    )
}

/// A hash of the environment that the servers inherit: it may hold another account or project.
fn variables() -> String {
    let mut variables: Vec<_> = std::env::vars_os().collect();
    variables.sort();
    let parts: Vec<&[u8]> = variables
        .iter()
        .flat_map(|(name, value)| [name.as_encoded_bytes(), value.as_encoded_bytes()])
        .collect();
    hash::key(&parts)
}

struct StdioServer {
    gateway: Arc<Gateway>,
    session: Arc<Session>,
    out: Arc<ClientStream>,
    receipts: Arc<WriteReceipts>,
    calls: TaskTracker,
}

impl StdioServer {
    fn refuse(&self, untaken: &RefusedMessage, outline: &Outline) {
        match untaken.tell(&self.gateway.all(), outline) {
            RefusedId::Sender(answer) => _ = self.out.say(answer),
            RefusedId::Server(answer) => self.session.answered(answer),
            RefusedId::Nobody(error) => _ = self.out.say(build::error(None, &error)),
        }
    }

    async fn take(&self, line: Bytes) {
        let message = match refused::parsed(line) {
            Ok(message) => message,
            Err((untaken, outline)) => return self.refuse(&untaken, &outline),
        };
        match message.kind() {
            MessageKind::Request => self.request(message),
            MessageKind::Notification => {
                let hear = may_hear(&self.gateway.all(), &CallOrigin::local(), &message).await;
                let may_hear = |server: &str| hear.iter().any(|name| name == server);
                self.session.notified(&message, may_hear).await;
            }
            MessageKind::Result | MessageKind::Error => self.session.answered(message),
        }
    }

    fn request(&self, message: Message) {
        let (session, out) = (Arc::clone(&self.session), Arc::clone(&self.out));
        let era = versions::era(&message, None);
        if era == Era::Modern
            && let Err(error) = versions::check(&message)
        {
            self.out.say(build::error(message.id(), &error));
            return;
        }
        let (caller, sink) = match era {
            Era::Legacy => {
                (Caller::Legacy(Arc::clone(&session), Arc::clone(&out)), session.sink(&out))
            }
            Era::Modern => (
                Caller::Modern(Arc::clone(&session.id)),
                Arc::new(RequestStreamSink { stream: Arc::clone(&out) }) as Arc<_>,
            ),
        };
        // Done before the next line is read: requests run concurrently, and a client need not wait
        // for the answer to `initialize`.
        if era == Era::Legacy && message.method() == "initialize" {
            session.take_initialize(message.body_json());
        }
        let origin = Arc::new(CallOrigin::local());
        let call = GatewayCall { origin, ..GatewayCall::new(message, sink) };
        let Some(id) = call.request.id().cloned() else { return };
        let began = match session.calls().begin(&id, &call.cancel, call.request.raw().len()) {
            Ok(began) => began,
            Err(error) => {
                self.out.say(build::error(Some(&id), &error));
                return;
            }
        };
        let (receipt, receipts) = (Arc::clone(&call.receipt), Arc::clone(&self.receipts));
        let route = self.gateway.all();
        self.session.move_to(&route.set);
        self.calls.spawn(async move {
            let answer = dispatch(&route, &caller, call).await;
            drop(began);
            if let Some(answer) = answer {
                receipts.say(&out, answer, receipt);
            }
        });
    }
}
