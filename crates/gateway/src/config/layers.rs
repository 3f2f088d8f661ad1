//! Decides which policy a tool gets: the built-in table by kind, then the settings of the
//! configuration, the nearest place last.
//!
//! Built in < `[defaults]` < `[kinds.K]` < `[servers.S.policy]` < `[tools."S/T"]`, where plain
//! names come after globs. Of each key the nearest place that has it wins.

use seawall::{
    Annotations, BreakerPolicy, Effect, Fallback, HedgePolicy, Kind, LoopPolicy, Policy, Preset,
    Rate, ServerPolicy, Siblings, TextStyle, Tiers, ToolFacts,
};

use super::layer::{GatewayPolicy, PolicyLayer};
use super::written::WrittenLines;
use crate::config::prefix::NamePrefix;

/// All policy settings of the configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyRules {
    /// The preset that everything starts from.
    pub preset: Preset,
    /// The timeouts of tools.
    pub tiers: Tiers,
    /// The rate limit of one caller.
    pub caller_rate: Option<Rate>,
    /// For all tools.
    pub defaults: PolicyLayer,
    /// For the tools of a kind.
    pub kinds: Vec<(Kind, PolicyLayer)>,
    /// For tools by name: `server/tool`, with `*` for anything; globs first, then plain names.
    pub tools: Vec<(String, PolicyLayer)>,
    /// The form of failure messages.
    pub messages: MessageStyle,
    /// Whether tool names on the endpoint of all servers carry a prefix.
    pub prefix: NamePrefix,
    /// The lines of all settings.
    pub written: WrittenLines,
}

/// The form of failure messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageStyle {
    /// The text style; unless set, the preset's.
    pub style: Option<TextStyle>,
    /// Whether the text is the error object; unless set, the preset decides.
    pub as_json: Option<bool>,
    /// Whether failures always carry debug details.
    pub debug: bool,
    /// Whether calls are forbidden to request debug details.
    pub no_debug_on_request: bool,
}

/// Facts about a tool from its server's list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// The server's annotations: the effect of repeating the tool.
    pub annotations: Annotations,
    /// Whether the tool has an output schema.
    pub has_output_schema: bool,
    /// Hints from the other tools of the same server.
    pub siblings: Siblings,
}

/// The settings for one server's tools, beside those for all tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerRules {
    /// Whether the server's annotations may only narrow a policy.
    pub distrust_annotations: bool,
    /// The policy that its tools share.
    pub policy: ServerPolicy,
    /// `[servers.S.policy]`.
    pub layer: PolicyLayer,
    /// The lines of all settings.
    pub written: WrittenLines,
}

/// A place of the configuration that has policy settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyPlace<'a> {
    /// `[defaults]`.
    Defaults,
    /// `[kinds.K]`.
    Kind(Kind),
    /// `[servers.S.policy]`.
    Server,
    /// `[tools."S/T"]`, by its pattern.
    Tools(&'a str),
}

/// The facts about a tool, and the places of the configuration that state its kind and its effect.
#[derive(Clone, Copy, Debug)]
pub struct KnownTool<'a> {
    /// The facts.
    pub facts: ToolFacts<'a>,
    /// The place that states its kind.
    pub kind: Option<PolicyPlace<'a>>,
    /// The place that states its effect.
    pub effect: Option<PolicyPlace<'a>>,
}

impl PolicyRules {
    /// The policy of a tool.
    pub fn tool(
        &self,
        server: &str,
        own: &ServerRules,
        name: &str,
        hints: ToolHints,
    ) -> (Policy, GatewayPolicy) {
        let facts = self.known(server, own, name, hints).facts;
        let mut policy = self.preset.policy(&facts, &self.tiers);
        let mut extra = GatewayPolicy::default();
        let layers = self.layers(server, own, name, policy.kind);
        let all = PolicyLayer::merged(layers.into_iter().map(|(_, layer)| layer));
        all.apply(&mut policy, &mut extra);
        fit(&mut policy);
        (policy, extra)
    }

