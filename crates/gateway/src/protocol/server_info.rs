//! Decides how a server's handshake is kept: the era and revision that were agreed on, and the
//! server's own answer.

use bytes::Bytes;

use super::names::Era;
use super::scan;

/// The outcome of a handshake.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// The era that the server speaks.
    pub era: Era,
    /// The revision of the protocol.
    pub version: String,
    /// The server's own answer: the result of `initialize` or `server/discover`.
    pub result: Bytes,
}

impl ServerInfo {
    /// The JSON text of a member of the server's answer.
    pub fn field(&self, name: &str) -> Option<Bytes> {
        let whole = scan::Span { start: 0, end: self.result.len() };
        let field = scan::members(&self.result, whole)
            .into_iter()
            .find(|field| field.is(&self.result, name))?;
        Some(self.result.slice(field.value.start..field.value.end))
    }

    /// Whether the server declares the capability `name`.
    pub fn can(&self, name: &str) -> bool {
        self.field("capabilities").is_some_and(|capabilities| {
            let whole = scan::Span { start: 0, end: capabilities.len() };
            scan::members(&capabilities, whole).iter().any(|field| field.is(&capabilities, name))
        })
    }
}
