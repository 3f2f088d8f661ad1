//! Decides the contract of a durable queue for writes. The crash-safe implementation comes with the
//! gateway.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::effect::Effect;

/// A write that waits for its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedWrite {
    /// The server that the write is for.
    pub server: String,
    /// The tool to call.
    pub tool: String,
    /// The arguments of the call.
    pub arguments: Value,
    /// The caller that made the write.
    pub caller: String,
    /// The effect of the tool, which decides whether the write may be sent twice.
    pub effect: Effect,
    /// Whoever the write is made for, as [`Call::principal`] described it.
    ///
    /// [`Call::principal`]: crate::Call::principal
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

impl QueuedWrite {
    /// Whether both are the same call of the same caller.
    pub fn is_same_call(&self, other: &Self) -> bool {
        let names = [
            (&self.server, &other.server),
            (&self.tool, &other.tool),
            (&self.caller, &other.caller),
        ];
        names.iter().all(|(one, other)| one == other) && self.arguments == other.arguments
    }
}

/// The same write, queued earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierWrite {
    /// Its id in the queue.
    pub id: String,
    /// Its state.
    pub fate: WriteFate,
}

/// The state of a write that was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFate {
    /// It waits for its server and was not sent.
    Waits,
    /// It is being sent right now and may have been executed.
    UnderWay,
    /// It was executed this long ago.
    Executed(Duration),
    /// Delivery was given up this long ago; the write may have been executed.
    Uncertain(Duration),
    /// Delivery was given up; the write was certainly not executed.
    NotExecuted,
}

/// Why the queue could not keep a write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotQueued {
    /// The write is certainly not in the queue.
    #[error("the queue did not accept the call: {0}")]
    Refused(String),
    /// The write may be in the queue and be sent one day.
    #[error("the queue failed and may hold the call: {0}")]
    Unknown(String),
}

/// A boxed future, as a trait object can return it.
pub type Promise<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps writes until their server is back.
///
/// The promise: once `enqueue` has returned an id, the item survives any crash. Items of one server
/// leave the queue in the order in which they came.
pub trait DurableQueue: Send + Sync {
    /// Stores an item and returns its id.
    fn enqueue(&self, item: QueuedWrite) -> Promise<'_, Result<String, NotQueued>>;

    /// The oldest waiting item of a server.
    fn next<'a>(&'a self, server: &'a str) -> Promise<'a, Option<(String, QueuedWrite)>>;

    /// The state of the same call queued earlier, so that the call is neither made at the same time
    /// nor repeated by a client that does not know it was executed. Returns the newest such item,
    /// unless another one still waits. A queue that keeps no history returns `None`: then only a
    /// check by the client, or time, keeps the two calls apart. A queue that should know and cannot
    /// answer now returns an error, and the call is not sent.
    fn find<'a>(
        &'a self,
        item: &'a QueuedWrite,
    ) -> Promise<'a, Result<Option<EarlierWrite>, NotQueued>> {
        let _unknown = item;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether certainly no item waits for this server or has left the queue lately, in this or an
    /// earlier process. Answered at once, from memory: if so, [`find`](DurableQueue::find) is not
    /// called.
    fn is_idle(&self, server: &str) -> bool {
        let _unknown = server;
        false
    }

    /// Removes an item that was delivered or given up. `false` if there is none.
    fn remove<'a>(&'a self, id: &'a str) -> Promise<'a, bool>;
}
