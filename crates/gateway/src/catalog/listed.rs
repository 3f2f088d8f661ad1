//! Decides the policy of a tool from the configuration and from the definition in its server's
//! list.

use seawall::{Annotations, Effect, Fallback, Policy, Siblings};
use serde_json::Value;

use super::schema;
use crate::config::layer::GatewayPolicy;
use crate::config::layers::{PolicyRules, ServerRules, ToolHints};
use crate::protocol::edit::JsonObject;
use crate::protocol::scan;

/// The definition of a tool, as far as policy needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedTool {
    /// Hints about the tool's effect and its results.
    pub hints: ToolHints,
    /// The argument that holds the items of a batch.
    pub(crate) items: Option<String>,
    /// The idempotency key: the argument by which the server recognizes a repeat.
    pub(crate) key: Option<String>,
}

/// The resolved policy of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolDecision {
    /// The policy for the library.
    pub policy: Policy,
    /// The settings that only the gateway uses.
    pub own: GatewayPolicy,
    /// The idempotency key, present only where calls that carry it may be repeated.
    pub key: Option<String>,
}

impl ListedTool {
    /// The tools of a list, each with its definition and with the conclusions from the names of the
    /// others.
    pub(crate) fn read_all(
        raw: &[u8],
        entries: impl IntoIterator<Item = scan::Span>,
    ) -> Vec<(String, Self)> {
        let mut all: Vec<(String, Self)> =
            entries.into_iter().filter_map(|entry| Self::read(raw, entry)).collect();
        let siblings = Siblings::of(all.iter().map(|(name, _)| name.as_str()));
        all.iter_mut().for_each(|(_, listed)| listed.hints.siblings = siblings);
        all
    }

    /// The name and the definition of one listed tool.
    fn read(raw: &[u8], entry: scan::Span) -> Option<(String, Self)> {
        let members = scan::members(raw, entry);
        let find = |name: &str| {
            members.iter().find(|field| field.is(raw, name)).map(|field| field.value.of(raw))
        };
        let annotations = find("annotations").map(annotations).unwrap_or_default();
        let has_output_schema = find("outputSchema").is_some_and(|schema| schema != b"null");
        let hints = ToolHints { annotations, has_output_schema, ..ToolHints::default() };
        let name = find("name").and_then(scan::text)?.into_owned();
        let schema: Value =
            serde_json::from_slice(find("inputSchema").unwrap_or_default()).unwrap_or_default();
        let (items, key) =
            (schema::items(&schema).map(str::to_owned), schema::key(&schema).map(str::to_owned));
        Some((name, Self { hints, items, key }))
    }

    /// Resolves the policy of the tool.
    pub(crate) fn decide(
        &self,
        rules: &PolicyRules,
        server: &str,
        of_server: &ServerRules,
        name: &str,
    ) -> ToolDecision {
        let (mut policy, own) = rules.tool(server, of_server, name, self.hints);
        self.name_items(&mut policy);
        let key = self
            .open_key(rules, server, of_server, name)
            .filter(|_| policy.effect == Effect::Write);
        ToolDecision { policy, own, key: key.map(str::to_owned) }
    }

    /// Tells the batch fallback of a policy which argument holds the items, if the policy does not
    /// name it.
    pub(crate) fn name_items(&self, policy: &mut Policy) {
        for step in &mut policy.fallback {
            if let Fallback::OneByOne(items @ None) = step {
                items.clone_from(&self.items);
            }
        }
    }

    /// The idempotency key. The schema is a statement of the server, like its annotations: it
    /// counts only where those do.
    fn open_key(
        &self,
        rules: &PolicyRules,
        server: &str,
        of_server: &ServerRules,
        name: &str,
    ) -> Option<&str> {
        let is_stated = rules.known(server, of_server, name, self.hints).facts.effect.is_some();
        self.key.as_deref().filter(|_| !of_server.distrust_annotations && !is_stated)
    }
}

/// The hints, each parsed on its own: an invalid hint is ignored and does not affect the others.
fn annotations(json: &[u8]) -> Annotations {
    let all = JsonObject::of(json);
    let hint = |name: &str| all.get(name).and_then(|json| serde_json::from_slice(json).ok());
    Annotations {
        read_only_hint: hint("readOnlyHint"),
        destructive_hint: hint("destructiveHint"),
        idempotent_hint: hint("idempotentHint"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_is_none_takes_no_other_along() {
        let read = |json: &str| annotations(json.as_bytes());
        let destructive = Annotations { destructive_hint: Some(true), ..Annotations::default() };
        assert_eq!(
            read(r#"{"destructiveHint": true, "readOnlyHint": "no", "title": 7}"#),
            destructive
        );
        assert_eq!(read("[]"), Annotations::default());
        let all = Annotations {
            read_only_hint: Some(true),
            destructive_hint: Some(false),
            idempotent_hint: Some(true),
        };
        let text = r#"{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true}"#;
        assert_eq!(read(text), all);
    }
}
