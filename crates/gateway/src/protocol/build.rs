//! Decides the form of the gateway's own messages and their error codes; no other file writes whole
//! messages.

use bytes::Bytes;
use serde_json::{Value, json};

use super::edit::quoted;
use super::{Id, Reject};

/// The text is not valid JSON.
pub(crate) const PARSE_ERROR: i64 = -32700;
/// The JSON is not a message of the protocol.
pub(crate) const INVALID_REQUEST: i64 = -32600;
/// No server or part of the gateway knows this method.
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
/// The method is known, its parameters are wrong.
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// The gateway itself has a fault.
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// The headers of a request contradict its body.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// The request needs a capability that the client has not declared.
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
/// The gateway does not speak this protocol version.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// The server could not be reached or was lost: a code of Seawall's own, outside the range that
/// JSON-RPC reserves.
pub(crate) const SERVER_LOST: i64 = -31001;
/// The gateway is shutting down.
pub(crate) const SHUTTING_DOWN: i64 = -31002;
/// Too many calls or sessions are open at once.
pub(crate) const OVERLOADED: i64 = -31003;
/// The caller may not do this.
pub(crate) const DENIED: i64 = -31004;
/// Nobody can say now whether the caller may do this.
pub(crate) const AUTHZ_UNAVAILABLE: i64 = -31005;

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

/// A request of the gateway itself.
pub(crate) fn request(id: &Id, method: &str, params: &[u8]) -> Bytes {
    let method = quoted(method);
    let head =
        [br#"{"jsonrpc":"2.0","id":"#, id.json().as_ref(), br#","method":"#, method.as_bytes()]
            .concat();
    [&head, br#","params":"#.as_slice(), params, b"}"].concat().into()
}

/// A notification of the gateway itself.
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

/// A JSON-RPC error that the gateway answers with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The JSON-RPC error code.
    pub code: i64,
    /// The failure and the next step, in words.
    pub message: String,
    /// Details for programs.
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
