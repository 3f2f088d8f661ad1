//! The life of a call, from the client to the server and back: the page to read first.
//!
//! 1. While the gateway shuts down, new calls are refused.
//! 2. `target` finds the addressee of the call: the gateway itself, one server, or several.
//! 3. `ask` puts the call to one server, once it is allowed (`authorize`): lists are answered from
//!    the catalog cache where needed (`list`), a tool has a policy (`policy`).
//! 4. `execute` runs the call under its policy: attempts, retries, fallbacks, the join with an
//!    identical call; a call whose client has left may run on (`client::detached`).
//! 5. `send` sends each attempt in the server's own era, over a connection that matches every
//!    answer to its call (`translate`, `upstream`).
//! 6. `reply` writes the server's answer under the client's id, or the failure that took its place.
//!
//! A file here uses only the files before it in this list: `traced`, `audited`, `authorize`,
//! `server_error`, `fallback`, `idle_timeout`, `send`, `queued` (how a queued write is sent),
//! `execute`, `list`, `policy`, `ask`, then the files that ask several servers (`merged_lists`,
//! `listen`, `several`) or none (`initialize`, `resources`), `target`, `reply`, `required`, and
//! this page.

mod ask;
mod audited;
pub(crate) mod authorize;
pub(crate) mod execute;
mod fallback;
mod idle_timeout;
mod initialize;
mod list;
mod listen;
mod merged_lists;
mod policy;
pub(crate) mod queued;
mod reply;
pub(crate) mod required;
mod resources;
pub(crate) mod send;
pub(crate) mod server_error;
mod several;
mod target;
mod traced;

use std::pin::pin;
use std::sync::Arc;

use crate::client::caller::Caller;
use crate::protocol::limits;
use crate::protocol::pieces::TwoPieces;
use crate::route::Route;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Reply, answered};
use ask::ask;
use target::Target;

/// Runs one call and writes its answer for the client. `None`: the client cancelled the call and
/// waits for no answer.
pub(crate) async fn dispatch(
    route: &Arc<Route>,
    caller: &Caller,
    mut call: GatewayCall,
) -> Option<TwoPieces> {
    if route.lifecycle.draining.is_cancelled() {
        return Some(reply::going_down(route, caller.era(), &call));
    }
    let _under_way = route.lifecycle.call();
    let span = traced::begin(route, &mut call);
    let cancel = Arc::clone(&call.cancel);
    let mut reply = pin!(answer(route, caller, &call));
    // Biased: an answer that is ready at the moment of the cancellation still reaches the client.
    let ended = tokio::select! {
        biased;
        reply = reply.as_mut() => Some(reply),
        () = cancel.cancelled() => None,
    };
    let is_called_off = || cancel.is_cancelled() && !route.lifecycle.closing.is_cancelled();
    let reply = match ended {
        // A client that cancelled its call gets no failure of it.
        Some(Err(_)) if is_called_off() => return None,
        Some(reply) => reply,
        None if !route.lifecycle.closing.is_cancelled() => return None,
        // The gateway's shutdown cancelled the call, not the client: the client gets the answer
        // that the call still comes to within `LAST_ANSWER`.
        None => match tokio::time::timeout(limits::LAST_ANSWER, reply).await {
            Ok(reply) => reply,
            Err(_) => return Some(reply::cut_off(route, caller.era(), &call)),
        },
    };
    traced::note_failure(&call, &reply);
    if let Some(span) = span {
        span.end(traced::outcome(&reply));
    }
    Some(reply::to_client(route, caller.era(), &call, reply))
}

async fn answer(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    match target::of(route, call)? {
        Target::Gateway => ours(route, caller, call).await,
        Target::Server(server) => ask(route, caller, server, call).await,
        Target::Named(server, call) => {
            let answer = ask(route, caller, server, &call).await?;
            target::learn_task(route, server, &answer);
            Ok(answer)
        }
        Target::Owner(what) => several::first_that_has(route, caller, call, what).await,
        Target::Every => match call.request.method() {
            "subscriptions/listen" => listen::all(route, caller, call).await,
            "logging/setLevel" => several::everywhere(route, caller, call).await,
            _ => merged_lists::merged(route, caller, call).await,
        },
    }
}

/// Calls that the gateway answers itself, from the handshakes and resources it holds. Boxed, so
/// that these rare futures take no room in the future of every call.
async fn ours(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    match (call.request.method(), route.single()) {
        ("initialize", _) => Box::pin(initialize::initialize(route, caller, call)).await,
        ("resources/read", _) => Box::pin(resources::read(route, caller, call)).await,
        ("server/discover", Some(server)) => {
            Box::pin(initialize::discover_one(route, caller, server, call)).await
        }
        ("server/discover", None) => Box::pin(initialize::discover(route, caller, call)).await,
        _ => answered(b"{}"),
    }
}
