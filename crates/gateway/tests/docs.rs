//! What the documents show works: every command line parses, every configuration loads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod guide;
mod reference;

use std::path::Path;

use clap::Parser;
use seawall_gateway::cli::Cli;
use seawall_gateway::{load_config, schema};

/// The pages that show how it is used.
const PAGES: [&str; 8] = [
    "README.md",
    "docs/configuration.md",
    "docs/authorization.md",
    "docs/operating.md",
    "docs/deploy.md",
    "docs/library.md",
    "docs/telemetry.md",
    "docs/testing-agents.md",
];

/// The fenced blocks of a kind in these pages.
fn blocks(kind: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = PAGES.map(|page| std::fs::read_to_string(root.join(page)).unwrap()).concat();
    let open = format!("```{kind}\n");
    pages.split(&open).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_seawall_command_in_the_documents_parses() {
    let lines: Vec<String> =
        blocks("sh").iter().flat_map(|block| block.lines().map(str::to_owned)).collect();
    let commands: Vec<&str> = lines
        .iter()
        .filter(|line| line.starts_with("seawall "))
        .map(|line| line.split('#').next().unwrap())
        .collect();
    assert!(commands.len() >= 2);
    for command in commands {
        Cli::try_parse_from(command.split_whitespace())
            .unwrap_or_else(|error| panic!("{command}: {error}"));
    }
}

#[test]
fn every_configuration_in_the_documents_loads() {
    let folder = tempfile::TempDir::new().unwrap();
    let is_set = |name: &str| !name.contains("TIMEOUT") && !name.starts_with("OTEL_");
    let set = |name: &str| is_set(name).then(|| "value".to_owned());
    let mut servers = Vec::new();
    for (kind, name) in
        [("toml", "seawall.toml"), ("json", "mcp.json"), ("yaml", "agentgateway.yaml")]
    {
        for block in blocks(kind) {
            let path = folder.path().join(name);
            std::fs::write(&path, block).unwrap();
            let config = load_config(&path, &set).unwrap_or_else(|problems| panic!("{problems}"));
            servers.extend(config.servers.into_iter().map(|server| server.name));
        }
    }
    let own = [
        "github", "search", "github", "search", "memory", "files", "web", "time", "mail", "memory",
        "memory", "memory",
    ];
    let imported = ["time", "jira", "github"];
    assert_eq!(servers, [&own[..], &imported].concat());
}

#[test]
fn every_configuration_in_the_documents_fits_the_schema() {
    let schema = serde_json::from_str(schema()).unwrap();
    let check = jsonschema::validator_for(&schema).unwrap();
    let files = blocks("toml");
    assert!(files.len() >= 2);
    for file in files {
        let file: serde_json::Value = toml::from_str(&file).unwrap();
        let wrong: Vec<String> = check.iter_errors(&file).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

#[test]
fn help_shows_an_example_for_every_command() {
    use clap::CommandFactory;
    for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("seawall "), "{}", command.get_name());
    }
}
