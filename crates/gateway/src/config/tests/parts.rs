//! The small readers, each alone.

use super::super::tree::{ConfigNode, ConfigValue};
use super::*;

fn plain(node: &ConfigNode) -> serde_json::Value {
    match &node.value {
        ConfigValue::Null | ConfigValue::Date => serde_json::Value::Null,
        ConfigValue::Flag(flag) => (*flag).into(),
        ConfigValue::Number(number) => serde_json::from_str(number).unwrap(),
        ConfigValue::Text(text) => text.as_str().into(),
        ConfigValue::List(items) => items.iter().map(plain).collect(),
        ConfigValue::Table(entries) => {
            entries.iter().map(|(key, node)| (key.clone(), plain(node))).collect()
        }
    }
}

#[test]
fn json_says_what_serde_json_says() {
    for text in [
        "{}",
        "[]",
        " null ",
        "-1.5e3",
        r#"{"a": [1, 2.0, -0, true, false, null, {"b": {}}], "": "\u00e4\ud83d\ude00\n\"\\\/ä/* x */ // y"}"#,
        "[[[[\r\n\t1]]]]",
    ] {
        let expected: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(plain(&json::parse(text).unwrap()), expected, "{text}");
    }
}

#[test]
fn json_may_have_comments_and_trailing_commas() {
    let text = "// a\n{ /* b\n\n*/ \"x\": [1, // one\n 2, ], /**/ \"y\": \"//\", }\n// end";
    assert_eq!(plain(&json::parse(text).unwrap()), serde_json::json!({"x": [1, 2], "y": "//"}));

    let ConfigValue::Table(entries) = json::parse(text).unwrap().value else { panic!("a table") };
    assert_eq!(entries.iter().map(|(_, node)| node.line).collect::<Vec<_>>(), [4, 5]);
}

#[test]
fn a_slip_in_json_is_told_with_its_line() {
    let value = "expected a value: a string in double quotes, a number, true, false, null, [ or {";
    for (text, line, slip) in [
        ("", 1, value),
        ("{\n\"a\": }", 2, value),
        ("[,]", 1, value),
        ("[1,,2]", 1, value),
        ("[01]", 1, value),
        ("[NaN]", 1, value),
        ("['a']", 1, value),
        ("{,}", 1, "expected a key in double quotes, or \"}\""),
        ("{a: 1}", 1, "expected a key in double quotes, or \"}\""),
        ("{\"a\" 1}", 1, "expected \":\" after a key"),
        ("{\"a\": 1\n\"b\": 2}", 2, "expected \",\" or \"}\""),
        ("[1 2]", 1, "expected \",\" or \"]\""),
        ("{} {}", 1, "expected the end of the file"),
        ("[\"a\n\"]", 1, "a string is not closed"),
        ("[\"a\\", 1, "a string is not closed"),
        ("[\"\\q\"]", 1, "a string has a bad escape or a control character"),
        ("\n/* a", 2, "a comment is not closed"),
        ("/*/", 1, "a comment is not closed"),
    ] {
        let problem = json::parse(text).unwrap_err();
        assert_eq!(
            (problem.line, problem.text),
            (Some(line), format!("not valid JSON: {slip}")),
            "{text}"
        );
    }
    let deep = json::parse(&"[".repeat(100_000)).unwrap_err();
    assert_eq!(deep.text, "not valid JSON: values nest deeper than 64");
}

#[test]
fn toml_gives_lines_and_the_order_of_the_file() {
    let mut problems = Problems::default();
    let root =
        toml::parse("z = 1_000\n\na = [1,\n 'x']\n[t.b]\nc = 1979-05-27\n", &mut problems).unwrap();

    let ConfigValue::Table(entries) = &root.value else { panic!("a table") };
    let lines: Vec<_> = entries.iter().map(|(key, node)| (key.as_str(), node.line)).collect();
    assert_eq!(lines, [("z", 1), ("a", 3), ("t", 5)]);
    assert_eq!(
        plain(&root),
        serde_json::json!({"z": 1000, "a": [1, "x"], "t": {"b": {"c": null}}})
    );
    let ConfigValue::List(items) = &entries[1].1.value else { panic!("a list") };
    assert_eq!(items[1].line, 4);
}

