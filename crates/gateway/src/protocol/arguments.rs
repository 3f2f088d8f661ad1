//! Decides when two calls have the same arguments. Parsed arguments serve for call keys and
//! fallbacks; servers get the client's own bytes, never a copy written from the parsed value.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Message;
use super::edit::JsonObject;

/// Parses the arguments, for call keys and fallbacks. The second value is their JSON text, present
/// only if two different texts may parse to the same value. In any case the server gets the
/// client's own bytes.
pub(crate) fn read(raw: &[u8]) -> (Value, Option<Arc<str>>) {
    let read = serde_json::from_slice(raw);
    let is_kept = raw.is_empty() || (read.is_ok() && numbers(raw).all(is_exact));
    let written = (!is_kept).then(|| String::from_utf8_lossy(raw).into());
    // Clients leave out what is empty, or write `null`: for servers it is the same call.
    let read = Some(read.unwrap_or_default()).filter(|read: &Value| !read.is_null());
    (read.unwrap_or_else(|| Value::Object(Map::new())), written)
}

/// Members of `_meta` that do not make a call another call: they say how it is answered, followed
/// and traced.
const ABOUT_THE_MESSAGE: [&str; 5] =
    ["progressToken", "traceparent", "tracestate", "baggage", "debug"];
/// Prefixes of `_meta` names with the same meaning.
const PREFIXES: [&str; 2] = ["io.modelcontextprotocol/", "seawall/"];
/// The last words of names under which clients number their messages (`vscode.requestId`,
/// `claudecode/toolUseId`): a repeat has another number and is the same call all the same.
const NUMBERS_OF_MESSAGES: [&str; 7] =
    ["requestid", "tooluseid", "toolcallid", "callid", "messageid", "invocationid", "timestamp"];

/// The parts of a `tools/call` beside its name and arguments, if it has any: calls that differ in
/// them are not identical. `None` for other methods.
pub(crate) fn context(request: &Message) -> Option<Arc<str>> {
    if request.method() != "tools/call" {
        return None;
    }
    let (params, mut said) = (JsonObject::of(request.body_json()), Vec::new());
    let mut say = |name: &str, json: &[u8]| {
        said.extend_from_slice(name.as_bytes());
        said.push(b' ');
        said.extend_from_slice(json);
        said.push(b'\n');
    };
    // A call that carries the answers to its server's questions is the same call, continued.
    let is_known = |name: &str| {
        matches!(name, "name" | "arguments" | "_meta" | "requestState" | "inputResponses")
    };
    for name in params.names().filter(|name| !is_known(name)) {
        say(&name, params.get(&name).unwrap_or_default());
    }
    let meta = JsonObject::of(params.get("_meta").unwrap_or(b"{}"));
    let is_about_the_message = |name: &str| {
        ABOUT_THE_MESSAGE.contains(&name)
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || numbers_messages(name)
    };
    for name in meta.names().filter(|name| !is_about_the_message(name)) {
        say(&name, meta.get(&name).unwrap_or_default());
    }
    (!said.is_empty()).then(|| String::from_utf8_lossy(&said).into())
}

/// Whether a name of `_meta` holds a message's own number.
fn numbers_messages(name: &str) -> bool {
    let last = name.rsplit(['/', '.', ':']).next().unwrap_or_default();
    let last = last.replace(['-', '_'], "").to_ascii_lowercase();
    NUMBERS_OF_MESSAGES.contains(&&*last)
}

/// The parts outside of strings that look like numbers. Most bytes are inside strings, so strings
/// are skipped with `memchr`.
fn numbers(json: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = json;
    let outside = std::iter::from_fn(move || {
        let (part, text) = rest.split_at(memchr::memchr(b'"', rest).unwrap_or(rest.len()));
        if part.is_empty() && text.is_empty() {
            return None;
        }
        rest = after_string(text);
        Some(part)
    });
    outside.flat_map(|part| {
        part.split(|byte| !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
    })
}

/// The bytes after the string that `text` begins with.
fn after_string(text: &[u8]) -> &[u8] {
    let mut at = 1;
    while let Some(next) = text.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        if text[at + next] == b'"' {
            return &text[at + next + 1..];
        }
        // An escape is two bytes here: the escaped byte is skipped, so `\"` does not end the
        // string.
        at += next + 2;
    }
    &[]
}

/// Whether a number keeps its value when it is parsed: an integer that fits, a number of few
/// digits, or a number that serde_json writes back in the same digits, as programs do with floats
/// they read or computed.
fn is_exact(number: &[u8]) -> bool {
    const DIGITS: usize = 15;
    let text = std::str::from_utf8(number).unwrap_or_default();
    number.len() <= DIGITS
        || text.parse::<i64>().is_ok()
        || text.parse::<u64>().is_ok()
        || is_written_again(text)
}

fn is_written_again(text: &str) -> bool {
    let is_same = |number: f64| {
        serde_json::to_string(&number).is_ok_and(|again| plain(&again) == plain(text))
    };
    serde_json::from_str::<f64>(text).is_ok_and(is_same)
}

/// A number without the spellings that differ between languages: `1.5e-07` and `1.5E-7`; `1.5e+22`
/// and `1.5e22`.
fn plain(number: &str) -> (&str, i32) {
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    (digits, exponent.parse().unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_beside_the_arguments_makes_another_call_unless_it_is_about_the_message() {
        let of = |params: &str| {
            let text =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            context(&Message::parse(text.into()).unwrap())
        };
        for plain in [
            r#"{"name":"t"}"#,
            r#"{"name":"t","arguments":{"a":1},"_meta":{}}"#,
            r#"{"name":"t","_meta":{"progressToken":7,"traceparent":"00-1","io.modelcontextprotocol/clientInfo":{}}}"#,
            r#"{"name":"t","_meta":{"claudecode/toolUseId":"t1","vscode.requestId":"r1","x/message_id":2}}"#,
        ] {
            assert_eq!(of(plain), None, "{plain}");
        }
        let tenant = of(r#"{"name":"t","_meta":{"progressToken":7,"x/tenant":"one"}}"#);
        assert_eq!(tenant.as_deref(), Some("x/tenant \"one\"\n"));
        assert_eq!(of(r#"{"name":"t","task":{"ttl":5}}"#).as_deref(), Some("task {\"ttl\":5}\n"));
    }

    #[test]
    fn arguments_that_are_left_out_are_empty_ones() {
        for none in ["", "null", "{}"] {
            assert_eq!(read(none.as_bytes()), (Value::Object(Map::new()), None), "{none}");
        }
    }

    #[test]
    fn only_numbers_that_keep_their_value_are_taken_for_the_same() {
        for exact in [
            "",
            "{}",
            r#"{"a":12345,"b":"123456789012345678901234567890"}"#,
            r#"{"a":"\"","b":1.5e3,"true":true}"#,
            "[1,-9223372036854775808,18446744073709551615]",
            "[52.52000659999999,0.30000000000000004,1763421234.1234567,-0.1234567890123456]",
            "[1.2345678901234566e-07,1.2345678901234568E+22,1.7976931348623157e308]",
        ] {
            assert_eq!(read(exact.as_bytes()).1, None, "{exact}");
        }
        for lossy in [
            r#"{"a":123456789012345678901234567890}"#,
            r#"{"\\":18446744073709551616}"#,
            "[0.12345678901234567]",
            "[0.10000000000000000555]",
            "[1e999]",
        ] {
            assert_eq!(read(lossy.as_bytes()).1.as_deref(), Some(lossy));
        }
    }
}
