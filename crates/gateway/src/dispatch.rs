//! The path of a call: from the client that asked, to the server it is for, and back. Read this page first.
//!
//! 1. A call that comes while the gateway goes down is refused.
//! 2. The handshake is answered from what the servers said (`catalog::hello`).
//! 3. With one server everything passes as it is; with several the call finds its server (`catalog`).
//! 4. The call goes out in the server's own era (`bridge`), over a conversation that knows whose it is (`upstream`).
//! 5. What comes back gets the client's id; what does not come back becomes an honest failure (`answer`).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::accept::stream::Stream;
use crate::answer;
use crate::bridge::{to_legacy, to_modern};
use crate::call::Call;
use crate::catalog;
use crate::gateway::Route;
use crate::session::Session;
use crate::upstream::{Failure, Server};
use crate::wire::build::Error;
use crate::wire::names::Era;
use crate::wire::{Kind, Message};

/// Who asks.
#[derive(Clone)]
pub enum Caller {
    /// A session, on one of its streams.
    Legacy(Arc<Session>, Arc<Stream>),
    /// Somebody who says everything with each request.
    Modern,
}

/// Why there is no answer of a server.
#[derive(Debug)]
pub enum Refusal {
    /// A server failed.
    Failed(String, Failure),
    /// The request is wrong, or we are.
    Wrong(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Wrong(error)
    }
}

/// An answer with whatever id, or why there is none.
pub type Reply = Result<Message, Refusal>;

/// One call and its answer, ready for the client. `None`: the client called it off and waits for nothing.
pub async fn dispatch(route: &Arc<Route>, caller: &Caller, call: Call) -> Option<Bytes> {
    if route.lifecycle.draining.is_cancelled() {
        return Some(answer::going_down(&call));
    }
    let _under_way = route.lifecycle.call();
    let cancel = Arc::clone(&call.cancel);
    let reply = tokio::select! {
        biased;
        reply = reply(route, caller, &call) => reply,
        () = cancel.cancelled() => return None,
    };
    Some(answer::to_client(caller.era(), &call, reply))
}

async fn reply(route: &Arc<Route>, caller: &Caller, call: &Call) -> Reply {
    match (call.request.method(), route.single()) {
        ("initialize", _) => catalog::hello::initialize(route, caller, call).await,
        ("server/discover", None) => catalog::hello::discover(route, caller, call).await,
        (_, Some(server)) => exchange(route, caller, server, call).await,
        (_, None) => catalog::reply(route, caller, call).await,
    }
}

/// One call to one server. Its lists stay as they were while it is away.
pub async fn exchange(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &Call) -> Reply {
    if catalog::stable::is_list(&call.request) {
        return catalog::stable::list(route, caller, server, call).await;
    }
    let wait = server.reconnect.patience();
    match once(route, caller, server, call, wait).await {
        // The server has forgotten the session, so it has not looked at the request.
        Err(Refusal::Failed(_, Failure::SessionLost)) => once(route, caller, server, call, wait).await,
        reply => reply,
    }
}

/// One call to one server, in the era it speaks, once it is there; `wait` is how long it is waited for.
pub async fn once(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &Call, wait: Duration) -> Reply {
    let failed = |failure| Refusal::Failed(server.name.clone(), failure);
    match caller {
        Caller::Legacy(session, stream) => {
            let keeper = session.keeper(server).map_err(failed)?;
            let link = keeper.link(wait).await.map_err(Failure::before_sending).map_err(failed)?;
            if link.era() == Era::Modern {
                return to_modern::exchange(session, stream, server, &link, call).await;
            }
            let answer = link.request(call).await.map_err(failed)?;
            if answer.kind() == Kind::Result {
                session.note(server, &call.request);
            }
            Ok(answer)
        }
        Caller::Modern => {
            let Some(pool) = route.pool(server) else {
                return Err(failed(Failure::Unreachable("it is not on this route".to_owned())));
            };
            let link = pool.link(server, call, wait).await.map_err(Failure::before_sending).map_err(failed)?;
            let call = &server.mirror.settle(&link, call, server.sees_headers(&link)).await?;
            match link.era() {
                Era::Modern => link.request(call).await.map_err(failed),
                Era::Legacy => to_legacy::exchange(server, pool, link, call).await,
            }
        }
    }
}

impl Caller {
    /// The era of the client.
    pub fn era(&self) -> Era {
        match self {
            Self::Legacy(..) => Era::Legacy,
            Self::Modern => Era::Modern,
        }
    }
}
