//! What is explained is what is resolved, whatever the layers say.

use std::time::Duration;

use proptest::prelude::*;
use seawall::{
    Annotations, Effect, ErrorMatcher, ErrorMode, ErrorPattern, Fallback, HedgePolicy, Kind,
    LoopMode, Preset, Scope, ToolErrors, TransientErrors,
};

use super::*;
use crate::config::layer::{
    BreakerLayer, CacheLayer, GatewayLayer, LoopLayer, OnAbandon, Rejoining, RetryLayer,
};
use crate::config::layers::ToolHints;

fn time() -> BoxedStrategy<Option<Duration>> {
    maybe((1..400_u64).prop_map(Duration::from_secs))
}

fn maybe<T: Clone + std::fmt::Debug + 'static>(
    choice: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    proptest::option::weighted(0.3, choice).boxed()
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Read),
        Just(Kind::Write),
        Just(Kind::Search),
        Just(Kind::List),
        Just(Kind::Batch)
    ]
}

fn effects() -> impl Strategy<Value = Effect> {
    prop_oneof![
        Just(Effect::ReadOnly),
        Just(Effect::Idempotent),
        Just(Effect::Write),
        Just(Effect::Destructive)
    ]
}

fn breaker() -> BoxedStrategy<BreakerLayer> {
    let scope = maybe(prop_oneof![Just(Scope::Tool), Just(Scope::Server), Just(Scope::Global)]);
    (
        maybe(0..4_u32),
        time(),
        maybe(1..4_u32),
        maybe(1..4_u32),
        maybe(0..4_u32),
        scope,
        maybe(any::<bool>()),
    )
        .prop_map(|(failures, cooldown, probes, successes, slow_start, scope, trip_on_429)| {
            BreakerLayer { failures, cooldown, probes, successes, slow_start, scope, trip_on_429 }
        })
        .boxed()
}

fn steps() -> impl Strategy<Value = Vec<Fallback>> {
    let step = prop_oneof![
        Just(Fallback::Cached),
        Just(Fallback::Queue),
        Just(Fallback::OneByOne(None)),
        Just(Fallback::Text("down".to_owned()))
    ];
    proptest::collection::vec(step, 0..4)
}

fn own() -> BoxedStrategy<GatewayLayer> {
    let ways =
        prop_oneof![Just(OnAbandon::Cancel), Just(OnAbandon::Finish), Just(OnAbandon::Forget)];
    let whose =
        prop_oneof![Just(Rejoining::Caller), Just(Rejoining::Session), Just(Rejoining::Off)];
    (time(), time(), maybe(ways), maybe(whose), time(), time(), maybe(1..9_usize))
        .prop_map(
            |(
                idle_timeout,
                client_timeout,
                on_abandon,
                rejoin,
                rejoin_after,
                question_time,
                max_result,
            )| {
                GatewayLayer {
                    idle_timeout,
                    client_timeout,
                    on_abandon,
                    rejoin,
                    rejoin_after,
                    question_time,
                    max_result,
                }
            },
        )
        .boxed()
}

fn tool_errors() -> BoxedStrategy<ToolErrors> {
    let find = prop_oneof![
        Just(ErrorMatcher::Json("error".to_owned())),
        Just(ErrorMatcher::Text("^Error:".to_owned()))
    ];
    let words = TransientErrors::Saying(vec!["retry later".to_owned()]);
    let transient =
        prop_oneof![Just(TransientErrors::Plain), Just(words), Just(TransientErrors::All)];
    let mode = prop_oneof![Just(ErrorMode::Fail), Just(ErrorMode::Count)];
    let pattern = (find, transient, mode).prop_map(|(find, transient, mode)| ErrorPattern {
        find,
        transient,
        mode,
    });
    let listed = proptest::collection::vec(pattern, 1..3)
        .prop_map(|patterns| ToolErrors { patterns, ..ToolErrors::MARKED });
    prop_oneof![Just(ToolErrors::MARKED), Just(ToolErrors::NONE), listed].boxed()
}

