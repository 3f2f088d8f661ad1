//! Decides the built-in policy of a tool: the table by kind, the timeout tiers, and the presets.

use std::time::Duration;

use super::duration::parse_env_timeout;
use super::effect::{Effect, Kind, ToolFacts};
use super::gitnexus;
use super::invalid::{self, Invalid};
use super::policy::{Fallback, Policy, Scope};
use super::tool_errors::ToolErrors;
use crate::model::policy::backoff::Backoff;
use crate::model::policy::breaker::BreakerPolicy;
use crate::model::policy::cache::CachePolicy;
use crate::model::policy::loops::{LoopMode, LoopPolicy};
use crate::model::policy::retry::RetryPolicy;
use crate::model::style::{DeniedText, TextStyle};

/// A named set of defaults.
///
/// ```
/// # use seawall::{Effect, Fallback, Preset, Tiers, ToolFacts};
/// let policy = Preset::Default.policy(&ToolFacts::named("create_issue"), &Tiers::default());
/// assert_eq!((policy.effect, &policy.fallback[0]), (Effect::Write, &Fallback::Queue));
/// let query = Preset::Gitnexus.policy(&ToolFacts::named("query"), &Tiers::default());
/// assert_eq!(query.retry.attempts, 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preset {
    /// Safe defaults by kind of tool: docs/requirements.md, Defaults and presets.
    #[default]
    Default,
    /// Classic texts and labels, one breaker per tool; identical calls count as loops even if they
    /// succeed.
    Blog,
    /// GitNexus: known effects and error patterns of its tools, no retries, no response cache, one
    /// breaker for all tools, timeouts by tier.
    Gitnexus,
    /// CAIPE: one breaker per server.
    Caipe,
}

/// Two timeouts for whole calls, and the tools that get the longer one.
///
/// ```
/// # use seawall::{Preset, Tiers};
/// # use std::time::Duration;
/// let tiers = Tiers { heavy_tools: Some(vec!["analyze".into()]), ..Tiers::default() };
/// let tiers = tiers.from_env(|name| (name == "SEAWALL_TIMEOUT_HEAVY").then(|| "90s".into()))?;
/// assert_eq!(tiers.limit(Preset::Default, "analyze"), Duration::from_secs(90));
/// # Ok::<(), seawall::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// For most tools.
    pub quick: Duration,
    /// For heavy tools.
    pub heavy: Duration,
    /// The heavy tools; `None`: the heavy tools of the preset.
    pub heavy_tools: Option<Vec<String>>,
}

/// The environment variables of each tier; the first variable that is set wins.
const QUICK: [&str; 2] = ["SEAWALL_TIMEOUT_QUICK", "GITNEXUS_TIMEOUT_QUICK"];
const HEAVY: [&str; 2] = ["SEAWALL_TIMEOUT_HEAVY", "GITNEXUS_TIMEOUT_HEAVY"];
const DEBUG: [&str; 2] = ["SEAWALL_DEBUG", "GITNEXUS_DEBUG"];

impl Tiers {
    /// Takes over the timeouts that environment variables set; an empty variable counts as unset.
    pub fn from_env(mut self, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        for (variables, limit) in [(QUICK, &mut self.quick), (HEAVY, &mut self.heavy)] {
            if let Some((name, text)) = first_set(variables, &lookup) {
                *limit = parse_env_timeout(name, &text)?;
            }
        }
        Ok(self)
    }

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::positive("quick", self.quick)?;
        invalid::positive("heavy", self.heavy)
    }

    /// The timeout of a tool; a tool that is not listed as heavy is quick.
    pub fn limit(&self, preset: Preset, tool: &str) -> Duration {
        if self.is_heavy(preset, tool) { self.heavy } else { self.quick }
    }

    /// Whether a tool gets the longer timeout.
    pub fn is_heavy(&self, preset: Preset, tool: &str) -> bool {
        match &self.heavy_tools {
            Some(heavy) => heavy.iter().any(|heavy| heavy == tool),
            None => preset.heavy_tools().contains(&tool),
        }
    }

    /// The variable that sets the timeout of the heavy tools, or of all others, if any does.
    pub fn variable(
        is_heavy: bool,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Option<&'static str> {
        first_set(if is_heavy { HEAVY } else { QUICK }, &lookup).map(|(name, _)| name)
    }
}

