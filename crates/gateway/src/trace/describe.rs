//! Decides what a span says: its name and its attributes, by OpenTelemetry's conventions for MCP
//! (status Development), or by its stable ones alone.

use super::encode::WireWriter;
use super::span::{EndedSpan, SpanRole};
use super::wire::{AnyValue, KeyValue, OneValue};
use crate::config::telemetry::Conventions;

/// Flag of a span and a link: the parent is known to come from another process, or not.
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// What most spans fit into, in bytes.
const USUAL: usize = 448;

/// The value of an attribute.
#[derive(Clone, Copy)]
pub(super) enum SpanValue<'a> {
    Text(&'a str),
    Number(u32),
}

/// The span as a collector gets it: opentelemetry.proto.trace.v1.Span, whose numbers these are.
pub(super) fn described(span: &EndedSpan, conventions: Conventions) -> Vec<u8> {
    let context = &span.context;
    let remote = match span.role {
        SpanRole::Server if span.parent.is_some() => IS_REMOTE,
        _ => 0,
    };
    let took = u64::try_from(span.took.as_nanos()).unwrap_or(u64::MAX);
    let mut to = WireWriter::new(USUAL);
    to.bytes(1, &context.trace);
    to.bytes(2, &context.span);
    to.text(3, context.state.as_deref().unwrap_or_default());
    to.bytes(4, span.parent.as_ref().map_or(&[], |parent| parent.as_slice()));
    match target_key(&span.method) {
        // A resource is not a part of the name: there are too many.
        Some("mcp.resource.uri") | None => to.text(5, &span.method),
        Some(_) => to.pieces(5, &[span.method.as_bytes(), b" ", span.target.as_bytes()]),
    }
    to.number(6, if span.role == SpanRole::Server { 2 } else { 3 });
    to.fixed64(7, span.began);
    to.fixed64(8, span.began.saturating_add(took));
    attributes(span, conventions, &mut |key, value| to.message(9, |to| attribute(to, key, value)));
    if let Some(link) = &span.link {
        to.message(13, |to| {
            to.bytes(1, &link.trace);
            to.bytes(2, &link.span);
            to.text(3, link.state.as_deref().unwrap_or_default());
            to.fixed32(6, u32::from(link.is_sampled) | HAS_IS_REMOTE | IS_REMOTE);
        });
    }
    if span.outcome.error.is_some() {
        // The code of an error.
        to.message(15, |to| to.number(3, 2));
    }
    to.fixed32(16, u32::from(context.is_sampled) | HAS_IS_REMOTE | remote);
    to.into_bytes()
}

/// One attribute: opentelemetry.proto.common.v1.KeyValue.
fn attribute(to: &mut WireWriter, key: &str, value: SpanValue<'_>) {
    to.text(1, key);
    to.message(2, |to| match value {
        SpanValue::Text(text) => to.text(1, text),
        SpanValue::Number(number) => to.number(3, number.into()),
    });
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

fn attributes(
    span: &EndedSpan,
    conventions: Conventions,
    put: &mut impl FnMut(&'static str, SpanValue<'_>),
) {
    common(span, conventions, put);
    if conventions == Conventions::Mcp {
        if let Some(key) = target_key(&span.method).filter(|_| !span.target.is_empty()) {
            put(key, SpanValue::Text(&span.target));
        }
        if let Some(request) = &span.request {
            put("jsonrpc.request.id", SpanValue::Text(request.trim_matches('"')));
        }
        if let Some(version) = &span.version {
            put("mcp.protocol.version", SpanValue::Text(version));
        }
    }
    if !span.peer.server.is_empty() {
        put("seawall.server", SpanValue::Text(&span.peer.server));
    }
    if let Some(served) = &span.outcome.served {
        put("seawall.served.by", SpanValue::Text(served));
    }
    if span.attempt > 0 {
        put("seawall.attempt", SpanValue::Number(span.attempt));
    }
}

/// The attributes that a span and a measurement have in common.
pub(super) fn common(
    span: &EndedSpan,
    conventions: Conventions,
    put: &mut impl FnMut(&'static str, SpanValue<'_>),
) {
    let (peer, outcome) = (&span.peer, &span.outcome);
    put("network.transport", SpanValue::Text(peer.transport));
    if !peer.protocol.is_empty() {
        put("network.protocol.name", SpanValue::Text(peer.protocol));
    }
    if !peer.address.is_empty() {
        put("server.address", SpanValue::Text(&peer.address));
        if let Some(port) = peer.port {
            put("server.port", SpanValue::Number(port.into()));
        }
    }
    if let Some(error) = &outcome.error {
        put("error.type", SpanValue::Text(error));
    }
    if conventions == Conventions::Mcp {
        put("mcp.method.name", SpanValue::Text(&span.method));
        if &*span.method == "tools/call" {
            put("gen_ai.operation.name", SpanValue::Text("execute_tool"));
        }
        if let Some(code) = outcome.code {
            put("rpc.response.status_code", SpanValue::Text(&code.to_string()));
        }
    }
}

/// An attribute of a measurement or a resource.
pub(super) fn kept(key: &str, value: SpanValue<'_>) -> KeyValue {
    let value = match value {
        SpanValue::Text(text) => OneValue::Text(text.to_owned()),
        SpanValue::Number(number) => OneValue::Number(number.into()),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

/// An attribute with a text.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
    kept(key, SpanValue::Text(value))
}