/// Boxed, as the others here: so many values at once do not fit on a stack.
fn layer() -> BoxedStrategy<PolicyLayer> {
    let retry = (maybe(1..9_u32), time(), time(), maybe(0.0..1.0_f64))
        .prop_map(|(attempts, base, max, jitter)| RetryLayer { attempts, base, max, jitter });
    let cache =
        (time(), time()).prop_map(|(ttl, stale_if_error)| CacheLayer { ttl, stale_if_error });
    let modes = prop_oneof![Just(LoopMode::Failures), Just(LoopMode::Calls), Just(LoopMode::Off)];
    let loops = (maybe(2..5_u32), maybe(5..9_u32), maybe(modes))
        .prop_map(|(repeats, window, mode)| LoopLayer { repeats, window, mode });
    let hedge = maybe(maybe(
        time().prop_map(|time| HedgePolicy::After(time.unwrap_or(Duration::from_secs(7)))),
    ));
    let first = (
        maybe(kinds()),
        maybe(effects()),
        time(),
        time(),
        maybe(0..9_u32),
        retry,
        breaker(),
        cache,
    );
    (first, maybe(steps()), loops, time(), hedge, maybe(tool_errors()), own())
        .prop_map(|(first, fallback, loops, uncertain_write_hold, hedge, tool_errors, own)| {
            let (kind, effect, timeout, attempt_timeout, tool_concurrency, retry, breaker, cache) =
                first;
            PolicyLayer {
                kind,
                effect,
                timeout,
                attempt_timeout,
                tool_concurrency,
                retry,
                breaker,
                cache,
                fallback,
                loops,
                uncertain_write_hold,
                hedge,
                tool_errors,
                own,
            }
        })
        .boxed()
}

fn hints() -> impl Strategy<Value = ToolHints> {
    let hint = || proptest::option::of(any::<bool>());
    (hint(), hint(), hint(), any::<bool>()).prop_map(
        |(read_only_hint, destructive_hint, idempotent_hint, output)| {
            let annotations = Annotations { read_only_hint, destructive_hint, idempotent_hint };
            ToolHints { annotations, has_output_schema: output, ..ToolHints::default() }
        },
    )
}

prop_compose! {
    fn rules()(
        defaults in layer(), kind in layer(), glob in layer(), plain in layer(), of in kinds(),
        preset in prop_oneof![Just(Preset::Default), Just(Preset::Blog), Just(Preset::Gitnexus), Just(Preset::Caipe)],
    ) -> PolicyRules {
        // A table of a kind does not state a kind: the parser says so.
        let kinds = vec![(of, PolicyLayer { kind: None, ..kind })];
        let tools = vec![("*/*_x".to_owned(), glob), ("s/get_x".to_owned(), plain)];
        PolicyRules { preset, defaults, kinds, tools, ..PolicyRules::default() }
    }
}

/// What one layer says under a key, written down a second time: the model.
fn says(layer: &PolicyLayer, key: &str) -> bool {
    let PolicyLayer { retry, breaker, cache, loops, own, .. } = layer;
    let is_off = breaker.failures == Some(0);
    match key {
        "timeout" => layer.timeout.is_some(),
        "attempt_timeout" => layer.attempt_timeout.is_some(),
        "idle_timeout" => own.idle_timeout.is_some(),
        "client_timeout" => own.client_timeout.is_some(),
        "on_abandon" => own.on_abandon.is_some(),
        "rejoin" => own.rejoin.is_some(),
        "rejoin_after" => own.rejoin_after.is_some(),
        "question_time" => own.question_time.is_some(),
        "max_result" => own.max_result.is_some(),
        "tool_concurrency" => layer.tool_concurrency.is_some(),
        "retry.attempts" => retry.attempts.is_some(),
        "retry.base" => retry.base.is_some(),
        "retry.max" => retry.max.is_some(),
        "retry.jitter" => retry.jitter.is_some(),
        "uncertain_write_hold" => layer.uncertain_write_hold.is_some(),
        "tool_errors" => layer.tool_errors.is_some(),
        "hedge" => layer.hedge.is_some(),
        "breaker.failures" => breaker.failures.is_some(),
        "breaker.cooldown" => is_off || breaker.cooldown.is_some(),
        "breaker.probes" => is_off || breaker.probes.is_some(),
        "breaker.successes" => is_off || breaker.successes.is_some(),
        "breaker.slow_start" => is_off || breaker.slow_start.is_some(),
        "breaker.trip_on_429" => is_off || breaker.trip_on_429.is_some(),
        "breaker.scope" => breaker.scope.is_some(),
        "cache.ttl" => cache.ttl.is_some(),
        "cache.stale_if_error" => cache.stale_if_error.is_some(),
        "fallback" => layer.fallback.is_some(),
        "loop.mode" => loops.mode.is_some(),
        "loop.repeats" => loops.repeats.is_some(),
        "loop.window" => loops.window.is_some(),
        _ => panic!("{key} is not known to the model"),
    }
}

