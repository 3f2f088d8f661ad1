//! Policy settings of a file, and their problems.

use std::time::Duration;

use seawall::{
    BulkheadPolicy, Effect, Fallback, HedgePolicy, Kind, LoopMode, Preset, Scope, TextStyle,
};

use super::*;
use crate::config::layer::OnAbandon;
use crate::config::layers::ToolHints;

const WHOLE: &str = r#"
preset = "caipe"
[timeouts]
quick = "50s"
heavy = "100s"
heavy_tools = ["cypher"]
[defaults]
retry = { attempts = 4 }
[kinds.write]
retry = { attempts = 2, base = "2s" }
breaker = { failures = 3, cooldown = "60s" }
[tools."*/search_*"]
timeout = "31s"
[tools."gh/search_issues"]
kind = "search"
effect = "read_only"
timeout = "30s"
attempt_timeout = "9s"
idle_timeout = "20s"
client_timeout = "55s"
on_abandon = "finish"
max_result = 100000
tool_concurrency = 2
retry = { attempts = 3, base = "1s", max = "30s", jitter = 0.2 }
breaker = { failures = 5, cooldown = "30s", probes = 2, successes = 2, slow_start = 0, scope = "tool", trip_on_429 = false }
cache = { ttl = "30s", stale_if_error = "1h" }
fallback = ["cached", "simplify", { tool = "web/search", map = { q = "query" } }, { text = "Search is down." }]
loop = { repeats = 3, window = 10, mode = "calls" }
uncertain_write_hold = "0s"
hedge = "p95"
tool_errors = false
[messages]
style = "classic"
format = "json"
debug = true
debug_on_request = false
[servers.web]
command = "web"
[servers.gh]
command = "gh"
trust_annotations = false
concurrency = 8
rate = "20/s"
hint = "See the status page."
policy = { attempt_timeout = "7s" }
"#;

#[test]
fn every_key_of_a_policy_is_read() {
    let config = toml_file(WHOLE).good("seawall.toml");
    let (rules, server) = (&config.rules, &config.servers[1].rules);
    assert_eq!(
        (rules.preset, rules.tiers.quick, rules.tiers.limit(rules.preset, "cypher").as_secs()),
        (Preset::Caipe, Duration::from_secs(50), 100)
    );
    assert_eq!(
        (rules.messages.style, rules.messages.as_json, rules.messages.debug),
        (Some(TextStyle::Classic), Some(true), true)
    );
    assert!(rules.messages.no_debug_on_request && server.distrust_annotations);
    assert_eq!(server.policy.slots.unwrap().concurrency, 8);
    assert_eq!(
        (server.policy.rate.unwrap().count, server.policy.hint.as_deref()),
        (20, Some("See the status page."))
    );

    let (search, own) = rules.tool("gh", server, "search_issues", ToolHints::default());
    assert_eq!((search.kind, search.effect), (Some(Kind::Search), Effect::ReadOnly));
    assert_eq!(
        (search.timeout.as_secs(), search.attempt_timeout.map(|limit| limit.as_secs())),
        (30, Some(9))
    );
    assert_eq!(
        (search.retry.attempts, search.scope, search.hedge),
        (3, Scope::Tool, Some(HedgePolicy::Quantile(0.95)))
    );
    let breaker = search.breaker.unwrap();
    assert_eq!((breaker.failures, breaker.probes, breaker.successes), (5, 2, 2));
    assert_eq!((breaker.slow_start, breaker.trip_on_429), (0, false));
    assert_eq!(
        (
            search.cache.fresh.unwrap().as_secs(),
            search.loops.mode,
            search.tool_errors == seawall::ToolErrors::NONE
        ),
        (30, LoopMode::Calls, true)
    );
    let map = [("q".to_owned(), "query".to_owned())].into();
    assert_eq!(
        search.fallback,
        [
            Fallback::Cached,
            Fallback::Simplify(None),
            Fallback::Alternate { server: "web".to_owned(), tool: "search".to_owned(), map },
            Fallback::Text("Search is down.".to_owned()),
        ]
    );
    assert_eq!(
        (own.idle_timeout.unwrap().as_secs(), own.client_timeout.unwrap().as_secs()),
        (20, 55)
    );
    assert_eq!((own.on_abandon, own.max_result), (OnAbandon::Finish, Some(100_000)));
    assert_eq!(search.slots, Some(BulkheadPolicy::new(2)));

    let (write, _) = rules.tool("gh", server, "create_issue", ToolHints::default());
    assert_eq!(
        (write.retry.attempts, write.scope, write.attempt_timeout.unwrap().as_secs()),
        (2, Scope::Server, 7)
    );
    assert_eq!(
        (search.uncertain_write_hold, write.uncertain_write_hold),
        (None, Some(Duration::from_secs(60)))
    );
    let (glob, _) = rules.tool("gh", server, "search_code", ToolHints::default());
    assert_eq!((glob.timeout.as_secs(), glob.retry.attempts), (31, 4));
}

