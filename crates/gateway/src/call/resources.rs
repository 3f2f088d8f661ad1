//! Decides who may read the gateway's own resources, `seawall://<type>/<id>`: only the client that
//! each belongs to.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::call::authorize::may_see;
use crate::client::caller::Caller;
use crate::client::results::{QUEUE, RESULT, ReadableResult, ResultSource, SCHEME};
use crate::protocol::Message;
use crate::protocol::build::{self, RpcError};
use crate::protocol::names::Era;
use crate::route::Route;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply, answered};

/// Whether a request reads one of the gateway's own resources.
pub(crate) fn is_ours(request: &Message) -> bool {
    request.method() == "resources/read"
        && request.field_text("uri").is_some_and(|uri| uri.starts_with(SCHEME))
}

/// Reads one of the gateway's own resources.
pub(crate) async fn read(route: &Route, caller: &Caller, call: &GatewayCall) -> Reply {
    let uri = call.request.field_text("uri").unwrap_or_default().into_owned();
    let client = caller.identity(&call.request);
    let found = match uri.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')) {
        Some((QUEUE, id)) => of_queue(route, &client, id).await,
        Some((RESULT, id)) => route.results.read(&client, id),
        _ => None,
    };
    if let Some(ReadableResult { source, .. }) = &found
        && !route.access.is_open(&source.server)
    {
        may_see(route, &source.server, &source.tool, call).await?;
    }
    let Some(found) = found else {
        let text = format!(
            "{uri} is not known here, or no longer; what is kept is kept for a while, for whoever asked for it"
        );
        return Err(Refusal::Wrong(RpcError::new(build::INVALID_PARAMS, text)));
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

/// The state and outcome of a queued write, for the client that queued it. Clients that cannot be
/// told apart may read each other's items.
async fn of_queue(route: &Route, client: &Arc<str>, id: &str) -> Option<ReadableResult> {
    let item = route.store.as_ref()?.item(id).await.ok().flatten()?;
    if item.call.caller != **client {
        return None;
    }
    let outcome: Option<Value> =
        item.outcome.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let told = json!({
        "id": id, "server": item.call.server, "tool": item.call.tool, "state": item.state, "isError": item.is_error,
        "attempts": item.attempts,
        "enqueued": item.enqueued, "mayHaveExecuted": item.may_have_executed, "note": item.note, "result": outcome,
    });
    let source = ResultSource { server: item.call.server, tool: item.call.tool };
    Some(ReadableResult::json(source, &told))
}
