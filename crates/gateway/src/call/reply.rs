//! Decides the reply that the client reads: the server's own answer under the client's id, or an
//! honest failure.

use std::time::Duration;

use seawall::{Cause, Effect, ErrorCode, Failure, FailureReport, Sent};

use crate::catalog::names;
use crate::policy::registry::PolicyRegistry;
use crate::protocol::build::{self, RpcError};
use crate::protocol::names::{Era, SUBSCRIPTION_ID};
use crate::protocol::pieces::TwoPieces;
use crate::protocol::{Message, edit};
use crate::route::Route;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply};

/// The answer to a call, under the client's id. An answer that does not fit into `answer_memory`
/// becomes a failure.
pub(crate) fn to_client(route: &Route, era: Era, call: &GatewayCall, reply: Reply) -> TwoPieces {
    let answer = written(&route.policies, era, call, reply);
    let size = answer.size();
    route.pending.hold(answer).unwrap_or_else(|| {
        let reply = Err(Refusal::Reported(Box::new(does_not_fit(route, call, size)), true));
        written(&route.policies, era, call, reply)
    })
}

/// The failure of a call whose answer does not fit beside the answers already waiting in memory.
fn does_not_fit(route: &Route, call: &GatewayCall, size: usize) -> FailureReport {
    let public = call.request.field_text("name").unwrap_or_default();
    let (server, tool) = addressee(route, &public);
    let policy =
        route.policies.tool(server, tool).filter(|_| call.request.method() == "tools/call");
    // The server has answered, so a write was executed: the report must say so, or a client repeats
    // it.
    let has_changed = policy.is_some_and(|policy| policy.tool.policy().effect != Effect::ReadOnly);
    let what = if tool.is_empty() { call.request.method() } else { tool };
    let next = match has_changed {
        true => "It was executed: check before you repeat it.",
        false => "Ask for less, or repeat it in a moment.",
    };
    let message = format!(
        "The answer of {} has {size} bytes and does not fit: answers of up to {} bytes wait for clients that read slowly. \
         {next}",
        seawall::quote(what),
        route.pending.limit()
    );
    let retry_after = Some(Duration::from_secs(1));
    let failure = Failure {
        sent: Sent::Yes,
        ..Failure::local(Cause::Overloaded, retry_after, message.clone())
    };
    FailureReport {
        code: ErrorCode::Overloaded,
        classic: message.clone(),
        message,
        retry_after,
        tool: tool.to_owned(),
        server: server.to_owned(),
        attempts: 1,
        may_have_executed: has_changed,
        failure,
        is_error: true,
        debug: None,
    }
}

fn written(policies: &PolicyRegistry, era: Era, call: &GatewayCall, reply: Reply) -> TwoPieces {
    match reply {
        Ok(answer) => renamed(call, &answer),
        Err(Refusal::Wrong(error)) => build::error(call.request.id(), &error).into(),
        Err(Refusal::Failed(server, failure)) => {
            build::error(call.request.id(), &failure.error(&server)).into()
        }
        Err(Refusal::NotAllowed(server, refusal)) if call.request.method() == "tools/call" => {
            let name = call.request.field_text("name").unwrap_or_default();
            let report = refusal.report(&server, &name);
            written(policies, era, call, Err(Refusal::Reported(Box::new(report), true)))
        }
        Err(Refusal::NotAllowed(server, refusal)) => {
            call.origin.refuse(refusal.http());
            build::error(call.request.id(), &refusal.error(&server)).into()
        }
        Err(Refusal::Reported(report, has_output_schema))
            if call.request.method() == "tools/call" =>
        {
            let mut result = report.to_tool_result(policies.rendering(has_output_schema));
            if era == Era::Modern {
                result["resultType"] = "complete".into();
            }
            let id = call.request.id().cloned().unwrap_or_else(|| crate::protocol::Id::number(0));
            build::result(&id, result.to_string().as_bytes()).into()
        }
        Err(Refusal::Reported(report, _)) => {
            build::error(call.request.id(), &error(&report)).into()
        }
    }
}

/// The failure of a request that is no tool call: a protocol error, with the failure report as its
/// data.
fn error(report: &FailureReport) -> RpcError {
    let code =
        if report.code == ErrorCode::Overloaded { build::OVERLOADED } else { build::SERVER_LOST };
    RpcError::new(code, report.message.clone()).with(report.object())
}

/// The server and its own name for a tool; without a server, the name as the client wrote it.
fn addressee<'a>(route: &'a Route, public: &'a str) -> (&'a str, &'a str) {
    let found = match route.single() {
        Some(server) => Some((server, public)),
        None => names::split(&route.set.servers, public),
    };
    found.map_or(("", public), |(server, tool)| (server.name.as_str(), tool))
}

/// The answer to a call that arrives during shutdown and is not sent.
pub(crate) fn going_down(route: &Route, era: Era, call: &GatewayCall) -> TwoPieces {
    let public = call.request.field_text("name").unwrap_or_default();
    let refusal = match call.request.method() {
        "tools/call" => {
            let message = format!(
                "{} was not executed: the gateway is going down and takes no new calls. Connect again and repeat it.",
                seawall::quote(&public)
            );
            let failure = Failure::local(Cause::Away, None, message.clone());
            let report = FailureReport {
                code: ErrorCode::of(failure.cause),
                classic: message.clone(),
                message,
                retry_after: None,
                tool: public.to_string(),
                server: addressee(route, &public).0.to_owned(),
                attempts: 0,
                may_have_executed: false,
                failure,
                is_error: true,
                debug: None,
            };
            Refusal::Reported(Box::new(report), true)
        }
        _ => Refusal::Wrong(RpcError::new(
            build::SHUTTING_DOWN,
            "the gateway is going down and takes no new calls; connect again",
        )),
    };
    written(&route.policies, era, call, Err(refusal))
}

/// The answer to a call that came to no outcome before the gateway ended.
pub(crate) fn cut_off(route: &Route, era: Era, call: &GatewayCall) -> TwoPieces {
    let public = call.request.field_text("name").unwrap_or_default();
    let (server, tool) = addressee(route, &public);
    let policy =
        route.policies.tool(server, tool).filter(|_| call.request.method() == "tools/call");
    let Some(policy) = policy else { return going_down(route, era, call) };
    let prefix = public.strip_suffix(tool).unwrap_or_default();
    let report = route.policies.pipeline.cut_off(&policy.tool, prefix);
    written(&route.policies, era, call, Err(Refusal::Reported(Box::new(report), true)))
}

/// The server's own bytes, except for the ids that the gateway had replaced.
fn renamed(call: &GatewayCall, answer: &Message) -> TwoPieces {
    let Some((span, id)) = answer.id_span().zip(call.request.id()) else {
        // An error without an id: the server could not read the request.
        let error = answer.field_text("message").map_or_else(String::new, |text| text.into_owned());
        return build::error(call.request.id(), &RpcError::new(build::INTERNAL_ERROR, error))
            .into();
    };
    if call.request.method() == "subscriptions/listen"
        && let Some(meta) = answer.meta(SUBSCRIPTION_ID)
    {
        return edit::splice(answer.raw(), &mut [(span, id.json()), (meta, id.json())]).into();
    }
    TwoPieces::replaced(answer.raw(), span, id.json())
}