#[test]
fn slots_of_a_tools_own_are_bounded_and_can_be_taken_back_by_a_nearer_place() {
    let file = |own: u32| {
        format!(
            "[defaults]\ntool_concurrency = 4\n[servers.a]\ncommand = \"a\"\n[tools.\"a/x\"]\ntool_concurrency = {own}\n"
        )
    };
    let config = toml_file(&file(0)).good("seawall.toml");
    let (rules, server) = (&config.rules, &config.servers[0].rules);
    let slots = |tool: &str| rules.tool("a", server, tool, ToolHints::default()).0.slots;
    assert_eq!((slots("x"), slots("y")), (None, Some(BulkheadPolicy::new(4))));
    assert_eq!(rules.method(server, "resources/read").slots, None, "that is no tool");
    assert_eq!(
        toml_file(&file(100_001)).problems("seawall.toml"),
        "seawall.toml:6: tools.\"a/x\".tool_concurrency: must not exceed 100000"
    );
}

#[test]
fn every_problem_of_a_policy_is_told_with_its_line() {
    let wrong = r#"preset = "fast"
[timeouts]
quik = "1s"
heavy = "0s"
[kinds.reads]
[defaults]
retry = { attempts = -1, bas = "1s" }
hedge = "soon"
[servers.a]
command = "a"
rate = "20"
concurrency = 0
[tools."get_issue"]
timeout = 30
[tools."a/x"]
effect = "readonly"
fallback = ["cache", { txt = "a" }, {}, { tool = "x" }]
[tools."a/y"]
retry = { attempts = 0 }
[tools."a/z"]
effect = "write"
cache = { ttl = "1s" }
[tools."a/purge"]
effect = "destructive"
fallback = ["previous_page"]
[tools."a/query"]
effect = "idempotent"
fallback = [{ simplify = "q" }]
"#;
    assert_eq!(
        toml_file(wrong).problems("seawall.toml"),
        r#"seawall.toml:1: preset: "fast" is not known; write "default" or "blog" or "gitnexus" or "caipe"
seawall.toml:3: timeouts.quik: unknown key; did you mean "quick"?
seawall.toml:4: timeouts.heavy: must not be zero
seawall.toml:5: kinds.reads: unknown key; did you mean "read"?
seawall.toml:7: defaults.retry.attempts: must be a whole number from 0 to 4294967295
seawall.toml:7: defaults.retry.bas: unknown key; did you mean "base"?
seawall.toml:8: defaults.hedge: "soon" is no time to wait; write "p95", "250ms" or "off"
seawall.toml:11: servers.a.rate: "20" is no rate; write for example "20/s", "100/m" or "1000/h"
seawall.toml:12: servers.a.concurrency: must be at least 1
seawall.toml:13: tools.get_issue: "get_issue" names no server; write "server/tool", or "*/get_issue" for every server
seawall.toml:14: tools.get_issue.timeout: must be a string, not a number
seawall.toml:16: tools."a/x".effect: "readonly" is not known; write "read_only" or "idempotent" or "write" or "destructive"
seawall.toml:17: tools."a/x".fallback[0]: "cache" is no fallback; known are cached, simplify, previous_page, split_batch, queue, { tool = "server/tool" } and { text = "…" }
seawall.toml:17: tools."a/x".fallback[1].txt: unknown key; did you mean "text"?
seawall.toml:17: tools."a/x".fallback[1]: says nothing; write { tool = "server/tool" } or { text = "…" }
seawall.toml:17: tools."a/x".fallback[2]: says nothing; write { tool = "server/tool" } or { text = "…" }
seawall.toml:17: tools."a/x".fallback[3].tool: "x" is no tool; write "server/tool"
seawall.toml:17: tools."a/x".fallback[3]: says nothing; write { tool = "server/tool" } or { text = "…" }
seawall.toml:19: tools."a/y".retry.attempts: must be at least 1
seawall.toml:22: tools."a/z".cache.ttl: is for read-only tools; a write has to reach its server each time
seawall.toml:25: tools."a/purge".fallback[0]: "previous_page" is for read-only tools; a write with other arguments does something else
seawall.toml:28: tools."a/query".fallback[0]: "simplify" is for read-only tools; a write with other arguments does something else"#
    );
}