impl Default for Tiers {
    fn default() -> Self {
        Self { quick: Duration::from_secs(60), heavy: Duration::from_secs(120), heavy_tools: None }
    }
}

/// Whether the environment asks for debug details: exactly `true`, neither `1` nor `TRUE`.
pub fn debug_from_env(lookup: impl Fn(&str) -> Option<String>) -> bool {
    first_set(DEBUG, &lookup).is_some_and(|(_, text)| text == "true")
}

/// The first variable that is set, and its value; an empty variable counts as unset.
fn first_set(
    variables: [&'static str; 2],
    lookup: &impl Fn(&str) -> Option<String>,
) -> Option<(&'static str, String)> {
    variables
        .into_iter()
        .find_map(|name| Some((name, lookup(name).filter(|text| !text.is_empty())?)))
}

impl Kind {
    /// The label that tells the user how a degraded tool of this kind affects the task.
    pub fn label(self) -> &'static str {
        match self {
            Kind::Read => "Live data unavailable",
            Kind::Write => "Try again later",
            Kind::Search => "Search unavailable",
            Kind::List => "Browsing limited",
            Kind::Batch => "Batch unavailable",
        }
    }
}

impl Preset {
    /// The facts about a tool, with the effect that the preset knows.
    pub fn informed<'a>(self, tool: &ToolFacts<'a>) -> ToolFacts<'a> {
        let is_theirs = self == Preset::Gitnexus && !tool.siblings.is_no_gitnexus;
        ToolFacts { known: if is_theirs { gitnexus::effect(tool.name) } else { None }, ..*tool }
    }

    /// The built-in policy of a tool.
    pub fn policy(self, tool: &ToolFacts<'_>, tiers: &Tiers) -> Policy {
        let tool = &self.informed(tool);
        let (kind, effect) = (tool.kind(), tool.effect());
        let (attempts, base) = attempts(kind);
        let (failures, cooldown) = breaker(kind);
        let mut policy = Policy {
            kind,
            effect,
            timeout: tiers.limit(self, tool.name),
            attempt_timeout: None,
            slots: None,
            retry: RetryPolicy::new(attempts, Backoff { base, ..Backoff::TOOL_CALL }),
            breaker: Some(BreakerPolicy::new(failures, cooldown)),
            scope: Scope::Tool,
            cache: if effect == Effect::ReadOnly {
                CachePolicy::RESCUE
            } else {
                CachePolicy::default()
            },
            fallback: fallback(kind, effect, tool.annotations.destructive_hint == Some(true)),
            loops: LoopPolicy::default(),
            uncertain_write_hold: Some(Duration::from_secs(60)),
            hedge: None,
            tool_errors: ToolErrors::MARKED,
        };
        self.adjust(&mut policy);
        policy
    }

    /// The style of failure texts, unless the config sets it.
    pub fn style(self) -> TextStyle {
        match self {
            Preset::Default | Preset::Caipe => TextStyle::Plain,
            Preset::Blog => TextStyle::Classic,
            Preset::Gitnexus => TextStyle::Gitnexus,
        }
    }

    /// The text for a server that denied access, unless the config sets it: CAIPE keeps its old
    /// sentence.
    pub fn denied_text(self) -> DeniedText {
        match self {
            Preset::Caipe => DeniedText::Legacy,
            Preset::Default | Preset::Blog | Preset::Gitnexus => DeniedText::Diagnostic,
        }
    }

    /// The tools with the longer timeout, unless the config sets them.
    fn heavy_tools(self) -> &'static [&'static str] {
        match self {
            Preset::Gitnexus => gitnexus::HEAVY,
            Preset::Default | Preset::Blog | Preset::Caipe => &[],
        }
    }

    fn adjust(self, policy: &mut Policy) {
        match self {
            Preset::Default => {}
            Preset::Blog => policy.loops.mode = LoopMode::Calls,
            Preset::Gitnexus => {
                policy.retry.attempts = 1;
                policy.scope = Scope::Global;
                policy.breaker = Some(BreakerPolicy::default());
                policy.loops = LoopPolicy::OFF;
                // A graph that is rebuilt makes cached responses wrong, and no other tool can stand
                // in for it.
                policy.cache = CachePolicy::default();
                policy.fallback.clear();
                // GitNexus's texts tell the agent that it can repeat the call, so a repeat is not
                // held back.
                policy.uncertain_write_hold = None;
                policy.tool_errors = gitnexus::tool_errors();
            }
            Preset::Caipe => {
                policy.scope = Scope::Server;
                policy.breaker = Some(BreakerPolicy::default());
            }
        }
    }
}

