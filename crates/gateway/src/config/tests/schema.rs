//! The schema for editors agrees with the config reader: on every file in these tests, and on every
//! key.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use super::*;
use crate::config::tree::{ConfigNode, ConfigValue};

static SHOWN: LazyLock<Json> =
    LazyLock::new(|| serde_json::from_str(crate::config::schema()).unwrap());
pub(super) static CHECK: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&SHOWN).unwrap());

/// Checks that the schema accepts a file exactly if the reader did.
pub(super) fn agrees(path: &Path, loaded: &Result<Config, Problems>) {
    let Ok(text) = fs::read_to_string(path) else { return };
    let Some((format, root)) = tree(path, &text) else { return };
    if crate::config::import::list_key(&ConfigField::root(&root), format).is_some() {
        return;
    }
    let file = json_of(&root);
    let wrong: Vec<String> = CHECK.iter_errors(&file).map(|error| error.to_string()).collect();
    match loaded {
        Ok(_) => assert!(wrong.is_empty(), "{text}\n{wrong:?}"),
        Err(problems) => {
            let is_plain =
                |text: &str| text.starts_with("unknown key") || text.starts_with("must be a ");
            let plain =
                problems.iter().find(|problem| problem.line.is_some() && is_plain(&problem.text));
            assert!(
                plain.is_none() || !wrong.is_empty(),
                "{text}\nThe schema does not see: {plain:?}"
            );
        }
    }
}

fn tree(path: &Path, text: &str) -> Option<(FileFormat, ConfigNode)> {
    let format = source::format(path, text);
    let root = match format {
        FileFormat::Json => json::parse(text).ok()?,
        FileFormat::Toml => toml::parse(text, &mut Problems::default())?,
        FileFormat::Yaml => yaml::parse(text).ok()?,
    };
    Some((format, root))
}

pub(super) fn json_of(node: &ConfigNode) -> Json {
    match &node.value {
        ConfigValue::Null => Json::Null,
        ConfigValue::Flag(flag) => json!(flag),
        ConfigValue::Number(number) => serde_json::from_str(number).unwrap_or_else(|_| json!(0.5)),
        ConfigValue::Date => json!({"date": ""}),
        ConfigValue::Text(text) => json!(text),
        ConfigValue::List(items) => items.iter().map(json_of).collect(),
        ConfigValue::Table(entries) => entries
            .iter()
            .map(|(key, node)| (key.clone(), json_of(node)))
            .collect::<Map<_, _>>()
            .into(),
    }
}

/// A part of the schema, with its references resolved.
fn whole(part: &Json) -> Json {
    let Some(way) = part["$ref"].as_str() else { return part.clone() };
    let mut other = whole(SHOWN.pointer(way.trim_start_matches('#')).unwrap());
    other.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    other.as_object_mut().unwrap().remove("$ref");
    other
}

/// All tables that a file can have: the path to each, and its schema.
fn tables(way: &[&str], part: &Json, found: &mut Vec<(Vec<String>, Json)>) {
    let part = whole(part);
    if let Some(properties) = part["properties"].as_object() {
        found.push((way.iter().map(|key| (*key).to_owned()).collect(), part.clone()));
        for (key, part) in properties {
            tables(&[way, &[key.as_str()]].concat(), part, found);
        }
    }
    let name = if way == ["tools"] { "a/x" } else { "a" };
    if part["additionalProperties"].is_object() {
        tables(&[way, &[name]].concat(), &part["additionalProperties"], found);
    }
    for item in whole(&part["items"])["anyOf"].as_array().into_iter().flatten() {
        tables(&[way, &["0"]].concat(), item, found);
    }
}

pub(super) fn all_tables() -> Vec<(Vec<String>, Json)> {
    let mut found = Vec::new();
    tables(&[], &SHOWN, &mut found);
    found.retain(|(_, table)| table["properties"].is_object());
    found
}

/// A value that the schema allows.
fn sample(part: &Json) -> Json {
    let part = whole(part);
    let first = |key: &str| part[key].as_array().map(|list| list[0].clone());
    let of_type = || match part["type"].as_str() {
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        other => panic!("{other:?} has no sample: {part}"),
    };
    first("examples").or_else(|| first("enum")).unwrap_or_else(of_type)
}

