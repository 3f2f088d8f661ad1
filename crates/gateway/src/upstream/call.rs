//! One call of a client on its way to a server: the request, the sink for its related messages, and
//! its cancellation.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use seawall::{CallControl, Question};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::authz::CallOrigin;
use crate::authz::external::{Allowance, ListChecks};
use crate::protocol::Message;
use crate::protocol::names::Era;
use crate::trace::span::CallTrace;
use crate::upstream::Connection;

/// Takes a server's notifications and questions to the client.
pub trait ClientSink: Send + Sync {
    /// Sends a notification to the client.
    fn notify(&self, connection: &Arc<Connection>, notification: Message);
    /// Asks the client a server's question; the client's answer goes back over `connection`. The
    /// holder of the open question also holds `open`: while `open` lives, the call's clock is
    /// stopped.
    fn ask(&self, connection: &Arc<Connection>, question: Message, open: Option<Question>);
    /// Whether the client can be asked a question while this call runs.
    fn can_be_asked(&self) -> bool {
        false
    }
    /// Sends a notification of the gateway's own to the client.
    fn say(&self, _notification: Message) {}
    /// The server has closed the call's stream and wants the gateway to resume it later; a client
    /// that can resume streams may be treated the same way.
    fn pause(&self) {}
    /// Whether this sink listens only while the server is up anyway: it is no reason to keep the
    /// server running.
    fn is_in_passing(&self) -> bool {
        false
    }
    /// Whether no client is behind the sink: no message of a server is about such a call.
    fn is_nobody(&self) -> bool {
        false
    }
    /// Whether all calls of this connection belong to one client.
    fn is_one_client(&self) -> bool {
        true
    }
    /// The gateway has read the server's lists; `changed` names the notifications for lists that
    /// differ from those that clients have seen.
    fn listed(&self, _link: &Arc<Connection>, _changed: &[&'static str]) {}
    /// The era of the clients behind the sink.
    fn era(&self) -> Era {
        Era::Legacy
    }
    /// Whether a client is there to take a message now.
    fn is_open(&self) -> bool;
}

/// One call on its way through the gateway.
#[derive(Clone)]
pub struct GatewayCall {
    /// The request as the client wrote it.
    pub request: Message,
    /// The sink for messages that belong to this call.
    pub sink: Arc<dyn ClientSink>,
    /// The cancellation of the call.
    pub cancel: Arc<CallCancel>,
    /// Arguments that the client repeated in headers; `None` if the client does not do that.
    pub mirrored: Option<Vec<(HeaderName, HeaderValue)>>,
    /// The name of a modern client, derived from the secret it sent; empty if it sent none.
    pub client: Arc<str>,
    /// Where the call comes from: who makes it, as far as that is known.
    pub(crate) origin: Arc<CallOrigin>,
    /// Headers that the server gets with this call, and headers that it must not get.
    pub(crate) allowed: Arc<Allowance>,
    /// The checks of the merged list that the call is a part of.
    pub(crate) list_checks: Option<Arc<ListChecks>>,
    /// The trace that the call is a part of; `None` while nothing is traced.
    pub(crate) trace: Option<Arc<CallTrace>>,
    /// The call's deadline, if it has one.
    pub ends: Option<Instant>,
    /// Tells the library that the call's client is being asked a question, or has left.
    pub control: Arc<CallControl>,
    /// The listeners for the delivery of the call's answer.
    pub receipt: Arc<DeliveryReceipt>,
}

impl GatewayCall {
    /// A call of a client, or one of the gateway's own.
    pub fn new(request: Message, sink: Arc<dyn ClientSink>) -> Self {
        Self {
            request,
            sink,
            cancel: Arc::default(),
            mirrored: None,
            client: Arc::default(),
            origin: Arc::default(),
            allowed: Arc::default(),
            list_checks: None,
            trace: None,
            ends: None,
            control: Arc::default(),
            receipt: Arc::default(),
        }
    }
}

/// Tells the ledger that the answer to a call was written to a client that is there to read it.
#[derive(Default)]
pub struct DeliveryReceipt {
    wanted: OnceLock<Box<dyn Fn() + Send + Sync>>,
    taken: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl DeliveryReceipt {
    /// Sets the listener for the moment before the answer goes out.
    pub fn want(&self, told: impl Fn() + Send + Sync + 'static) {
        let _once = self.wanted.set(Box::new(told));
    }

    /// Sets the listener for the moment when the client's end has taken the answer.
    pub(crate) fn want_taken(&self, told: impl Fn() + Send + Sync + 'static) {
        let _once = self.taken.set(Box::new(told));
    }

    /// The answer is about to be written to a client that is there. The listener runs before the
    /// client can have read the answer, so the client's next request counts as another call, not as
    /// a repeat.
    pub fn sent(&self) {
        self.wanted.get().into_iter().for_each(|told| told());
    }

    /// The client's end has taken the answer.
    pub fn taken(&self) {
        self.taken.get().into_iter().for_each(|told| told());
    }

    /// The answer was written and taken: runs both listeners.
    pub fn delivered(&self) {
        self.sent();
        self.taken();
    }
}

impl std::fmt::Debug for DeliveryReceipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receipt").field("is_wanted", &self.wanted.get().is_some()).finish()
    }
}

/// Cancels a call, and keeps the params that the client sent with the cancellation.
#[derive(Debug, Default)]
pub struct CallCancel {
    token: CancellationToken,
    params: OnceLock<Bytes>,
}

impl CallCancel {
    /// Cancels the call; `params` are those of the client's `notifications/cancelled`.
    pub fn cancel(&self, params: Bytes) {
        // Before the token: a task that wakes up by the token forwards these params to the server.
        let _first_wins = self.params.set(params);
        self.token.cancel();
    }

    /// Waits until the call is cancelled.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Whether the call was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// The params of the client's `notifications/cancelled`.
    pub fn params(&self) -> Option<&Bytes> {
        self.params.get()
    }
}

/// A sink without a client, for the gateway's own requests.
#[derive(Debug)]
pub struct NoClient;

impl ClientSink for NoClient {
    fn notify(&self, _link: &Arc<Connection>, _notification: Message) {}

    fn ask(&self, connection: &Arc<Connection>, question: Message, _open: Option<Question>) {
        connection.refuse(&question, "no client is connected that could be asked");
    }

    fn is_nobody(&self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        false
    }
}