    /// The facts about a tool; the operator's kind and effect come first, from the nearest place.
    pub fn known<'a>(
        &'a self,
        server: &str,
        own: &'a ServerRules,
        name: &'a str,
        hints: ToolHints,
    ) -> KnownTool<'a> {
        let nearest = |kind| self.layers(server, own, name, kind).into_iter().rev();
        let mut known = KnownTool {
            facts: ToolFacts {
                name,
                annotations: hints.annotations,
                distrust_annotations: own.distrust_annotations,
                siblings: hints.siblings,
                ..ToolFacts::default()
            },
            kind: None,
            effect: None,
        };
        known.facts = self.preset.informed(&known.facts);
        // The kind is found first and without `[kinds.K]`: those layers depend on it.
        if let Some((place, layer)) = nearest(None).find(|(_, layer)| layer.kind().is_some()) {
            (known.facts.kind, known.kind) = (layer.kind(), Some(place));
        }
        let near = nearest(None)
            .filter(|(place, _)| *place != PolicyPlace::Defaults)
            .find(|(_, layer)| layer.effect().is_some());
        // An effect stated for the kind or for all tools counts only if no nearer place states one.
        let stated = near
            .or_else(|| nearest(known.facts.kind()).find(|(_, layer)| layer.effect().is_some()));
        if let Some((place, layer)) = stated {
            (known.facts.effect, known.effect) = (layer.effect(), Some(place));
        }
        known
    }

    /// The layers for a tool, the nearest last.
    pub fn layers<'a>(
        &'a self,
        server: &str,
        own: &'a ServerRules,
        name: &str,
        kind: Option<Kind>,
    ) -> Vec<(PolicyPlace<'a>, &'a PolicyLayer)> {
        let fits = |pattern: &str| {
            pattern
                .split_once('/')
                .is_some_and(|(servers, tools)| glob(servers, server) && glob(tools, name))
        };
        let of_kind = self
            .kinds
            .iter()
            .filter(|(of, _)| Some(*of) == kind)
            .map(|(of, layer)| (PolicyPlace::Kind(*of), layer));
        let named = self.tools.iter().filter(|(pattern, _)| fits(pattern));
        let named = named.map(|(pattern, layer)| (PolicyPlace::Tools(pattern.as_str()), layer));
        let all = std::iter::once((PolicyPlace::Defaults, &self.defaults));
        all.chain(of_kind).chain([(PolicyPlace::Server, &own.layer)]).chain(named).collect()
    }

    /// Whether the text of a failure is the error object; unless set, only with the preset
    /// `gitnexus`.
    pub(crate) fn as_json(&self) -> bool {
        self.messages.as_json.unwrap_or(self.preset == Preset::Gitnexus)
    }

    /// Whether calls do not wait for a server that was connected and is away: GitNexus's agents
    /// want to know at once, unless the file sets `reconnect.wait`.
    pub(crate) fn tells_loss_at_once(&self) -> bool {
        self.preset == Preset::Gitnexus && !self.written.has(&["reconnect", "wait"])
    }

    /// The text style of failures. With the preset `gitnexus`, the classic style is GitNexus's own.
    pub(crate) fn style(&self) -> TextStyle {
        match self.messages.style {
            Some(TextStyle::Classic) if self.preset == Preset::Gitnexus => TextStyle::Gitnexus,
            Some(style) => style,
            None => self.preset.style(),
        }
    }

    /// The policy of a method that only reads (`resources/read` and the like), or of one that sets
    /// state.
    pub fn method(&self, own: &ServerRules, method: &str) -> Policy {
        let sets =
            matches!(method, "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel");
        let effect = if sets { Effect::Idempotent } else { Effect::ReadOnly };
        let facts =
            ToolFacts { kind: Some(Kind::Read), effect: Some(effect), ..ToolFacts::named(method) };
        let mut policy = self.preset.policy(&facts, &self.tiers);
        let layers = PolicyLayer::merged([&self.defaults, &own.layer]);
        layers.apply(&mut policy, &mut GatewayPolicy::default());
        // The method gets the policy of a read tool, minus the parts that need a tool: kind,
        // bulkhead, loop guard, cache and fallbacks.
        (policy.kind, policy.slots) = (None, None);
        policy.loops = LoopPolicy::OFF;
        policy.cache = seawall::CachePolicy::default();
        policy.fallback.clear();
        fit(&mut policy);
        policy
    }

    /// The breaker that all tools with the scope `global` share.
    pub(crate) fn global_breaker(&self) -> BreakerPolicy {
        let mut breaker = Some(BreakerPolicy::default());
        self.defaults.apply_to_breaker(&mut breaker);
        breaker.unwrap_or_default()
    }

    /// The policy of a server as a whole.
    pub fn server(&self, own: &ServerRules) -> ServerPolicy {
        let mut policy = own.policy.clone();
        PolicyLayer::merged([&self.defaults, &own.layer]).apply_to_server(&mut policy);
        policy
    }
}

