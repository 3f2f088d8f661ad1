//! Decides what one place of the file says about policies: `[defaults]`, `[kinds.K]`,
//! `[servers.S.policy]`, `[tools."S/T"]`.
//!
//! Every key and value is checked here, where its line is known; so is what is said as a whole,
//! laid over a tool that reads.

use seawall::{
    BulkheadPolicy, Effect, Fallback, HedgePolicy, Kind, LoopMode, Preset, Scope, Tiers, ToolFacts,
};

use super::problem::{Problem, Problems};
use super::reconnect::{some_time, time};
use super::tree::{ConfigField, ConfigString};
use super::{duration, suggest, tool_errors};
use crate::config::layer::{
    BreakerLayer, CacheLayer, GatewayLayer, GatewayPolicy, LoopLayer, OnAbandon, PolicyLayer,
    Rejoining, RetryLayer,
};

const KEYS: [&str; 20] = [
    "kind",
    "effect",
    "timeout",
    "attempt_timeout",
    "idle_timeout",
    "client_timeout",
    "on_abandon",
    "rejoin",
    "rejoin_after",
    "question_time",
    "max_result",
    "tool_concurrency",
    "retry",
    "breaker",
    "cache",
    "fallback",
    "loop",
    "uncertain_write_hold",
    "hedge",
    "tool_errors",
];

/// Reads what one table says.
pub(super) fn read(table: &ConfigField<'_>, problems: &mut Problems) -> PolicyLayer {
    let before = problems.count();
    let mut layer = PolicyLayer::default();
    for (key, value) in table.entries(problems) {
        match key {
            "kind" => layer.kind = problems.keep(kind(&value)),
            "effect" => layer.effect = problems.keep(one_of(&value, &EFFECTS)),
            "timeout" => layer.timeout = problems.keep(some_time(&value)),
            "attempt_timeout" => layer.attempt_timeout = problems.keep(some_time(&value)),
            "tool_concurrency" => layer.tool_concurrency = problems.keep(concurrency(&value)),
            "retry" => layer.retry = retry(&value, problems),
            "breaker" => layer.breaker = breaker(&value, problems),
            "cache" => layer.cache = cache(&value, problems),
            "fallback" => layer.fallback = Some(fallback(&value, problems)),
            "loop" => layer.loops = loops(&value, problems),
            "uncertain_write_hold" => layer.uncertain_write_hold = problems.keep(time(&value)),
            "hedge" => layer.hedge = problems.keep(hedge(&value)),
            "tool_errors" => layer.tool_errors = tool_errors::read(&value, problems),
            _ if own(&mut layer.own, key, &value, problems) => {}
            _ => problems.push(value.place.problem(suggest::unknown(key, &KEYS))),
        }
    }
    if problems.count() == before {
        check(&layer, table, problems);
    }
    layer
}

/// What a tool that only reads would get: whatever is out of bounds is told with its name.
fn check(layer: &PolicyLayer, table: &ConfigField<'_>, problems: &mut Problems) {
    let effect = layer.effect.unwrap_or(Effect::ReadOnly);
    let facts = ToolFacts { kind: layer.kind, effect: Some(effect), ..ToolFacts::named("tool") };
    let mut policy = Preset::Default.policy(&facts, &Tiers::default());
    let is_effect_stated = layer.effect.is_some();
    layer.apply(&mut policy, &mut GatewayPolicy::default());
    if !is_effect_stated {
        // Which of these steps a tool can take is seen when its effect is known.
        policy.fallback.retain(|step| !matches!(step, Fallback::Queue));
    }
    // So is which limit is the shorter one, unless both stand here.
    if layer.timeout.is_none() {
        policy.timeout = duration::LONGEST;
    }
    if layer.timeout.is_none() && layer.attempt_timeout.is_none() {
        policy.hedge = policy
            .hedge
            .filter(|hedge| !matches!(hedge, HedgePolicy::After(delay) if !delay.is_zero()));
    }
    if let Err(invalid) = policy.validate() {
        problems.push(table.place.problem(invalid.to_string()));
    }
}

/// Calls of one tool at a time; none is no limit.
fn concurrency(value: &ConfigField<'_>) -> Result<u32, Problem> {
    let count = value.count()?;
    let checked = if count == 0 { Ok(()) } else { BulkheadPolicy::new(count).validate() };
    checked.map(|()| count).map_err(|invalid| value.place.problem(invalid.problem))
}

