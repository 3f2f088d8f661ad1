//! A policy as a list of single values, under the keys and in the spelling of a configuration.

use std::time::Duration;

use seawall::{
    BreakerPolicy, Effect, ErrorMatcher, ErrorMode, ErrorPattern, Fallback, HedgePolicy, Jitter,
    Kind, LoopMode, Policy, Rate, RetryPolicy, Scope, ToolErrors, TransientErrors,
};
use serde_json::{Value, json};

use crate::config::layer::{GatewayPolicy, OnAbandon, Rejoining};

/// The values of a policy. All policies have the same keys in the same order; what is not set is
/// null.
pub(super) fn of(policy: &Policy, own: &GatewayPolicy) -> Vec<(&'static str, Value)> {
    // Named one by one, so that a policy that gets a value more does not go without it here.
    let Policy {
        kind,
        effect,
        timeout,
        attempt_timeout,
        slots,
        retry,
        breaker,
        scope,
        cache,
        fallback,
        loops,
        uncertain_write_hold,
        hedge,
        tool_errors,
    } = policy;
    let GatewayPolicy {
        idle_timeout,
        client_timeout,
        on_abandon,
        rejoin,
        rejoin_after,
        question_time,
        max_result,
    } = own;
    let RetryPolicy { attempts, backoff, .. } = retry;
    let on = |value: fn(&BreakerPolicy) -> Value| breaker.as_ref().map_or(Value::Null, value);
    vec![
        ("kind", json!(kind)),
        ("effect", json!(effect)),
        ("timeout", time(*timeout)),
        ("attempt_timeout", maybe(*attempt_timeout)),
        ("idle_timeout", maybe(*idle_timeout)),
        ("client_timeout", maybe(*client_timeout)),
        ("on_abandon", json!(abandon(*on_abandon))),
        ("rejoin", json!(rejoining(*rejoin))),
        ("rejoin_after", time(*rejoin_after)),
        ("question_time", time(*question_time)),
        ("tool_concurrency", json!(slots.map(|slots| slots.concurrency))),
        ("retry.attempts", json!(attempts)),
        ("retry.base", time(backoff.base)),
        ("retry.max", time(backoff.max)),
        ("retry.jitter", jitter(backoff.jitter)),
        ("uncertain_write_hold", maybe(*uncertain_write_hold)),
        ("tool_errors", errors(tool_errors)),
        ("hedge", hedge.map_or(Value::Null, hedged)),
        ("breaker.failures", breaker.as_ref().map_or(json!(0), |breaker| json!(breaker.failures))),
        ("breaker.cooldown", on(|breaker| time(breaker.cooldown.base))),
        ("breaker.probes", on(|breaker| json!(breaker.probes))),
        ("breaker.successes", on(|breaker| json!(breaker.successes))),
        ("breaker.slow_start", on(|breaker| json!(breaker.slow_start))),
        ("breaker.trip_on_429", on(|breaker| json!(breaker.trip_on_429))),
        ("breaker.scope", json!(scope_word(*scope))),
        ("cache.ttl", maybe(cache.fresh)),
        ("cache.stale_if_error", maybe(cache.stale_if_error)),
        ("fallback", fallback.iter().map(step).collect()),
        ("loop.mode", json!(counted(loops.mode))),
        ("loop.repeats", json!(loops.repeats)),
        ("loop.window", json!(loops.window)),
        ("max_result", json!(max_result)),
    ]
}

/// A duration as a configuration spells it.
pub(super) fn spelled(duration: Duration) -> String {
    let (seconds, ms) = (duration.as_secs(), duration.subsec_millis());
    match (seconds, ms) {
        (_, 1..) => format!("{}ms", duration.as_millis()),
        (3600.., 0) if seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        (121.., 0) if seconds % 60 == 0 => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

/// A rate as a configuration spells it.
pub(super) fn rate(rate: &Rate) -> String {
    let unit = match rate.per.as_secs() {
        1 => "s".to_owned(),
        60 => "m".to_owned(),
        3600 => "h".to_owned(),
        _ => spelled(rate.per),
    };
    format!("{}/{unit}", rate.count)
}

/// A kind by its name.
pub(super) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Search => "search",
        Kind::List => "list",
        Kind::Batch => "batch",
    }
}

