//! Which policy a call has, and which tools may stand in for it: what their servers say of them
//! decides, so a server whose tools were never listed is asked for them first.

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

/// The policy of what is called; a method may have none.
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

/// Asks the servers whose tools may stand in for their lists, if nobody has: a tool that is not
/// known cannot stand in.
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
    // Whoever gets an answer without them does not wait.
    Some(tokio::spawn(asked).map(|_| ()).boxed().shared())
}

/// Learns what a server says of its tools, for a client that calls one without having listed them;
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
    let request =
        GatewayCall { request, sink: Arc::new(NoClient), cancel: Arc::default(), ..call.clone() };
    // Only the first call waits for a server that is greeted and does not list.
    let patience = server.startup.patience(limits::LOOK_UP.min(server.reconnect.patience()));
    if patience.is_zero() {
        return;
    }
    let _in_time =
        tokio::time::timeout(patience, Box::pin(list(route, caller, server, &request))).await;
}