/// Removes settings that would harm this tool, for a setting may cover many tools: a cached answer
/// of a write would be a lie, a hedge could execute it twice, other arguments do something else,
/// and a destructive call is not queued. Limits of an attempt longer than those of the call are
/// removed too.
pub(crate) fn fit(policy: &mut Policy) {
    policy.attempt_timeout = policy.attempt_timeout.filter(|limit| *limit <= policy.timeout);
    agree(policy);
    let limit = policy.attempt_timeout.unwrap_or(policy.timeout);
    policy.hedge =
        policy.hedge.filter(|hedge| !matches!(hedge, HedgePolicy::After(delay) if *delay >= limit));
    let reads = policy.effect == Effect::ReadOnly;
    if !reads {
        policy.cache.fresh = None;
        policy.hedge = None;
    }
    let (effect, keeps) = (policy.effect, policy.cache.stale_if_error.is_some());
    policy.fallback.retain(|step| match step {
        Fallback::Cached => reads && keeps,
        Fallback::Simplify(_) | Fallback::PreviousPage(_) => reads,
        Fallback::Queue => matches!(effect, Effect::Write | Effect::Idempotent),
        _ => true,
    });
}

/// Makes values agree that different places may have set: a longest time is never shorter than the
/// first one, and no more repeats are asked for than the window has calls.
pub(crate) fn agree(policy: &mut Policy) {
    agree_backoff(policy);
    agree_cooldown(policy);
    policy.loops.repeats = policy.loops.repeats.min(policy.loops.window);
}

/// The longest pause is not shorter than the first.
pub(crate) fn agree_backoff(policy: &mut Policy) {
    let backoff = &mut policy.retry.backoff;
    backoff.max = backoff.max.max(backoff.base);
}

/// The longest cool-down is not shorter than the first.
pub(crate) fn agree_cooldown(policy: &mut Policy) {
    if let Some(breaker) = &mut policy.breaker {
        breaker.cooldown.max = breaker.cooldown.max.max(breaker.cooldown.base);
    }
}

