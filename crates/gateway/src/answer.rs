//! What the client reads: the server's own answer under the client's id, or an honest failure.

use seawall::{Code, Report};

use crate::call::Call;
use crate::dispatch::{Refusal, Reply};
use crate::policies::Policies;
use crate::wire::build::{self, Error};
use crate::wire::names::{Era, SUBSCRIPTION_ID};
use crate::wire::pieces::Pieces;
use crate::wire::{Message, edit};

/// The answer to a call, under the client's id.
pub fn to_client(policies: &Policies, era: Era, call: &Call, reply: Reply) -> Pieces {
    match reply {
        Ok(answer) => renamed(call, &answer),
        Err(Refusal::Wrong(error)) => build::error(call.request.id(), &error).into(),
        Err(Refusal::Failed(server, failure)) => build::error(call.request.id(), &failure.error(&server)).into(),
        Err(Refusal::Reported(report, has_output_schema)) if call.request.method() == "tools/call" => {
            let mut result = report.to_tool_result(policies.rendering(has_output_schema));
            if era == Era::Modern {
                result["resultType"] = "complete".into();
            }
            let id = call.request.id().cloned().unwrap_or_else(|| crate::wire::Id::number(0));
            build::result(&id, result.to_string().as_bytes()).into()
        }
        Err(Refusal::Reported(report, _)) => build::error(call.request.id(), &error(&report)).into(),
    }
}

/// A failure of what is no tool: an error of the protocol, with everything that is known of it.
fn error(report: &Report) -> Error {
    let code = if report.code == Code::Overloaded { build::OVERLOADED } else { build::SERVER_LOST };
    Error::new(code, report.message.clone()).with(report.object())
}

/// The answer to a call that comes too late.
pub fn going_down(call: &Call) -> Pieces {
    let error = Error::new(build::SHUTTING_DOWN, "the gateway is going down and takes no new calls; connect again");
    build::error(call.request.id(), &error).into()
}

/// The server's own bytes, but for the ids that are ours.
fn renamed(call: &Call, answer: &Message) -> Pieces {
    let Some((span, id)) = answer.id_span().zip(call.request.id()) else {
        // An error about no request in particular: the server could not read it.
        let error = answer.field_text("message").map_or_else(String::new, |text| text.into_owned());
        return build::error(call.request.id(), &Error::new(build::INTERNAL_ERROR, error)).into();
    };
    if call.request.method() == "subscriptions/listen"
        && let Some(meta) = answer.meta(SUBSCRIPTION_ID)
    {
        return edit::splice(answer.raw(), &mut [(span, id.json()), (meta, id.json())]).into();
    }
    Pieces::replaced(answer.raw(), span, id.json())
}
