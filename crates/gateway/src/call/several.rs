//! A call for several servers: for the one of them that has something, or for all that are there.

use std::sync::Arc;

use crate::call::ask::ask;
use crate::client::caller::Caller;
use crate::protocol::MessageKind;
use crate::protocol::build::{self, RpcError};
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Reply, answered};

/// A call about something that one server has, and nobody knows which: the first that does not say
/// no.
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
            other => last = Some(last.filter(|_| other.is_err()).unwrap_or(other)),
        }
    }
    last.unwrap_or_else(|| {
        Err(RpcError::new(build::INVALID_PARAMS, format!("no server has {what:?}")).into())
    })
}

/// A call for every server that is there; whoever does not know it is not asked for more. The
/// others are told when they come, so nobody waits for them.
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
