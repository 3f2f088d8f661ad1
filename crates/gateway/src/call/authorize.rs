//! Decides whether a call may reach a server: whoever makes it must be allowed to use the server,
//! and the server's authorizer, if it has one, must allow this call. Nothing is sent, queued or
//! answered before that.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::authz::external::question::CheckQuestion;
use crate::authz::{AuthzRefusal, CallOrigin};
use crate::catalog::names;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{self, JsonObject};
use crate::protocol::names::Era;
use crate::protocol::{Message, MessageKind, scan};
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::call::{GatewayCall, NoClient};
use crate::upstream::reply::{Refusal, Reply, with_body};

/// The call as it may be made, with the headers that its server gets along with it.
pub(crate) async fn authorize(
    route: &Route,
    server: &Server,
    call: &GatewayCall,
) -> Result<GatewayCall, Refusal> {
    let question = question(server, call);
    let allowed =
        route.access.check(&question).await.map_err(|refusal| not_allowed(server, refusal))?;
    // Replaced also where there are none: the headers of one server's call are not another's.
    Ok(GatewayCall { allowed: Arc::new(allowed), ..call.clone() })
}

/// Decides whether the caller may still see what a tool answered before: a kept result, or the
/// outcome of a queued write.
pub(crate) async fn may_see(
    route: &Route,
    server: &str,
    tool: &str,
    call: &GatewayCall,
) -> Result<(), Refusal> {
    let question = CheckQuestion::new(server, &call.request, &call.origin).about_tool(tool);
    let seen = route.access.check(&question).await;
    seen.map(drop).map_err(|refusal| Refusal::NotAllowed(server.to_owned(), Box::new(refusal)))
}

/// The servers of a route that may hear a notification of the client. What belongs to a call or a
/// question that was allowed needs no word of its own.
pub(crate) async fn may_hear(
    route: &Route,
    origin: &CallOrigin,
    notification: &Message,
) -> Vec<String> {
    if route.access.is_all_open() {
        return route.set.servers.iter().map(|server| server.name.clone()).collect();
    }
    let belongs = matches!(
        notification.method(),
        "notifications/initialized" | "notifications/cancelled" | "notifications/progress"
    );
    let checks = route.set.servers.iter().map(|server| async {
        let question = CheckQuestion::new(&server.name, notification, origin);
        let is_allowed = belongs
            || route.access.is_open(&server.name)
            || route.access.check(&question).await.is_ok();
        is_allowed.then(|| server.name.clone())
    });
    join_all(checks).await.into_iter().flatten().collect()
}

/// A client's answer to a server's question; an error in its place if the client may not answer any
/// more.
pub(crate) async fn answer_to(
    route: &Route,
    origin: &CallOrigin,
    server: &str,
    answer: Message,
) -> Message {
    let question = CheckQuestion::new(server, &answer, origin);
    if route.access.is_open(server) || route.access.check(&question).await.is_ok() {
        return answer;
    }
    let error = RpcError::new(build::DENIED, "the client may not use this server");
    Message::parse(build::error(answer.id(), &error)).unwrap_or(answer)
}

/// Decides whether a client that comes back to the stream of a call may still have its answer.
pub(crate) async fn may_resume(
    route: &Route,
    origin: &Arc<CallOrigin>,
    request: Message,
) -> Result<(), Box<AuthzRefusal>> {
    let call =
        GatewayCall { origin: Arc::clone(origin), ..GatewayCall::new(request, Arc::new(NoClient)) };
    let name = call.request.field_text("name").unwrap_or_default();
    let server = match route.single() {
        Some(server) => Some(server),
        None => names::split(&route.set.servers, &name).map(|(server, _)| server),
    };
    let Some(server) = server.filter(|server| !route.access.is_open(&server.name)) else {
        return Ok(());
    };
    match authorize(route, server, &call).await {
        Err(Refusal::NotAllowed(_, refusal)) => Err(refusal),
        _ => Ok(()),
    }
}

/// The list without the tools that its reader may not call, where the operator wants it so. The
/// entries that stay keep their bytes and their order.
pub(crate) async fn filtered(
    route: &Route,
    server: &Server,
    era: Era,
    call: &GatewayCall,
    list: Message,
) -> Reply {
    let is_filtered = call.request.method() == "tools/list" && list.kind() == MessageKind::Result;
    let Some(external) = route
        .access
        .external(&server.name)
        .filter(|external| is_filtered && external.filters_lists())
    else {
        return Ok(list);
    };
    let spans = list.field("tools").map(|tools| scan::elements(list.raw(), tools));
    let entries: Vec<Bytes> =
        spans.unwrap_or_default().into_iter().map(|span| list.slice(span)).collect();
    let name = |entry: &Bytes| {
        JsonObject::of(entry).get("name").and_then(scan::text).map(|name| name.into_owned())
    };
    let names: Vec<String> = entries.iter().filter_map(name).collect();
    let allowed = external.allowed_tools(&question(server, call), names).await;
    let allowed = allowed.map_err(|refusal| not_allowed(server, refusal))?;
    let is_allowed = |entry: &&Bytes| name(entry).is_some_and(|name| allowed.contains(&name));
    let shown: Vec<&[u8]> = entries.iter().filter(is_allowed).map(|entry| &**entry).collect();
    let mut result = JsonObject::of(list.body_json());
    result.set("tools", edit::array(shown));
    if era == Era::Modern {
        // Another caller may see other tools.
        result.set("cacheScope", r#""private""#);
    }
    with_body(&list, &result.json())
}

/// What is asked about a call of a server.
fn question<'a>(server: &'a Server, call: &'a GatewayCall) -> CheckQuestion<'a> {
    let question = CheckQuestion::new(&server.name, &call.request, &call.origin);
    question.of_list(call.list_checks.as_deref())
}

fn not_allowed(server: &Server, refusal: AuthzRefusal) -> Refusal {
    Refusal::NotAllowed(server.name.clone(), Box::new(refusal))
}