fn own(
    own: &mut GatewayLayer,
    key: &str,
    value: &ConfigField<'_>,
    problems: &mut Problems,
) -> bool {
    match key {
        "idle_timeout" => own.idle_timeout = problems.keep(some_time(value)),
        "client_timeout" => own.client_timeout = problems.keep(some_time(value)),
        "on_abandon" => {
            let ways = [
                ("cancel", OnAbandon::Cancel),
                ("finish", OnAbandon::Finish),
                ("forget", OnAbandon::Forget),
            ];
            own.on_abandon = problems.keep(one_of(value, &ways));
        }
        "rejoin" => {
            let whose = [
                ("caller", Rejoining::Caller),
                ("session", Rejoining::Session),
                ("off", Rejoining::Off),
            ];
            own.rejoin = problems.keep(one_of(value, &whose));
        }
        "rejoin_after" => own.rejoin_after = problems.keep(time(value)),
        "question_time" => own.question_time = problems.keep(time(value)),
        "max_result" => own.max_result = problems.keep(value.count()).map(|bytes| bytes as usize),
        _ => return false,
    }
    true
}

const EFFECTS: [(&str, Effect); 4] = [
    ("read_only", Effect::ReadOnly),
    ("idempotent", Effect::Idempotent),
    ("write", Effect::Write),
    ("destructive", Effect::Destructive),
];
const KINDS: [(&str, Kind); 5] = [
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("search", Kind::Search),
    ("list", Kind::List),
    ("batch", Kind::Batch),
];

/// A kind by its name.
pub(super) fn kind(value: &ConfigField<'_>) -> Result<Kind, Problem> {
    one_of(value, &KINDS)
}

/// A kind by the key of its table.
pub(super) fn kind_of_key(key: &str) -> Option<Kind> {
    KINDS.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind)
}

/// One of a few words.
pub(super) fn one_of<T: Copy>(value: &ConfigField<'_>, known: &[(&str, T)]) -> Result<T, Problem> {
    let ConfigString { place, text } = value.text()?;
    let found = known.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<String> = known.iter().map(|(name, _)| format!("{name:?}")).collect();
        place.problem(format!("{text:?} is not known; write {}", names.join(" or ")))
    })
}

fn retry(table: &ConfigField<'_>, problems: &mut Problems) -> RetryLayer {
    let mut layer = RetryLayer::default();
    for (key, value) in table.entries(problems) {
        match key {
            "attempts" => layer.attempts = problems.keep(value.count()),
            "base" => layer.base = problems.keep(time(&value)),
            "max" => layer.max = problems.keep(some_time(&value)),
            "jitter" => layer.jitter = problems.keep(value.number()),
            _ => problems.push(
                value.place.problem(suggest::unknown(key, &["attempts", "base", "max", "jitter"])),
            ),
        }
    }
    layer
}

const SCOPES: [(&str, Scope); 3] =
    [("tool", Scope::Tool), ("server", Scope::Server), ("global", Scope::Global)];

/// Reads a breaker's settings.
pub(super) fn breaker(table: &ConfigField<'_>, problems: &mut Problems) -> BreakerLayer {
    let mut layer = BreakerLayer::default();
    for (key, value) in table.entries(problems) {
        match key {
            "failures" => layer.failures = problems.keep(value.count()),
            "cooldown" => layer.cooldown = problems.keep(some_time(&value)),
            "probes" => layer.probes = problems.keep(value.count()),
            "successes" => layer.successes = problems.keep(value.count()),
            "slow_start" => layer.slow_start = problems.keep(value.count()),
            "scope" => layer.scope = problems.keep(one_of(&value, &SCOPES)),
            "trip_on_429" => layer.trip_on_429 = problems.keep(value.flag()),
            _ => {
                let known = [
                    "failures",
                    "cooldown",
                    "probes",
                    "successes",
                    "slow_start",
                    "scope",
                    "trip_on_429",
                ];
                problems.push(value.place.problem(suggest::unknown(key, &known)));
            }
        }
    }
    layer
}

fn cache(table: &ConfigField<'_>, problems: &mut Problems) -> CacheLayer {
    let mut layer = CacheLayer::default();
    for (key, value) in table.entries(problems) {
        match key {
            "ttl" => layer.ttl = problems.keep(some_time(&value)),
            "stale_if_error" => layer.stale_if_error = problems.keep(some_time(&value)),
            _ => problems
                .push(value.place.problem(suggest::unknown(key, &["ttl", "stale_if_error"]))),
        }
    }
    layer
}

