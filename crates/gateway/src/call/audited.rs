//! Decides what the audit log says of a tool call: who called what, and how it ended.

use seawall::{Answer, Call, Effect, Outcome, QueuedWrite};
use serde_json::Value;

use crate::authz::{AuthzRefusal, Principal};
use crate::client::caller::Caller;
use crate::policy::registry::ToolPolicy;
use crate::protocol::{Message, arguments, hash};
use crate::route::Route;
use crate::store::audit::AuditedCall;
use crate::upstream::Server;
use crate::upstream::call::GatewayCall;

/// Notes a call that ran under its policy; `None`: the shutdown cut it off.
pub(crate) fn ended(
    route: &Route,
    caller: &Caller,
    server: &Server,
    policy: &ToolPolicy,
    (call, asked): (&GatewayCall, &Call),
    answer: Option<&Answer<Message>>,
) {
    if !route.audit.is_on() || call.request.method() != "tools/call" {
        return;
    }
    let described = AuditedCall {
        caller: name(call.origin.principal.as_deref(), &caller.identity(&call.request)),
        effect: effect(policy.tool.policy().effect),
        is_joined: answer.is_some_and(|answer| answer.rejoined.is_some()),
        ..AuditedCall::new(&server.name, policy.tool.name(), &asked.arguments)
    };
    route.audit.note(&match answer {
        Some(answer) => with_outcome(described, answer),
        None => AuditedCall { outcome: "cut off".to_owned(), may_have_executed: true, ..described },
    });
}

/// Notes a call that was not allowed, or that nobody could allow.
pub(crate) fn refused(
    route: &Route,
    caller: &Caller,
    server: &Server,
    call: &GatewayCall,
    refusal: &AuthzRefusal,
) {
    if !route.audit.is_on() || call.request.method() != "tools/call" {
        return;
    }
    let tool = call.request.field_text("name").unwrap_or_default();
    let known = route.policies.tool(&server.name, &tool);
    let (arguments, _) = arguments::read(call.request.field_json("arguments").unwrap_or_default());
    let outcome = match refusal {
        AuthzRefusal::Denied { .. } => "denied",
        AuthzRefusal::Unavailable { .. } => "not authorized in time",
        AuthzRefusal::TooLarge { .. } => "too large to be authorized",
    };
    route.audit.note(&AuditedCall {
        caller: name(call.origin.principal.as_deref(), &caller.identity(&call.request)),
        effect: known.map_or("unknown", |known| effect(known.tool.policy().effect)),
        outcome: outcome.to_owned(),
        ..AuditedCall::new(&server.name, &tool, &arguments)
    });
}

/// Notes an attempt to deliver a queued write; `None`: it is not allowed any more.
pub(crate) fn delivered(route: &Route, write: &QueuedWrite, answer: Option<&Answer<Message>>) {
    if !route.audit.is_on() {
        return;
    }
    let kept = write.principal.as_deref().and_then(|kept| serde_json::from_str(kept).ok());
    let described = AuditedCall {
        caller: name(kept.as_ref(), &write.caller),
        effect: effect(write.effect),
        is_queued: true,
        ..AuditedCall::new(&write.server, &write.tool, &write.arguments)
    };
    route.audit.note(&match answer {
        Some(answer) => with_outcome(described, answer),
        None => AuditedCall { outcome: "denied".to_owned(), ..described },
    });
}

fn with_outcome<'a>(call: AuditedCall<'a>, answer: &Answer<Message>) -> AuditedCall<'a> {
    let (outcome, report) = match &answer.outcome {
        Outcome::Live(value) if is_error(value) => ("tool_error".to_owned(), None),
        Outcome::Live(_) => ("answered".to_owned(), None),
        Outcome::ToolError(error) => ("tool_error".to_owned(), Some(&error.report)),
        Outcome::Served(fallback) => (format!("served by {}", fallback.by), None),
        Outcome::Failed(report) => ("failed".to_owned(), Some(&**report)),
    };
    AuditedCall {
        outcome,
        code: report.map(|report| report.code.as_str()),
        may_have_executed: report.is_some_and(|report| report.may_have_executed),
        attempts: answer.attempts,
        elapsed: answer.elapsed,
        ..call
    }
}

fn is_error(answer: &Message) -> bool {
    answer.field_json("isError").is_some_and(|is_error| is_error == b"true")
}

/// A caller who is known by a token or a key has its name; another is told from the rest by a hash.
fn name(principal: Option<&Principal>, identity: &str) -> String {
    match principal {
        Some(known) => format!("{} {}", known.provider, known.subject),
        None => format!("client {}", &hash::key(&[b"audit", identity.as_bytes()])[..12]),
    }
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::ReadOnly => "read-only",
        Effect::Idempotent => "idempotent",
        Effect::Write => "write",
        Effect::Destructive => "destructive",
    }
}

impl<'a> AuditedCall<'a> {
    fn new(server: &'a str, tool: &'a str, arguments: &'a Value) -> Self {
        Self {
            caller: String::new(),
            server,
            tool,
            effect: "unknown",
            outcome: String::new(),
            code: None,
            may_have_executed: false,
            is_joined: false,
            is_queued: false,
            attempts: 0,
            elapsed: std::time::Duration::ZERO,
            arguments,
        }
    }
}
