//! What every attack needs: the real gateway in its own process, clients, servers, and eyes on its
//! memory and children.

pub(crate) mod client;
pub(crate) mod h2;
pub(crate) mod http;
pub(crate) mod ledger;
pub(crate) mod process;
#[allow(dead_code, reason = "needed where the gateway itself is ended")]
pub(crate) mod remembering;
pub(crate) mod stdio;
pub(crate) mod upstream;

use std::future::Future;
use std::time::Duration;

use serde_json::Value;

pub(crate) use self::client::{Legacy, modern};
pub(crate) use self::process::{Entry, Gateway};
pub(crate) use self::stdio::Stdio;
pub(crate) use self::upstream::{Asked, Upstream};

pub(crate) const MIB: u64 = 1 << 20;

/// What a busy machine may add to anything.
const BUSY: Duration = Duration::from_secs(15);

/// Waits for something that must happen, in about so many seconds on a machine that has nothing
/// else to do.
pub(crate) async fn within<T>(seconds: u64, what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(seconds) + BUSY, wait).await {
        Ok(done) => done,
        Err(_) => panic!("{what}: not within {seconds} s, nor long after"),
    }
}

/// Waits for something that means nothing any more if it comes later than this.
pub(crate) async fn before<T>(seconds: u64, what: &str, wait: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(seconds), wait).await;
    done.unwrap_or_else(|_| panic!("{what}: not within {seconds} s"))
}

/// Waits until something is so.
pub(crate) async fn until(seconds: u64, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(seconds, what, look).await;
}

/// The text of a tool's result.
pub(crate) fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text: {}", shown(message)))
}

/// The text of a tool's result that must be a failure.
pub(crate) fn failure(message: &Value) -> &str {
    assert_eq!(message["result"]["isError"], true, "{}", shown(message));
    text(message)
}

/// The beginning of a message.
pub(crate) fn shown(message: &Value) -> String {
    message.to_string().chars().take(500).collect()
}
