//! The shape of the tree: its layers, its sizes, and that the documents say what is so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below `folder` with this ending, build output left out.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands between `open` and `close` in a text, every time.
fn between<'a>(text: &'a str, open: &str, close: &'a str) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| rest.split(close).next()).collect()
}

#[test]
fn every_link_in_the_documents_leads_somewhere() {
    for page in files(&root(), ".md") {
        for link in between(&read(&page), "](", ")") {
            let target = link.split('#').next().unwrap();
            let is_outside = target.contains("://") || target.is_empty();
            assert!(
                is_outside || page.parent().unwrap().join(target).exists(),
                "{}: {link}",
                page.display()
            );
        }
    }
}

#[test]
fn every_path_in_the_documents_for_newcomers_exists() {
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = read(&root().join(page));
        let paths: Vec<&str> = between(&text, "`", "`")
            .into_iter()
            .filter(|code| code.starts_with("crates/"))
            .collect();
        assert!(paths.len() > 10, "{page}");
        for path in paths {
            assert!(root().join(path).exists(), "{page}: {path}");
        }
    }
}

#[test]
fn every_test_that_the_promises_and_requirements_name_exists() {
    let sources: String = ["crates", "examples"]
        .iter()
        .flat_map(|folder| files(&root().join(folder), ".rs"))
        .map(|path| read(&path))
        .collect();
    let is_test = |name: &&str| name.matches('_').count() > 2 && !name.contains([' ', '.', '=']);
    for (page, least) in [("docs/promises.md", 10), ("docs/requirements.md", 200)] {
        let text = read(&root().join(page));
        let named: BTreeSet<&str> = between(&text, "`", "`").into_iter().filter(is_test).collect();
        assert!(named.len() >= least, "{page} names {}", named.len());
        // Names that stand in quotes somewhere are settings, metrics and functions.
        let is_data = |name: &str| sources.contains(&format!("\"{name}"));
        for name in named.into_iter().filter(|name| !is_data(name)) {
            assert!(sources.contains(&format!("fn {name}(")), "{page}: {name}");
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = read(&root().join("README.md")).lines().count();
    assert!(lines <= 200, "{lines} lines");
}

#[test]
fn the_figures_of_the_readme_are_those_of_the_fault_bench() {
    let (readme, evidence) =
        (read(&root().join("README.md")), read(&root().join("docs/evidence/faults.md")));
    let cells = |line: &str| -> Vec<String> {
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let row = |page: &str, name: &str| {
        cells(page.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap())
    };
    let head = row(&evidence, "arm");
    for (told, measured) in [
        ("useful answers", "useful %"),
        ("no answer at all", "no answer %"),
        ("writes executed again", "duplicates"),
        ("calls sent while nothing could answer", "wasted"),
    ] {
        let place = head.iter().position(|cell| cell == measured).unwrap();
        let figures = ["direct", "Seawall"].map(|arm| row(&evidence, arm)[place].clone());
        let shown: Vec<String> =
            row(&readme, told)[2..4].iter().map(|cell| cell.replace(" %", "")).collect();
        assert_eq!(shown, figures, "{told}");
    }
}

#[test]
fn every_source_says_what_it_decides_and_fits_its_room() {
    for path in
        files(&root().join("crates"), ".rs").into_iter().chain(files(&root().join("bench"), ".rs"))
    {
        let text = read(&path);
        assert!(text.starts_with("//!"), "{} does not open with //!", path.display());
        assert!(text.lines().count() <= 600, "{} has over 600 lines", path.display());
    }
}

#[test]
fn comments_end_at_100_columns_and_other_lines_nearly_always() {
    let sources =
        files(&root().join("crates"), ".rs").into_iter().chain(files(&root().join("bench"), ".rs"));
    let (mut all, mut long) = (0, 0);
    for path in sources {
        for (number, line) in read(&path).lines().enumerate() {
            let is_long = line.chars().count() > 100;
            all += 1;
            long += usize::from(is_long);
            let is_comment = line.trim_start().starts_with("//");
            assert!(!(is_long && is_comment), "{}:{}", path.display(), number + 1);
        }
    }
    // Texts, and the names of tests, are not broken.
    assert!(long * 100 < all, "{long} lines of {all} are longer than 100 columns");
}

#[test]
fn the_library_knows_no_sockets_no_files_and_no_sdk() {
    for path in files(&root().join("crates/core/src"), ".rs") {
        let text = read(&path);
        for foreign in [
            "std::net",
            "std::fs",
            "tokio::net",
            "tokio::fs",
            "tokio::spawn",
            "std::process",
            "std::env",
            "rmcp",
        ] {
            assert!(!text.contains(foreign), "{} uses {foreign}", path.display());
        }
    }
}

/// Atomics that no model check needs.
const NOT_MODELLED: [(&str, &str); 3] = [
    ("attempt/breaker/stripe.rs", "spreads threads over stripes that any of them may write"),
    ("model/note.rs", "one task's, which no two threads run at once"),
    ("time/clock.rs", "a clock that tests move by hand"),
];

#[test]
fn every_atomic_is_in_a_part_that_is_checked_under_every_interleaving() {
    let sources = root().join("crates/core/src");
    let models = read(&root().join("crates/core/tests/loom/main.rs"));
    let checked = between(&models, "#[path = \"../../src/", "\"]");
    let is_code = |line: &&str| {
        !["//", "use ", "pub(super) use "].iter().any(|start| line.trim().starts_with(start))
    };

    let with_atomics: BTreeSet<String> = files(&sources, ".rs")
        .iter()
        .filter(|path| read(path).lines().filter(is_code).any(|line| line.contains("Atomic")))
        .map(|path| path.strip_prefix(&sources).unwrap().to_str().unwrap().to_owned())
        .collect();
    for path in
        with_atomics.iter().filter(|path| NOT_MODELLED.iter().all(|(known, _)| known != path))
    {
        let is_modelled = checked.contains(&path.as_str())
            && !read(&sources.join(path)).contains("std::sync::atomic");
        assert!(is_modelled, "{path} has an atomic that tests/loom does not check");
    }
    for (path, why) in NOT_MODELLED {
        assert!(with_atomics.contains(path), "{path} has no atomic any more: {why}");
    }
}

#[test]
fn the_library_starts_no_thread_but_a_listeners() {
    for path in files(&root().join("crates/core/src"), ".rs") {
        let may = path.ends_with("report/event.rs") || path.ends_with("tests.rs");
        assert!(may || !read(&path).contains("std::thread"), "{} starts a thread", path.display());
    }
}

#[test]
fn nothing_is_left_undone() {
    for path in files(&root().join("crates"), ".rs")
        .into_iter()
        .filter(|path| !path.ends_with("architecture.rs"))
    {
        for word in ["todo!(", "unimplemented!(", "#[ignore", "FIXME", "dbg!("] {
            assert!(!read(&path).contains(word), "{}: {word}", path.display());
        }
    }
}

/// The folders of each crate in their order: a folder uses only those before it.
const LAYERS: [(&str, &[&str]); 2] = [
    (
        "crates/core/src",
        &[
            "time", "model", "classify", "report", "env", "admit", "attempt", "registry",
            "recover", "pipeline", "run", "caller", "startup", "service",
        ],
    ),
    (
        "crates/gateway/src",
        &[
            "protocol",
            "config",
            "runtime",
            "platform",
            "trace",
            "store",
            "queue",
            "authz",
            "upstream",
            "client",
            "translate",
            "catalog",
            "policy",
            "fleet",
            "route",
            "call",
            "gateway",
            "reload",
            "frontend",
            "admin",
            "check",
            "remote",
            "top",
            "cli",
        ],
    ),
];

fn word(text: &str) -> &str {
    let is_end = |letter: char| !letter.is_alphanumeric() && letter != '_';
    text.split(is_end).next().unwrap_or_default()
}

/// The folders that a line of code names: behind `crate::`, and behind as many `super::` as lead
/// out of its own folder.
fn folders_in(line: &str, depth: usize) -> Vec<&str> {
    let out = "super::".repeat(depth);
    let behind = |start: &str| line.split(start).skip(1).map(word).collect::<Vec<_>>();
    [behind("crate::"), behind(&out)].concat()
}

/// Where a source uses a folder below its own.
fn upward(place: &Path, text: &str, layers: &[&str]) -> Vec<String> {
    let layer = |folder: &str| layers.iter().position(|layer| *layer == folder);
    let folder = place.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
    let own = layer(folder).unwrap_or_else(|| panic!("{folder} is in no layer: {layers:?}"));
    let depth = place.iter().count() - usize::from(place.ends_with("mod.rs"));
    let code = text.lines().enumerate().filter(|(_, line)| !line.trim().starts_with("//"));
    let wrong = code.flat_map(|(number, line)| {
        let used = folders_in(line, depth).into_iter();
        let below = used.filter(|used| layer(used).is_some_and(|used| used > own));
        below.map(move |used| format!("{}:{}: {folder} uses {used}", place.display(), number + 1))
    });
    wrong.collect()
}

#[test]
fn a_folder_uses_only_folders_above_it() {
    for (sources, layers) in LAYERS.map(|(folder, layers)| (root().join(folder), layers)) {
        let mut wrong = Vec::new();
        for path in files(&sources, ".rs") {
            let place = path.strip_prefix(&sources).unwrap();
            if ["lib.rs", "main.rs"].iter().any(|root| place == Path::new(root)) {
                continue;
            }
            let text = read(&path);
            assert!(!text.contains("crate::{"), "{}: one folder to a line", place.display());
            wrong.extend(upward(place, &text, layers));
        }
        let order = layers.join(" → ");
        assert!(
            wrong.is_empty(),
            "a folder uses only those before it, {order}:\n{}",
            wrong.join("\n")
        );
    }
}

/// The files of the life of a call in their order: a file uses only those before it.
const CALL: &[&str] = &[
    "traced",
    "audited",
    "authorize",
    "server_error",
    "fallback",
    "idle_timeout",
    "send",
    "queued",
    "execute",
    "list",
    "policy",
    "ask",
    "merged_lists",
    "listen",
    "several",
    "initialize",
    "resources",
    "target",
    "reply",
    "required",
    "mod",
];

#[test]
fn no_step_of_a_call_calls_back_up() {
    let sources = root().join("crates/gateway/src/call");
    let mut wrong = Vec::new();
    for path in files(&sources, ".rs") {
        let place = path.strip_prefix(&sources).unwrap();
        let [own, others] = ["crate::call::", "crate::"];
        let text = read(&path).replace(own, "\0").replace(others, "").replace('\0', others);
        wrong.extend(upward(place, &text, CALL));
    }
    assert!(wrong.is_empty(), "in the order of {CALL:?}:\n{}", wrong.join("\n"));
}

/// The type that a line of code defines.
fn defined(line: &str) -> Option<&str> {
    let is_visible = |line: &&str| !line.starts_with(' ');
    let line = Some(line).filter(is_visible)?;
    let code = line
        .strip_prefix("pub")
        .map_or(line, |rest| rest.split_once(' ').map_or("", |(_, code)| code));
    ["struct ", "enum ", "trait ", "type "]
        .iter()
        .find_map(|kind| code.strip_prefix(kind))
        .map(word)
}

#[test]
fn no_two_types_of_a_crate_have_one_name() {
    for sources in ["crates/core/src", "crates/gateway/src"].map(|folder| root().join(folder)) {
        let mut places = BTreeMap::<String, Vec<String>>::new();
        for path in files(&sources, ".rs") {
            for (number, line) in read(&path).lines().enumerate() {
                let place =
                    format!("{}:{}", path.strip_prefix(&sources).unwrap().display(), number + 1);
                defined(line)
                    .into_iter()
                    .for_each(|name| places.entry(name.into()).or_default().push(place.clone()));
            }
        }
        assert!(places.len() > 200);
        places.retain(|_, places| places.len() > 1);
        assert!(places.is_empty(), "{places:#?}");
    }
}