fn asked<'a>(
    rules: &'a PolicyRules,
    of_server: &'a ServerRules,
    tool: &'a str,
    listed: &'a ListedTool,
) -> ExplainQuery<'a> {
    ExplainQuery {
        file: None,
        rules,
        server: "s",
        of_server,
        is_heard: true,
        wait: Duration::from_secs(20),
        has_store: false,
        tool,
        listed: Some(listed),
        env: &|_| None,
    }
}

proptest! {
    #[test]
    fn what_is_explained_is_what_is_resolved(
        rules in rules(), layer in layer(), hints in hints(), distrust_annotations in any::<bool>(),
        tool in prop_oneof![Just("get_x"), Just("create_x"), Just("frob"), Just("bulk_x")],
    ) {
        let of_server = ServerRules { distrust_annotations, layer, ..ServerRules::default() };
        let listed = ListedTool { hints, ..ListedTool::default() };
        let asked = asked(&rules, &of_server, tool, &listed);
        let (traced, _) = trace(&asked);
        let decided = listed.decide(&rules, "s", &of_server, tool);
        prop_assert_eq!((&traced.policy, &traced.own), (&decided.policy, &decided.own));
        let told = explain(&asked);
        let mut policy = decided.policy;
        // Who shares a breaker has the one that is shared.
        policy.breaker = policy.breaker.map(|own_one| match policy.scope {
            Scope::Tool => own_one,
            Scope::Server => rules.server(&of_server).shared,
            Scope::Global => rules.global_breaker(),
        });
        for (key, value) in values::of(&policy, &decided.own) {
            prop_assert_eq!(&told.value(key).unwrap().value, &value, "{}", key);
        }
    }

    #[test]
    fn the_nearest_layer_that_says_a_value_is_its_origin(
        rules in rules(), layer in layer(), hints in hints(), tool in prop_oneof![Just("get_x"), Just("frob")],
    ) {
        let of_server = ServerRules { layer, ..ServerRules::default() };
        let listed = ListedTool { hints, ..ListedTool::default() };
        let (traced, _) = trace(&asked(&rules, &of_server, tool, &listed));
        let layers = rules.layers("s", &of_server, tool, traced.policy.kind);
        for ((key, _), origin) in traced.values().into_iter().zip(&traced.origins).skip(2) {
            let nearest = layers.iter().rev().find(|(_, layer)| says(layer, key)).map(|(place, _)| *place);
            // A breaker that is switched on again starts from the built-in one: whoever switches it
            // on brings its values.
            let is_revived = key.starts_with("breaker.") && layers.iter().any(|(_, layer)| layer.breaker.failures == Some(0));
            match (nearest, origin) {
                (Some(place), Origin::Config(from)) => prop_assert!(is_revived || place == *from, "{}", key),
                (None, Origin::Config(_)) | (Some(_), _) => prop_assert!(is_revived, "{}: {:?}", key, origin),
                (None, _) => {}
            }
        }
    }
}
