//! Decides how one server answers a call that is allowed: a list through the catalog cache, a call
//! with a policy through the pipeline, every other request as it is.

use std::sync::Arc;

use crate::call::audited;
use crate::call::authorize::{authorize, filtered};
use crate::call::execute::{execute, may_have_run};
use crate::call::list::list;
use crate::call::policy;
use crate::call::send::send;
use crate::catalog::cached_lists;
use crate::client::caller::Caller;
use crate::route::Route;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply};
use crate::upstream::{SendAgain, Server};

/// Puts a call to one server, if it is allowed.
pub(crate) async fn ask(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Reply {
    if route.access.is_open(&server.name) {
        return ask_allowed(route, caller, server, call).await;
    }
    let call = match Box::pin(authorize(route, server, call)).await {
        Ok(call) => call,
        Err(refusal) => {
            if let Refusal::NotAllowed(_, refused) = &refusal {
                audited::refused(route, caller, server, call, refused);
            }
            return Err(honest(route, caller, server, call, refusal));
        }
    };
    let answer = ask_allowed(route, caller, server, &call).await?;
    Box::pin(filtered(route, server, caller.era(), &call, answer)).await
}

/// The refusal of a call that may repeat an earlier one: this one was not sent, but the earlier one
/// may have been executed.
fn honest(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
    refusal: Refusal,
) -> Refusal {
    match refusal {
        Refusal::NotAllowed(name, refused)
            if call.request.method() == "tools/call"
                && may_have_run(route, caller, server, call) =>
        {
            let tool = call.request.field_text("name").unwrap_or_default();
            Refusal::Reported(Box::new(refused.after_an_earlier(&name, &tool)), true)
        }
        refusal => refusal,
    }
}

/// Puts a call that is allowed to one server.
pub(crate) async fn ask_allowed(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Reply {
    if cached_lists::is_list(&call.request) {
        // Boxed: a call of a tool should not carry the future of a list, nor that of a request
        // without a policy.
        return Box::pin(list(route, caller, server, call)).await;
    }
    match policy::of(route, caller, server, call).await {
        Some(policy) => {
            let stand_ins = policy::meet_stand_ins(route, caller, &policy, call);
            execute(route, caller, server, policy, stand_ins, call).await
        }
        None => {
            let wait = |_| server.reconnect.patience();
            Box::pin(send(route, caller, server, call, &SendAgain::default(), wait)).await
        }
    }
}
