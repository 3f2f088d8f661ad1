//! Why the admin API answers 403, as both sides of it write it: each reason has another way
//! out.

use serde::{Deserialize, Serialize};

/// What is said of a wrong token, and nothing else: these words are older than the reasons.
pub(crate) const WRONG_TOKEN: &str = "Invalid API key";

/// What about a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminRefusal {
    /// The name it was sent to.
    Host,
    /// The page it comes from.
    Origin,
    /// It wants to change something where there is no token.
    NoToken,
}
