//! Decides which spans a call has, and what they say of its end: one for the call, and one for each
//! request to a server. While nothing is traced, each of these is one branch.

use std::borrow::Cow;
use std::sync::Arc;

use seawall::{ErrorCode, classify};

use crate::catalog::names;
use crate::policy::registry::PolicyName;
use crate::protocol::names::PROTOCOL_VERSION;
use crate::protocol::{Message, MessageKind, scan};
use crate::route::Route;
use crate::runtime::log::{self, Level, LogSubject};
use crate::trace::peer::Peer;
use crate::trace::span::{CallTrace, OpenSpan, SpanOutcome};
use crate::upstream::call::GatewayCall;
use crate::upstream::http::named;
use crate::upstream::reply::{Refusal, Reply};
use crate::upstream::{Connection, Server};

/// Begins the span of a client's call.
pub(crate) fn begin(route: &Route, call: &mut GatewayCall) -> Option<Box<OpenSpan>> {
    let peer = Peer::client(call.origin.is_local);
    let name = named(&call.request).unwrap_or_default();
    let (mut span, trace) =
        route.tracer.call(&call.request, &name, call.origin.trace.as_ref(), peer)?;
    let (server, tool) = match route.single() {
        Some(server) => (Some(server), &*name),
        None => names::split(&route.set.servers, &name)
            .map_or((None, &*name), |(server, tool)| (Some(server), tool)),
    };
    let is_listed = server.is_some_and(|server| is_listed(route, server, tool));
    let version = call.request.meta_json(PROTOCOL_VERSION).and_then(scan::text);
    span.set(|span| {
        span.is_listed = is_listed;
        span.version = version.map(Arc::from);
    });
    call.trace = Some(trace);
    Some(Box::new(span))
}

fn is_listed(route: &Route, server: &Server, tool: &str) -> bool {
    route.policies.named(&server.name, tool) == PolicyName::Tool
}

/// Begins the span of a request to a server, which carries its context.
pub(crate) fn request(
    route: &Route,
    server: &Server,
    call: &GatewayCall,
    trace: &CallTrace,
) -> (OpenSpan, GatewayCall) {
    let name = named(&call.request).unwrap_or_default();
    let about = (call.request.method(), &*name);
    let (mut span, below) = trace.request(about, &server.peer, call.ends);
    span.set(|span| span.is_listed = is_listed(route, server, &name));
    (span, GatewayCall { trace: Some(below), ..call.clone() })
}

/// Notes the revision that a server speaks.
pub(crate) fn note_version(call: &GatewayCall, connection: &Connection) {
    if let (Some(trace), Some(info)) = (&call.trace, connection.info()) {
        trace.note_version(&info.version);
    }
}

/// Ends the span of a request to a server.
pub(crate) fn end(mut span: OpenSpan, call: &GatewayCall, reply: &Reply) {
    span.set(|span| span.version = call.trace.as_ref().and_then(|trace| trace.version()));
    span.end(outcome(reply));
}

/// Writes a line about a call that failed, for whoever looks for a fault.
pub(crate) fn note_failure(call: &GatewayCall, reply: &Reply) {
    if !log::writes(Level::Debug) {
        return;
    }
    let Some(error) = outcome(reply).error else { return };
    let (method, name) = (call.request.method(), named(&call.request).unwrap_or_default());
    let id = call.request.id().map(|id| String::from_utf8_lossy(id.json()));
    let (server, request) = (failed_server(reply), id.as_deref().unwrap_or_default());
    let subject = LogSubject { server, tool: &name, request, is_named: false };
    let traced = call.trace.as_ref().map(|trace| format!(", trace {}", trace.context.trace_id()));
    let text =
        format!("{method} {name} of request {request}: {error}{}", traced.unwrap_or_default());
    log::about(Level::Debug, LogSubject { is_named: server.is_empty(), ..subject }, &text);
}

fn failed_server(reply: &Reply) -> &str {
    match reply {
        Err(Refusal::Failed(server, _) | Refusal::NotAllowed(server, _)) => server,
        Err(Refusal::Reported(report, _)) => &report.server,
        _ => "",
    }
}

/// How a span ends whose call was answered like this.
pub(crate) fn outcome(reply: &Reply) -> SpanOutcome {
    match reply {
        Ok(answer) => of_answer(answer),
        Err(Refusal::Wrong(error)) => of_code(error.code),
        Err(Refusal::Failed(_, failure)) => {
            of_class(ErrorCode::of(classify(&failure.clone().signals()).cause))
        }
        Err(Refusal::Reported(report, _)) => of_class(report.code),
        Err(Refusal::NotAllowed(_, refusal)) => of_class(ErrorCode::of(refusal.failure().cause)),
    }
}

fn of_answer(answer: &Message) -> SpanOutcome {
    if answer.kind() == MessageKind::Error {
        let code = answer.field_json("code").and_then(|code| std::str::from_utf8(code).ok());
        return code
            .and_then(|code| code.parse().ok())
            .map_or_else(|| SpanOutcome::error("_OTHER"), of_code);
    }
    let served = answer.meta("seawall/served").and_then(|span| {
        let members = scan::members(answer.raw(), span);
        let by = members.iter().find(|member| member.is(answer.raw(), "by"))?;
        scan::text(by.value.of(answer.raw())).map(|by| Box::from(&*by))
    });
    let is_error = answer.field_json("isError").is_some_and(|is_error| is_error == b"true");
    let error = is_error.then_some(Cow::Borrowed("tool_error"));
    SpanOutcome { error, code: None, served }
}

fn of_code(code: i64) -> SpanOutcome {
    SpanOutcome { code: Some(code), ..SpanOutcome::error(code.to_string()) }
}

/// A class of failures of our own; the one that the conventions have a word for is called by that.
fn of_class(code: ErrorCode) -> SpanOutcome {
    SpanOutcome::error(match code {
        ErrorCode::Timeout => "timeout",
        code => code.as_str(),
    })
}
