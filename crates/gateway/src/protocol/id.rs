//! Decides which ids a request may have. An id is kept as its text: `1` and `"1"` are two ids, and
//! each goes back as it came.

use bytes::Bytes;

use super::limits;
use super::scan::Reject;

/// A JSON string or integer, as its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Bytes);

impl Id {
    /// Accepts the JSON text of an id: a string of at most `ID_BYTES` bytes, or an integer of at
    /// most as many digits. No number is computed from it, so its size does not matter otherwise.
    pub fn new(json: Bytes) -> Result<Self, Reject> {
        let fits = match json.first() {
            Some(b'"') => json.len() <= limits::ID_BYTES + 2,
            _ => is_integer(&json) && magnitude(&json).len() <= limits::ID_BYTES,
        };
        if fits { Ok(Self(json)) } else { Err(Reject::Id) }
    }

    /// As [`new`](Self::new), for a text that may not even be JSON: an id goes back into an answer,
    /// which must be valid.
    pub(crate) fn unscanned(json: Bytes) -> Option<Self> {
        let is_json = is_integer(&json) || serde_json::from_slice::<String>(&json).is_ok();
        Self::new(json).ok().filter(|_| is_json)
    }

    /// An id that the gateway gives to its own requests.
    pub fn number(number: u64) -> Self {
        Self(Bytes::from(number.to_string()))
    }

    /// A copy of the id that does not share the message's buffer, so that a kept id does not keep
    /// its whole message in memory.
    pub(crate) fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// The JSON text of the id.
    pub fn json(&self) -> &Bytes {
        &self.0
    }

    /// The number, if the id is an unsigned integer, as the ids of the gateway's own requests are.
    pub(crate) fn as_number(&self) -> Option<u64> {
        std::str::from_utf8(&self.0).ok()?.parse().ok()
    }
}

/// A number without its minus.
fn magnitude(json: &[u8]) -> &[u8] {
    json.strip_prefix(b"-").unwrap_or(json)
}

/// Whether a text is a JSON integer: digits without a leading zero, perhaps after a minus.
fn is_integer(json: &[u8]) -> bool {
    match magnitude(json) {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}
