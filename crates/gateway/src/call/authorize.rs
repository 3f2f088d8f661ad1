//! Decides whether a call may reach a server: whoever makes it must be allowed to use the server,
//! and the server's authorizer, if it has one, must allow this call. Nothing is sent, queued or
//! answered before that.

use std::sync::Arc;

use bytes::Bytes;

use crate::authz::external::question::CheckQuestion;
use crate::protocol::edit::{self, JsonObject};
use crate::protocol::names::Era;
use crate::protocol::{Message, MessageKind, scan};
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply, with_body};

/// The call as it may be made, with the headers that its server gets along with it.
pub(crate) async fn authorize(
    route: &Route,
    server: &Server,
    call: &GatewayCall,
) -> Result<GatewayCall, Refusal> {
    let question = CheckQuestion::new(&server.name, &call.request, &call.origin);
    let allowed =
        route.access.check(&question).await.map_err(|refusal| not_allowed(server, refusal))?;
    let mut call = call.clone();
    if !allowed.is_plain() {
        call.allowed = Arc::new(allowed);
    }
    Ok(call)
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
    let question = CheckQuestion::new(&server.name, &call.request, &call.origin);
    let allowed = external.allowed_tools(&question, names).await;
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

fn not_allowed(server: &Server, refusal: crate::authz::AuthzRefusal) -> Refusal {
    Refusal::NotAllowed(server.name.clone(), Box::new(refusal))
}
