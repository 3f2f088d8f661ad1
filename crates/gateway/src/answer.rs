//! What the client reads: the server's own answer under the client's id, or an honest failure.

use bytes::Bytes;
use serde_json::json;

use crate::call::Call;
use crate::dispatch::{Refusal, Reply};
use crate::upstream::{Failure, seconds};
use crate::wire::build::{self, Error};
use crate::wire::names::{Era, SUBSCRIPTION_ID};
use crate::wire::{Message, edit};

/// The answer to a call, under the client's id.
pub fn to_client(era: Era, call: &Call, reply: Reply) -> Bytes {
    match reply {
        Ok(answer) => renamed(call, answer),
        Err(Refusal::Wrong(error)) => build::error(call.request.id(), &error),
        Err(Refusal::Failed(server, failure)) if call.request.method() == "tools/call" => {
            failed_tool(era, call, &server, &failure)
        }
        Err(Refusal::Failed(server, failure)) => build::error(call.request.id(), &failure.error(&server)),
    }
}

/// The answer to a call that comes too late.
pub fn going_down(call: &Call) -> Bytes {
    let error = Error::new(build::SHUTTING_DOWN, "the gateway is going down and takes no new calls; connect again");
    build::error(call.request.id(), &error)
}

/// The server's own bytes, but for the ids that are ours.
fn renamed(call: &Call, answer: Message) -> Bytes {
    let Some((span, id)) = answer.id_span().zip(call.request.id()) else {
        // An error about no request in particular: the server could not read it.
        let error = answer.field_text("message").map_or_else(String::new, |text| text.into_owned());
        return build::error(call.request.id(), &Error::new(build::INTERNAL_ERROR, error));
    };
    if call.request.method() == "subscriptions/listen"
        && let Some(meta) = answer.meta(SUBSCRIPTION_ID)
    {
        return edit::splice(answer.raw(), &mut [(span, id.json()), (meta, id.json())]);
    }
    edit::replace(answer.into_raw(), span, id.json())
}

/// A tool that gave no answer: a result that says so, because that is what a model can read.
fn failed_tool(era: Era, call: &Call, server: &str, failure: &Failure) -> Bytes {
    let tool = call.request.field_text("name").unwrap_or_default().into_owned();
    let may_have_executed = !failure.was_not_sent();
    let doubt = if may_have_executed { " It may have been executed." } else { " It was not executed." };
    let text = format!("{tool} failed: its server {failure}.{doubt}");
    let code = match failure {
        Failure::Silent(_) => "TIMEOUT",
        Failure::Full => "OVERLOADED",
        Failure::Status { .. } | Failure::Broken(_) => "UPSTREAM_ERROR",
        Failure::Handshake(_) | Failure::Impossible(_) => "SERVER_UNAVAILABLE",
        Failure::Starting { .. } => "SERVER_STARTING",
        Failure::GivenUp(_) => "RETRY_EXHAUSTED",
        Failure::Unreachable(_) | Failure::Lost(_) | Failure::SessionLost | Failure::Cancelled => "CONNECTION_LOST",
    };
    let mut result = json!({
        "content": [{"type": "text", "text": text}],
        "isError": true,
        "_meta": {"seawall/failure": {
            "code": code, "message": text, "retryable": !matches!(code, "SERVER_UNAVAILABLE" | "RETRY_EXHAUSTED"), "tool": tool, "server": server,
            "attempts": 1, "mayHaveExecuted": may_have_executed,
        }},
    });
    if let Failure::Starting { retry_in, .. } = failure {
        result["_meta"]["seawall/failure"]["retryAfter"] = seconds(*retry_in).max(1).into();
    }
    if era == Era::Modern {
        result["resultType"] = "complete".into();
    }
    let id = call.request.id().cloned().unwrap_or_else(|| crate::wire::Id::number(0));
    build::result(&id, result.to_string().as_bytes())
}
