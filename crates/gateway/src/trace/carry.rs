//! Decides how a message carries a trace context: in `_meta`, where it replaces the client's own.
//! All other bytes stay as they were.

use super::context::{PARENT, STATE, TraceContext};
use crate::protocol::edit::quoted;
use crate::protocol::{Message, Span, scan};

/// The context that a request carries in its `_meta`.
pub(super) fn context(request: &Message) -> Option<TraceContext> {
    let parent = request.meta_json(PARENT).and_then(scan::text)?;
    let state = request.meta_json(STATE).and_then(scan::text);
    TraceContext::parse(parent.as_bytes(), state.as_deref())
}

/// What is replaced in the bytes of a request so that it carries `context`.
pub(crate) fn cuts(request: &Message, context: &TraceContext) -> Vec<(Span, Vec<u8>)> {
    let state = context.state.as_deref();
    let keys = [
        (PARENT, Some(["\"", &context.written(), "\""].concat())),
        // The client's own state belongs to another context: an empty one takes its place.
        (STATE, state.map(quoted).or_else(|| request.meta(STATE).map(|_| quoted("")))),
    ];
    let mut cuts = Vec::with_capacity(2);
    let mut added = String::new();
    for (key, value) in keys {
        let Some(value) = value else { continue };
        match request.meta(key) {
            Some(span) => cuts.push((span, value.into_bytes())),
            None => {
                let comma = if added.is_empty() { "" } else { "," };
                added.push_str(&[comma, "\"", key, "\":", &value].concat());
            }
        }
    }
    if !added.is_empty() {
        cuts.extend(place(request, added));
    }
    cuts
}

/// Where members are added to the `_meta` of a request. `None`: its params, or its `_meta`, are no
/// object and stay as they are.
fn place(request: &Message, members: String) -> Option<(Span, Vec<u8>)> {
    let raw = request.raw();
    if let Some(meta) = request.field("_meta") {
        return first(raw, meta, members);
    }
    let members = ["\"_meta\":{", &members, "}"].concat();
    if let Some(params) = request.body() {
        return first(raw, params, members);
    }
    let end = raw.iter().rposition(|byte| *byte == b'}')?;
    Some((Span { start: end, end }, format!(",\"params\":{{{members}}}").into_bytes()))
}

/// Makes `members` the first of an object.
fn first(raw: &[u8], object: Span, mut members: String) -> Option<(Span, Vec<u8>)> {
    let inside = object.of(raw).strip_prefix(b"{")?;
    if inside.trim_ascii_start() != b"}" {
        members.push(',');
    }
    let start = object.start + 1;
    Some((Span { start, end: start }, members.into_bytes()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;
    use crate::protocol::edit::splice;

    const PLACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn carried(request: &str, state: Option<&str>) -> String {
        let request = Message::parse(Bytes::copy_from_slice(request.as_bytes())).unwrap();
        let context = TraceContext::parse(PLACE.as_bytes(), state).unwrap();
        let cuts = cuts(&request, &context);
        let mut cuts: Vec<_> = cuts.iter().map(|(span, with)| (*span, &**with)).collect();
        String::from_utf8(splice(request.raw(), &mut cuts).to_vec()).unwrap()
    }

    #[test]
    fn a_request_carries_the_context_and_keeps_its_other_bytes() {
        let head = r#"{"jsonrpc":"2.0","id":1,"method":"m""#;
        for (rest, meta) in [
            ("}", json!({})),
            (r#","params":{}}"#, json!({})),
            (r#", "params" : { } }"#, json!({})),
            (r#","params":{"name":"x","arguments":{"n":1.00}}}"#, json!({})),
            (r#","params":{"_meta":{},"name":"x"}}"#, json!({})),
            (r#","params":{"_meta": { "progressToken" : 7 }}}"#, json!({"progressToken": 7})),
            (r#","params":{"_meta":{"traceparent":"own","a":1}}}"#, json!({"a": 1})),
        ] {
            let (request, mut meta) = (format!("{head}{rest}"), meta.clone());
            let sent = carried(&request, None);
            meta["traceparent"] = json!(PLACE);
            let read: Value = serde_json::from_str(&sent).unwrap();
            assert_eq!(read["params"]["_meta"], meta, "{sent}");
            let mut kept: Value = serde_json::from_str(&request).unwrap();
            kept["params"]["_meta"] = meta;
            assert_eq!(read, kept, "{sent}");
        }
        let number = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"n":1.00}}}"#;
        assert!(carried(number, None).ends_with(r#""arguments":{"n":1.00}}}"#));
    }

    #[test]
    fn the_state_goes_with_the_context_that_it_belongs_to() {
        let own = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"tracestate":"own=1","traceparent":"own"}}}"#;
        let state = |sent: String| {
            let sent: Value = serde_json::from_str(&sent).unwrap();
            sent["params"]["_meta"]["tracestate"].clone()
        };
        assert_eq!(state(carried(own, Some("a=\"1"))), "a=\"1");
        assert_eq!(state(carried(own, None)), "");
        let none = r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
        assert_eq!(state(carried(none, Some("a=1"))), "a=1");
        assert_eq!(state(carried(none, None)), Value::Null);
    }

    #[test]
    fn what_is_no_object_stays_as_it_is() {
        for rest in [r#","params":[1]}"#, r#","params":{"_meta":null}}"#] {
            let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"m"{rest}"#);
            assert_eq!(carried(&request, None), request);
        }
    }
}
