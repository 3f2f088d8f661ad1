//! Several servers on one endpoint: which server a call is for.

use std::sync::Arc;

use crate::call::dispatch::exchange;
use crate::call::{listen, merged_lists};
use crate::catalog::names;
use crate::client::caller::Caller;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{self, quoted};
use crate::protocol::{Message, MessageKind, Span, limits, scan};
use crate::route::Route;
use crate::upstream::Server;
use crate::upstream::call::{GatewayCall, NoClient};
use crate::upstream::reply::{Refusal, Reply, answered};

/// One call on an endpoint with several servers.
pub async fn reply(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    let request = &call.request;
    match request.method() {
        "ping" => answered(b"{}"),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            merged_lists::merged(route, caller, call).await
        }
        "tools/call" | "prompts/get" => named(route, caller, call, request.field("name")).await,
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            owned(route, caller, call, request.field_text("uri").map(|uri| uri.into_owned())).await
        }
        "completion/complete" => complete(route, caller, call).await,
        "logging/setLevel" => everywhere(route, caller, call).await,
        "subscriptions/listen" => listen::all(route, caller, call).await,
        method if method.starts_with("tasks/") && request.field("taskId").is_some() => {
            owned(route, caller, call, request.field_text("taskId").map(|task| task.into_owned()))
                .await
        }
        method => {
            let text = format!(
                "{method} is not known for several servers at once; use /mcp/<server> to reach one server"
            );
            Err(RpcError::new(build::METHOD_NOT_FOUND, text).into())
        }
    }
}

/// Learns what a server says of its tools, for a client that calls one without having listed them;
/// bounded in time.
pub async fn look_up_tools(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) {
    let mut params = edit::JsonObject::default();
    if let (Caller::Modern(_), Some(meta)) = (caller, call.request.field_json("_meta")) {
        params.set("_meta", meta);
    }
    let request = build::request(&crate::protocol::Id::number(0), "tools/list", &params.json());
    let Ok(request) = Message::parse(request) else { return };
    let list =
        GatewayCall { request, sink: Arc::new(NoClient), cancel: Arc::default(), ..call.clone() };
    // Only the first call waits for a server that is greeted and does not list.
    let patience = server.startup.patience(limits::LOOK_UP.min(server.reconnect.patience()));
    if patience.is_zero() {
        return;
    }
    let _in_time =
        tokio::time::timeout(patience, Box::pin(exchange(route, caller, server, &list))).await;
}

/// A call by a public name: goes to its server under the server's own name for it.
async fn named(
    route: &Arc<Route>,
    caller: &Caller,
    call: &GatewayCall,
    name: Option<Span>,
) -> Reply {
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
    let answer = exchange(route, caller, server, &renamed(call, span, own)?).await?;
    learn_task(route, server, &answer);
    Ok(answer)
}

/// The call under the server's own name for what it is about.
fn renamed(call: &GatewayCall, span: Span, own: &str) -> Result<GatewayCall, Refusal> {
    let spliced = edit::splice(call.request.raw(), &mut [(span, quoted(own).as_bytes())]);
    let request =
        Message::parse(spliced).map_err(|reject| Refusal::Wrong(RpcError::from(&reject)))?;
    Ok(GatewayCall { request, ..call.clone() })
}

/// A task answers to the server that made it.
fn learn_task(route: &Route, server: &Server, answer: &Message) {
    let inner =
        answer.field("task").map(|span| scan::members(answer.raw(), span)).unwrap_or_default();
    let inner =
        inner.iter().find(|field| field.is(answer.raw(), "taskId")).map(|field| field.value);
    let id = answer.field("taskId").or(inner).and_then(|span| scan::text(span.of(answer.raw())));
    if let Some(id) = id {
        route.own(id.into_owned(), &server.name);
    }
}

/// A call about something that one server has: the one that is known to, else the first that does
/// not say no.
async fn owned(
    route: &Arc<Route>,
    caller: &Caller,
    call: &GatewayCall,
    what: Option<String>,
) -> Reply {
    let Some(what) = what else {
        return Err(
            RpcError::new(build::INVALID_PARAMS, "the params do not say what it is about").into()
        );
    };
    if let Some(server) = route.owner(&what) {
        return exchange(route, caller, server, call).await;
    }
    let mut last = None;
    for server in &route.set.servers {
        match exchange(route, caller, server, call).await {
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

/// Completion: of a prompt by its public name, of a template by its owner.
async fn complete(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    let request = &call.request;
    let reference =
        request.field("ref").map(|span| scan::members(request.raw(), span)).unwrap_or_default();
    let find = |name| {
        reference.iter().find(|field| field.is(request.raw(), name)).map(|field| field.value)
    };
    match find("uri") {
        Some(uri) => {
            owned(
                route,
                caller,
                call,
                scan::text(uri.of(request.raw())).map(|uri| uri.into_owned()),
            )
            .await
        }
        None => named(route, caller, call, find("name")).await,
    }
}

/// A call for every server that is there; whoever does not know it is not asked for more. The
/// others are told when they come, so nobody waits for them.
async fn everywhere(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    let is_there = |server: &&Arc<Server>| match caller {
        Caller::Legacy(session, _) => {
            session.connections().iter().any(|connection| connection.server == server.name)
        }
        Caller::Modern(_) => true,
    };
    let there: Vec<&Arc<Server>> = route.set.servers.iter().filter(is_there).collect();
    let answers = futures_util::future::join_all(
        there.iter().map(|server| exchange(route, caller, server, call)),
    )
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
