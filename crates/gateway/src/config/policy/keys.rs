//! Decides every policy key, described once: its name, its values, its meaning, and the policy
//! field it sets.
//!
//! The config reader, the layers, the schema, `explain` and the reference page follow this list. A
//! new key is a field of its policy, an entry here, and a line of the reference page, which its
//! test writes.

use std::sync::LazyLock;
use std::time::Duration;

use seawall::{BreakerPolicy, Cooldown, Policy, SlowRule, WindowRule};
use serde_json::{Map, Value as Json, json};

use super::key::{PolicyKey, Setting, key, setting};
use super::steps::Steps;
use super::tool_errors::Errors;
use super::value::{
    Concurrency, Count, EFFECTS, Flag, Hedge, JitterShare, KINDS, LOOP_MODES, ON_ABANDON, REJOIN,
    SCOPES, Share, ShareAboveZero, SomeTime, Time, ValueType, Word,
};

/// All keys, in the order in which they are shown and applied: `breaker.failures` switches a
/// breaker on or off before the other keys configure it.
pub(crate) static KEYS: LazyLock<Vec<PolicyKey>> = LazyLock::new(|| {
    let groups = [
        ("What it is", what_it_is()),
        ("Time", time()),
        ("Attempts", attempts()),
        ("Breaker", breaker()),
        ("Breaker", breaker_window()),
        ("When it fails", failure()),
        ("Bounds", bounds()),
    ];
    let under = |(heading, keys): (&'static str, Vec<PolicyKey>)| {
        keys.into_iter().map(move |key| key.under(heading))
    };
    groups.into_iter().flat_map(under).collect()
});

/// The tables among the keys, and their descriptions.
pub(super) const TABLES: [(&str, &str); 4] = [
    ("retry", "How often a failed call is tried."),
    ("breaker", "When a tool that keeps failing is not called for a while."),
    ("cache", "How long answers of tools that read are good for."),
    ("loop", "When an agent is going in circles."),
];

/// The key with this name.
pub(crate) fn find(name: &str) -> Option<&'static PolicyKey> {
    KEYS.iter().find(|key| key.name == name)
}

/// The names of the keys within a table; without a table, of the top-level keys and of all tables.
pub(super) fn known(table: Option<&str>) -> Vec<&'static str> {
    let tables = TABLES.iter().map(|(name, _)| *name).filter(|_| table.is_none());
    let names = KEYS.iter().filter_map(|key| match (key.name.split_once('.'), table) {
        (Some((of, name)), Some(table)) => (of == table).then_some(name),
        (None, None) => Some(key.name),
        _ => None,
    });
    names.chain(tables).collect()
}

/// The schema of all keys, for editors.
pub(crate) fn schema() -> Map<String, Json> {
    let within = |table: Option<&str>| -> Map<String, Json> {
        let full = |name: &str| table.map_or(name.to_owned(), |table| format!("{table}.{name}"));
        let keys = known(table).into_iter();
        keys.filter_map(|name| Some((name.to_owned(), find(&full(name))?.schema()))).collect()
    };
    let mut keys = within(None);
    for (name, doc) in TABLES {
        let mut table = json!({"description": doc, "type": "object"});
        table["properties"] = within(Some(name)).into();
        table["additionalProperties"] = json!(false);
        if name == "loop" {
            table["allOf"] = loop_bounds();
        }
        keys.insert(name.to_owned(), table);
    }
    keys
}

/// Bounds for a table that sets only one of `repeats` and `window`: the other one then has its
/// default.
fn loop_bounds() -> Json {
    json!([
        {"anyOf": [{"required": ["window"]}, {"properties": {"repeats": {"maximum": 10}}}]},
        {"anyOf": [{"required": ["repeats"]}, {"properties": {"window": {"minimum": 3}}}]},
    ])
}

/// The timeout of whole calls that a client's own file sets for a server.
pub(crate) fn call_timeout(limit: Duration) -> Setting {
    setting("timeout", SomeTime.spell(&limit), limit, |policy, _, limit| policy.timeout = limit)
}

fn what_it_is() -> Vec<PolicyKey> {
    // Both select the policy that a tool starts from, so they are looked up before any layer is
    // applied; setting them here does nothing.
    vec![
        key(
            "kind",
            Word(&KINDS),
            "The policy family; else annotations decide, else the name.",
            |_, _, _| {},
            |policy, _| policy.kind,
        ),
        key(
            "effect",
            Word(&EFFECTS),
            "What repeating the tool would do: decides whether a failed call may be sent again.",
            |_, _, _| {},
            |policy, _| Some(policy.effect),
        ),
    ]
}

