//! Decides which server a call is for, from the request alone; no server is asked here.

use std::sync::Arc;

use crate::call::resources;
use crate::catalog::names;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{self, quoted};
use crate::protocol::{Message, Span, scan};
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::Refusal;

/// The addressee of a call.
pub(crate) enum Target<'r> {
    /// The gateway itself.
    Gateway,
    /// The only server of the route, or the known owner of the call's resource or task.
    Server(&'r Arc<Server>),
    /// The server in a public name; the call carries the server's own name instead.
    Named(&'r Arc<Server>, Box<GatewayCall>),
    /// The server that owns this resource or task; not known yet which one.
    Owner(String),
    /// All servers of the route.
    Every,
}

/// Finds the addressee of a call.
pub(crate) fn of<'r>(route: &'r Route, call: &GatewayCall) -> Result<Target<'r>, Refusal> {
    let request = &call.request;
    match (request.method(), route.single()) {
        ("initialize" | "server/discover", _) => Ok(Target::Gateway),
        ("resources/read", _) if resources::is_ours(request) => Ok(Target::Gateway),
        (_, Some(server)) => Ok(Target::Server(server)),
        ("ping", None) => Ok(Target::Gateway),
        (
            "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "logging/setLevel"
            | "subscriptions/listen",
            None,
        ) => Ok(Target::Every),
        ("tools/call" | "prompts/get", None) => named(route, call, request.field("name")),
        ("resources/read" | "resources/subscribe" | "resources/unsubscribe", None) => {
            owner(route, call, request.field("uri"))
        }
        ("completion/complete", None) => completion(route, call),
        (method, None) if method.starts_with("tasks/") && request.field("taskId").is_some() => {
            owner(route, call, request.field("taskId"))
        }
        (method, None) => {
            let text = format!(
                "{method} is not known for several servers at once; use /mcp/<server> to reach one server"
            );
            Err(RpcError::new(build::METHOD_NOT_FOUND, text).into())
        }
    }
}

/// Resolves a public name: the call goes to its server, under the server's own name.
fn named<'r>(
    route: &'r Route,
    call: &GatewayCall,
    name: Option<Span>,
) -> Result<Target<'r>, Refusal> {
    let public = name.and_then(|span| scan::text(span.of(call.request.raw())));
    let Some((span, public)) = name.zip(public) else {
        return Err(
            RpcError::new(build::INVALID_PARAMS, "\"name\" is missing or not a string").into()
        );
    };
    let Some((server, own)) = names::split(&route.set.servers, &public) else {
        let text = format!(
            "unknown name {public:?}: names here are <server>__<name>; the lists tell them"
        );
        return Err(RpcError::new(build::INVALID_PARAMS, text).into());
    };
    Ok(Target::Named(server, Box::new(renamed(call, span, own)?)))
}

/// The call with the server's own name in place of the public one.
fn renamed(call: &GatewayCall, span: Span, own: &str) -> Result<GatewayCall, Refusal> {
    let spliced = edit::splice(call.request.raw(), &mut [(span, quoted(own).as_bytes())]);
    let request =
        Message::parse(spliced).map_err(|reject| Refusal::Wrong(RpcError::from(&reject)))?;
    Ok(GatewayCall { request, ..call.clone() })
}

/// A call about a resource or a task, which one server owns.
fn owner<'r>(
    route: &'r Route,
    call: &GatewayCall,
    what: Option<Span>,
) -> Result<Target<'r>, Refusal> {
    let Some(what) = what.and_then(|span| scan::text(span.of(call.request.raw()))) else {
        return Err(
            RpcError::new(build::INVALID_PARAMS, "the params do not say what it is about").into()
        );
    };
    Ok(match route.owner(&what) {
        Some(server) => Target::Server(server),
        None => Target::Owner(what.into_owned()),
    })
}

/// Completion: a prompt is found by its public name, a resource template by its owner.
fn completion<'r>(route: &'r Route, call: &GatewayCall) -> Result<Target<'r>, Refusal> {
    let request = &call.request;
    let reference =
        request.field("ref").map(|span| scan::members(request.raw(), span)).unwrap_or_default();
    let find = |name| {
        reference.iter().find(|field| field.is(request.raw(), name)).map(|field| field.value)
    };
    match find("uri") {
        Some(uri) => owner(route, call, Some(uri)),
        None => named(route, call, find("name")),
    }
}

/// Notes the server of a task that `answer` started, so that later `tasks/` requests find it.
pub(crate) fn learn_task(route: &Route, server: &Server, answer: &Message) {
    let inner =
        answer.field("task").map(|span| scan::members(answer.raw(), span)).unwrap_or_default();
    let inner =
        inner.iter().find(|field| field.is(answer.raw(), "taskId")).map(|field| field.value);
    let id = answer.field("taskId").or(inner).and_then(|span| scan::text(span.of(answer.raw())));
    if let Some(id) = id {
        route.own(id.into_owned(), &server.name);
    }
}
