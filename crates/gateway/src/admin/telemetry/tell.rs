//! Writes an event as a flat object, with the names that clients know, without arguments and
//! answers.
//!
//! The text of an error is the server's; the code that shows it removes the secrets.

use std::time::Duration;

use seawall::{Event, Scope};
use serde_json::{Map, Value, json};

use super::counts::UNKNOWN;
use crate::catalog::names;
use crate::config::policy::value::{SCOPES, word};
use crate::policy::registry::{PolicyName, PolicyRegistry};
use crate::protocol::limits;

/// The most characters of an error that are kept; fewer are shown.
const LONGEST: usize = 4096;

/// Whether an event is too large to be kept as it is. Clients can invent long names, and servers
/// can send long errors.
pub(crate) fn is_large(event: &Event) -> bool {
    let (_, tool, error) = parts(event);
    tool.len() > limits::LABEL || error.len() > LONGEST
}

/// The fields of an event; `None` for events that are not shown.
pub(crate) fn told(event: &Event, policies: &PolicyRegistry) -> Option<Map<String, Value>> {
    let (server, tool, error) = parts(event);
    let (name, details) = details(event)?;
    let mut told = Map::new();
    let mut put = |key: &str, value: Value| told.insert(key.to_owned(), value);
    put("event", json!(name));
    if !server.is_empty() {
        put("server", json!(server));
    }
    match tool {
        "" => {}
        _ if server.is_empty() || server == tool => drop(put("tool", json!(tool))),
        _ => drop(put("tool", json!(shown(policies, server, tool)))),
    }
    for (key, value) in details {
        put(key, value);
    }
    if !error.is_empty() {
        put("error", json!(error.chars().take(LONGEST).collect::<String>()));
    }
    Some(told)
}

/// The server, the tool and the error of an event; empty where it has none.
fn parts(event: &Event) -> (&str, &str, &str) {
    match event {
        Event::RetryScheduled { server, tool, error, .. }
        | Event::CallDenied { server, tool, reason: error, .. }
        | Event::AuthorizerUnavailable { server, tool, reason: error, .. } => (server, tool, error),
        Event::AttemptStarted { server, tool, .. }
        | Event::AttemptEnded { server, tool, .. }
        | Event::RetryBudgetSpent { server, tool }
        | Event::Hedged { server, tool }
        | Event::CacheHit { server, tool, .. }
        | Event::Refused { server, tool, .. }
        | Event::ToolErrorFound { server, tool, .. }
        | Event::FallbackServed { server, tool, .. }
        | Event::Degraded { server, tool }
        | Event::CallAllowed { server, tool, .. }
        | Event::CallFinished { server, tool, .. } => (server, tool, ""),
        Event::ServerLoaded { server, .. } => (server, "", ""),
        // A tool's breaker is named `server/tool`; a shared breaker is named after its server, or
        // `global`.
        Event::BreakerChanged { name, .. } | Event::BreakerRejected { name, .. } => {
            match name.split_once('/') {
                Some((server, tool)) => (server, tool, ""),
                None if name == "global" => ("", name, ""),
                None => (name, name, ""),
            }
        }
        _ => ("", "", ""),
    }
}

