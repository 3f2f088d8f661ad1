//! Tests that an explanation equals the resolved policy, for random layers.

use std::time::Duration;

use proptest::prelude::*;
use seawall::{Annotations, Kind, Preset, Scope};
use serde_json::{Map, json};

use super::origin::values;
use super::*;
use crate::config;
use crate::config::layer::is_of_window;
use crate::config::layers::ToolHints;
use crate::config::policy::keys::KEYS;
use crate::config::policy::value::KINDS;

/// A value that the schema allows for a key.
fn value(key: &'static str, schema: &Value) -> BoxedStrategy<Value> {
    let steps = ["cached", "queue", "split_batch"].map(|step| json!(step)).into_iter();
    let steps: Vec<Value> = steps.chain([json!({"text": "down"})]).collect();
    let errors = ["error", "status.error"].map(|path| json!({"json": path, "mode": "count"}));
    let errors: Vec<Value> =
        errors.into_iter().chain([json!({"text": "^Error:", "transient": ["later"]})]).collect();
    let list = |of: Vec<Value>| proptest::collection::vec(proptest::sample::select(of), 0..4);
    let seconds = || (1..400_u64).prop_map(|seconds| json!(format!("{seconds}s")));
    match (schema["enum"].as_array(), schema["type"].as_str()) {
        _ if key == "fallback" => list(steps).prop_map(Value::Array).boxed(),
        _ if key == "tool_errors" => {
            let flag = any::<bool>().prop_map(Value::Bool);
            let listed = list(errors).prop_map(Value::Array);
            prop_oneof![flag, listed.prop_filter("some", |list| *list != json!([]))].boxed()
        }
        _ if key == "hedge" => prop_oneof![Just(json!("off")), seconds()].boxed(),
        (Some(words), _) => proptest::sample::select(words.clone()).boxed(),
        (None, Some("integer")) => {
            let least = schema["minimum"].as_u64().unwrap();
            (least..least + 4).prop_map(|count| json!(count)).boxed()
        }
        (None, Some("number")) => (0.0..1.0_f64).prop_map(|share| json!(share)).boxed(),
        (None, Some("boolean")) => any::<bool>().prop_map(Value::Bool).boxed(),
        (None, _) => seconds().boxed(),
    }
}

/// The settings of a place: any of the keys, under its full name.
fn said() -> BoxedStrategy<Map<String, Value>> {
    let of = |key: &'static config::policy::key::PolicyKey| {
        let value = value(key.name, &key.schema());
        proptest::option::weighted(0.3, value.prop_map(|value| (key.name.to_owned(), value)))
    };
    let keys: Vec<_> = KEYS.iter().map(of).collect();
    keys.prop_map(|said| said.into_iter().flatten().collect()).boxed()
}

/// The layer of a place with these keys.
fn layer_of(said: &Map<String, Value>) -> PolicyLayer {
    let mut written = json!({});
    for (key, value) in said {
        match key.split_once('.') {
            Some((table, key)) => written[table][key] = value.clone(),
            None => written[key] = value.clone(),
        }
    }
    config::policy::layer(&written)
}

fn layer() -> BoxedStrategy<PolicyLayer> {
    said().prop_map(|said| layer_of(&said)).boxed()
}

fn kinds() -> impl Strategy<Value = Kind> {
    proptest::sample::select(KINDS.map(|(_, kind)| kind).to_vec())
}

#[test]
fn a_layer_says_what_its_place_says() {
    proptest!(|(said in said())| {
        let layer = layer_of(&said);
        for key in KEYS.iter() {
            prop_assert_eq!(layer.value(key.name).is_some(), said.contains_key(key.name), "{}", key.name);
        }
    });
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
        defaults in layer(), kind in said(), glob in layer(), plain in layer(), of in kinds(),
        preset in prop_oneof![Just(Preset::Default), Just(Preset::Blog), Just(Preset::Gitnexus), Just(Preset::Caipe)],
    ) -> PolicyRules {
        // The table of a kind cannot state a kind: the parser refuses it.
        let kind = kind.into_iter().filter(|(key, _)| key != "kind").collect();
        let kinds = vec![(of, layer_of(&kind))];
        let tools = vec![("*/*_x".to_owned(), glob), ("s/get_x".to_owned(), plain)];
        PolicyRules { preset, defaults, kinds, tools, ..PolicyRules::default() }
    }
}

/// The model: the place that decides a key that some layer has, the nearest layer last.
fn decides<'a>(layers: &[(PolicyPlace<'a>, &PolicyLayer)], key: &str) -> Option<PolicyPlace<'a>> {
    let nearest = |key: &str| {
        let (place, layer) = layers.iter().rev().find(|(_, layer)| layer.says(key))?;
        Some((*place, layer.value(key)?.as_f64() == Some(0.0)))
    };
    let switch = |key| nearest(key).filter(|(_, is_off)| *is_off);
    let is_off = switch("breaker.failures").filter(|_| is_of_breaker(key));
    let is_off = is_off.or_else(|| switch("breaker.failure_rate").filter(|_| is_of_window(key)));
    is_off.or_else(|| nearest(key)).map(|(place, _)| place)
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
        prop_assert_eq!(decided.policy.validate(), Ok(()), "layers that are each right make a right policy");
        let told = explain(&asked);
        let mut policy = decided.policy;
        // A tool that shares a breaker has the shared breaker's settings.
        policy.breaker = policy.breaker.map(|own_one| match policy.scope {
            Scope::Tool => own_one,
            Scope::Server => rules.server(&of_server).shared,
            Scope::Global => rules.global_breaker(),
        });
        for (key, value) in values(&policy, &decided.own) {
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
            // A layer that switches the window on brings its other values, and a longer cooldown
            // raises the longest cooldown.
            let comes_along = is_of_window(key) || key == "breaker.max_cooldown";
            match (decides(&layers, key), origin) {
                (Some(place), Origin::Config(from)) => prop_assert_eq!(place, *from, "{}", key),
                (None, Origin::Config(_)) => prop_assert!(comes_along, "{}: {:?}", key, origin),
                (Some(_), _) => prop_assert!(false, "{}: {:?}", key, origin),
                (None, _) => {}
            }
        }
    }
}
