//! Resources of our own, `seawall://<what>/<id>`: each only for the client whose it is.

use serde_json::{Value, json};

use crate::client::caller::Caller;
use crate::gateway::Route;
use crate::protocol::Message;
use crate::protocol::build;
use crate::protocol::build::Error;
use crate::protocol::names::Era;
use crate::queue;
use crate::upstream::call::Call;
use crate::upstream::reply::answered;
use crate::upstream::reply::{Refusal, Reply};

const SCHEME: &str = "seawall://";
/// What became of a call that waits for its server.
pub const QUEUE: &str = "queue";
/// A result that was too large to be passed on whole.
pub const RESULT: &str = "result";

/// The address of something.
pub fn address(what: &str, id: &str) -> String {
    format!("{SCHEME}{what}/{id}")
}

/// Whether a request is to read one of ours.
pub fn is_ours(request: &Message) -> bool {
    request.method() == "resources/read" && request.field_text("uri").is_some_and(|uri| uri.starts_with(SCHEME))
}

/// Reads one.
pub async fn read(route: &Route, caller: &Caller, call: &Call) -> Reply {
    let uri = call.request.field_text("uri").unwrap_or_default().into_owned();
    let client = caller.identity(&call.request);
    let found = match uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')) {
        Some((QUEUE, id)) => queue::read(route, &client, id).await,
        Some((RESULT, id)) => route.results.read(&client, id),
        _ => None,
    };
    let Some(found) = found else {
        let text = format!(
            "{uri} is not known here, or no longer; what is kept is kept for a while, for whoever asked for it"
        );
        return Err(Refusal::Wrong(Error::new(build::INVALID_PARAMS, text)));
    };
    let content = json!({"uri": uri, "mimeType": found.mime, "text": found.text});
    let mut result = json!({"contents": [content]});
    if let Some(next) = found.next {
        result["_meta"] = json!({"seawall/next": next});
    }
    if caller.era() == Era::Modern {
        result["resultType"] = "complete".into();
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
    answered(result.to_string().as_bytes())
}

/// What is to be read under an address.
pub struct Found {
    /// What kind of text it is.
    pub mime: &'static str,
    /// The text.
    pub text: String,
    /// Where it goes on.
    pub next: Option<String>,
}

impl From<Value> for Found {
    fn from(value: Value) -> Self {
        Self { mime: "application/json", text: value.to_string(), next: None }
    }
}
