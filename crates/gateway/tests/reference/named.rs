//! `meta-keys.md` and `environment.md`: names that many places of the code use. Each page names
//! every one that stands in a source.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use seawall_testkit::page;

/// A name, who says it, and what it means.
type Row = (&'static str, &'static str, &'static str);

/// The keys of `_meta`.
const META: [Row; 6] = [
    (
        "seawall/failure",
        "result of a call that failed",
        "the error object: [error-codes.md](error-codes.md)",
    ),
    (
        "seawall/served",
        "result that is not the whole answer of the server to this call",
        "`by` whom instead (`cached`, `simplify`, `previous_page`, `split_batch`, `queue`, `rejoined`, `excerpt` of a result that is too large, another tool …), its `age` in seconds, `warnings` (the failures before it); of a queued write also `code` and `id`",
    ),
    (
        "seawall/servers",
        "result of a list",
        "each server that is not available: `status`, `reason`, `retryAfter`",
    ),
    (
        "seawall/quarantined",
        "result of a list",
        "tools that were left out because their definition is broken, with the reason",
    ),
    (
        "seawall/next",
        "result of `resources/read` of a long resource that Seawall gives in pages",
        "the URI of the next page",
    ),
    (
        "seawall/debug",
        "request, from the client",
        "`true`: a failure carries details, unless `[messages] debug_on_request` is false. `debug` means the same",
    ),
];

/// The variables that the program reads, and the one that it sets.
const VARIABLES: [Row; 13] = [
    ("SEAWALL_CONFIG", "every command", "the configuration to read where no `--config` is given"),
    (
        "SEAWALL_ADMIN_TOKEN",
        "commands of a running gateway",
        "the token of `[admin]`; with agentgateway's file also the token that `serve` asks for",
    ),
    (
        "SEAWALL_LOG",
        "every command",
        "the least level that is logged: `error`, `warn`, `info` or `debug`",
    ),
    (
        "SEAWALL_TIMEOUT_QUICK",
        "`run`, `serve`, `explain`",
        "overrides `[timeouts] quick`: `\"30s\"`, or milliseconds",
    ),
    (
        "GITNEXUS_TIMEOUT_QUICK",
        "`run`, `serve`, `explain`",
        "the same, if SEAWALL_TIMEOUT_QUICK is not set",
    ),
    ("SEAWALL_TIMEOUT_HEAVY", "`run`, `serve`, `explain`", "overrides `[timeouts] heavy`"),
    (
        "GITNEXUS_TIMEOUT_HEAVY",
        "`run`, `serve`, `explain`",
        "the same, if SEAWALL_TIMEOUT_HEAVY is not set",
    ),
    ("SEAWALL_DEBUG", "`run`, `serve`", "exactly `true`: every failure carries details"),
    ("GITNEXUS_DEBUG", "`run`, `serve`", "the same, if SEAWALL_DEBUG is not set"),
    ("OTEL_SERVICE_NAME", "`run`, `serve`", "`[telemetry] service_name` where the file has none"),
    (
        "OTEL_RESOURCE_ATTRIBUTES",
        "`run`, `serve`",
        "what else every span and metric says of this process: `key=value,…`",
    ),
    (
        "XDG_STATE_HOME",
        "`run`, `serve`, `explain`, `check`",
        "where `seawall/` with what servers said is kept; `~/.local/state` without it",
    ),
    (
        "SEAWALL_GATEWAY",
        "set for every process of a server, on Linux",
        "by it the gateway finds what a server left behind; not for you to set",
    ),
];

/// The sources of the library and the gateway, without those that only test.
fn sources() -> String {
    fn below(folder: &Path, found: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            if path.is_dir() && name != "tests" {
                below(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") && name != "tests.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push_str(text.split("#[cfg(test)]\nmod tests {").next().unwrap());
            }
        }
    }
    let mut found = String::new();
    for folder in ["crates/core/src", "crates/gateway/src"] {
        below(&page::root().join(folder), &mut found);
    }
    found
}

/// The texts in quotes that are made like a name.
fn quoted(is_name: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let text = sources();
    let between: BTreeSet<&str> = text.lines().flat_map(|line| line.split('"')).collect();
    between.into_iter().filter(|word| is_name(word)).map(str::to_owned).collect()
}

fn check(name: &str, intro: &str, rows: &[Row], found: &BTreeSet<String>) {
    let known: BTreeSet<String> = rows.iter().map(|(name, ..)| (*name).to_owned()).collect();
    assert_eq!(
        &known, found,
        "crates/gateway/tests/reference/named.rs names others than the sources"
    );
    let mut text = intro.to_owned();
    for (name, place, means) in rows {
        writeln!(text, "| `{name}` | {place} | {means} |").unwrap();
    }
    page::is_current(name, &text);
}

#[test]
fn the_reference_of_the_meta_keys_names_all_of_them() {
    let is_key = |word: &str| {
        word.strip_prefix("seawall/")
            .is_some_and(|key| !key.is_empty() && key.chars().all(char::is_alphabetic))
    };
    let mut found = quoted(is_key);
    // A folder, not a key.
    assert!(found.remove("seawall/catalog"));
    check(
        "meta-keys.md",
        "# Keys of `_meta`\n\n\
         What Seawall adds to messages. It removes no key and changes none of a server.\n\n\
         This page is written by a test that finds every such key in the sources\n\
         (`crates/gateway/tests/reference/named.rs`).\n\n\
         | key | where | what it says |\n|---|---|---|\n",
        &META,
        &found,
    );
}

#[test]
fn the_reference_of_the_variables_names_all_of_them() {
    let is_name = |word: &str| {
        ["SEAWALL_", "GITNEXUS_", "OTEL_", "XDG_"].iter().any(|start| word.starts_with(start))
            && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
    };
    check(
        "environment.md",
        "# Environment variables\n\n\
         Beside those that a configuration names (`${env:NAME}`). An empty variable is one that is not set. An input of\n\
         a client's file, `${input:ID}`, is read from `INPUT_ID`, in capitals. What\n\
         a server's process gets: [configuration.md](../configuration.md). With `[telemetry]` also OpenTelemetry's\n\
         own `OTEL_EXPORTER_OTLP_*`: [telemetry.md](../telemetry.md).\n\n\
         This page is written by a test that finds every such variable in the sources\n\
         (`crates/gateway/tests/reference/named.rs`).\n\n\
         | variable | for | what it means |\n|---|---|---|\n",
        &VARIABLES,
        &quoted(is_name),
    );
}