fn time() -> Vec<PolicyKey> {
    vec![
        key(
            "timeout",
            SomeTime,
            "The limit over the whole call: attempts, pauses and fallbacks.",
            |policy, _, limit| policy.timeout = limit,
            |policy, _| Some(policy.timeout),
        ),
        key(
            "attempt_timeout",
            SomeTime,
            "The limit of one attempt.",
            |policy, _, limit| policy.attempt_timeout = Some(limit),
            |policy, _| policy.attempt_timeout,
        ),
        key(
            "idle_timeout",
            SomeTime,
            "An attempt of which nothing is heard for so long is given up; progress counts.",
            |_, own, limit| own.idle_timeout = Some(limit),
            |_, own| own.idle_timeout,
        ),
        key(
            "client_timeout",
            SomeTime,
            "The client's own limit: shortly before it, the client is told that the call still runs.",
            |_, own, limit| own.client_timeout = Some(limit),
            |_, own| own.client_timeout,
        ),
        key(
            "on_abandon",
            Word(&ON_ABANDON),
            "What becomes of a call whose client gave up.",
            |_, own, way| own.on_abandon = way,
            |_, own| Some(own.on_abandon),
        ),
        key(
            "rejoin",
            Word(&REJOIN),
            "Who counts as the same caller when the identical call is made again while the first runs: \
             the client, its session only, or nobody.",
            |_, own, whose| own.rejoin = whose,
            |_, own| Some(own.rejoin),
        ),
        key(
            "rejoin_after",
            Time,
            "How long after a call the identical one means that its client has given it up; sooner, \
             both are meant. \"0s\": it always has.",
            |_, own, after| own.rejoin_after = after,
            |_, own| Some(own.rejoin_after),
        ),
        key(
            "question_time",
            Time,
            "How long a call waits for what its server asks the client, over all questions; its own \
             time stands still meanwhile. \"0s\": it never does.",
            |_, own, limit| own.question_time = limit,
            |_, own| Some(own.question_time),
        ),
    ]
}

fn attempts() -> Vec<PolicyKey> {
    vec![
        key(
            "tool_concurrency",
            Concurrency,
            "How many calls of each tool run at a time, so that a slow one does not take all that its \
             server bears; 0: no limit of its own.",
            |policy, _, bulkhead| policy.slots = bulkhead,
            |policy, _| Some(policy.slots),
        ),
        key(
            "retry.attempts",
            Count { least: 1, most: 100, example: 3 },
            "Attempts in all, the first included.",
            |policy, _, attempts| policy.retry.attempts = attempts,
            |policy, _| Some(policy.retry.attempts),
        ),
        key(
            "retry.base",
            Time,
            "The first pause; each is twice the one before. \"0s\": no pauses.",
            |policy, _, base| policy.retry.backoff.base = base,
            |policy, _| Some(policy.retry.backoff.base),
        ),
        key(
            "retry.max",
            SomeTime,
            "The longest pause.",
            |policy, _, max| policy.retry.backoff.max = max,
            |policy, _| Some(policy.retry.backoff.max),
        ),
        key(
            "retry.jitter",
            JitterShare,
            "The share of a pause that is added by chance, at most.",
            |policy, _, jitter| policy.retry.backoff.jitter = jitter,
            |policy, _| Some(policy.retry.backoff.jitter),
        ),
        key(
            "uncertain_write_hold",
            Time,
            "How long a write that may have run is not sent again, unless its client read from the \
             server since, which after a timeout shows nothing; \"0s\" switches it off.",
            |policy, _, hold| policy.uncertain_write_hold = (!hold.is_zero()).then_some(hold),
            |policy, _| policy.uncertain_write_hold,
        ),
        key(
            "tool_errors",
            Errors,
            "Which of a tool's own errors are failures: those marked as errors that plainly carry an \
             upstream status (true), none (false), or those and the ones that a pattern finds in \
             answers not marked as errors.",
            |policy, _, errors| policy.tool_errors = errors,
            |policy, _| Some(policy.tool_errors.clone()),
        ),
        key(
            "hedge",
            Hedge,
            "When a slow read gets a second attempt beside it: after the time in which so many of its \
             calls end, after a time, or never.",
            |policy, _, hedge| policy.hedge = hedge,
            |policy, _| Some(policy.hedge),
        ),
    ]
}

/// Changes a breaker that is on.
fn on(policy: &mut Policy, set: impl FnOnce(&mut BreakerPolicy)) {
    if let Some(breaker) = &mut policy.breaker {
        set(breaker);
    }
}

/// Reads a value of a breaker that is on.
fn of_breaker<T>(policy: &Policy, get: fn(&BreakerPolicy) -> T) -> Option<T> {
    policy.breaker.as_ref().map(get)
}

