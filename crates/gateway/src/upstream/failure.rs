//! Why a server gave no answer, and whether the request can have reached it.

use std::time::Duration;

use crate::wire::Reject;
use crate::wire::build::{self, Error};

/// What went wrong between us and a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It could not be started or reached: nothing was sent.
    #[error("could not be reached: {0}")]
    Unreachable(String),
    /// It was lost while it worked on the request.
    #[error("was lost while it worked on the request: {0}")]
    Lost(String),
    /// It answered with an HTTP status that is no answer.
    #[error("answered with HTTP status {status}{}", said(.text))]
    Status {
        /// The status.
        status: u16,
        /// The beginning of what it said.
        text: String,
        /// When to come back, as the header says it.
        retry_after: Option<String>,
    },
    /// What it sent cannot be read.
    #[error("sent a message that cannot be read: {0}")]
    Broken(#[from] Reject),
    /// It did not answer in time.
    #[error("did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// It speaks, but refuses to shake hands.
    #[error("refused the handshake: {0}")]
    Handshake(String),
    /// The call was called off; nobody waits for an answer.
    #[error("was not waited for: the call was cancelled")]
    Cancelled,
    /// Too much is under way already.
    #[error("has too many calls under way")]
    Full,
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl Failure {
    /// The failure as a JSON-RPC error about `server`.
    pub fn error(&self, server: &str) -> Error {
        let code = if matches!(self, Self::Full) { build::OVERLOADED } else { build::SERVER_LOST };
        Error::new(code, format!("server {server:?} {self}"))
    }
}
