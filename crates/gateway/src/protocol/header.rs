//! Values of a message as HTTP headers: plain where that is safe, in Base64 between marks where it
//! is not.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

/// The revision of the protocol.
pub(crate) const VERSION: &str = "mcp-protocol-version";
/// The method, mirrored from the body.
pub(crate) const METHOD: &str = "mcp-method";
/// `params.name`, `uri` or `taskId`, mirrored from the body.
pub(crate) const NAME: &str = "mcp-name";
/// The session of the legacy era.
pub(crate) const SESSION: &str = "mcp-session-id";
/// Where a broken stream is taken up again.
pub(crate) const LAST_EVENT: &str = "last-event-id";
/// Arguments, mirrored from the body.
pub(crate) const PARAM_PREFIX: &str = "mcp-param-";

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// A text as the value of a header.
pub(crate) fn encode(text: &str) -> HeaderValue {
    let safe = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && text.trim() == text
        && !is_marked(text);
    let encoded = || format!("{OPEN}{}{CLOSE}", STANDARD.encode(text));
    let value = if safe { HeaderValue::from_str(text) } else { HeaderValue::from_str(&encoded()) };
    value.unwrap_or(HeaderValue::from_static(""))
}

/// The text that a header's value stands for; `None` if it is not one.
pub(crate) fn decode(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    if !is_marked(text) {
        return text
            .bytes()
            .all(|byte| matches!(byte, 0x20..=0x7e | b'\t'))
            .then(|| text.trim().to_owned());
    }
    let inner = &text[OPEN.len()..text.len() - CLOSE.len()];
    String::from_utf8(STANDARD.decode(inner).ok()?).ok()
}

fn is_marked(text: &str) -> bool {
    text.len() >= OPEN.len() + CLOSE.len()
        && text.get(..OPEN.len()).is_some_and(|start| start.eq_ignore_ascii_case(OPEN))
        && text.ends_with(CLOSE)
}