#[test]
fn a_file_of_variables_has_comments_and_quotes() {
    let text = "\n# all\nA=1\n B = two words \nexport C=x # y\nD='# $A \\n'\n\
                E=\"a\\n\\\"b\\\" \\$x \\q\" # z\nF=\nG=#\nH=a#b=c\r\nI=''\n";
    let pairs = env_file::parse(text).unwrap();

    let shown: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        shown,
        [
            "A=1",
            "B=two words",
            "C=x",
            "D=# $A \\n",
            "E=a\n\"b\" $x \\q",
            "F=",
            "G=",
            "H=a#b=c",
            "I="
        ]
    );
    for (text, problem) in [
        ("A=1\nB", "has a line 2 that is not KEY=VALUE"),
        ("=1", "has a line 1 that is not KEY=VALUE"),
        ("A B=1", "has a line 1 that is not KEY=VALUE"),
        ("A='1", "has a line 1 whose quotes do not match"),
        ("A=\"1\\\"", "has a line 1 whose quotes do not match"),
        ("A='1'2", "has a line 1 whose quotes do not match"),
        ("A=\0", "has a line 1 with a NUL character"),
    ] {
        assert_eq!(env_file::parse(text), Err(problem.to_owned()), "{text}");
    }
}

#[test]
fn durations_have_a_unit_and_a_bound() {
    for (text, ms) in [
        ("0s", 0),
        ("250ms", 250),
        ("30s", 30_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("1m30s", 90_000),
        ("1h2m3s4ms", 3_723_004),
    ] {
        assert_eq!(duration::parse(text), Ok(Duration::from_millis(ms)));
    }
    for text in ["", "30", "s", "-1s", "1.5s", "1d", "1 s", "1s ", "1ss", "1m30", "1m-3s"] {
        assert!(duration::parse(text).is_err(), "{text}");
    }
    for text in ["169h", "168h1ms", "18446744073709551615h", "18446744073709551615ms1ms"] {
        assert_eq!(duration::parse(text), Err("must not exceed 7 days".to_owned()));
    }
}

#[test]
fn a_slip_finds_its_key_and_nonsense_finds_none() {
    let known = ["command", "args", "env", "cwd", "url", "headers", "type", "allowed_hosts"];
    for (slip, meant) in [
        ("comand", "command"),
        ("commands", "command"),
        ("Command", "command"),
        ("agrs", "args"),
        ("envs", "env"),
        ("uri", "url"),
        ("header", "headers"),
        ("allowedHosts", "allowed_hosts"),
        ("allowed-host", "allowed_hosts"),
    ] {
        assert_eq!(suggest::nearest(slip, &known), Some(meant), "{slip}");
    }
    for nonsense in ["", "x", "timeout", "allowed_users", "description", &"command".repeat(1_000)] {
        assert_eq!(suggest::nearest(nonsense, &known), None, "{nonsense}");
    }
}

#[test]
fn a_server_may_get_several_headers_of_its_client_and_each_of_its_own_once() {
    let file = |second: &str| {
        toml_file(&format!(
            "[servers.a]\nurl = \"http://a.example/mcp\"\npass_header = [\n\
             {{ from = \"x-token\", to = \"authorization\", prefix = \"Bearer \" }},\n\
             {{ from = \"x-token\", to = \"{second}\", default = \"\" }}]"
        ))
    };
    let config = file("x-token").good("seawall.toml");
    let told =
        |rule: &PassedHeader| (rule.to.to_string(), rule.prefix.clone(), rule.default.clone());
    let rules: Vec<_> = config.servers[0].access.pass_headers.iter().map(told).collect();
    let plain = ("x-token".to_owned(), String::new(), Some(String::new()));
    assert_eq!(rules, [("authorization".to_owned(), "Bearer ".to_owned(), None), plain]);
    assert_eq!(config.warnings.len(), 2, "each lets the server act in the client's name");
    assert_eq!(
        file("Authorization").problems("seawall.toml"),
        "seawall.toml:5: servers.a.pass_header[1]: authorization is set already; keep one"
    );
    let text = file("content-type").problems("seawall.toml");
    assert!(text.contains("content-type is set by the gateway itself"), "{text}");
}
