//! The items of a crate, found by following its `mod`s from `lib.rs`, and those that it exports.

use std::fs;
use std::path::Path;

use syn::{Attribute, Item, ItemImpl, Type, UseTree, Visibility};

/// A part of the crate, and the feature that brings it.
pub(crate) struct Found<T> {
    pub(crate) what: T,
    pub(crate) feature: Option<String>,
}

/// Everything that could be public.
pub(crate) struct CrateTree {
    /// The names that `lib.rs` exports, each with the feature before its `pub use`.
    pub(crate) exports: Vec<(String, Option<String>)>,
    items: Vec<Found<Item>>,
    impls: Vec<Found<ItemImpl>>,
}

impl CrateTree {
    pub(crate) fn read(sources: &Path) -> Self {
        let root = parse(&sources.join("lib.rs"));
        let mut tree = Self { exports: exports(&root), items: Vec::new(), impls: Vec::new() };
        tree.add(root, sources, None);
        tree
    }

    /// What stands in one module, and in those below it.
    fn add(&mut self, items: Vec<Item>, folder: &Path, feature: Option<&str>) {
        for item in items {
            let cfg = cfg(attributes(&item));
            if cfg.as_deref() == Some("test") {
                continue;
            }
            let feature = cfg.as_deref().or(feature).map(str::to_owned);
            match item {
                Item::Mod(module) if module.content.is_none() => {
                    let name = module.ident.to_string();
                    let below = folder.join(&name);
                    let file = folder.join(format!("{name}.rs"));
                    let file = if file.exists() { file } else { below.join("mod.rs") };
                    self.add(parse(&file), &below, feature.as_deref());
                }
                Item::Impl(what) => self.impls.push(Found { what, feature }),
                what => self.items.push(Found { what, feature }),
            }
        }
    }

    /// The public item of this name: there is one.
    pub(crate) fn item(&self, name: &str) -> &Found<Item> {
        let mut found =
            self.items.iter().filter(|it| public_name(&it.what).as_deref() == Some(name));
        let first = found.next().unwrap_or_else(|| panic!("{name} is exported and not there"));
        assert!(found.next().is_none(), "{name} is there twice");
        first
    }

    /// The implementations for a type; those for foreign types stand with the trait.
    pub(crate) fn impls<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Found<ItemImpl>> {
        let is_exported = |name: &str| self.exports.iter().any(|(known, _)| known == name);
        self.impls.iter().filter(move |it| {
            let own = type_name(&it.what.self_ty);
            let of_trait = it.what.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
            match own {
                Some(own) if own == name => true,
                Some(own) if is_exported(&own) || self.is_defined(&own) => false,
                _ => of_trait.is_some_and(|last| last.ident == name),
            }
        })
    }

    fn is_defined(&self, name: &str) -> bool {
        self.items.iter().any(|it| item_name(&it.what).as_deref() == Some(name))
    }
}

fn parse(file: &Path) -> Vec<Item> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display())).items
}

fn exports(root: &[Item]) -> Vec<(String, Option<String>)> {
    let mut names = Vec::new();
    for item in root {
        if let Item::Use(exported) = item
            && matches!(exported.vis, Visibility::Public(_))
        {
            let feature = cfg(&exported.attrs);
            names.extend(leaves(&exported.tree).into_iter().map(|name| (name, feature.clone())));
        }
    }
    names
}

fn leaves(tree: &UseTree) -> Vec<String> {
    match tree {
        UseTree::Path(path) => leaves(&path.tree),
        UseTree::Name(name) => vec![name.ident.to_string()],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
        UseTree::Rename(_) | UseTree::Glob(_) => panic!("one name for one thing, and no globs"),
    }
}

/// The feature, or whatever else stands in a `cfg`.
fn cfg(attributes: &[Attribute]) -> Option<String> {
    let cfg = attributes.iter().find(|it| it.path().is_ident("cfg"))?;
    let inside = cfg.meta.require_list().unwrap().tokens.to_string();
    let features: Vec<&str> = inside.split('"').skip(1).step_by(2).collect();
    Some(if features.is_empty() { inside } else { features.join(" or ") })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        _ => &[],
    }
}

fn public_name(item: &Item) -> Option<String> {
    let visibility = match item {
        Item::Struct(it) => &it.vis,
        Item::Enum(it) => &it.vis,
        Item::Trait(it) => &it.vis,
        Item::Type(it) => &it.vis,
        Item::Fn(it) => &it.vis,
        Item::Const(it) => &it.vis,
        _ => return None,
    };
    matches!(visibility, Visibility::Public(_)).then(|| item_name(item)).flatten()
}

fn item_name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Struct(it) => &it.ident,
        Item::Enum(it) => &it.ident,
        Item::Trait(it) => &it.ident,
        Item::Type(it) => &it.ident,
        Item::Fn(it) => &it.sig.ident,
        Item::Const(it) => &it.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn type_name(of: &Type) -> Option<String> {
    match of {
        Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    }
}
