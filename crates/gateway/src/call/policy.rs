//! Decides which policy a call has, and which tools are its alternates. Both depend on the tool
//! lists of the servers, so a server that never listed its tools is asked first.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use seawall::Fallback;

use crate::call::execute::StandIns;
use crate::call::list::list;
use crate::client::caller::Caller;
use crate::policy::registry::ToolPolicy;
use crate::protocol::edit::JsonObject;
use crate::protocol::{Id, Message, build, limits};
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::call::{GatewayCall, NoClient};

/// The policy of the called tool or method; a method may have none.
pub(crate) async fn of(
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
        look_up_tools(route, caller, server, call).await;
    }
    route.policies.call(&server.name, request)
}

/// Starts to fetch the tool lists of alternate servers that never listed their tools: the gateway
/// uses no alternate tool that it does not know. `None`: there is nothing to fetch.
pub(crate) fn meet_stand_ins(
    route: &Arc<Route>,
    caller: &Caller,
    policy: &ToolPolicy,
    call: &GatewayCall,
) -> Option<StandIns> {
    let unmet = |step: &Fallback| match step {
        Fallback::Alternate { server, .. } if !route.policies.has_heard_tools(server) => {
            route.find(server).cloned()
        }
        _ => None,
    };
    let steps = policy.tool.policy().fallback.iter();
    let unmet: Vec<_> =
        steps.filter_map(unmet).filter(|server| server.reconnect.last().is_none()).collect();
    if unmet.is_empty() {
        return None;
    }
    let (route, caller, call) = (Arc::clone(route), caller.clone(), call.clone());
    let asked = async move {
        join_all(unmet.iter().map(|server| look_up_tools(&route, &caller, server, &call))).await;
    };
    // Spawned, not awaited: a call that succeeds without its alternates does not wait for their
    // lists.
    Some(tokio::spawn(asked).map(|_| ()).boxed().shared())
}

/// Fetches the tool list of a server, for a client that calls a tool without having listed any;
/// bounded in time.
async fn look_up_tools(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) {
    let mut params = JsonObject::default();
    if let (Caller::Modern(_), Some(meta)) = (caller, call.request.field_json("_meta")) {
        params.set("_meta", meta);
    }
    let request = build::request(&Id::number(0), "tools/list", &params.json());
    let Ok(request) = Message::parse(request) else { return };
    // A cancellation of its own: the client may cancel its call, but not this list.
    let request =
        GatewayCall { request, sink: Arc::new(NoClient), cancel: Arc::default(), ..call.clone() };
    // Only the first call waits for a server that completed the handshake and does not list its
    // tools.
    let patience = server.startup.patience(limits::LOOK_UP.min(server.reconnect.patience()));
    if patience.is_zero() {
        return;
    }
    let _in_time =
        tokio::time::timeout(patience, Box::pin(list(route, caller, server, &request))).await;
}
