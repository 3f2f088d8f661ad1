//! Decides which tools the agent is offered, and the policy of each.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use rmcp::schemars::JsonSchema;
use seawall::{
    Annotations, CallerOptions, DurableQueue, Env, Invalid, Settings, ToolCaller, ToolFacts,
};
use serde_json::Value;

use crate::arguments::{
    CreateIssue, GetIssue, LabelIssues, ListIssues, ListPage, SearchIssues, UpdateIssue,
};

/// The name of the one server behind the tools.
pub(crate) const SERVER: &str = "github";

/// What the agent is offered. The hints are not decoration: they decide what may be repeated.
pub(crate) fn tools() -> Vec<Tool> {
    let hints = |read_only| ToolAnnotations::new().read_only(read_only).open_world(true);
    let reads = hints(true);
    let creates = hints(false).destructive(false).idempotent(false);
    let overwrites = hints(false).destructive(true).idempotent(true);
    let adds_once = hints(false).destructive(false).idempotent(true);
    vec![
        tool::<ListIssues>("list_issues", "Lists the newest issues of a repository.", &reads),
        tool::<GetIssue>("get_issue", "Shows one issue with its text.", &reads),
        tool::<CreateIssue>("create_issue", "Opens a new issue.", &creates),
        tool::<UpdateIssue>("update_issue", "Changes the given fields of an issue.", &overwrites),
        tool::<SearchIssues>("search_issues", "Finds issues by words and filters.", &reads),
        tool::<ListPage>("list_issues_paginated", "Lists issues page by page, sorted.", &reads),
        tool::<LabelIssues>(
            "batch_label_issues",
            "Adds the same labels to several issues.",
            &adds_once,
        ),
    ]
}

fn tool<A: JsonSchema + 'static>(
    name: &'static str,
    description: &'static str,
    hints: &ToolAnnotations,
) -> Tool {
    Tool::new(name, description, JsonObject::new())
        .with_input_schema::<A>()
        .with_annotations(hints.clone())
}

/// The one place where resilience is set up: a policy for each tool, by its name and its hints.
pub(crate) fn resilient(
    tools: &[Tool],
    env: Env,
    durable: Option<Arc<dyn DurableQueue>>,
    pause: Option<Duration>,
) -> Result<ToolCaller<Value>, Invalid> {
    let settings = Settings { env, durable, wall_clock: Some(wall_clock), ..Settings::default() };
    let options = CallerOptions { server: SERVER.into(), ..CallerOptions::default() };
    let caller = ToolCaller::with_options(settings, options)?;
    for tool in tools {
        let hints = tool.annotations.clone().unwrap_or_default();
        let annotations = Annotations {
            read_only_hint: hints.read_only_hint,
            destructive_hint: hints.destructive_hint,
            idempotent_hint: hints.idempotent_hint,
        };
        caller.tool(ToolFacts { annotations, ..ToolFacts::named(&tool.name) }, |policy| {
            policy.retry.backoff.base = pause.unwrap_or(policy.retry.backoff.base);
        })?;
    }
    Ok(caller)
}

#[expect(clippy::disallowed_methods, reason = "details of a failure tell the time of day")]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}