fn loops(table: &ConfigField<'_>, problems: &mut Problems) -> LoopLayer {
    let modes =
        [("failures", LoopMode::Failures), ("calls", LoopMode::Calls), ("off", LoopMode::Off)];
    let mut layer = LoopLayer::default();
    for (key, value) in table.entries(problems) {
        match key {
            "repeats" => layer.repeats = problems.keep(value.count()),
            "window" => layer.window = problems.keep(value.count()),
            "mode" => layer.mode = problems.keep(one_of(&value, &modes)),
            _ => problems
                .push(value.place.problem(suggest::unknown(key, &["repeats", "window", "mode"]))),
        }
    }
    layer
}

/// `"p95"`, a duration, or `"off"`.
fn hedge(value: &ConfigField<'_>) -> Result<Option<HedgePolicy>, Problem> {
    let ConfigString { place, text } = value.text()?;
    if text == "off" {
        return Ok(None);
    }
    let digits =
        text.strip_prefix('p').filter(|share| share.bytes().all(|digit| digit.is_ascii_digit()));
    let share = digits.and_then(|share| share.parse::<u32>().ok());
    match share {
        Some(share @ 1..=99) => Ok(Some(HedgePolicy::Quantile(f64::from(share) / 100.0))),
        _ => match duration::parse(&text) {
            Ok(delay) => Ok(Some(HedgePolicy::After(delay))),
            Err(_) => Err(place.problem(format!(
                "{text:?} is no time to wait; write \"p95\", \"250ms\" or \"off\""
            ))),
        },
    }
}

fn fallback(list: &ConfigField<'_>, problems: &mut Problems) -> Vec<Fallback> {
    let items = list.items(problems);
    items
        .iter()
        .filter_map(
            |item| if item.is_table() { table_step(item, problems) } else { word(item, problems) },
        )
        .collect()
}

/// A step by its name.
fn word(item: &ConfigField<'_>, problems: &mut Problems) -> Option<Fallback> {
    let known = ["cached", "simplify", "previous_page", "split_batch", "queue"];
    let ConfigString { place, text } = problems.keep(item.text())?;
    let step = match text.as_str() {
        "cached" => Fallback::Cached,
        "simplify" => Fallback::Simplify(None),
        "previous_page" => Fallback::PreviousPage(None),
        "split_batch" => Fallback::OneByOne(None),
        "queue" => Fallback::Queue,
        _ => {
            let text = format!(
                "{text:?} is no fallback; known are {}, {{ tool = \"server/tool\" }} and {{ text = \"…\" }}",
                known.join(", ")
            );
            problems.push(place.problem(text));
            return None;
        }
    };
    Some(step)
}

/// A step with settings: another tool, a text, or the argument that a step works on.
fn table_step(item: &ConfigField<'_>, problems: &mut Problems) -> Option<Fallback> {
    let mut step = None;
    let mut map = None;
    for (key, value) in item.entries(problems) {
        if key == "map" {
            map = Some(
                value
                    .pairs(problems)
                    .into_iter()
                    .map(|(theirs, ours)| (theirs, ours.text))
                    .collect(),
            );
            continue;
        }
        let Some(ConfigString { place, text }) = problems.keep(value.text()) else { continue };
        let read = match (key, text.split_once('/')) {
            ("tool", Some((server, tool))) if !server.is_empty() && !tool.is_empty() => {
                Ok(Fallback::Alternate {
                    server: server.to_owned(),
                    tool: tool.to_owned(),
                    map: [].into(),
                })
            }
            ("tool", _) => {
                Err(place.problem(format!("{text:?} is no tool; write \"server/tool\"")))
            }
            ("text", _) => Ok(Fallback::Text(text)),
            ("simplify", _) => Ok(Fallback::Simplify(Some(text))),
            ("previous_page", _) => Ok(Fallback::PreviousPage(Some(text))),
            ("split_batch", _) => Ok(Fallback::OneByOne(Some(text))),
            _ => Err(place.problem(suggest::unknown(
                key,
                &["tool", "map", "text", "simplify", "previous_page", "split_batch"],
            ))),
        };
        if step.is_some() {
            problems.push(item.place.problem("says two things; make two steps of it"));
        }
        step = problems.keep(read).or(step);
    }
    match &mut step {
        Some(Fallback::Alternate { map: place, .. }) => *place = map.unwrap_or_default(),
        Some(_) if map.is_some() => {
            problems.push(item.place.problem("has a map, which is for { tool = \"server/tool\" }"))
        }
        None => problems.push(
            item.place
                .problem("says nothing; write { tool = \"server/tool\" } or { text = \"…\" }"),
        ),
        Some(_) => {}
    }
    step
}
