//! Decides how values of a message are written as HTTP headers: as plain text where that is safe,
//! else as Base64 between `=?base64?` and `?=`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};

/// The revision of the protocol.
pub(crate) const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The method, mirrored from the body.
pub(crate) const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// `params.name`, `uri` or `taskId`, mirrored from the body.
pub(crate) const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The session id of the legacy era.
pub(crate) const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The last event that the client read of a broken stream, from which the stream continues.
pub(crate) const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Prefix for arguments, mirrored from the body.
pub(crate) const PARAM_PREFIX: &str = "mcp-param-";

const OPEN: &str = "=?base64?";
const CLOSE: &str = "?=";

/// Encodes a text as a header value.
pub(crate) fn encode(text: &str) -> HeaderValue {
    // A plain text that looks encoded is encoded too, or the reader would decode it.
    let safe = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
        && text.trim() == text
        && !is_marked(text);
    let encoded = || format!("{OPEN}{}{CLOSE}", STANDARD.encode(text));
    let value = if safe { HeaderValue::from_str(text) } else { HeaderValue::from_str(&encoded()) };
    value.unwrap_or(HeaderValue::from_static(""))
}

/// Decodes a header value; `None` if it is not valid.
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