#[test]
fn what_would_be_read_and_hold_for_nothing_is_a_problem() {
    let wrong = r#"[tools."githb/*"]
timeout = "3s"
[tools."*/x"]
fallback = [{ tool = "wbe/search" }, "queue", { text = "a", tool = "web/y" }, { text = "b", map = { q = "a" } }]
[kinds.read]
kind = "write"
[servers.github]
command = "a"
policy = { fallback = [{ tool = "mail/send" }] }
[servers.web]
command = "b"
disabled = true
"#;
    assert_eq!(
        toml_file(wrong).problems("seawall.toml"),
        r#"seawall.toml:1: tools."githb/*": there is no server "githb"; did you mean "github"?
seawall.toml:4: tools."*/x".fallback[2]: says two things; make two steps of it
seawall.toml:4: tools."*/x".fallback[3]: has a map, which is for { tool = "server/tool" }
seawall.toml:4: tools."*/x".fallback[0].tool: there is no server "wbe"; there are github, web
seawall.toml:4: tools."*/x".fallback[1]: needs a place where calls wait; add [store] with a path
seawall.toml:6: kinds.read.kind: the table's own name is the kind; remove it
seawall.toml:9: servers.github.policy.fallback[0].tool: there is no server "mail"; there are github, web"#
    );
    let right = "[store]\npath = \"s\"\n[tools.\"*/x\"]\nfallback = [\"queue\", { tool = \"a/y\" }]\n[servers.a]\ncommand = \"a\"";
    toml_file(right).good("seawall.toml");
    let imported = r#"{"mcpServers": {"a": {"command": "a"}}, "x-seawall": {"tools": {"b/x": {"timeout": "1s"}}}}"#;
    assert_eq!(
        json_file(imported).problems("mcp.json"),
        r#"mcp.json:1: x-seawall.tools."b/x": there is no server "b"; did you mean "a"?"#
    );
}

#[test]
fn a_breaker_that_is_shared_is_set_where_all_who_share_it_are_meant() {
    let servers = "[servers.a]\ncommand = \"a\"\n";
    let wrong = r#"[kinds.write]
breaker = { cooldown = "3s", scope = "global" }
[tools."a/x"]
breaker = { failures = 1, scope = "server" }
[tools."a/y"]
breaker = { scope = "server" }
[tools."a/z"]
breaker = { failures = 0, scope = "server" }
[defaults]
breaker = { failures = 2, scope = "global" }
"#;
    assert_eq!(
        toml_file(&format!(
            "{wrong}{servers}policy.breaker = {{ failures = 3, scope = \"global\" }}"
        ))
        .problems("seawall.toml"),
        r#"seawall.toml:2: kinds.write.breaker: a shared breaker is set in [defaults]; keep only its scope here
seawall.toml:4: tools."a/x".breaker: a shared breaker is set in [servers.NAME.policy] or [defaults]; keep only its scope here
seawall.toml:13: servers.a.policy.breaker: a shared breaker is set in [defaults]; keep only its scope here"#
    );
    toml_file(&format!("{servers}policy.breaker = {{ failures = 3, scope = \"server\" }}"))
        .good("seawall.toml");
}

#[test]
fn variables_set_the_tiers_and_a_bad_one_is_named() {
    let file = || toml_file("[timeouts]\nquick = \"50s\"\n[servers.a]\ncommand = \"a\"");
    let quick = |kit: Kit| kit.good("seawall.toml").rules.tiers.quick.as_secs();
    assert_eq!(quick(file()), 50);
    assert_eq!(quick(file().var("GITNEXUS_TIMEOUT_QUICK", "30000")), 30);
    assert_eq!(
        quick(file().var("GITNEXUS_TIMEOUT_QUICK", "9s").var("SEAWALL_TIMEOUT_QUICK", "30s")),
        30
    );
    for bad in ["abc", "0", "-1"] {
        let problems = file().var("SEAWALL_TIMEOUT_QUICK", bad).problems("seawall.toml");
        assert!(problems.starts_with("seawall.toml: SEAWALL_TIMEOUT_QUICK: "), "{problems}");
    }
    let debug =
        |value| file().var("GITNEXUS_DEBUG", value).good("seawall.toml").rules.messages.debug;
    assert_eq!((debug("true"), debug("1"), debug("TRUE")), (true, false, false));
}