/// Whether a name matches a pattern in which `*` stands for any text.
pub(crate) fn glob(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::config::policy::layer;

    fn attempts(attempts: u32) -> PolicyLayer {
        layer(&json!({"retry": {"attempts": attempts}}))
    }

    #[test]
    fn patterns_fit_what_they_say() {
        for (pattern, name, fits) in [
            ("get", "get", true),
            ("get", "get_issue", false),
            ("get_*", "get_issue", true),
            ("*", "", true),
            ("*_issue", "get_issue", true),
            ("*_issue", "get_issues", false),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "ac", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(glob(pattern, name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn the_nearest_place_wins_and_says_only_what_it_says() {
        let mut rules = PolicyRules { defaults: attempts(9), ..PolicyRules::default() };
        let mut own = ServerRules::default();
        let tool = |rules: &PolicyRules, own: &ServerRules| {
            rules.tool("gh", own, "get_issue", ToolHints::default()).0
        };
        assert_eq!(tool(&rules, &own).retry.attempts, 9);
        rules.kinds.push((Kind::Read, attempts(8)));
        rules.kinds.push((Kind::Write, attempts(1)));
        assert_eq!(tool(&rules, &own).retry.attempts, 8);
        own.layer = attempts(7);
        assert_eq!(tool(&rules, &own).retry.attempts, 7);
        rules.tools.push(("*/get_*".to_owned(), attempts(6)));
        rules.tools.push(("gh/get_issue".to_owned(), attempts(5)));
        let policy = tool(&rules, &own);
        assert_eq!((policy.retry.attempts, policy.retry.backoff.base), (5, Duration::from_secs(1)));
        assert_eq!(
            rules
                .tool("other", &ServerRules::default(), "get_x", ToolHints::default())
                .0
                .retry
                .attempts,
            6
        );
    }

    #[test]
    fn an_effect_that_is_stated_for_a_kind_or_for_all_holds_where_none_is_stated_nearer() {
        let effect = |effect: Effect| layer(&json!({"effect": effect}));
        let mut rules =
            PolicyRules { defaults: effect(Effect::Destructive), ..PolicyRules::default() };
        let of = |rules: &PolicyRules, name: &str| {
            rules.tool("gh", &ServerRules::default(), name, ToolHints::default()).0.effect
        };
        assert_eq!(
            (of(&rules, "create_issue"), of(&rules, "batch_tag")),
            (Effect::Destructive, Effect::Destructive)
        );
        rules.kinds.push((Kind::Batch, effect(Effect::Idempotent)));
        assert_eq!(
            (of(&rules, "create_issue"), of(&rules, "batch_tag")),
            (Effect::Destructive, Effect::Idempotent)
        );
        rules.tools.push(("gh/batch_*".to_owned(), effect(Effect::Write)));
        assert_eq!(of(&rules, "batch_tag"), Effect::Write);
    }

    #[test]
    fn the_operators_effect_and_kind_come_first_and_distrust_only_narrows() {
        let mut rules = PolicyRules::default();
        let reads = ToolHints {
            annotations: Annotations { read_only_hint: Some(true), ..Annotations::default() },
            ..ToolHints::default()
        };
        let own = ServerRules::default();
        assert_eq!(rules.tool("s", &own, "frob", reads).0.effect, Effect::ReadOnly);
        let distrust = ServerRules { distrust_annotations: true, ..ServerRules::default() };
        assert_eq!(rules.tool("s", &distrust, "frob", reads).0.effect, Effect::Write);
        rules.tools.push(("s/frob".to_owned(), layer(&json!({"effect": "destructive"}))));
        assert_eq!(rules.tool("s", &own, "frob", reads).0.effect, Effect::Destructive);
    }

    #[test]
    fn a_longest_time_of_all_tools_that_is_short_for_some_leaves_them_their_policy() {
        let all = layer(&json!({
            "timeout": "3s",
            "retry": {"max": "1500ms"},
            "breaker": {"max_cooldown": "40s"},
            "loop": {"window": 2, "repeats": 2},
        }));
        let mut rules = PolicyRules { defaults: all, ..PolicyRules::default() };
        rules.tools.push(("s/create_x".to_owned(), layer(&json!({"loop": {"repeats": 3}}))));
        let write = rules.tool("s", &ServerRules::default(), "create_x", ToolHints::default()).0;
        assert_eq!((write.validate(), write.timeout), (Ok(()), Duration::from_secs(3)));
        let cooldown = write.breaker.unwrap().cooldown;
        assert_eq!(
            (cooldown.base, cooldown.max),
            (Duration::from_secs(60), Duration::from_secs(60))
        );
    }

    #[test]
    fn what_is_said_of_all_tools_leaves_out_those_it_would_harm() {
        let all = layer(&json!({
            "cache": {"ttl": "5s"},
            "hedge": "p95",
            "fallback": ["cached", "previous_page", "queue"],
            "breaker": {"failures": 0},
        }));
        let rules = PolicyRules { defaults: all, ..PolicyRules::default() };
        let policy = |name| rules.tool("s", &ServerRules::default(), name, ToolHints::default()).0;
        let (read, write) = (policy("get_x"), policy("create_x"));
        assert_eq!((read.validate(), write.validate()), (Ok(()), Ok(())));
        assert_eq!((read.cache.fresh.is_some(), write.cache.fresh.is_some()), (true, false));
        assert_eq!(
            (read.fallback, write.fallback),
            (vec![Fallback::Cached, Fallback::PreviousPage(None)], vec![Fallback::Queue])
        );
        assert_eq!(
            (read.hedge.is_some(), write.hedge.is_some(), read.breaker),
            (true, false, None)
        );
    }
}
