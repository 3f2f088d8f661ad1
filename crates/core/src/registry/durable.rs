//! Decides what a store for waiting writes must do. The real, crash-safe one comes with the
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
    /// The server it is for.
    pub server: String,
    /// The tool to call.
    pub tool: String,
    /// With these arguments.
    pub arguments: Value,
    /// On whose behalf.
    pub caller: String,
    /// What sending it twice would do.
    pub effect: Effect,
}

impl QueuedWrite {
    /// Whether it is the very same call of the same caller.
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
    /// Its id there.
    pub id: String,
    /// What became of it.
    pub fate: WriteFate,
}

/// What became of a write that was put into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFate {
    /// It waits for its server, and was not sent.
    Waits,
    /// It is being sent right now, and may have been executed.
    UnderWay,
    /// It was executed this long ago.
    Executed(Duration),
    /// It was given up this long ago, and may have been executed.
    Uncertain(Duration),
    /// It was given up, and was certainly not executed.
    NotExecuted,
}

/// The store could not keep a write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotQueued {
    /// It is certainly not in the store.
    #[error("the queue did not accept the call: {0}")]
    Refused(String),
    /// It may be in the store, and be sent one day.
    #[error("the queue failed and may hold the call: {0}")]
    Unknown(String),
}

/// A future that a trait object can give.
pub type Promise<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Keeps writes until their server is back.
///
/// The promise: once `enqueue` has given an id, the item is there after any crash. Items of one
/// server leave in the order in which they came.
pub trait DurableQueue: Send + Sync {
    /// Keeps an item and gives its id.
    fn enqueue(&self, item: QueuedWrite) -> Promise<'_, Result<String, NotQueued>>;

    /// The oldest waiting item of a server.
    fn next<'a>(&'a self, server: &'a str) -> Promise<'a, Option<(String, QueuedWrite)>>;

    /// What became of the same call, so that it is not made beside it, nor again by whoever does
    /// not know that it was made. The newest, unless another one still waits. A store that keeps no
    /// account of that says `None`: then only a look or time keeps the two apart. One that should
    /// know and cannot say it now fails, and the call is not sent.
    fn find<'a>(
        &'a self,
        item: &'a QueuedWrite,
    ) -> Promise<'a, Result<Option<EarlierWrite>, NotQueued>> {
        let _unknown = item;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Whether certainly nothing waits for this server or has left it lately, also nothing of an
    /// earlier process. Told at once, from memory: if so, nobody [asks](DurableQueue::find).
    fn is_idle(&self, server: &str) -> bool {
        let _unknown = server;
        false
    }

    /// Forgets an item: it was delivered, or given up. `false` if there is none.
    fn remove<'a>(&'a self, id: &'a str) -> Promise<'a, bool>;
}