/// An effect by its name.
pub(super) fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::ReadOnly => "read_only",
        Effect::Idempotent => "idempotent",
        Effect::Write => "write",
        Effect::Destructive => "destructive",
    }
}

/// A step of a fallback chain, as a configuration writes it.
pub(super) fn step(step: &Fallback) -> Value {
    let named = |word: &str, argument: &Option<String>| match argument {
        Some(argument) => json!({word: argument}),
        None => json!(word),
    };
    match step {
        Fallback::Cached => json!("cached"),
        Fallback::Simplify(argument) => named("simplify", argument),
        Fallback::PreviousPage(argument) => named("previous_page", argument),
        Fallback::OneByOne(argument) => named("split_batch", argument),
        Fallback::Queue => json!("queue"),
        Fallback::Alternate { server, tool, map } if map.is_empty() => {
            json!({"tool": format!("{server}/{tool}")})
        }
        Fallback::Alternate { server, tool, map } => {
            json!({"tool": format!("{server}/{tool}"), "map": map})
        }
        Fallback::Text(text) => json!({"text": text}),
    }
}

pub(super) fn time(duration: Duration) -> Value {
    json!(spelled(duration))
}

/// Which errors are failures, as a configuration writes it.
fn errors(errors: &ToolErrors) -> Value {
    let pattern = |pattern: &ErrorPattern| {
        let mut written = match &pattern.find {
            ErrorMatcher::Json(path) => json!({"json": path}),
            ErrorMatcher::Text(text) => json!({"text": text}),
        };
        match &pattern.transient {
            TransientErrors::Plain => {}
            TransientErrors::Saying(words) => written["transient"] = json!(words),
            TransientErrors::All => written["transient"] = json!(true),
        }
        if pattern.mode == ErrorMode::Count {
            written["mode"] = json!("count");
        }
        written
    };
    match errors.patterns.as_slice() {
        [] => json!(errors.marked),
        patterns => patterns.iter().map(pattern).collect(),
    }
}

fn maybe(duration: Option<Duration>) -> Value {
    duration.map_or(Value::Null, time)
}

fn jitter(jitter: Jitter) -> Value {
    match jitter {
        Jitter::None => json!(0),
        Jitter::Additive(share) => json!(share),
        // What no configuration can say is told by its name.
        other => json!(format!("{other:?}")),
    }
}

fn hedged(hedge: HedgePolicy) -> Value {
    match hedge {
        HedgePolicy::After(delay) => time(delay),
        HedgePolicy::Quantile(share) => json!(format!("p{:.0}", share * 100.0)),
    }
}

/// The word for who shares a breaker.
pub(crate) fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Tool => "tool",
        Scope::Server => "server",
        Scope::Global => "global",
    }
}

fn counted(mode: LoopMode) -> &'static str {
    match mode {
        LoopMode::Failures => "failures",
        LoopMode::Calls => "calls",
        LoopMode::Off => "off",
    }
}

fn rejoining(rejoin: Rejoining) -> &'static str {
    match rejoin {
        Rejoining::Caller => "caller",
        Rejoining::Session => "session",
        Rejoining::Off => "off",
    }
}

fn abandon(way: OnAbandon) -> &'static str {
    match way {
        OnAbandon::Cancel => "cancel",
        OnAbandon::Finish => "finish",
        OnAbandon::Forget => "forget",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_spelled_as_they_are_read() {
        for text in ["250ms", "0s", "1500ms", "60s", "90s", "120s", "5m", "1h"] {
            let duration = seawall::parse_duration("x", text).unwrap();
            assert_eq!(spelled(duration), text);
        }
        let rate = |count, per| rate(&Rate { count, per: Duration::from_secs(per), burst: count });
        assert_eq!(
            (rate(20, 1), rate(5, 60), rate(9, 3600)),
            ("20/s".into(), "5/m".into(), "9/h".into())
        );
    }
}
