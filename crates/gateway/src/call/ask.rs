//! One call to one server: a list stays as it was while the server is away, a tool and all that
//! reads has a policy, and everything else is sent as it is.

use std::sync::Arc;

use crate::call::execute::execute;
use crate::call::list::list;
use crate::call::policy;
use crate::call::send::send;
use crate::catalog::cached_lists;
use crate::client::caller::Caller;
use crate::route::Route;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::Reply;
use crate::upstream::{SendAgain, Server};

/// Asks one server.
pub(crate) async fn ask(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Reply {
    if cached_lists::is_list(&call.request) {
        return list(route, caller, server, call).await;
    }
    // Here is known which server and which of its tools the call is for: an authorizer is asked
    // here, before anything is sent.
    match policy::of(route, caller, server, call).await {
        Some(policy) => {
            let stand_ins = policy::meet_stand_ins(route, caller, &policy, call);
            execute(route, caller, server, policy, stand_ins, call).await
        }
        None => {
            let wait = |_| server.reconnect.patience();
            send(route, caller, server, call, &SendAgain::default(), wait).await
        }
    }
}