/// A cool-down of another length; it grows if the previous one did.
fn of_length(base: Duration, breaker: &BreakerPolicy) -> Cooldown {
    let before = breaker.cooldown;
    let max = if before.growth > 1.0 { before.max.max(base) } else { base };
    Cooldown { base, max, ..before }
}

/// The sliding window of a breaker, switched on if it was off.
fn window(breaker: &mut BreakerPolicy) -> &mut WindowRule {
    let length = Duration::from_secs(60);
    let usual = WindowRule { length, min_calls: 20, failure_rate: 0.5, slow: None };
    breaker.window.get_or_insert(usual)
}

/// The slow-call rule of a breaker's window, switched on if it was off.
fn slow(breaker: &mut BreakerPolicy) -> &mut SlowRule {
    window(breaker).slow.get_or_insert(SlowRule { after: Duration::from_secs(60), rate: 0.5 })
}

/// Reads a value of a breaker's window, if it has one.
fn of_window<T>(policy: &Policy, get: fn(&WindowRule) -> T) -> Option<T> {
    policy.breaker.as_ref()?.window.as_ref().map(get)
}

/// Reads a value of the slow-call rule, if there is one.
fn of_slow<T>(policy: &Policy, get: fn(&SlowRule) -> T) -> Option<T> {
    policy.breaker.as_ref()?.window.as_ref()?.slow.as_ref().map(get)
}

fn breaker() -> Vec<PolicyKey> {
    vec![
        key(
            "breaker.failures",
            Count { least: 0, most: 10_000, example: 5 },
            "Failures in a row that open it; 0 switches it off, until a nearer place sets this key.",
            |policy, _, failures| match failures {
                0 => policy.breaker = None,
                failures => policy.breaker.get_or_insert_default().failures = failures,
            },
            |policy, _| Some(of_breaker(policy, |breaker| breaker.failures).unwrap_or_default()),
        ),
        key(
            "breaker.cooldown",
            SomeTime,
            "How long it stays open.",
            |policy, _, base| on(policy, |breaker| breaker.cooldown = of_length(base, breaker)),
            |policy, _| of_breaker(policy, |breaker| breaker.cooldown.base),
        ),
        key(
            "breaker.max_cooldown",
            SomeTime,
            "The longest time that it stays open: each opening in a row lasts twice as long as the one \
             before, up to this.",
            |policy, _, max| {
                on(policy, |breaker| {
                    breaker.cooldown = Cooldown::growing(breaker.cooldown.base, max);
                })
            },
            |policy, _| {
                let cooldown = policy.breaker.as_ref()?.cooldown;
                (cooldown.growth > 1.0).then_some(cooldown.max)
            },
        ),
        key(
            "breaker.probes",
            Count { least: 1, most: 1000, example: 1 },
            "Calls that are tried at a time after that.",
            |policy, _, probes| on(policy, |breaker| breaker.probes = probes),
            |policy, _| of_breaker(policy, |breaker| breaker.probes),
        ),
        key(
            "breaker.successes",
            Count { least: 1, most: 1000, example: 1 },
            "How many of them must succeed to close it.",
            |policy, _, successes| on(policy, |breaker| breaker.successes = successes),
            |policy, _| of_breaker(policy, |breaker| breaker.successes),
        ),
        key(
            "breaker.slow_start",
            Count { least: 0, most: 100_000, example: 10 },
            "Calls at once after that; each that succeeds makes room for one more, for one cool-down. \
             0 sets no bound.",
            |policy, _, calls| on(policy, |breaker| breaker.slow_start = calls),
            |policy, _| of_breaker(policy, |breaker| breaker.slow_start),
        ),
        key(
            "breaker.trip_on_429",
            Flag,
            "Whether a server that asks for a pause (429) counts as failing.",
            |policy, _, trips| on(policy, |breaker| breaker.trip_on_429 = trips),
            |policy, _| of_breaker(policy, |breaker| breaker.trip_on_429),
        ),
        key(
            "breaker.scope",
            Word(&SCOPES),
            "With whom it is shared.",
            |policy, _, scope| policy.scope = scope,
            |policy, _| Some(policy.scope),
        ),
    ]
}

