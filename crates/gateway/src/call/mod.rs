//! The life of a call, from the client that asked to the server and back: the page to read first.
//!
//! 1. A call that comes while the gateway goes down is refused.
//! 2. `target` finds whom it is for: the gateway itself, one server, or several.
//! 3. `ask` puts it to one server: lists stay as they were (`list`), a tool has a policy
//!    (`policy`), and here is room for an authorizer.
//! 4. `execute` tries it under its policy, joins it to an identical one, gives it up or rescues it;
//!    one whose client has gone may run on (`client::detached`).
//! 5. `send` takes each attempt out in the server's own era, over a conversation that knows whose
//!    it is (`translate`, `upstream`).
//! 6. `reply` gives what comes back the client's id, and makes what does not an honest failure.
//!
//! A file here uses only those that stand before it in this list: `server_error`, `fallback`,
//! `idle_timeout`, `send`, `execute`, `list`, `policy`, `ask`, then who asks
//! several (`merged_lists`, `listen`, `several`) or none (`initialize`, `resources`), `target`,
//! `reply`, and this page.

mod ask;
pub(crate) mod execute;
mod fallback;
mod idle_timeout;
mod initialize;
mod list;
mod listen;
mod merged_lists;
mod policy;
mod reply;
pub(crate) mod required;
mod resources;
pub(crate) mod send;
pub(crate) mod server_error;
mod several;
mod target;

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

/// One call and its answer, ready for the client. `None`: the client called it off and waits for
/// nothing.
pub(crate) async fn dispatch(
    route: &Arc<Route>,
    caller: &Caller,
    call: GatewayCall,
) -> Option<TwoPieces> {
    if route.lifecycle.draining.is_cancelled() {
        return Some(reply::going_down(&call));
    }
    let _under_way = route.lifecycle.call();
    let cancel = Arc::clone(&call.cancel);
    let mut reply = pin!(answer(route, caller, &call));
    let ended = tokio::select! {
        biased;
        reply = reply.as_mut() => Some(reply),
        () = cancel.cancelled() => None,
    };
    let is_called_off = || cancel.is_cancelled() && !route.lifecycle.closing.is_cancelled();
    let reply = match ended {
        // Whoever called it off hears no failure of it.
        Some(Err(_)) if is_called_off() => return None,
        Some(reply) => reply,
        None if !route.lifecycle.closing.is_cancelled() => return None,
        // It was not the client that called it off: whatever became of it is said.
        None => match tokio::time::timeout(limits::LAST_ANSWER, reply).await {
            Ok(reply) => reply,
            Err(_) => return Some(reply::going_down(&call)),
        },
    };
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

/// What the gateway answers itself, from what its servers said. Boxed, so that what is asked once
/// does not take room in every call.
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
