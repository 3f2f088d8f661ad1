//! Pages of `docs/reference` that the code writes: each equals what its test makes of the code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that is surprised should stop")]

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the repository.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks that the page `docs/reference/<name>` says this; `SEAWALL_REFERENCE=write` writes it.
pub fn is_current(name: &str, page: &str) {
    let path = root().join("docs/reference").join(name);
    if std::env::var("SEAWALL_REFERENCE").is_ok_and(|way| way == "write") {
        std::fs::write(&path, page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/reference/{name} is not what the code says; write it anew with\n\
         SEAWALL_REFERENCE=write cargo test -p seawall-gateway reference"
    );
}

/// The variants of an enum in a source, in their order, each with its comment in one line.
pub fn variants(source: &str, name: &str) -> Vec<(String, String)> {
    let body = source.split(&format!("pub enum {name} {{\n")).nth(1).unwrap();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut comment = Vec::new();
    for line in body.lines().take_while(|line| *line != "}") {
        // The fields of a variant stand further in, and have comments of their own.
        let Some(line) = line.strip_prefix("    ").filter(|line| !line.starts_with(' ')) else {
            continue;
        };
        let word = line.split([' ', ',', '{', '(']).next().unwrap_or_default();
        match line.strip_prefix("/// ") {
            Some(text) => comment.push(text),
            None if word.starts_with(char::is_uppercase) => {
                found.push((word.to_owned(), comment.join(" ")));
                comment.clear();
            }
            None => {}
        }
    }
    assert!(!found.is_empty(), "{name} has no variants");
    found
}
