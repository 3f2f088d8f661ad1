//! What of an item is public: no documentation, no bodies, nothing private.

use syn::{
    Attribute, Fields, File, FnArg, ImplItem, Item, ItemImpl, Pat, Signature, TraitItem,
    Visibility, parse_quote,
};

/// Stands for fields that nobody outside sees.
const HIDDEN: &str = "    __hidden: (),\n";

/// A type, trait, function or constant.
pub(crate) fn item(item: &Item) -> String {
    let mut item = item.clone();
    match &mut item {
        Item::Struct(it) => {
            keep_public(&mut it.attrs);
            hide_fields(&mut it.fields);
        }
        Item::Enum(it) => {
            keep_public(&mut it.attrs);
            for variant in &mut it.variants {
                keep_public(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| keep_public(&mut field.attrs));
            }
        }
        Item::Trait(it) => {
            keep_public(&mut it.attrs);
            it.items.iter_mut().for_each(bare_trait_item);
        }
        Item::Fn(it) => {
            keep_public(&mut it.attrs);
            bare_signature(&mut it.sig);
            it.block.stmts.clear();
        }
        Item::Type(it) => keep_public(&mut it.attrs),
        Item::Const(it) => keep_public(&mut it.attrs),
        other => panic!("cannot be exported: {other:?}"),
    }
    print(item)
}

/// What an `impl` gives: of a type, its public functions and constants; of a trait, that it is
/// there and which types it names. Nothing if all of it is private.
pub(crate) fn implementation(block: &ItemImpl) -> String {
    let mut block = block.clone();
    keep_public(&mut block.attrs);
    if block.trait_.is_some() {
        block.items.retain(|item| matches!(item, ImplItem::Type(_)));
        return print(Item::Impl(block));
    }
    block.items.retain(|item| match item {
        ImplItem::Fn(it) => is_public(&it.vis),
        ImplItem::Const(it) => is_public(&it.vis),
        _ => false,
    });
    for item in &mut block.items {
        match item {
            ImplItem::Fn(it) => {
                keep_public(&mut it.attrs);
                bare_signature(&mut it.sig);
                it.block.stmts.clear();
            }
            ImplItem::Const(it) => keep_public(&mut it.attrs),
            _ => {}
        }
    }
    if block.items.is_empty() { String::new() } else { print(Item::Impl(block)) }
}

fn bare_trait_item(item: &mut TraitItem) {
    match item {
        TraitItem::Fn(it) => {
            keep_public(&mut it.attrs);
            bare_signature(&mut it.sig);
            if let Some(body) = &mut it.default {
                *body = parse_quote!({ provided });
            }
        }
        TraitItem::Type(it) => keep_public(&mut it.attrs),
        TraitItem::Const(it) => keep_public(&mut it.attrs),
        _ => {}
    }
}

/// How a function takes an argument apart is its own affair.
fn bare_signature(signature: &mut Signature) {
    for argument in &mut signature.inputs {
        match argument {
            FnArg::Typed(typed) => {
                if let Pat::Ident(name) = &mut *typed.pat {
                    name.mutability = None;
                }
            }
            FnArg::Receiver(receiver) if receiver.reference.is_none() => receiver.mutability = None,
            FnArg::Receiver(_) => {}
        }
    }
}

fn hide_fields(fields: &mut Fields) {
    match fields {
        Fields::Named(named) => {
            let all = named.named.len();
            let public = named.named.iter().filter(|field| is_public(&field.vis)).cloned();
            named.named = public.collect();
            named.named.iter_mut().for_each(|field| keep_public(&mut field.attrs));
            if named.named.len() < all {
                named.named.push(parse_quote!(__hidden: ()));
            }
        }
        Fields::Unnamed(unnamed) => {
            for field in unnamed.unnamed.iter_mut().filter(|field| !is_public(&field.vis)) {
                (field.ty, field.vis) = (parse_quote!(_), Visibility::Inherited);
            }
        }
        Fields::Unit => {}
    }
}

/// The attributes that callers notice.
fn keep_public(attributes: &mut Vec<Attribute>) {
    const NOTICED: [&str; 6] =
        ["cfg_attr", "default", "deprecated", "derive", "must_use", "non_exhaustive"];
    attributes.retain(|it| NOTICED.iter().any(|name| it.path().is_ident(name)));
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn print(item: Item) -> String {
    let file = File { shebang: None, attrs: Vec::new(), items: vec![item] };
    let text = prettyplease::unparse(&file).replace(HIDDEN, "    // private fields\n");
    // A body that was taken out: `fn f() {}`, or on a line of its own behind the bounds.
    text.lines().fold(String::new(), |text, line| match line.trim() {
        "{}" => format!("{};\n", text.trim_end().trim_end_matches(',')),
        _ => text + &line.strip_suffix(" {}").map_or(line.to_owned(), |it| format!("{it};")) + "\n",
    })
}
