//! The public surface of the library, written down in `tests/api.txt`.
//!
//! A change of it shows as a change of that file, to be read in a review: what is taken away or
//! changed breaks those who use it. `SEAWALL_API=write cargo test -p seawall --test api` renews it.
//! It is read off the sources, with all features: what `lib.rs` exports, without documentation,
//! bodies and whatever is private. What the compiler concludes (`Send`, `Sync`) is not in it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]

mod bare;
mod crate_tree;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate_tree::{CrateTree, Found};
use syn::Item;

const HEAD: &str = "\
// The public surface of `seawall`, of all features. A feature stands before what it brings.
// Written by `SEAWALL_API=write cargo test -p seawall --test api`; read the difference in a review.
";

/// The surface of the crate whose `lib.rs` lies in `sources`.
fn surface(sources: &Path) -> String {
    let tree = CrateTree::read(sources);
    let mut sections = BTreeMap::new();
    for (name, feature) in &tree.exports {
        let item = tree.item(name);
        let mut lines = vec![format!("\n{}", told(feature.as_deref(), &bare::item(&item.what)))];
        let implied = feature.as_deref().or(item.feature.as_deref());
        let impls = tree.impls(name).map(|found| {
            let own = found.feature.as_deref().filter(|own| Some(*own) != implied);
            told(own, &bare::implementation(&found.what))
        });
        let mut impls: Vec<String> = impls.filter(|text| !text.is_empty()).collect();
        impls.sort();
        lines.extend(impls);
        // Types by their names, then functions by theirs: as a reader looks for them.
        sections.insert((is_function(item), name), lines.concat());
    }
    HEAD.to_owned() + &sections.into_values().collect::<String>()
}

fn told(feature: Option<&str>, text: &str) -> String {
    match feature {
        Some(feature) if !text.is_empty() => format!("// {feature}\n{text}"),
        _ => text.to_owned(),
    }
}

fn is_function(item: &Found<Item>) -> bool {
    matches!(item.what, Item::Fn(_) | Item::Const(_))
}

/// The lines of one text that the other has not, each behind a sign.
fn missing<'a>(sign: char, of: &'a str, from: &'a str) -> impl Iterator<Item = String> + 'a {
    let has = move |line: &&str| !from.lines().any(|other| other == *line);
    of.lines().filter(has).map(move |line| format!("{sign} {line}"))
}

#[test]
fn the_public_surface_is_the_one_that_was_reviewed() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (now, page) = (surface(&core.join("src")), core.join("tests/api.txt"));
    if std::env::var("SEAWALL_API").is_ok_and(|wish| wish == "write") {
        return fs::write(page, now).unwrap();
    }
    let reviewed = fs::read_to_string(&page).unwrap_or_default();
    let changes: Vec<String> =
        missing('-', &reviewed, &now).chain(missing('+', &now, &reviewed)).collect();
    assert!(
        now == reviewed,
        "the public surface has changed; if that is meant, renew it with\n\
         SEAWALL_API=write cargo test -p seawall --test api\n{}",
        changes.join("\n")
    );
}

#[test]
fn what_is_private_is_not_in_the_surface() {
    let source = "
        /// Told elsewhere.
        #[derive(Clone)]
        pub struct Open<T> { pub seen: T, hidden: u8, pub(crate) ours: u8 }
        impl<T> Open<T> {
            pub fn new(mut seen: T) -> Self where T: Copy { loop {} }
            fn helps(&self) {}
        }
        pub trait Speaks { fn must(&self); fn may(&self) -> u8 { 7 } }";
    let file = syn::parse_file(source).unwrap();
    let shown: String = file
        .items
        .iter()
        .map(|item| match item {
            Item::Impl(block) => bare::implementation(block),
            other => bare::item(other),
        })
        .collect();
    assert_eq!(
        shown,
        "\
#[derive(Clone)]
pub struct Open<T> {
    pub seen: T,
    // private fields
}
impl<T> Open<T> {
    pub fn new(seen: T) -> Self
    where
        T: Copy;
}
pub trait Speaks {
    fn must(&self);
    fn may(&self) -> u8 {
        provided
    }
}
"
    );
}
