//! Decides which changes between two lists of one server the operator is told: a renamed tool is a
//! broken prompt somewhere.

use std::collections::HashMap;

use crate::protocol::edit::JsonObject;
use crate::protocol::scan::{self, Span};
use crate::upstream::beginning;

/// Names that are logged per kind of change; further names are only counted.
const NAMED: usize = 10;

/// The name or URI of an entry, and its JSON text.
type ListEntry = (String, Vec<u8>);

/// The entries that were added, removed and changed from one list to the next; `None` if both have
/// the same entries.
pub(crate) fn between(before: &[u8], after: &[u8], key: &str) -> Option<String> {
    let (before, after) = (entries(before, key), entries(after, key));
    let (old, new): (HashMap<_, _>, HashMap<_, _>) =
        (before.iter().cloned().collect(), after.iter().cloned().collect());
    let added = after.iter().filter(|(name, _)| !old.contains_key(name));
    let removed = before.iter().filter(|(name, _)| !new.contains_key(name));
    let changed = after.iter().filter(|(name, json)| old.get(name).is_some_and(|was| was != json));
    let told = [told("added", added), told("removed", removed), told("changed", changed)];
    let told: Vec<String> = told.into_iter().flatten().collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn told<'a>(what: &str, entries: impl Iterator<Item = &'a ListEntry>) -> Option<String> {
    let names: Vec<&str> = entries.map(|(name, _)| name.as_str()).collect();
    let shown: Vec<&str> = names.iter().take(NAMED).copied().collect();
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("{what} {}{more}", shown.join(", ")))
}

/// The entries of a list, each with its name or URI.
fn entries(list: &[u8], key: &str) -> Vec<ListEntry> {
    let id = match key {
        "resources" => "uri",
        "resourceTemplates" => "uriTemplate",
        _ => "name",
    };
    let list = JsonObject::of(list).get(key).map(<[u8]>::to_vec).unwrap_or_default();
    let spans = scan::elements(&list, Span { start: 0, end: list.len() });
    let entry = |span: Span| {
        let json = span.of(&list);
        let name = JsonObject::of(json)
            .get(id)
            .and_then(scan::text)
            .map(|name| beginning(&name))
            .unwrap_or_default();
        (name, json.to_vec())
    };
    spans.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_named_and_order_is_no_change() {
        let list = |tools: &str| format!(r#"{{"tools":[{tools}]}}"#).into_bytes();
        let (a, b, c) = (r#"{"name":"a","x":1}"#, r#"{"name":"b"}"#, r#"{"name":"a","x":2}"#);
        let before = list(&format!("{a},{b}"));
        assert_eq!(between(&before, &list(&format!("{b},{a}")), "tools"), None);
        assert_eq!(
            between(&before, &list(&format!("{c},{b}")), "tools").as_deref(),
            Some("changed a")
        );
        assert_eq!(
            between(&before, &list(r#"{"name":"d"}"#), "tools").as_deref(),
            Some("added d; removed a, b")
        );
        let many: Vec<String> =
            (0..12).map(|number| format!(r#"{{"name":"t{number}"}}"#)).collect();
        let told = between(&list(""), &list(&many.join(",")), "tools").unwrap();
        assert!(told.starts_with("added t0, t1") && told.ends_with("t9 and 2 more"), "{told}");
    }
}
