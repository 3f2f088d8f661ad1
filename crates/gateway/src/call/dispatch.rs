//! The path of a call: from the client that asked, to the server it is for, and back. Read this
//! page first.
//!
//! 1. A call that comes while the gateway goes down is refused.
//! 2. The handshake is answered from what the servers said (`initialize`); what is ours is read
//!    here (`resources`).
//! 3. With one server everything passes as it is; with several the call finds its server
//!    (`target`).
//! 4. A list stays as it was while its server is away (`list`); a tool, and all that reads, has a
//!    policy (`policy`).
//! 5. Under its policy the call is tried, given up or rescued (`execute`); one whose client has
//!    gone may run on (`client::detached`).
//! 6. It goes out in the server's own era (`translate`), over a conversation that knows whose it is
//!    (`upstream`).
//! 7. What comes back gets the client's id; what does not come back becomes an honest failure
//!    (`reply`).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::call::execute::carry;
use crate::call::{initialize, list, reply, resources, target};
use crate::catalog::cached_lists;
use crate::client::caller::Caller;
use crate::policy::registry::ToolPolicy;
use crate::protocol::names::Era;
use crate::protocol::pieces::TwoPieces;
use crate::protocol::{MessageKind, limits};
use crate::route::Route;
use crate::translate::{to_legacy, to_modern};
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply};
use crate::upstream::{SendAgain, Server, UpstreamFailure};

/// One call and its answer, ready for the client. `None`: the client called it off and waits for
/// nothing.
pub async fn dispatch(route: &Arc<Route>, caller: &Caller, call: GatewayCall) -> Option<TwoPieces> {
    if route.lifecycle.draining.is_cancelled() {
        return Some(reply::going_down(&call));
    }
    let _under_way = route.lifecycle.call();
    let cancel = Arc::clone(&call.cancel);
    let mut reply = pin!(reply(route, caller, &call));
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

async fn reply(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    match (call.request.method(), route.single()) {
        ("initialize", _) => initialize::initialize(route, caller, call).await,
        ("resources/read", _) if resources::is_ours(&call.request) => {
            resources::read(route, caller, call).await
        }
        ("server/discover", None) => initialize::discover(route, caller, call).await,
        // Boxed, so that what is asked once does not take room in every call.
        ("server/discover", Some(server)) => {
            Box::pin(initialize::discover_one(route, caller, server, call)).await
        }
        (_, Some(server)) => exchange(route, caller, server, call).await,
        (_, None) => target::reply(route, caller, call).await,
    }
}

/// One call to one server: its lists stay as they were while it is away, its tools and what it
/// reads have policies.
pub async fn exchange(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Reply {
    let request = &call.request;
    if cached_lists::is_list(request) {
        let list = list::list(route, caller, server, call).await?;
        if request.method() == "tools/list" {
            route.policies.learn(
                &server.name,
                &request.field_text("cursor").unwrap_or_default(),
                &list,
                false,
            );
        }
        return Ok(list);
    }
    if let Some(policy) = policy(route, caller, server, call).await {
        return carry(route, caller, server, policy, call).await;
    }
    let (wait, again) = (server.reconnect.patience(), SendAgain::default());
    loop {
        match once(route, caller, server, call, wait).await {
            Err(Refusal::Failed(name, failure)) => {
                again.after(failure).map_err(|failure| Refusal::Failed(name, failure))?;
            }
            reply => return reply,
        }
    }
}

/// The policy of what is called. A server that is well and whose tools were never listed is asked
/// for them first: what it says of a tool decides whether it may be repeated.
async fn policy(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Option<Arc<ToolPolicy>> {
    let request = &call.request;
    if request.method() != "tools/call" {
        return route.policies.method(&server.name, request.method()).cloned();
    }
    if !route.policies.has_heard_tools(&server.name) && server.reconnect.last().is_none() {
        target::look_up_tools(route, caller, server, call).await;
    }
    route.policies.call(&server.name, request)
}

/// One call to one server, in the era it speaks, once it is there; `wait` is how long it is waited
/// for.
pub async fn once(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
    wait: Duration,
) -> Reply {
    let failed = |failure| Refusal::Failed(server.name.clone(), failure);
    match caller {
        Caller::Legacy(session, stream) => {
            let supervisor = session.supervisor(server).map_err(failed)?;
            let connection = supervisor
                .connection(wait)
                .await
                .map_err(UpstreamFailure::before_sending)
                .map_err(failed)?;
            if connection.era() == Era::Modern {
                return to_modern::exchange(session, stream, server, &connection, call).await;
            }
            let answer = connection.request(call).await.map_err(failed)?;
            if answer.kind() == MessageKind::Result {
                session.note(server, &call.request);
            }
            Ok(answer)
        }
        Caller::Modern(_) => {
            let Some(pool) = route.pool(server) else {
                return Err(failed(UpstreamFailure::Unreachable(
                    "it is not on this route".to_owned(),
                )));
            };
            let connection = pool
                .connection(server, call, wait)
                .await
                .map_err(UpstreamFailure::before_sending)
                .map_err(failed)?;
            let call =
                &server.mirror.settle(&connection, call, server.sees_headers(&connection)).await?;
            match connection.era() {
                Era::Modern => connection.request(call).await.map_err(failed),
                Era::Legacy => to_legacy::exchange(server, pool, connection, call).await,
            }
        }
    }
}
