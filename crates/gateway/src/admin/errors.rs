//! Why the admin API answers 403, shared by server and client: each reason has a different remedy.

use serde::{Deserialize, Serialize};

/// The whole text for a wrong token; it is older than [`AdminRefusal`].
pub(crate) const WRONG_TOKEN: &str = "Invalid API key";

/// The part of a request that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminRefusal {
    /// The `Host` of the request.
    Host,
    /// The `Origin` of the request: the web page that sent it.
    Origin,
    /// The request would change something, but the gateway has no token.
    NoToken,
}
