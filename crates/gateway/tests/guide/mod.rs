//! The guide says what is so: its commands parse, its configurations load, its tables stand in the
//! reference, what a model reads in it is what Seawall says. The examples load and explain.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use seawall_gateway::cli::Cli;
use seawall_gateway::load_config;
use seawall_testkit::page;

/// The files of a folder with this ending, in order.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(page::root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> =
        entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    found
}

/// The pages of the guide: their names and texts.
fn guide() -> Vec<(String, String)> {
    let pages = files("docs/guide", ".md").into_iter().map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    });
    let pages: Vec<_> = pages.collect();
    assert!(pages.len() >= 16, "{}", pages.len());
    pages
}

/// The fenced blocks of a kind in a text.
fn blocks<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let open = format!("```{kind}\n");
    let inside: Vec<&str> =
        text.match_indices(&open).map(|(at, _)| &text[at + open.len()..]).collect();
    inside.into_iter().map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Every variable is set, but for those that hold times.
fn set(name: &str) -> Option<String> {
    (!name.contains("TIMEOUT")).then(|| "value".to_owned())
}

fn fits_the_schema(name: &str, text: &str) {
    let schema = serde_json::from_str(seawall_gateway::schema()).unwrap();
    let file: serde_json::Value = toml::from_str(text).unwrap();
    let check = jsonschema::validator_for(&schema).unwrap();
    let wrong: Vec<String> = check.iter_errors(&file).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{name}: {wrong:?}");
}

#[test]
fn every_command_of_the_guide_parses() {
    for (name, text) in guide() {
        for line in blocks(&text, "sh").into_iter().flat_map(str::lines) {
            let command = line.split('#').next().unwrap();
            if command.starts_with("seawall ") {
                Cli::try_parse_from(command.split_whitespace())
                    .unwrap_or_else(|error| panic!("{name}: {command}: {error}"));
            }
        }
    }
}

#[test]
fn every_configuration_of_the_guide_loads() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut seen = 0;
    for (page, text) in guide() {
        for (kind, name) in [("toml", "seawall.toml"), ("json", "mcp.json")] {
            for block in blocks(&text, kind) {
                seen += 1;
                let mut file = block.to_owned();
                if kind == "toml" {
                    // A page shows the keys that it is about; a file has a server too.
                    if !file.contains("[servers.github]") {
                        file.push_str("\n[servers.github]\nurl = \"https://github.example/mcp\"\n");
                    }
                    fits_the_schema(&page, &file);
                }
                let path = folder.path().join(name);
                std::fs::write(&path, file).unwrap();
                load_config(&path, &set).unwrap_or_else(|problems| panic!("{page}: {problems}"));
            }
        }
    }
    assert!(seen >= 15, "{seen}");
}

/// The rows of the reference by their first cell; keys that stand on two pages have none.
fn reference_rows() -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for name in ["policy-keys.md", "metrics.md"] {
        let text = page::read(&format!("docs/reference/{name}"));
        for row in text.lines().filter(|line| line.starts_with("| `")) {
            rows.insert(row.split(" | ").next().unwrap().to_owned(), row.to_owned());
        }
    }
    rows
}

#[test]
fn the_tables_of_the_guide_stand_in_the_reference() {
    let (rows, mut seen) = (reference_rows(), 0);
    for (name, text) in guide() {
        let mut is_of_reference = false;
        let mut written: Vec<&str> = Vec::new();
        for line in text.lines() {
            is_of_reference = match line {
                "| key | values | default | what it means |" => true,
                "| metric | type | labels | what it counts |" => true,
                _ => is_of_reference && line.starts_with('|'),
            };
            let key = line.split(" | ").next().unwrap();
            let row = (is_of_reference && line.starts_with("| `")).then(|| rows.get(key));
            seen += usize::from(row.is_some());
            written.push(match row {
                Some(row) => row.unwrap_or_else(|| panic!("{name}: {key} is not in the reference")),
                None => line,
            });
        }
        let written = written.join("\n") + "\n";
        if std::env::var("SEAWALL_REFERENCE").is_ok_and(|way| way == "write") {
            std::fs::write(page::root().join("docs/guide").join(&name), &written).unwrap();
        } else {
            assert!(
                written == text,
                "docs/guide/{name} has rows that differ from the reference; write them anew with\n\
                 SEAWALL_REFERENCE=write cargo test -p seawall-gateway reference"
            );
        }
    }
    assert!(seen >= 30, "{seen}");
}

