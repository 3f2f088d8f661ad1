//! `config-keys.md`: every key of the configuration, from the schema that editors use.

use std::fmt::Write as _;
use std::sync::LazyLock;

use seawall_testkit::page;
use serde_json::Value as Json;

static SCHEMA: LazyLock<Json> =
    LazyLock::new(|| serde_json::from_str(seawall_gateway::schema()).unwrap());

/// Tables that have a page, or a section, of their own.
const ELSEWHERE: [(&str, &str); 5] = [
    ("defaults", "any of the [policy keys](policy-keys.md), for all tools"),
    (
        "kinds",
        "any of the policy keys but `kind`, for the tools of a kind: `[kinds.read]`, `write`, `search`, `list`, `batch`",
    ),
    (
        "tools",
        "any of the policy keys, for one tool or those that a pattern names: `[tools.\"github/get_*\"]`",
    ),
    ("policy", "any of the policy keys, for the tools of this server"),
    ("$schema", "an address"),
];

/// A part of the schema, with what it refers to.
fn whole(part: &Json) -> Json {
    let Some(way) = part["$ref"].as_str() else { return part.clone() };
    let mut other = whole(SCHEMA.pointer(way.trim_start_matches('#')).unwrap());
    other.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    other
}

/// The values that a key takes, in words.
fn values(part: &Json) -> String {
    if let Some(words) = part["enum"].as_array() {
        return words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    match part["$ref"].as_str() {
        Some("#/$defs/some_time") => return "a time, not zero".to_owned(),
        Some("#/$defs/time") => return "a time".to_owned(),
        Some("#/$defs/rate") => return "a rate: `\"20/s\"`, `\"600/m\"`, `\"1000/h\"`".to_owned(),
        Some("#/$defs/address") => return "an address with its port".to_owned(),
        _ => {}
    }
    let complete = whole(part);
    if complete["pattern"].as_str().is_some_and(|pattern| pattern.contains("KiB")) {
        return "a size: `\"512KiB\"`, `\"16MiB\"`".to_owned();
    }
    let items = || values(&complete["items"]);
    match complete["type"].as_str() {
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("integer") => format!("{} to {}", complete["minimum"], complete["maximum"]),
        Some("number") if complete["minimum"].is_null() => {
            format!("above {}, to {}", complete["exclusiveMinimum"], complete["maximum"])
        }
        Some("number") => format!("{} to {}", complete["minimum"], complete["maximum"]),
        Some("array") if complete["items"]["enum"].is_array() => format!("a list of {}", items()),
        Some("array") => "a list".to_owned(),
        Some("object") => "a table".to_owned(),
        None if complete["anyOf"].is_array() => complete["anyOf"][0]["enum"]
            .as_array()
            .map_or_else(String::new, |_| values(&complete["anyOf"][0])),
        None => "a table, or a list of them".to_owned(),
        Some(_) => "a text".to_owned(),
    }
}

/// A table of keys, and below it the tables that stand in it.
fn table(page: &mut String, name: &str, part: &Json) {
    let part = whole(part);
    let (title, properties) = (heading(name), part["properties"].as_object().unwrap());
    let told = part["description"].as_str().filter(|_| !name.is_empty());
    let is_required =
        |key: &str| part["required"].as_array().is_some_and(|keys| keys.contains(&key.into()));
    let told = told.map_or_else(String::new, |told| format!("{told}\n\n"));
    write!(
        page,
        "\n## {title}\n\n{told}| key | values | default | what it means |\n|---|---|---|---|\n"
    )
    .unwrap();
    let mut below = Vec::new();
    for (key, part) in properties {
        let complete = whole(part);
        let elsewhere = ELSEWHERE.iter().find(|(other, _)| other == key);
        let inner = if key == "servers" {
            whole(&complete["additionalProperties"])
        } else {
            complete.clone()
        };
        let listed = whole(&complete["items"]["anyOf"][0]);
        let is_table = elsewhere.is_none()
            && (inner["properties"].is_object() || listed["properties"].is_object());
        let way = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        let takes = match elsewhere {
            Some((_, takes)) => (*takes).to_owned(),
            None if is_table && way == "servers.S.ext_authz" => "as in `[ext_authz]`".to_owned(),
            None if is_table => "its own table, below".to_owned(),
            None => values(part),
        };
        if is_table && way != "servers.S.ext_authz" {
            let (way, inner) = match inner["properties"].is_object() {
                true => (if key == "servers" { "servers.S".to_owned() } else { way }, inner),
                false => (format!("[{way}]"), listed),
            };
            below.push((way, inner));
        }
        let default = match part.get("default") {
            Some(default) => format!("`{default}`"),
            None if is_required(key) => "required".to_owned(),
            None => "none".to_owned(),
        };
        // A name in angle brackets is no tag.
        let told = complete["description"].as_str().unwrap().replace('<', "\\<");
        writeln!(page, "| `{key}` | {takes} | {default} | {told} |").unwrap();
    }
    for (name, part) in below {
        table(page, &name, &part);
    }
}

fn heading(name: &str) -> String {
    if name.is_empty() { "At the top of the file".to_owned() } else { format!("`[{name}]`") }
}

#[test]
fn the_reference_of_the_configuration_is_what_the_schema_says() {
    let mut text = String::from(
        "# Configuration keys\n\n\
         Every key of `seawall.toml`. How tools are treated has a page of its own: [policy-keys.md](policy-keys.md).\n\
         A time is a whole number with its unit, `\"250ms\"`, `\"30s\"`, `\"2m\"`, `\"1h\"`, of at most 7 days. A text may refer to\n\
         a variable, `\"${env:NAME}\"` or `\"${NAME:-default}\"`, or to a file, `\"${file:PATH}\"`. A key that has no default\n\
         changes nothing where it is not written. `seawall schema` writes the same for editors.\n\n\
         This page is written by a test from the schema (`crates/gateway/src/config/schema.json`); another test\n\
         loads every default and compares it with what the gateway does without the key.\n",
    );
    table(&mut text, "", &SCHEMA);
    page::is_current("config-keys.md", &text);
}
