//! The schema and the reader agree on every key, with values of every sort, one at a time.
//!
//! Checks that need the whole file are left to the reader; `OF_THE_WHOLE` lists them.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::schema::{CHECK, all_tables, file_with};
use super::*;

/// Problems that concern several fields: servers named elsewhere, durations that are compared, a
/// missing store.
const OF_THE_WHOLE: [&str; 8] = [
    "needs [identity]",
    "there is no server",
    "is not a server of this file",
    "needs audiences, or identity.resource",
    "must not be shorter than base",
    "must not be shorter than cooldown",
    "needs a place where calls wait",
    "already; keep one",
];

/// The verdict of the reader, and that of the schema.
fn judged(file: &Json) -> (Vec<String>, Vec<String>) {
    let env = |name: &str| (name == "TOKEN").then(|| "x".to_owned());
    let mut problems = Problems::default();
    let _config =
        read_text(Path::new("seawall.json"), &file.to_string(), &env, true, &mut problems);
    let said = problems.iter().map(ToString::to_string).collect();
    (
        said,
        CHECK
            .iter_errors(file)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect(),
    )
}

/// `None` if both agree.
fn difference(file: &Json) -> Option<String> {
    let (reader, schema) = judged(file);
    let is_of_the_whole = |text: &String| OF_THE_WHOLE.iter().any(|words| text.contains(words));
    // Only the reader knows the value of a reference.
    let is_open = file.to_string().contains("${");
    let is_refused =
        reader.iter().any(|text| !is_of_the_whole(text)) && !(is_open && schema.is_empty());
    match (is_refused, schema.is_empty()) {
        (true, true) => Some(format!("the reader refuses it, the schema does not: {reader:?}")),
        (false, false) => Some(format!("the schema refuses it, the reader does not: {schema:?}")),
        _ => None,
    }
}

/// Values of every sort: each is right for some keys and wrong for others.
fn values() -> Vec<Json> {
    serde_json::from_str(include_str!("samples/values.json")).unwrap()
}

/// The servers that a field is tried with: reachable, switched off, or empty.
fn servers() -> [Json; 4] {
    [
        json!({"command": "x"}),
        json!({"url": "https://x.example/mcp"}),
        json!({"command": "x", "disabled": true}),
        json!({"enabled": false}),
    ]
}

#[test]
fn the_schema_and_the_reader_judge_every_field_alike() {
    let (values, mut seen, mut wrong, mut tried) = (values(), BTreeSet::new(), Vec::new(), 0);
    for (way, table) in all_tables() {
        // The same table stands in many places.
        if !seen.insert(table["properties"].to_string()) {
            continue;
        }
        let is_server = way.len() == 2 && way[0] == "servers";
        for key in table["properties"].as_object().unwrap().keys() {
            for server in servers().iter().take(if is_server { 4 } else { 1 }) {
                for value in &values {
                    let file = file_with(&way, key, value.clone(), server.clone());
                    tried += 1;
                    wrong.extend(
                        difference(&file)
                            .map(|why| format!("{way:?} {key} = {value} ({server}): {why}")),
                    );
                }
            }
        }
    }
    assert!(tried > 10_000, "{tried}");
    assert!(wrong.is_empty(), "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_schema_and_the_reader_judge_whole_files_alike() {
    let one = json!({"command": "x"});
    let servers = |servers: Json| json!({"listen": "127.0.0.1:1", "servers": servers});
    let with = |key: &str, value: Json| {
        let mut file = servers(json!({"a": one}));
        file[key] = value;
        file
    };
    let server = |fields: Json| servers(json!({"a": fields}));
    for (is_good, file) in [
        (true, servers(json!({"a": one}))),
        (false, json!({"listen": "127.0.0.1:1"})),
        (false, servers(json!({}))),
        (false, servers(json!([]))),
        (false, servers(json!({"a": {"command": "x", "enabled": false}}))),
        (false, servers(json!({"a": {"disabled": true}, "b": {"command": "x", "disabled": true}}))),
        (true, servers(json!({"a": {"disabled": true}, "b": one}))),
        (true, servers(json!({"a": {"enabled": true, "disabled": false, "command": "x"}}))),
        (false, servers(json!({"a": one, "b": {"enabled": true}}))),
        (false, servers(json!({"a": one, "b": {"disabled": false}}))),
        (false, servers(json!({"a_": one}))),
        (false, servers(json!({"a b": one}))),
        (false, servers(json!({"a__b": one}))),
        (false, servers(json!({"": one}))),
        (false, servers(json!({"..": one}))),
        (false, servers(json!({"x".repeat(65): one}))),
        (true, servers(json!({"x".repeat(64): one}))),
        (false, server(json!({"command": "x", "url": "https://x.example"}))),
        (false, server(json!({"command": "x", "headers": {}}))),
        (false, server(json!({"url": "https://x.example", "args": []}))),
        (false, server(json!({"url": "https://x.example", "env": {}}))),
        (false, server(json!({"url": "https://x.example", "cwd": "/"}))),
        (false, server(json!({"type": "STDIO", "url": "https://x.example"}))),
        (false, server(json!({"type": "stdio"}))),
        (false, server(json!({"type": "http", "command": "x"}))),
        (true, server(json!({"type": "STDIO", "command": "x"}))),
        (true, server(json!({"type": "SSE", "url": "https://x.example"}))),
        (false, server(json!({"type": "ws", "url": "https://x.example"}))),
        (false, server(json!({"type": "Http", "url": "wss://x.example"}))),
        (true, server(json!({"type": "WebSocket", "url": "WSS://x.example"}))),
        (true, server(json!({"type": "ws", "url": "${UNSET:-wss://x.example}"}))),
        (false, with("admin", json!({"listen": "0.0.0.0:1"}))),
        (true, with("admin", json!({"listen": "0.0.0.0:1", "token": "x"}))),
        (true, with("admin", json!({"listen": "127.9.9.9:1"}))),
        (true, with("admin", json!({}))),
        (false, with("store", json!({}))),
        (false, with("tools", json!({"x": {}}))),
        (true, with("tools", json!({"a/x": {}, "*/x": {}}))),
        (false, with("defaults", json!({"loop": {"repeats": 11}}))),
        (true, with("defaults", json!({"loop": {"repeats": 11, "window": 11}}))),
        (false, with("defaults", json!({"loop": {"window": 2}}))),
        (true, with("defaults", json!({"loop": {"window": 2, "repeats": 2}}))),
    ] {
        let (reader, schema) = judged(&file);
        assert_eq!(
            (reader.is_empty(), schema.is_empty()),
            (is_good, is_good),
            "{file}\n{reader:?}\n{schema:?}"
        );
    }
}