#[test]
fn what_a_model_reads_in_the_guide_is_what_seawall_says() {
    let mut said: String = files("crates/core/src/report/texts/snapshots", ".snap")
        .iter()
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    // The lines about servers at the start, with the names in their places.
    said.push_str(&page::read("crates/core/src/startup.rs"));
    let mut seen = 0;
    for (name, text) in guide() {
        for quote in text.lines().filter_map(|line| line.strip_prefix("> ")) {
            seen += 1;
            assert!(said.contains(quote), "{name}: Seawall does not say: {quote}");
        }
    }
    assert!(seen >= 25, "{seen}");
}

#[test]
fn every_name_that_the_guide_mentions_exists() {
    let known: String = [
        "policy-keys.md",
        "config-keys.md",
        "metrics.md",
        "events.md",
        "error-codes.md",
        "meta-keys.md",
    ]
    .map(|name| page::read(&format!("docs/reference/{name}")))
    .concat();
    let is_code = |word: &str| {
        word.contains('_')
            && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
    };
    let is_metric = |word: &str| word.starts_with("seawall_") && !word.contains(' ');
    for (name, text) in guide() {
        for word in
            text.split('`').skip(1).step_by(2).filter(|word| is_code(word) || is_metric(word))
        {
            assert!(known.contains(&format!("`{word}`")), "{name}: `{word}` is in no reference");
        }
    }
}

/// The examples: a folder each, with one file.
fn examples() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(page::root().join("examples")).unwrap();
    let names = ["seawall.toml", "agentgateway.yaml"];
    let mut found: Vec<PathBuf> = folders
        .flat_map(|folder| names.map(|name| folder.as_ref().unwrap().path().join(name)))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    assert!(found.len() >= 7, "{found:?}");
    found
}

#[test]
fn every_example_loads_and_says_when_to_use_it() {
    for path in examples() {
        let (name, text) = (path.display().to_string(), std::fs::read_to_string(&path).unwrap());
        assert!(
            text.starts_with("# ") && text.contains("\n# Use it "),
            "{name} does not say when to use it"
        );
        load_config(&path, &set).unwrap_or_else(|problems| panic!("{problems}"));
        if name.ends_with(".toml") {
            fits_the_schema(&name, &text);
        }
    }
}

#[test]
fn every_example_is_explained_by_the_command_that_it_shows() {
    let home = tempfile::TempDir::new().unwrap();
    for path in examples() {
        let text = std::fs::read_to_string(&path).unwrap();
        let commands: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("#   seawall ")).collect();
        for command in &commands {
            Cli::try_parse_from(format!("seawall {command}").split_whitespace()).unwrap();
        }
        let explain = commands.iter().find(|command| command.starts_with("explain ")).unwrap();
        assert!(
            explain.ends_with(path.strip_prefix(page::root()).unwrap().to_str().unwrap()),
            "{explain}"
        );
        let ran = Command::new(env!("CARGO_BIN_EXE_seawall"))
            .args(explain.split_whitespace())
            .current_dir(page::root())
            .env_clear()
            .env("HOME", home.path())
            .env("GITHUB_TOKEN", "value")
            .output()
            .unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(
            ran.status.success() && out.contains("May a call be repeated?"),
            "{explain}: {out}{err}"
        );
    }
}

#[test]
fn llms_txt_names_pages_that_exist_and_every_page_of_guide_and_reference() {
    let text = page::read("llms.txt");
    let links: BTreeSet<&str> =
        text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    for link in &links {
        assert!(page::root().join(link).exists(), "llms.txt: {link}");
    }
    for folder in ["docs/guide", "docs/reference"] {
        for path in files(folder, "") {
            let link = Path::new(folder).join(path.file_name().unwrap());
            assert!(links.contains(link.to_str().unwrap()), "llms.txt lacks {}", link.display());
        }
    }
}