#[test]
fn tool_errors_are_a_switch_or_patterns() {
    use seawall::{ErrorMatcher, ErrorMode, ErrorPattern, ToolErrors, TransientErrors};
    let read = |setting: &str| {
        let file = format!("[servers.a]\ncommand = \"x\"\n[defaults]\ntool_errors = {setting}\n");
        let mut problems = Problems::default();
        let config = read_text(Path::new("seawall.toml"), &file, &|_| None, true, &mut problems);
        let told: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let defaults = config.map(|config| config.rules.defaults);
        let said = defaults.filter(|defaults| defaults.says("tool_errors"));
        (said.map(|defaults| defaults.alone().tool_errors), told.join("; "))
    };
    assert_eq!(read("true").0, Some(ToolErrors::MARKED));
    assert_eq!(read("false").0, Some(ToolErrors::NONE));
    let json = ErrorMatcher::Json("status.error".to_owned());
    let patterns = vec![
        ErrorPattern {
            find: json,
            transient: TransientErrors::Saying(vec!["busy".to_owned()]),
            mode: ErrorMode::Count,
        },
        ErrorPattern {
            find: ErrorMatcher::Text("^Error:".to_owned()),
            transient: TransientErrors::All,
            mode: ErrorMode::Fail,
        },
    ];
    let list = r#"[{ json = "status.error", transient = ["busy"], mode = "count" }, { text = "^Error:", transient = true }]"#;
    assert_eq!(read(list).0, Some(ToolErrors { patterns, ..ToolErrors::MARKED }));
    for (wrong, told) in [
        ("7", "must be true, false, or a list of patterns"),
        ("[{}]", "needs one of json"),
        (r#"[{ json = "a", text = "b" }]"#, "needs one of json"),
        (r#"[{ json = "a." }]"#, "is no path"),
        (r#"[{ text = "^" }]"#, "would fit every answer"),
        (r#"[{ text = "x", transient = "busy" }]"#, "must be true, false, or a list of words"),
        (r#"[{ text = "x", mode = "warn" }]"#, "\"warn\" is not known"),
        (r#"[{ txt = "x" }]"#, "did you mean \"text\""),
    ] {
        assert!(read(wrong).1.contains(told), "{wrong}: {}", read(wrong).1);
    }
}

#[test]
fn a_place_is_blamed_only_for_two_times_that_it_sets_itself() {
    let problems = |defaults: &str| {
        let file = format!("[servers.a]\ncommand = \"x\"\n[defaults]\n{defaults}\n");
        let mut problems = Problems::default();
        read_text(Path::new("seawall.toml"), &file, &|_| None, true, &mut problems);
        problems.count()
    };
    for right in [
        "breaker = { max_cooldown = \"10s\" }",
        "retry = { max = \"500ms\" }",
        "retry = { base = \"1s\", max = \"30s\" }\nbreaker = { max_cooldown = \"10s\" }",
        "retry = { max = \"500ms\" }\nbreaker = { cooldown = \"5s\", max_cooldown = \"10s\" }",
    ] {
        assert_eq!(problems(right), 0, "{right}");
    }
    for wrong in [
        "breaker = { cooldown = \"30s\", max_cooldown = \"10s\" }",
        "retry = { base = \"1s\", max = \"500ms\" }",
    ] {
        assert_eq!(problems(wrong), 1, "{wrong}");
    }
}

#[test]
fn all_values_out_of_bounds_and_all_that_do_not_fit_are_told_at_once_under_their_own_keys() {
    let wrong = r#"caller_rate = "0/s"
[servers.a]
command = "a"
[tools."a/x"]
timeout = "5s"
attempt_timeout = "9s"
hedge = "0s"
effect = "read_only"
[tools."a/x".retry]
attempts = 101
base = "9s"
max = "1s"
jitter = 1.5
[tools."a/x".breaker]
failures = 10001
cooldown = "30s"
max_cooldown = "10s"
probes = 0
successes = 0
slow_start = 100001
min_calls = 0
slow_call_rate = 0
failure_rate = 1.5
[tools."a/x".loop]
repeats = 1
window = 1001
[tools."a/y"]
effect = "write"
hedge = "p95"
cache = { ttl = "1s" }
fallback = [{ text = "x" }, "simplify", "previous_page"]
loop = { repeats = 5, window = 4 }
[tools."a/z"]
loop = { window = 2 }
breaker = { failures = 0, probes = 0, cooldown = "30s", max_cooldown = "10s" }
"#;
    assert_eq!(
        toml_file(wrong).problems("seawall.toml"),
        r#"seawall.toml:1: caller_rate: must be at least 1
seawall.toml:6: tools."a/x".attempt_timeout: must not be longer than timeout
seawall.toml:7: tools."a/x".hedge: must not be zero; "off" switches it off
seawall.toml:10: tools."a/x".retry.attempts: must not exceed 100
seawall.toml:12: tools."a/x".retry.max: must not be shorter than base
seawall.toml:13: tools."a/x".retry.jitter: must lie between 0 and 1, not 1.5
seawall.toml:15: tools."a/x".breaker.failures: must not exceed 10000
seawall.toml:17: tools."a/x".breaker.max_cooldown: must not be shorter than cooldown
seawall.toml:18: tools."a/x".breaker.probes: must be at least 1
seawall.toml:19: tools."a/x".breaker.successes: must be at least 1
seawall.toml:20: tools."a/x".breaker.slow_start: must not exceed 100000
seawall.toml:21: tools."a/x".breaker.min_calls: must be at least 1
seawall.toml:22: tools."a/x".breaker.slow_call_rate: must be above 0
seawall.toml:23: tools."a/x".breaker.failure_rate: must lie between 0 and 1, not 1.5
seawall.toml:25: tools."a/x".loop.repeats: must be at least 2
seawall.toml:26: tools."a/x".loop.window: must not exceed 1000
seawall.toml:29: tools."a/y".hedge: is for read-only tools; a second attempt of this one could act twice
seawall.toml:30: tools."a/y".cache.ttl: is for read-only tools; a write has to reach its server each time
seawall.toml:31: tools."a/y".fallback[1]: "simplify" is for read-only tools; a write with other arguments does something else
seawall.toml:31: tools."a/y".fallback[2]: "previous_page" is for read-only tools; a write with other arguments does something else
seawall.toml:32: tools."a/y".loop.repeats: must not exceed window, which is 4
seawall.toml:34: tools."a/z".loop.window: must not be below repeats, which is 3
seawall.toml:35: tools."a/z".breaker.probes: must be at least 1
seawall.toml:35: tools."a/z".breaker.max_cooldown: must not be shorter than cooldown"#
    );
}

#[test]
fn each_key_of_a_breaker_is_taken_from_the_nearest_place_and_a_switch_stays_off_until_it_is_set() {
    let breaker = |defaults: &str, own: &str| {
        let file = format!(
            "[servers.a]\ncommand = \"a\"\n[defaults]\nbreaker = {{ {defaults} }}\n[tools.\"a/x\"]\nbreaker = {{ {own} }}\n"
        );
        let config = toml_file(&file).good("seawall.toml");
        let of_server = &config.servers[0].rules;
        config.rules.tool("a", of_server, "x", ToolHints::default()).0.breaker
    };
    for own in ["window = \"9s\"", "min_calls = 3", "slow_call = \"2s\"", "slow_call_rate = 0.2"] {
        let window = breaker("failure_rate = 0", own).unwrap().window;
        assert_eq!(window, None, "{own} does not set what is off");
        assert_eq!(breaker("failures = 0, failure_rate = 0.2", own), None, "{own}");
    }
    let window =
        breaker("failure_rate = 0, min_calls = 7", "failure_rate = 0.2").unwrap().window.unwrap();
    assert_eq!((window.failure_rate, window.min_calls), (0.2, 7));
    let window =
        breaker("failure_rate = 0.2, slow_call = \"2s\"", "failure_rate = 0").unwrap().window;
    assert_eq!(window, None);
    assert_eq!(breaker("failures = 0", "cooldown = \"9s\", probes = 3"), None);
    let back = breaker("failures = 0, cooldown = \"9s\", window = \"8s\"", "failures = 2").unwrap();
    assert_eq!((back.failures, back.cooldown.base.as_secs()), (2, 9), "what is written counts");
    assert_eq!(back.window.unwrap().length.as_secs(), 8);
}

#[test]
fn a_breaker_that_is_shared_is_taken_key_by_key_too() {
    let file = "[servers.a]\ncommand = \"a\"\npolicy.breaker = { failures = 2, scope = \"server\", min_calls = 4 }\n\
        [defaults]\nbreaker = { failures = 0, cooldown = \"9s\", failure_rate = 0 }\n";
    let config = toml_file(file).good("seawall.toml");
    let shared = config.rules.server(&config.servers[0].rules).shared;
    assert_eq!((shared.failures, shared.cooldown.base.as_secs(), shared.window), (2, 9, None));
}
