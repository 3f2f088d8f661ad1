//! Decides which simpler queries to try when a search fails. Pure.

use serde_json::Value;

use super::argument::argument;

/// Argument names that usually hold the query.
const NAMES: &[&str] = &[
    "query",
    "q",
    "search",
    "search_query",
    "searchQuery",
    "term",
    "terms",
    "keywords",
    "text",
    "pattern",
];
/// How many simpler queries are tried at most.
const MOST: usize = 3;

/// The arguments with ever simpler queries: without quotes, operators and field filters first, then
/// with fewer terms. Empty if there is no query, or if nothing can be removed from it.
pub fn simplified(arguments: &Value, name: Option<&str>) -> Vec<(String, Value)> {
    let Some(name) = argument(arguments, name, NAMES, Value::is_string) else { return Vec::new() };
    let Some(query) = arguments[&name].as_str() else { return Vec::new() };
    simpler_queries(query)
        .into_iter()
        .map(|simpler| {
            let mut arguments = arguments.clone();
            arguments[&name] = simpler.clone().into();
            (simpler, arguments)
        })
        .collect()
}

fn simpler_queries(query: &str) -> Vec<String> {
    let plain = query.replace(['"', '\'', '(', ')', '*', '~', '^'], " ");
    let words: Vec<&str> = plain
        .split_whitespace()
        .filter(|word| !matches!(*word, "AND" | "OR" | "NOT"))
        .filter(|word| !word.starts_with('-'))
        .map(|word| word.trim_start_matches('+'))
        .filter(|word| !word.is_empty())
        .collect();
    let terms: Vec<&str> = words.iter().copied().filter(|word| !is_filter(word)).collect();
    let half = terms.len().div_ceil(2);
    let candidates = [
        words.join(" "),
        terms.join(" "),
        terms[..half].join(" "),
        terms[..terms.len().min(1)].join(" "),
    ];

    let mut simpler: Vec<String> = Vec::new();
    for candidate in candidates {
        let is_new = candidate != query.trim() && !simpler.contains(&candidate);
        if !candidate.is_empty() && is_new {
            simpler.push(candidate);
        }
    }
    simpler.truncate(MOST);
    simpler
}

/// `is:open`, `label:bug`; not `http://…` and not `12:30`.
fn is_filter(word: &str) -> bool {
    word.split_once(':').is_some_and(|(field, value)| {
        !field.is_empty()
            && field.chars().all(|c| c.is_ascii_alphabetic() || c == '_')
            && !value.starts_with("//")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn queries(query: &str) -> Vec<String> {
        simplified(&json!({"query": query, "limit": 5}), None)
            .into_iter()
            .map(|(query, _)| query)
            .collect()
    }

    #[test]
    fn queries_lose_operators_then_filters_then_terms() {
        assert_eq!(
            queries(r#""memory leak" AND is:open +gateway -windows (stdio OR http)"#),
            [
                "memory leak is:open gateway stdio http",
                "memory leak gateway stdio http",
                "memory leak gateway"
            ]
        );
        assert_eq!(queries("one two three"), ["one two", "one"]);
    }

    #[test]
    fn what_is_simple_stays() {
        for query in ["leak", "", "   ", "\"\"", "-x"] {
            assert_eq!(queries(query), Vec::<String>::new(), "{query}");
        }
        assert!(simplified(&json!({"path": "a b c"}), None).is_empty());
        assert!(simplified(&json!([1]), None).is_empty());
    }

    #[test]
    fn other_arguments_are_kept_and_the_name_can_be_given() {
        let tries = simplified(&json!({"jql": "a b", "limit": 5}), Some("jql"));

        assert_eq!(tries, [("a".to_owned(), json!({"jql": "a", "limit": 5}))]);
    }
}
