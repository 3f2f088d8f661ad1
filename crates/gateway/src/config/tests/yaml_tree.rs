//! YAML as agentgateway's users write it becomes the same tree as other syntaxes, within bounds.

use serde_json::json;

use super::schema::json_of;
use super::*;

fn tree(text: &str) -> serde_json::Value {
    json_of(&yaml::parse(text).unwrap_or_else(|problem| panic!("{problem}")))
}

fn slip(text: &str) -> (usize, String) {
    let problem = yaml::parse(text).expect_err("the text is wrong");
    (problem.line.unwrap(), problem.text)
}

#[test]
fn values_are_read_as_the_core_schema_has_them() {
    let text = "a: 1\nb: '1'\nc: true\nd: ~\ne:\nf: 10s\ng: [x, 1.5, \"no\"]\nh: {i: -3, j: 0x10}\n\
                k: |\n  two\n  lines\nl: yes\nm: http://a:80/b\n4000: x";
    let meant = json!({
        "a": 1, "b": "1", "c": true, "d": null, "e": null, "f": "10s", "g": ["x", 1.5, "no"],
        "h": {"i": -3, "j": "0x10"}, "k": "two\nlines\n", "l": "yes", "m": "http://a:80/b", "4000": "x",
    });
    assert_eq!(tree(text), meant);
    assert_eq!(tree(&meant.to_string()), meant, "JSON is YAML");
    assert_eq!(tree(""), json!(null));
}

#[test]
fn an_alias_stands_for_the_value_of_its_anchor() {
    assert_eq!(
        tree("a: &one {b: &two [1]}\nc: *one\nd: *two"),
        json!({"a": {"b": [1]}, "c": {"b": [1]}, "d": [1]})
    );
}

#[test]
fn a_value_has_the_line_of_its_key() {
    let root = yaml::parse("# first\na:\n  b:\n    - c: 1\n    -\n      d: 2\n").unwrap();
    let a = root.under("a").next().unwrap();
    let b = a.under("b").next().unwrap();
    let items = b.items().unwrap();
    let of = |item: usize, key| items[item].under(key).next().unwrap().line;
    assert_eq!((a.line, b.line, of(0, "c"), of(1, "d")), (2, 3, 4, 6));
}

#[test]
fn what_is_not_plain_data_is_refused_with_its_line() {
    for (text, line, said) in [
        ("a: 1\nb: ]", 2, "not valid YAML: "),
        ("a: 1\nb: 2\n\tc: 3", 2, "not valid YAML: "),
        ("a: 1\nb: !!str 2", 2, "not valid YAML: tags are not supported; remove "),
        ("a: &a {b: 1}\nc:\n  <<: *a", 3, "not valid YAML: merge keys (<<) are not supported"),
        ("a: 1\n---\nb: 2", 2, "not valid YAML: a second document begins; keep one"),
        ("a:\n  ? [x]\n  : 1", 2, "not valid YAML: a key must be a text"),
        ("a: 1\nb: *none", 2, "not valid YAML: "),
        ("a: &a\n  b: *a", 2, "not valid YAML: an alias stands within its own anchor"),
    ] {
        let (at, told) = slip(text);
        assert!(told.starts_with(said), "{text:?}: {told}");
        assert_eq!(at, line, "{text:?}: {told}");
    }
}

#[test]
fn depth_and_number_of_values_are_bounded() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(yaml::parse(&deep(64)).is_ok());
    assert!(slip(&deep(65)).1.ends_with("values nest deeper than 64"));
    assert!(slip(&deep(100_000)).1.starts_with("not valid YAML"));
    let half = format!("a: &a {}\nb: {}", deep(40), deep(40).replacen("[]", "[*a]", 1));
    assert!(slip(&half).1.ends_with("values nest deeper than 64"));

    let mut laughs = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n".to_owned();
    for level in 1..9 {
        let below = vec![format!("*a{}", level - 1); 10].join(",");
        laughs += &format!("a{level}: &a{level} [{below}]\n");
    }
    assert!(slip(&laughs).1.ends_with("more than 200000 values, aliases written out"));
}
