//! Decides how a batch is split into single items. Pure.

use serde_json::{Value, json};

use super::argument::argument;

/// Endings of argument names that usually hold the items of a batch.
const ENDINGS: &[&str] = &[
    "ids", "numbers", "items", "keys", "urls", "paths", "files", "records", "entries", "names",
    "queries",
];
/// Larger batches are not split.
const MOST: usize = 100;

/// The batch item by item, each with arguments that hold a list of one. `None` if there is no list
/// to split.
pub fn one_by_one(arguments: &Value, name: Option<&str>) -> Option<Vec<(Value, Value)>> {
    let name = match name {
        Some(name) => argument(arguments, Some(name), &[], Value::is_array)?,
        None => items_argument(arguments)?,
    };
    let items = arguments[&name].as_array().filter(|items| (2..=MOST).contains(&items.len()))?;
    let single = |item: &Value| {
        let mut arguments = arguments.clone();
        arguments[&name] = json!([item]);
        (item.clone(), arguments)
    };
    Some(items.iter().map(single).collect())
}

/// Whether these are the arguments of a batch with one item.
pub(crate) fn is_single(arguments: &Value, name: Option<&str>) -> bool {
    let name = name.map(str::to_owned).or_else(|| items_argument(arguments));
    name.and_then(|name| arguments.get(name)?.as_array()).is_some_and(|items| items.len() == 1)
}

/// The only list, or the only one with a name that usually holds items.
fn items_argument(arguments: &Value) -> Option<String> {
    let lists: Vec<&String> = arguments
        .as_object()?
        .iter()
        .filter(|(_, value)| value.is_array())
        .map(|(name, _)| name)
        .collect();
    let telling: Vec<&&String> = lists
        .iter()
        .filter(|name| ENDINGS.iter().any(|ending| name.to_lowercase().ends_with(ending)))
        .collect();
    match (lists.as_slice(), telling.as_slice()) {
        ([only], _) => Some((*only).clone()),
        (_, [only]) => Some((**only).clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_falls_into_lists_of_one() {
        let split = one_by_one(
            &json!({"issue_numbers": [4, 5], "labels": ["bug", "ui"], "repo": "r"}),
            None,
        )
        .unwrap();

        assert_eq!(
            split,
            [
                (json!(4), json!({"issue_numbers": [4], "labels": ["bug", "ui"], "repo": "r"})),
                (json!(5), json!({"issue_numbers": [5], "labels": ["bug", "ui"], "repo": "r"})),
            ]
        );
    }

    #[test]
    fn what_is_ambiguous_small_or_huge_stays_whole() {
        assert_eq!(one_by_one(&json!({"a": [1, 2], "b": [3, 4]}), None), None);
        assert_eq!(one_by_one(&json!({"ids": [1]}), None), None);
        assert_eq!(one_by_one(&json!({"ids": vec![0; 101]}), None), None);
        assert_eq!(one_by_one(&json!({"ids": 1}), None), None);
        assert_eq!(one_by_one(&json!(null), None), None);
        assert!(one_by_one(&json!({"a": [1, 2], "b": [3, 4]}), Some("b")).is_some());
    }
}