/// A file with two servers, and a value in one of its tables.
pub(super) fn file_with(way: &[String], key: &str, value: Json, server: Json) -> Json {
    let mut file =
        json!({"listen": "127.0.0.1:1", "servers": {"a": server, "b": {"command": "y"}}});
    let mut place = &mut file;
    for step in way {
        place = match step.parse::<usize>() {
            Ok(_) => {
                *place = json!([{}]);
                &mut place[0]
            }
            Err(_) => place.as_object_mut().unwrap().entry(step).or_insert(json!({})),
        };
    }
    if key == "map" {
        place["tool"] = json!("b/other");
    }
    place[key] = value;
    for (other, value) in needed(way).as_object().unwrap() {
        place.as_object_mut().unwrap().entry(other).or_insert(value.clone());
    }
    if key == "scopes" && way.first().is_some_and(|first| first == "servers") {
        file["identity"] = needed(&["identity".to_owned()]);
    }
    file
}

/// The keys without which a table is wrong.
fn needed(way: &[String]) -> Json {
    let way: Vec<&str> = way.iter().map(String::as_str).collect();
    match way.as_slice() {
        ["store"] => json!({"path": "s", "redis": "redis://u:p@redis.example"}),
        ["audit"] => json!({"path": "s"}),
        [.., "chaos"] => json!({"latency": "1s"}),
        [.., "ext_authz"] => json!({"service": "authz:9100"}),
        [.., "pass_header"] | [.., "pass_header", "0"] => json!({"from": "x-a", "to": "x-b"}),
        ["identity"] => json!({"api_keys": [{"name": "ci", "sha256": "0".repeat(64)}]}),
        ["identity", "jwt", "0"] => json!({"issuer": "i", "audiences": ["a"], "jwks": "keys.json"}),
        ["identity", "api_keys", "0"] => json!({"name": "ci", "sha256": "0".repeat(64)}),
        _ => json!({}),
    }
}

fn with(way: &[String], key: &str, value: Json, server: Json) -> Kit {
    let file = file_with(way, key, value, server).to_string();
    Kit::new().var("SEAWALL_ADMIN_TOKEN", "x").var("HOME", "/home/me").file("seawall.json", &file)
}

