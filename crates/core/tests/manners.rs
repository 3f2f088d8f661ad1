//! What `Cargo.toml` says and what the documents say of it: features, dependencies, Rust version.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines of one table of a manifest, as `name = the rest`.
fn table<'a>(manifest: &'a str, name: &str) -> BTreeMap<&'a str, &'a str> {
    let (_, rest) = manifest.split_once(&format!("\n[{name}]\n")).unwrap();
    rest.lines()
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .map(|(key, value)| (key.trim_end_matches(".workspace"), value))
        .collect()
}

/// What stands between every second pair of `mark`s.
fn marked(text: &str, mark: char) -> BTreeSet<&str> {
    text.split(mark).skip(1).step_by(2).collect()
}

#[test]
fn the_table_of_features_says_what_cargo_toml_says() {
    let (manifest, page) = (read("crates/core/Cargo.toml"), read("docs/library.md"));
    let mut features = table(&manifest, "features");
    let default = marked(features.remove("default").unwrap(), '"');

    let (_, rows) = page.split_once("| feature |").unwrap();
    let mut told = BTreeSet::new();
    for row in rows.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let brought = features.get(name).unwrap_or_else(|| panic!("there is no feature {name}"));
        let brought: BTreeSet<&str> =
            marked(brought, '"').into_iter().map(|it| it.trim_start_matches("dep:")).collect();
        assert_eq!(cells[2] == "yes", default.contains(name), "{name} in the default");
        assert_eq!(marked(cells[4], '`'), brought, "what {name} brings");
        told.insert(name);
    }
    assert_eq!(told, features.keys().copied().collect(), "every feature has a row");
}

#[test]
fn every_dependency_has_its_reason() {
    let (manifest, page) = (read("crates/core/Cargo.toml"), read("docs/dependencies.md"));
    let (own, _) = page.split_once("The gateway's own").unwrap();
    let dependencies = table(&manifest, "dependencies");
    let is_row = |line: &&str| line.starts_with("| `");
    let told: BTreeSet<&str> = own
        .lines()
        .filter(is_row)
        .flat_map(|row| marked(row.split('|').nth(1).unwrap(), '`'))
        .collect();
    for name in dependencies.keys() {
        assert!(told.contains(name), "docs/dependencies.md has no reason for {name}");
    }
}

#[test]
fn six_dependencies_are_left_without_features() {
    let manifest = read("crates/core/Cargo.toml");
    let always: Vec<&str> = table(&manifest, "dependencies")
        .into_iter()
        .filter(|(_, rest)| !rest.contains("optional = true"))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(
        always,
        ["fastrand", "httpdate", "pin-project-lite", "quanta", "thiserror", "tokio"]
    );
}

#[test]
fn the_documents_name_the_rust_version_of_the_workspace() {
    let manifest = read("Cargo.toml");
    let version = table(&manifest, "workspace.package")["rust-version"].trim_matches('"');
    for page in ["docs/library.md", "CONTRIBUTING.md"] {
        assert!(read(page).contains(version), "{page} does not name Rust {version}");
    }
}

/// What a user of the library writes first, and what decides for them.
const WITH_EXAMPLES: &str = "Backoff Breaker BreakerPolicy BudgetPolicy Bulkhead BulkheadPolicy \
    CachePolicy CircuitBreaker Classifier Clock Cooldown Deadline Effect Env Events FailureSignals \
    Fallback FallbackChain HedgePolicy Jitter LimitedRetry LoadOptions LoopGuard LoopPolicy \
    MemoryQueue Pipeline Policy Preset Rate RateLimiter ResilienceLayer ResponseCache Retry \
    RetryBudget RetryPolicy Scope ServerPolicy Settings SlowRule Step Tiers ToolCaller ToolErrors \
    ToolFacts WindowRule";

/// The sources of the library, one after another.
fn sources(folder: &Path) -> String {
    let mut entries: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let text = |path: &PathBuf| match path.is_dir() {
        true => sources(path),
        false => fs::read_to_string(path).unwrap(),
    };
    entries.iter().map(text).collect()
}

#[test]
fn every_policy_has_an_example_that_is_run() {
    let sources = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    let is_head = |line: &str| line.starts_with("///") || line.starts_with(['#', ' ', ')']);
    let mut head = String::new();
    let mut with_examples = BTreeSet::new();
    for line in sources.lines() {
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
        if let ["pub", "struct" | "enum", name, ..] = words[..]
            && head.contains("/// ```\n")
        {
            with_examples.insert(name);
        }
        match is_head(line) {
            true => head += &format!("{line}\n"),
            false => head.clear(),
        }
    }
    for name in WITH_EXAMPLES.split(' ') {
        assert!(with_examples.contains(name), "{name} has no example in its documentation");
    }
    for policy in with_examples.iter().filter(|name| name.ends_with("Policy")) {
        assert!(WITH_EXAMPLES.contains(policy), "{policy} is not in the list");
    }
}

#[test]
fn nothing_is_invented_about_where_the_crate_lives() {
    let manifest = read("crates/core/Cargo.toml");
    for address in ["repository", "homepage", "documentation"] {
        assert!(!manifest.contains(&format!("\n{address} =")), "{address} is not known yet");
    }
    assert!(read("Cargo.toml").contains("license = \"MIT OR Apache-2.0\""));
    let docs = table(&manifest, "package.metadata.docs.rs");
    assert_eq!(docs["all-features"], "true");
}
