//! The id of a request, kept as it was written: `1` and `"1"` are two ids, and each goes back as it
//! came.

use bytes::Bytes;

use super::limits;
use super::scan::Reject;

/// A JSON string or integer, as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Bytes);

impl Id {
    /// Takes the text of an id, if it may be one: a string that is not too long, or an integer of
    /// 64 bits.
    pub fn new(json: Bytes) -> Result<Self, Reject> {
        let fits = match json.first() {
            Some(b'"') => json.len() <= limits::ID_BYTES + 2,
            _ => std::str::from_utf8(&json).is_ok_and(|text| text.parse::<i64>().is_ok()),
        };
        if fits { Ok(Self(json)) } else { Err(Reject::Id) }
    }

    /// An id of our own.
    pub fn number(number: u64) -> Self {
        Self(Bytes::from(number.to_string()))
    }

    /// The same id, on its own: one that is kept does not keep the message it came in.
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }

    /// Its JSON text.
    pub fn json(&self) -> &Bytes {
        &self.0
    }

    /// The number, if it is one of ours.
    pub fn as_number(&self) -> Option<u64> {
        std::str::from_utf8(&self.0).ok()?.parse().ok()
    }
}