/// The defaults of each kind: attempts and the first backoff.
fn attempts(kind: Option<Kind>) -> (u32, Duration) {
    match kind {
        Some(Kind::Read | Kind::Search) | None => (3, Duration::from_secs(1)),
        Some(Kind::Write) => (2, Duration::from_secs(2)),
        Some(Kind::List) => (2, Duration::from_secs(1)),
        Some(Kind::Batch) => (1, Duration::from_secs(1)),
    }
}

/// The defaults of each kind: failures in a row and the cool-down.
fn breaker(kind: Option<Kind>) -> (u32, Duration) {
    match kind {
        Some(Kind::Read | Kind::Search | Kind::List) | None => (5, Duration::from_secs(30)),
        Some(Kind::Write) => (3, Duration::from_secs(60)),
        Some(Kind::Batch) => (2, Duration::from_secs(120)),
    }
}

/// The fallbacks of each kind when all attempts failed; only fallbacks that are safe for the
/// effect.
fn fallback(kind: Option<Kind>, effect: Effect, destroys: bool) -> Vec<Fallback> {
    let reads = effect == Effect::ReadOnly;
    match kind {
        Some(Kind::Read) if reads => vec![Fallback::Cached],
        Some(Kind::Search) if reads => vec![Fallback::Cached, Fallback::Simplify(None)],
        Some(Kind::List) if reads => vec![Fallback::Cached, Fallback::PreviousPage(None)],
        Some(Kind::Batch) => vec![Fallback::OneByOne(None)],
        // A destructive write is not queued: delivered late, it could destroy newer data.
        Some(Kind::Write) if matches!(effect, Effect::Write | Effect::Idempotent) && !destroys => {
            vec![Fallback::Queue]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::effect::Annotations;
    use crate::model::siblings::Siblings;
    use std::collections::HashMap;

    fn policy(preset: Preset, name: &str) -> Policy {
        let policy = preset.policy(&ToolFacts::named(name), &Tiers::default());
        assert_eq!(policy.validate(), Ok(()), "{name}");
        policy
    }

    #[test]
    fn each_kind_has_its_attempts_breaker_and_fallbacks() {
        let row = |name: &str| {
            let policy = policy(Preset::Default, name);
            let breaker = policy.breaker.unwrap();
            (
                policy.retry.attempts,
                policy.retry.backoff.base.as_secs(),
                breaker.failures,
                breaker.cooldown.base.as_secs(),
                policy.fallback,
            )
        };

        assert_eq!(row("get_issue"), (3, 1, 5, 30, vec![Fallback::Cached]));
        assert_eq!(row("create_issue"), (2, 2, 3, 60, vec![Fallback::Queue]));
        assert_eq!(
            row("search_issues"),
            (3, 1, 5, 30, vec![Fallback::Cached, Fallback::Simplify(None)])
        );
        assert_eq!(
            row("list_issues"),
            (2, 1, 5, 30, vec![Fallback::Cached, Fallback::PreviousPage(None)])
        );
        assert_eq!(row("batch_label_issues"), (1, 1, 2, 120, vec![Fallback::OneByOne(None)]));
        assert_eq!(row("test-tool"), (3, 1, 5, 30, vec![]));
    }

    #[test]
    fn what_destroys_is_not_queued_even_if_it_may_be_repeated() {
        let annotations = Annotations {
            destructive_hint: Some(true),
            idempotent_hint: Some(true),
            read_only_hint: None,
        };
        let facts = ToolFacts { annotations, ..ToolFacts::named("update_issue") };
        let policy = Preset::Default.policy(&facts, &Tiers::default());

        assert_eq!((policy.effect, policy.fallback), (Effect::Idempotent, vec![]));
    }

    #[test]
    fn presets_differ_in_loops_scopes_retries_and_copies() {
        assert_eq!(policy(Preset::Blog, "get_issue").loops.mode, LoopMode::Calls);
        assert_eq!(policy(Preset::Caipe, "get_issue").scope, Scope::Server);
        let gitnexus = policy(Preset::Gitnexus, "search");
        assert_eq!((gitnexus.retry.attempts, gitnexus.scope), (1, Scope::Global));
        assert_eq!(
            (gitnexus.cache, gitnexus.fallback, gitnexus.uncertain_write_hold),
            (CachePolicy::default(), vec![], None)
        );
        let known = |name: &str| policy(Preset::Gitnexus, name).effect;
        for name in [
            "search",
            "grep",
            "read",
            "context",
            "overview",
            "highlight",
            "cypher",
            "impact",
            "explore",
        ] {
            assert_eq!(known(name), Effect::ReadOnly, "{name}");
        }
        assert_eq!(
            (known("rename"), known("group_sync")),
            (Effect::Destructive, Effect::Destructive)
        );
        let siblings = Siblings { is_no_gitnexus: true, ..Siblings::default() };
        let facts = ToolFacts { siblings, ..ToolFacts::named("check") };
        assert_eq!(
            Preset::Gitnexus.policy(&facts, &Tiers::default()).effect,
            Effect::Write,
            "another server's"
        );
        assert_eq!(
            policy(Preset::Default, "cypher").effect,
            Effect::Write,
            "another preset knows nothing of it"
        );
    }

    #[test]
    fn tiers_follow_the_tool_and_the_environment() {
        let env = |pairs: &[(&str, &str)]| {
            let set: HashMap<String, String> =
                pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            Tiers::default().from_env(move |name| set.get(name).cloned())
        };
        let secs = |tiers: &Tiers, tool| tiers.limit(Preset::Gitnexus, tool).as_secs();

        let tiers = env(&[]).unwrap();
        assert_eq!(
            (secs(&tiers, "search"), secs(&tiers, "cypher"), secs(&tiers, "unheard_of")),
            (60, 120, 60)
        );
        for other in [Preset::Default, Preset::Blog, Preset::Caipe] {
            assert_eq!(
                tiers.limit(other, "cypher").as_secs(),
                60,
                "heavy tools are GitNexus's own"
            );
        }
        let listed = Tiers { heavy_tools: Some(vec!["report".to_owned()]), ..tiers.clone() };
        assert_eq!(
            (secs(&listed, "report"), secs(&listed, "cypher")),
            (120, 60),
            "what is set is all there is"
        );
        assert_eq!(secs(&env(&[("GITNEXUS_TIMEOUT_QUICK", "30000")]).unwrap(), "search"), 30);
        assert_eq!(secs(&env(&[("GITNEXUS_TIMEOUT_QUICK", "30s")]).unwrap(), "search"), 30);
        assert_eq!(
            secs(
                &env(&[("SEAWALL_TIMEOUT_HEAVY", "2m"), ("GITNEXUS_TIMEOUT_HEAVY", "1s")]).unwrap(),
                "cypher"
            ),
            120
        );
        assert_eq!(secs(&env(&[("GITNEXUS_TIMEOUT_QUICK", "")]).unwrap(), "search"), 60);
        for variable in
            ["GITNEXUS_TIMEOUT_QUICK", "SEAWALL_TIMEOUT_QUICK", "GITNEXUS_TIMEOUT_HEAVY"]
        {
            let told = env(&[(variable, "60")]).unwrap_err();
            assert_eq!(told.field, variable);
            assert!(told.problem.contains("60ms") && told.problem.contains("60s"), "{told}");
        }
        for bad in ["abc", "0", "-1"] {
            assert_eq!(
                env(&[("GITNEXUS_TIMEOUT_QUICK", bad)]).unwrap_err().field,
                "GITNEXUS_TIMEOUT_QUICK"
            );
        }
    }

    #[test]
    fn debug_is_exactly_true() {
        for (text, on) in [("true", true), ("1", false), ("TRUE", false), ("", false)] {
            assert_eq!(
                debug_from_env(|name| (name == "GITNEXUS_DEBUG").then(|| text.into())),
                on,
                "{text}"
            );
        }
        let empty_first =
            |name: &str| Some(if name == "GITNEXUS_DEBUG" { "true" } else { "" }.to_owned());
        assert!(debug_from_env(empty_first), "an empty variable sets nothing");
    }
}
