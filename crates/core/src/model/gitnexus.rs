//! Decides the facts that the `gitnexus` preset has about GitNexus's tools: the nine of its browser
//! server, the seventeen of npm `gitnexus` 1.6.12.

use super::effect::Effect;
use super::tool_errors::{ErrorMatcher, ErrorMode, ErrorPattern, ToolErrors, TransientErrors};

/// Tools that both servers have: a server without them is not GitNexus.
pub(crate) const ANCHORS: [&str; 3] = ["context", "cypher", "impact"];

/// The tools with the longer timeout.
pub(crate) const HEAVY: &[&str] = &["cypher", "impact", "explore"];

const READS: [&str; 21] = [
    "search",
    "grep",
    "read",
    "context",
    "overview",
    "highlight",
    "cypher",
    "impact",
    "explore",
    "list_repos",
    "query",
    "detect_changes",
    "check",
    "explain",
    "pdg_query",
    "route_map",
    "tool_map",
    "shape_check",
    "api_impact",
    "group_list",
    "trace",
];
const DESTROYS: [&str; 2] = ["rename", "group_sync"];

/// Phrases of transient errors: the index is being written, or all connections are taken.
const PASSING: [&str; 8] = [
    "not ready",
    "retry later",
    "try again later",
    "in progress",
    "pool exhausted",
    "timed out",
    "is busy",
    "could not set lock",
];

/// The effect of a tool of this name.
pub(crate) fn effect(name: &str) -> Option<Effect> {
    match name {
        _ if READS.contains(&name) => Some(Effect::ReadOnly),
        _ if DESTROYS.contains(&name) => Some(Effect::Destructive),
        _ => None,
    }
}

/// GitNexus reports errors as JSON objects in ordinary answers.
pub(crate) fn tool_errors() -> ToolErrors {
    let transient = TransientErrors::Saying(PASSING.map(str::to_owned).into());
    let pattern = ErrorPattern {
        find: ErrorMatcher::Json("error".to_owned()),
        transient,
        mode: ErrorMode::Fail,
    };
    ToolErrors { patterns: vec![pattern], ..ToolErrors::MARKED }
}