fn breaker_window() -> Vec<PolicyKey> {
    vec![
        key(
            "breaker.window",
            SomeTime,
            "How far back calls count for the shares of failed and slow ones.",
            |policy, _, length| on(policy, |breaker| window(breaker).length = length),
            |policy, _| of_window(policy, |window| window.length),
        ),
        key(
            "breaker.min_calls",
            Count { least: 1, most: 1_000_000, example: 20 },
            "Below so many calls within the window, no share opens it.",
            |policy, _, calls| on(policy, |breaker| window(breaker).min_calls = calls),
            |policy, _| of_window(policy, |window| window.min_calls),
        ),
        key(
            "breaker.slow_call",
            SomeTime,
            "A call that takes longer is slow.",
            |policy, _, after| on(policy, |breaker| slow(breaker).after = after),
            |policy, _| of_slow(policy, |slow| slow.after),
        ),
        key(
            "breaker.slow_call_rate",
            ShareAboveZero,
            "The share of slow calls within the window that opens it too; 0.5 where `slow_call` is set.",
            |policy, _, rate| on(policy, |breaker| slow(breaker).rate = rate),
            |policy, _| of_slow(policy, |slow| slow.rate),
        ),
        key(
            "breaker.failure_rate",
            Share,
            "The share of failed calls within the window that opens it too, beside a row of failures; \
             0 switches the window off, until a nearer place sets this key. Otherwise a place that \
             sets any key of the window switches it on; until a place says otherwise it is 0.5 of at \
             least 20 calls in 60s, slow after 60s. \
             Judged at every call.",
            |policy, _, rate| {
                on(policy, |breaker| match rate {
                    0.0 => breaker.window = None,
                    rate => window(breaker).failure_rate = rate,
                })
            },
            |policy, _| of_window(policy, |window| window.failure_rate),
        ),
    ]
}

fn failure() -> Vec<PolicyKey> {
    vec![
        key(
            "cache.ttl",
            SomeTime,
            "A copy answers calls for so long, without asking the server.",
            |policy, _, ttl| policy.cache.fresh = Some(ttl),
            |policy, _| policy.cache.fresh,
        ),
        key(
            "cache.stale_if_error",
            SomeTime,
            "A copy stands in for a failed call for so long, labelled with its age.",
            |policy, _, stale| policy.cache.stale_if_error = Some(stale),
            |policy, _| policy.cache.stale_if_error,
        ),
        key(
            "fallback",
            Steps,
            "What to do when the tool fails, in this order.",
            |policy, _, steps| policy.fallback = steps,
            |policy, _| Some(policy.fallback.clone()),
        ),
    ]
}

fn bounds() -> Vec<PolicyKey> {
    vec![
        key(
            "loop.mode",
            Word(&LOOP_MODES),
            "What counts: calls that failed, all calls, or nothing.",
            |policy, _, mode| policy.loops.mode = mode,
            |policy, _| Some(policy.loops.mode),
        ),
        key(
            "loop.repeats",
            Count { least: 2, most: 1000, example: 3 },
            "How many identical calls are too many; not more than the window.",
            |policy, _, repeats| policy.loops.repeats = repeats,
            |policy, _| Some(policy.loops.repeats),
        ),
        key(
            "loop.window",
            Count { least: 2, most: 1000, example: 10 },
            "Among how many of the session's last calls.",
            |policy, _, window| policy.loops.window = window,
            |policy, _| Some(policy.loops.window),
        ),
        key(
            "max_result",
            Count { least: 1, most: u32::MAX, example: 1_000_000 },
            "The largest result that is passed on whole, in bytes.",
            |_, own, bytes| own.max_result = Some(bytes as usize),
            |_, own| own.max_result.and_then(|bytes| u32::try_from(bytes).ok()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use seawall::{Backoff, CachePolicy, LoopPolicy, RetryPolicy};

    use super::*;
    use crate::config::layer::GatewayPolicy;

    /// A policy with a new field does not compile here until the field has its key.
    #[test]
    fn every_field_of_a_policy_has_its_key() {
        let reads = seawall::ToolFacts::named("get_x");
        let policy = seawall::Preset::Default.policy(&reads, &seawall::Tiers::default());
        let Policy {
            kind: _,
            effect: _,
            timeout: _,
            attempt_timeout: _,
            slots: _,
            retry: RetryPolicy { attempts: _, backoff, .. },
            breaker: _,
            scope: _,
            cache: CachePolicy { fresh: _, stale_if_error: _ },
            fallback: _,
            loops: LoopPolicy { mode: _, repeats: _, window: _ },
            uncertain_write_hold: _,
            hedge: _,
            tool_errors: _,
        } = policy;
        let Backoff { base: _, max: _, jitter: _, clamp: _ } = backoff;
        let GatewayPolicy {
            idle_timeout: _,
            client_timeout: _,
            on_abandon: _,
            rejoin: _,
            rejoin_after: _,
            question_time: _,
            max_result: _,
        } = GatewayPolicy::default();
    }

    #[test]
    fn a_key_stands_once_and_in_a_table_that_there_is() {
        let names: BTreeSet<&str> = KEYS.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), KEYS.len());
        for (table, _) in names.iter().filter_map(|name| name.split_once('.')) {
            assert!(TABLES.iter().any(|(known, _)| *known == table), "{table}");
        }
    }
}
