//! Decides how one call reaches several servers: the one that owns its subject, or all that are
//! connected.

use std::sync::Arc;

use crate::call::ask::ask;
use crate::client::caller::Caller;
use crate::protocol::MessageKind;
use crate::protocol::build::{self, RpcError};
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Reply, answered};

/// Asks the servers one after the other until one answers with a result, which makes it the owner
/// of the resource or task.
pub(crate) async fn first_that_has(
    route: &Arc<Route>,
    caller: &Caller,
    call: &GatewayCall,
    what: String,
) -> Reply {
    let mut last = None;
    for server in &route.set.servers {
        match ask(route, caller, server, call).await {
            Ok(answer) if answer.kind() == MessageKind::Result => {
                route.own(what, &server.name);
                return Ok(answer);
            }
            // A server's own error outranks the failure to reach another server.
            other => last = Some(last.filter(|_| other.is_err()).unwrap_or(other)),
        }
    }
    last.unwrap_or_else(|| {
        Err(RpcError::new(build::INVALID_PARAMS, format!("no server has {what:?}")).into())
    })
}

/// Sends a call to every connected server; succeeds if one of them knows the method, or if others
/// are not connected yet. Servers that connect later get the session's log level then, so the call
/// does not wait for them.
pub(crate) async fn everywhere(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    let is_there = |server: &&Arc<Server>| match caller {
        Caller::Legacy(session, _) => {
            session.connections().iter().any(|connection| connection.server == server.name)
        }
        Caller::Modern(_) => true,
    };
    let there: Vec<&Arc<Server>> = route.set.servers.iter().filter(is_there).collect();
    let answers =
        futures_util::future::join_all(there.iter().map(|server| ask(route, caller, server, call)))
            .await;
    let is_known = answers
        .iter()
        .any(|answer| answer.as_ref().is_ok_and(|answer| answer.kind() == MessageKind::Result));
    if let Caller::Legacy(session, _) = caller {
        session.set_log_level(&call.request);
    }
    if is_known || there.len() < route.set.servers.len() {
        return answered(b"{}");
    }
    answers.into_iter().next().unwrap_or_else(|| answered(b"{}"))
}
