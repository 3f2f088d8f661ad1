//! Decides which page comes before the one that failed. Pure.

use serde_json::Value;

use super::argument::argument;

const PAGES: &[&str] = &["page", "page_number", "pageNumber", "page_num"];
const OFFSETS: &[&str] = &["offset", "skip", "start", "from"];
const SIZES: &[&str] = &["limit", "per_page", "perPage", "page_size", "pageSize", "count", "size"];

/// The arguments for the previous page; `None` for the first page or if no argument holds a page.
pub fn previous_page(arguments: &Value, name: Option<&str>) -> Option<Value> {
    let set = |name: &str, number: u64| {
        let mut arguments = arguments.clone();
        arguments[name] = number.into();
        arguments
    };
    if let Some(name) = argument(arguments, name, PAGES, Value::is_u64) {
        let page = arguments[&name].as_u64()?;
        return (page > 1).then(|| set(&name, page - 1));
    }
    let name = argument(arguments, None, OFFSETS, Value::is_u64)?;
    let size = arguments[argument(arguments, None, SIZES, Value::is_u64)?].as_u64()?;
    let offset = arguments[&name].as_u64()?;
    (offset > 0 && size > 0).then(|| set(&name, offset.saturating_sub(size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_before_is_found_by_name_or_by_offset() {
        for (arguments, before) in [
            (json!({"page": 3, "per_page": 30}), Some(json!({"page": 2, "per_page": 30}))),
            (json!({"offset": 40, "limit": 30}), Some(json!({"offset": 10, "limit": 30}))),
            (json!({"offset": 20, "limit": 30}), Some(json!({"offset": 0, "limit": 30}))),
            (json!({"page": 1}), None),
            (json!({"page": 0}), None),
            (json!({"offset": 0, "limit": 30}), None),
            (json!({"offset": 40}), None),
            (json!({"page": "2"}), None),
            (json!({"cursor": "abc"}), None),
            (json!("x"), None),
        ] {
            assert_eq!(previous_page(&arguments, None), before, "{arguments}");
        }
        assert_eq!(previous_page(&json!({"p": 2}), Some("p")), Some(json!({"p": 1})));
    }
}