type EventDetails = Vec<(&'static str, Value)>;

/// The name of an event, and its fields beside server and tool.
fn details(event: &Event) -> Option<(&'static str, EventDetails)> {
    Some(match event {
        Event::AttemptStarted { attempt, .. } => {
            ("attempt_started", vec![("attempt", json!(attempt))])
        }
        Event::AttemptEnded { attempt, elapsed, cause, .. } => {
            let ended = vec![
                ("attempt", json!(attempt)),
                ("elapsedMs", millis(*elapsed)),
                ("cause", json!(cause)),
            ];
            ("attempt_ended", ended)
        }
        Event::RetryScheduled { attempt, of, delay, .. } => {
            let retry =
                vec![("attempt", json!(attempt)), ("of", json!(of)), ("delayMs", millis(*delay))];
            ("retry_scheduled", retry)
        }
        Event::RetryBudgetSpent { .. } => ("retry_budget_spent", vec![]),
        Event::Hedged { .. } => ("hedged", vec![]),
        Event::CallAllowed { elapsed, note, .. } => {
            let mut allowed = vec![("elapsedMs", millis(*elapsed))];
            if let Ok(note) = serde_json::from_str::<Value>(note) {
                allowed.push(("metadata", note));
            }
            ("call_allowed", allowed)
        }
        Event::CallDenied { elapsed, .. } => ("call_denied", vec![("elapsedMs", millis(*elapsed))]),
        Event::AuthorizerUnavailable { elapsed, retry_after, .. } => {
            let waits =
                vec![("elapsedMs", millis(*elapsed)), ("retryAfterMs", millis(*retry_after))];
            ("authorizer_unavailable", waits)
        }
        Event::BreakerChanged { name, from, to } => (
            "breaker_changed",
            vec![("scope", scope(name)), ("from", json!(from)), ("to", json!(to))],
        ),
        Event::BreakerRejected { name, retry_after, shadow } => {
            let wait = ("retryAfterMs", millis(*retry_after));
            ("breaker_rejected", vec![("scope", scope(name)), wait, ("shadow", json!(shadow))])
        }
        Event::CacheHit { shared_flight, .. } => {
            ("cache_hit", vec![("sharedFlight", json!(shared_flight))])
        }
        Event::Refused { cause, .. } => ("refused", vec![("cause", json!(cause))]),
        Event::ToolErrorFound { counted_only, .. } => {
            ("tool_error_found", vec![("countedOnly", json!(counted_only))])
        }
        Event::FallbackServed { step, .. } => ("fallback_served", vec![("step", json!(step))]),
        Event::Degraded { .. } => ("degraded", vec![]),
        Event::CallFinished { class, attempts, elapsed, .. } => {
            let ended = vec![
                ("class", json!(class)),
                ("attempts", json!(attempts)),
                ("elapsedMs", millis(*elapsed)),
            ];
            ("call_finished", ended)
        }
        Event::ServerLoaded { failed, attempts, tools, .. } => {
            let status = failed.map_or(json!("available"), |failed| json!(failed));
            let loaded =
                vec![("status", status), ("attempts", json!(attempts)), ("tools", json!(tools))];
            ("server_loaded", loaded)
        }
        _ => return None,
    })
}

/// The scope of the breaker with this name.
fn scope(name: &str) -> Value {
    json!(word(
        &SCOPES,
        match name {
            tool if tool.contains('/') => Scope::Tool,
            "global" => Scope::Global,
            _ => Scope::Server,
        }
    ))
}

fn millis(time: Duration) -> Value {
    json!(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// The name of a tool that clients know; `unknown` if no server listed it.
fn shown(policies: &PolicyRegistry, server: &str, tool: &str) -> String {
    let is_known =
        tool.len() <= limits::LABEL && policies.named(server, tool) != PolicyName::Unknown;
    let tool = if is_known { tool } else { UNKNOWN };
    if policies.is_single() { tool.to_owned() } else { names::public(server, tool) }
}

#[cfg(test)]
mod tests {
    use seawall::BreakerStatus;

    use super::*;
    use crate::config::Config;

    #[test]
    fn names_that_clients_make_up_and_long_errors_take_little_room() {
        let policies = PolicyRegistry::new(
            &Config::for_command(Some("s"), vec!["none".to_owned()]).unwrap(),
            None,
        )
        .unwrap();
        let event = |tool: String, error: String| Event::RetryScheduled {
            server: "s".to_owned(),
            tool,
            attempt: 1,
            of: 3,
            delay: Duration::from_millis(20),
            error,
        };
        let small = event("x".to_owned(), "e".to_owned());
        assert!(!is_large(&small));
        let large = event("x".repeat(1 << 20), "e".repeat(1 << 20));
        assert!(is_large(&large));
        let told = Value::Object(told(&large, &policies).unwrap());
        assert_eq!(
            (&told["tool"], told["error"].as_str().unwrap().len()),
            (&json!("unknown"), LONGEST)
        );
        assert_eq!((&told["event"], &told["delayMs"]), (&json!("retry_scheduled"), &json!(20)));
    }

    #[test]
    fn a_breaker_is_told_by_the_name_it_is_reset_by() {
        let policies = PolicyRegistry::new(
            &Config::for_command(Some("s"), vec!["none".to_owned()]).unwrap(),
            None,
        )
        .unwrap();
        for (name, server, tool) in [
            ("s/tools/list", json!("s"), "tools/list"),
            ("s/(others)", json!("s"), "unknown"),
            ("s", json!("s"), "s"),
            ("global", Value::Null, "global"),
        ] {
            let event = Event::BreakerChanged {
                name: name.to_owned(),
                from: BreakerStatus::Closed,
                to: BreakerStatus::Open,
            };
            let told = Value::Object(told(&event, &policies).unwrap());
            assert_eq!(
                (&told["server"], &told["tool"], &told["to"]),
                (&server, &json!(tool), &json!("open")),
                "{name}"
            );
        }
    }
}