#[test]
fn the_schema_has_every_key_that_the_reader_knows_and_no_other() {
    let tables = all_tables();
    assert!(tables.len() > 40, "{}", tables.len());
    for (way, table) in tables {
        let problems = with(&way, "qqqqqqqqqqqqqqqq", json!("x"), json!({"command": "x"}))
            .problems("seawall.json");
        let known = problems
            .split("qqqqqqqqqqqqqqqq: unknown key; known are ")
            .nth(1)
            .unwrap_or_else(|| panic!("{way:?}: {problems}"));
        let mut known: Vec<&str> = known.lines().next().unwrap().split(", ").collect();
        // The name of a kind's table is the kind; and editors look for the schema under `$schema`.
        known.retain(|key| *key != "kind" || way.first().is_none_or(|first| first != "kinds"));
        if way.is_empty() {
            known.push("$schema");
        }
        known.sort_unstable();
        let mut shown: Vec<&str> =
            table["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        shown.sort_unstable();
        assert_eq!(shown, known, "{way:?}");
    }
}

#[test]
fn every_key_of_the_schema_is_described_and_read() {
    for (way, table) in all_tables() {
        for (key, part) in table["properties"].as_object().unwrap() {
            assert!(
                part["description"].as_str().is_some_and(|text| text.ends_with('.')),
                "{way:?} {key}"
            );
            if key == "servers" || key == "tools" {
                continue;
            }
            let servers =
                [json!({"command": "x"}), json!({"url": "https://x.example/mcp"}), json!({})];
            let tried =
                servers.map(|server| with(&way, key, sample(part), server).load("seawall.json"));
            let problems: Vec<String> = tried
                .iter()
                .filter_map(|tried| tried.as_ref().err())
                .map(ToString::to_string)
                .collect();
            assert!(tried.iter().any(Result::is_ok), "{way:?} {key}: {problems:?}");
        }
    }
}

/// What a file of this kit means, without the lines that say it.
fn meant(kit: &Kit, file: &Json) -> Option<Config> {
    fs::write(kit.path("seawall.json"), file.to_string()).unwrap();
    let mut config = kit.load("seawall.json").ok()?;
    config.files = Default::default();
    config.rules.written = Default::default();
    config.servers.iter_mut().for_each(|server| server.rules.written = Default::default());
    Some(config)
}

/// The same file without one key.
fn without(mut file: Json, way: &[String], key: &str) -> Json {
    let table = way.iter().fold(&mut file, |place, step| match step.parse::<usize>() {
        Ok(index) => &mut place[index],
        Err(_) => &mut place[step],
    });
    table.as_object_mut().unwrap().remove(key);
    file
}

#[test]
fn the_defaults_of_the_schema_are_those_of_the_reader() {
    let kit = Kit::new().var("HOME", "/home/me").file("seawall.json", "{}");
    let servers = [json!({"command": "x"}), json!({"url": "https://x.example/mcp"})];
    let mut seen = 0;
    for (way, table) in all_tables() {
        for (key, part) in table["properties"].as_object().unwrap() {
            let Some(default) = part.get("default") else { continue };
            seen += 1;
            let both = servers.clone().map(|server| {
                let written = file_with(&way, key, default.clone(), server);
                let silent = without(written.clone(), &way, key);
                (meant(&kit, &written), meant(&kit, &silent))
            });
            assert!(both.iter().any(|(written, _)| written.is_some()), "{way:?} {key}");
            for (written, silent) in both {
                assert_eq!(written, silent, "{way:?} {key}");
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn what_the_reader_refuses_the_schema_refuses_too() {
    for file in [
        "listn = \"127.0.0.1:1\"",
        "[defaults]\ntimeout = \"30\"",
        "[defaults]\ntimeout = \"0s\"",
        "[defaults]\nretry = { attempts = 0 }",
        "[defaults]\nhedge = \"p100\"",
        "[kinds.read]\nkind = \"read\"",
        "[kinds.reads]\ntimeout = \"3s\"",
        "[tools.x]\ntimeout = \"3s\"",
        "[tools.\"a/x\"]\nfallback = [\"cache\"]",
        "[servers.a__b]\ncommand = \"x\"",
        "[servers.b]\ncommand = \"x\"\nrate = \"20\"",
        "[servers.b]\nshared = true",
        "[startup]\nattempts = 0",
        "[startup]\nmax_starting = \"0s\"",
        "[defaults]\nmax_result = 0",
        "[ext_authz]\nservice = \"a:1\"\nmax_body = 0",
        "[ext_authz]\nservice = \"a:1\"\nconcurrency = 0",
        "[ext_authz]\nservice = \"a:1\"\ntimeout = \"0s\"",
    ] {
        let kit = toml_file(&format!("{file}\n[servers.a]\ncommand = \"x\"\n"));
        let (_, root) =
            tree(&kit.path("seawall.toml"), &fs::read_to_string(kit.path("seawall.toml")).unwrap())
                .unwrap();
        assert!(kit.load("seawall.toml").is_err() && !CHECK.is_valid(&json_of(&root)), "{file}");
    }
}

#[test]
fn a_size_count_or_time_is_not_zero_or_it_is_told_what_zero_means() {
    /// Collects the keys that take a zero and do not say what it means.
    fn silent(name: &str, schema: &Json, found: &mut Vec<String>) {
        let of = |key: &str| schema.get(key).cloned().unwrap_or_default();
        let takes_zero = of("type") == "integer" && of("minimum") == 0
            || of("$ref") == "#/$defs/time" && schema.get("not").is_none();
        let words = of("description").to_string();
        if takes_zero && !words.contains("0s") && !words.contains("0:") && !words.contains("0 s") {
            found.push(name.to_owned());
        }
        let below = |(key, inner): (&String, &Json)| silent(key, inner, found);
        schema.as_object().into_iter().flatten().for_each(below);
    }
    let mut found = Vec::new();
    silent("", &SHOWN, &mut found);
    assert_eq!(found, [""; 0]);
}
