//! What a client asked for, once: the request, where its related messages go, and how it is called
//! off.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use seawall::{CallControl, Question};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::protocol::Message;
use crate::protocol::names::Era;
use crate::upstream::Connection;

/// The way to the client that a server's messages take.
pub trait ClientSink: Send + Sync {
    /// A notification for the client.
    fn notify(&self, connection: &Arc<Connection>, notification: Message);
    /// A question for the client; the answer goes back over `connection`. Whoever keeps the
    /// question open keeps `open`: while it lives, the clock of the call stands still.
    fn ask(&self, connection: &Arc<Connection>, question: Message, open: Option<Question>);
    /// Whether the client can be asked something while this call runs.
    fn can_be_asked(&self) -> bool {
        false
    }
    /// A notification of our own for the client.
    fn say(&self, _notification: Message) {}
    /// The server has hung up and wants to be asked again for the rest; a client that knows how may
    /// do the same.
    fn pause(&self) {}
    /// Whether it listens only because the server is there, and is no reason to keep it.
    fn is_in_passing(&self) -> bool {
        false
    }
    /// Whether nobody is behind it: nothing that a server says is about such a call.
    fn is_nobody(&self) -> bool {
        false
    }
    /// Whether all calls of this conversation are of one client.
    fn is_one_client(&self) -> bool {
        true
    }
    /// The lists of the server were read by the gateway; `changed` are the notifications about
    /// those that are not what clients were shown before.
    fn listed(&self, _link: &Arc<Connection>, _changed: &[&'static str]) {}
    /// The era of the clients behind it.
    fn era(&self) -> Era {
        Era::Legacy
    }
    /// Whether somebody is there to take it now.
    fn is_open(&self) -> bool;
}

/// One call on its way through the gateway.
#[derive(Clone)]
pub struct GatewayCall {
    /// The request as the client wrote it.
    pub request: Message,
    /// Where messages go that belong to this call.
    pub sink: Arc<dyn ClientSink>,
    /// How it is called off.
    pub cancel: Arc<CallCancel>,
    /// Arguments that the client mirrored into headers; `None` if it is not one that does.
    pub mirrored: Option<Vec<(HeaderName, HeaderValue)>>,
    /// The name that a modern client has by the secret it gave; empty if it gave none.
    pub client: Arc<str>,
    /// When its own time is over, if it has one.
    pub ends: Option<Instant>,
    /// How it is told that its client is being asked, or has gone.
    pub control: Arc<CallControl>,
    /// Who wants to know that its answer was delivered.
    pub receipt: Arc<DeliveryReceipt>,
}

impl GatewayCall {
    /// A call of a client, or of our own.
    pub fn new(request: Message, sink: Arc<dyn ClientSink>) -> Self {
        Self {
            request,
            sink,
            cancel: Arc::default(),
            mirrored: None,
            client: Arc::default(),
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
    /// Who wants to be told.
    pub fn want(&self, told: impl Fn() + Send + Sync + 'static) {
        let _once = self.wanted.set(Box::new(told));
    }

    /// Who wants to be told once the client's end has taken it.
    pub fn want_taken(&self, told: impl Fn() + Send + Sync + 'static) {
        let _once = self.taken.set(Box::new(told));
    }

    /// The answer is on its way to a client that is there. Told before the client can have read it:
    /// what it asks next is another call.
    pub fn sent(&self) {
        self.wanted.get().into_iter().for_each(|told| told());
    }

    /// The client's end has taken the answer.
    pub fn taken(&self) {
        self.taken.get().into_iter().for_each(|told| told());
    }

    /// The answer was written.
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

/// Calls a call off, with the client's own words.
#[derive(Debug, Default)]
pub struct CallCancel {
    token: CancellationToken,
    params: OnceLock<Bytes>,
}

impl CallCancel {
    /// Calls it off; `params` are those of the client's `notifications/cancelled`.
    pub fn cancel(&self, params: Bytes) {
        let _first_wins = self.params.set(params);
        self.token.cancel();
    }

    /// Waits until it is called off.
    pub async fn cancelled(&self) {
        self.token.cancelled().await;
    }

    /// Whether it was called off.
    pub fn is_cancelled(&self) -> bool {
        self.token.is_cancelled()
    }

    /// What the client said when it called it off.
    pub fn params(&self) -> Option<&Bytes> {
        self.params.get()
    }
}

/// A sink that leads nowhere: for requests of our own.
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
