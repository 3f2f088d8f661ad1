//! The messages that are our own: written here, and nowhere else.

use bytes::Bytes;
use serde_json::{Value, json};

use super::edit::quoted;
use super::{Id, Reject};

/// The text could not be read as JSON.
pub(crate) const PARSE_ERROR: i64 = -32700;
/// Not a message of the protocol.
pub(crate) const INVALID_REQUEST: i64 = -32600;
/// Nobody knows this method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The method is known, its parameters are wrong.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// A fault of our own.
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// What the headers say is not what the body says.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// The request needs something the client has not declared.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// The protocol version is not spoken here.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// The server could not be reached or was lost: our own code, outside what JSON-RPC keeps for
/// itself.
pub(crate) const SERVER_LOST: i64 = -31001;
/// The gateway is going down.
pub(crate) const SHUTTING_DOWN: i64 = -31002;
/// Too many calls or sessions at once.
pub(crate) const OVERLOADED: i64 = -31003;

/// An answer with a result.
pub(crate) fn result(id: &Id, result: &[u8]) -> Bytes {
    [br#"{"jsonrpc":"2.0","id":"#, id.json().as_ref(), br#","result":"#, result, b"}"]
        .concat()
        .into()
}

/// An answer with an error.
pub(crate) fn error(id: Option<&Id>, error: &RpcError) -> Bytes {
    let id = id.map_or(b"null".as_slice(), |id| id.json().as_ref());
    let mut body = json!({"code": error.code, "message": error.message});
    if let Some(data) = &error.data {
        body["data"] = data.clone();
    }
    [br#"{"jsonrpc":"2.0","id":"#, id, br#","error":"#, body.to_string().as_bytes(), b"}"]
        .concat()
        .into()
}

/// A request of our own.
pub(crate) fn request(id: &Id, method: &str, params: &[u8]) -> Bytes {
    let method = quoted(method);
    let head =
        [br#"{"jsonrpc":"2.0","id":"#, id.json().as_ref(), br#","method":"#, method.as_bytes()]
            .concat();
    [&head, br#","params":"#.as_slice(), params, b"}"].concat().into()
}

/// A notification of our own.
pub(crate) fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    let method = quoted(method);
    match params {
        Some(params) => {
            [br#"{"jsonrpc":"2.0","method":"#, method.as_bytes(), br#","params":"#, params, b"}"]
                .concat()
                .into()
        }
        None => [br#"{"jsonrpc":"2.0","method":"#, method.as_bytes(), b"}"].concat().into(),
    }
}

/// A JSON-RPC error that we answer with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// What happened and what to do next.
    pub message: String,
    /// More, for programs.
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// Adds data.
    #[must_use]
    pub fn with(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

impl From<&Reject> for RpcError {
    fn from(reject: &Reject) -> Self {
        let code = match reject {
            Reject::Syntax(_) | Reject::Utf8(_) => PARSE_ERROR,
            _ => INVALID_REQUEST,
        };
        Self::new(code, reject.to_string())
    }
}
