//! Decides what a span says: its name and its attributes, by OpenTelemetry's conventions for MCP
//! (status Development), or by its stable ones alone.

use super::span::{EndedSpan, SpanRole};
use super::wire::{AnyValue, KeyValue, OneValue, WireLink, WireSpan, WireStatus};
use crate::config::telemetry::Conventions;

/// Flag of a span and a link: the parent is known to come from another process, or not.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The span as a collector gets it.
pub(super) fn described(span: &EndedSpan, conventions: Conventions) -> WireSpan {
    let context = &span.context;
    let remote = match span.role {
        SpanRole::Server if span.parent.is_some() => IS_REMOTE,
        _ => 0,
    };
    let took = u64::try_from(span.took.as_nanos()).unwrap_or(u64::MAX);
    let link = span.link.iter().map(|link| WireLink {
        trace_id: link.trace.to_vec(),
        span_id: link.span.to_vec(),
        trace_state: link.state.as_deref().unwrap_or_default().to_owned(),
        flags: u32::from(link.is_sampled) | HAS_IS_REMOTE | IS_REMOTE,
    });
    WireSpan {
        trace_id: context.trace.to_vec(),
        span_id: context.span.to_vec(),
        trace_state: context.state.as_deref().unwrap_or_default().to_owned(),
        parent_span_id: span.parent.map(|parent| parent.to_vec()).unwrap_or_default(),
        name: name(span),
        kind: if span.role == SpanRole::Server { 2 } else { 3 },
        start_time_unix_nano: span.began,
        end_time_unix_nano: span.began.saturating_add(took),
        attributes: attributes(span, conventions),
        links: link.collect(),
        status: span.outcome.error.as_ref().map(|_| WireStatus { code: 2 }),
        flags: u32::from(context.is_sampled) | HAS_IS_REMOTE | remote,
    }
}

/// Method and tool or prompt. A resource is not a part of the name: there are too many.
fn name(span: &EndedSpan) -> String {
    match target_key(&span.method) {
        Some("mcp.resource.uri") | None => span.method.to_string(),
        Some(_) => format!("{} {}", span.method, span.target),
    }
}

/// What the target of a method is called.
fn target_key(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" => Some("gen_ai.tool.name"),
        "prompts/get" => Some("gen_ai.prompt.name"),
        _ if method.starts_with("resources/") => Some("mcp.resource.uri"),
        _ => None,
    }
}

fn attributes(span: &EndedSpan, conventions: Conventions) -> Vec<KeyValue> {
    let mut attributes = common(span, conventions);
    let mut put = |key, value: &str| attributes.push(text(key, value));
    if conventions == Conventions::Mcp {
        if let Some(key) = target_key(&span.method).filter(|_| !span.target.is_empty()) {
            put(key, &span.target);
        }
        if let Some(request) = &span.request {
            put("jsonrpc.request.id", request.trim_matches('"'));
        }
        if let Some(version) = &span.version {
            put("mcp.protocol.version", version);
        }
    }
    if !span.peer.server.is_empty() {
        put("seawall.server", &span.peer.server);
    }
    if let Some(served) = &span.outcome.served {
        put("seawall.served.by", served);
    }
    if span.attempt > 0 {
        attributes.push(number("seawall.attempt", i64::from(span.attempt)));
    }
    attributes
}

/// The attributes that a span and a measurement have in common.
pub(super) fn common(span: &EndedSpan, conventions: Conventions) -> Vec<KeyValue> {
    let (peer, outcome) = (&span.peer, &span.outcome);
    let mut attributes = vec![text("network.transport", peer.transport)];
    if !peer.protocol.is_empty() {
        attributes.push(text("network.protocol.name", peer.protocol));
    }
    if !peer.address.is_empty() {
        attributes.push(text("server.address", &peer.address));
        attributes.extend(peer.port.map(|port| number("server.port", i64::from(port))));
    }
    if let Some(error) = &outcome.error {
        attributes.push(text("error.type", error));
    }
    if conventions == Conventions::Mcp {
        attributes.push(text("mcp.method.name", &span.method));
        if &*span.method == "tools/call" {
            attributes.push(text("gen_ai.operation.name", "execute_tool"));
        }
        if let Some(code) = outcome.code {
            attributes.push(text("rpc.response.status_code", &code.to_string()));
        }
    }
    attributes
}

/// An attribute with a text.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(OneValue::Text(value.to_owned())) });
    KeyValue { key: key.to_owned(), value }
}

fn number(key: &str, value: i64) -> KeyValue {
    let value = Some(AnyValue { value: Some(OneValue::Number(value)) });
    KeyValue { key: key.to_owned(), value }
}
