//! Metrics: what a scrape tells, and what it never tells.

use serde_json::{Value, json};

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::breakers::ONCE;
use super::commands::Shell;
use super::kit::{Served, until};
use super::server::{End, Faulty, QUICK, call};
use super::upstream::{Upstream, answer, honest, response, write};

const DOWN: End = End::Status("503 Service Unavailable", "", "");

/// Waits until a number is what it must become.
async fn counts(admin: &AdminApi, name: &str, labels: &[(&str, &str)], value: f64) {
    until(&format!("{name} {labels:?} is {value}"), async || {
        let now = admin.scrape().await.value(name, labels);
        assert!(now <= value, "{name} {labels:?} is {now}, over {value}");
        (now - value).abs() < f64::EPSILON
    })
    .await;
}

#[tokio::test]
async fn errors_that_a_tool_does_not_mark_are_counted_also_where_nothing_else_is_done_about_them() {
    let server = Faulty::start(|_, _, _| End::Text("{\"error\": \"retry later\"}")).await;
    let policies = "[defaults]\nretry = { base = \"20ms\", jitter = 0.0 }\ntool_errors = [{ json = \"error\", transient = true }]\n\
                    [tools.\"gh/get_issue\"]\ntool_errors = [{ json = \"error\", mode = \"count\" }]\n";
    let served = server.served(&format!("{policies}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    for tool in ["get_issue", "search_issues"] {
        call(&session, tool, json!({})).await;
    }
    for (tool, found, class) in [("get_issue", 1.0, "ok"), ("search_issues", 3.0, "tool_error")] {
        let labels = [("server", "gh"), ("tool", tool), ("class", class)];
        counts(&admin, "seawall_calls_total", &labels, 1.0).await;
        counts(&admin, "seawall_unmarked_errors_total", &labels[..2], found).await;
    }
}

#[tokio::test]
async fn a_scrape_parses_and_tells_what_happened() {
    let server = Faulty::start(|tool, count, _| match (tool, count) {
        ("get_issue", 1 | 2) => DOWN,
        ("get_issue", _) => End::Text("well"),
        ("list_issues", 1) => End::Text("a list"),
        ("cypher", _) => End::Hang,
        _ => DOWN,
    })
    .await;
    let policies = "[defaults]\nretry = { base = \"20ms\", jitter = 0.0 }\nloop = { mode = \"off\" }\n\
                    [tools.\"gh/cypher\"]\ntimeout = \"200ms\"\nfallback = []\n\
                    [tools.\"gh/web_search\"]\nretry = { attempts = 1 }\nbreaker = { failures = 1 }\nfallback = []\n";
    let served = server.served(&format!("{policies}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    for tool in ["get_issue", "list_issues", "list_issues", "cypher", "web_search", "web_search"] {
        call(&session, tool, json!({})).await;
    }
    let of = |tool| [("server", "gh"), ("tool", tool)];
    counts(
        &admin,
        "seawall_calls_total",
        &[("server", "gh"), ("tool", "web_search"), ("class", "CIRCUIT_OPEN")],
        1.0,
    )
    .await;
    let scrape = admin.scrape().await;
    for (name, tool, value) in [
        ("retry_attempts_total", "get_issue", 2.0),
        ("seawall_attempts_total", "get_issue", 3.0),
        // The second attempt at half of the time hangs too.
        ("seawall_timeouts_total", "cypher", 2.0),
        ("graceful_degradation_total", "web_search", 1.0),
        ("seawall_call_seconds_count", "list_issues", 2.0),
    ] {
        assert_eq!(scrape.value(name, &of(tool)), value, "{name} {tool}\n{}", scrape.text);
    }
    for (tool, class) in [("get_issue", "ok"), ("list_issues", "fallback"), ("cypher", "TIMEOUT")] {
        let labels = [("server", "gh"), ("tool", tool), ("class", class)];
        assert_eq!(scrape.value("seawall_calls_total", &labels), 1.0, "{tool}\n{}", scrape.text);
    }
    let cached = [("server", "gh"), ("tool", "list_issues"), ("step", "cached")];
    assert_eq!(scrape.value("fallback_activated_total", &cached), 1.0);
    assert_eq!(scrape.value("agent_tool_calls_total", &[("tool", "list_issues")]), 2.0);
    assert_eq!(scrape.value("agent_error_rate", &[]), 0.5, "three of six calls were of no use");
    assert_eq!(scrape.value("seawall_server_up", &[("server", "gh")]), 1.0);
    assert_eq!(
        scrape.value("seawall_load_outcome", &[("server", "gh"), ("status", "available")]),
        1.0
    );
    assert_eq!(
        scrape.all("seawall_events_missed_total"),
        [(std::collections::BTreeMap::new(), 0.0)]
    );
    assert!(scrape.all("seawall_queue_depth").is_empty(), "nothing can wait without a store");
    let sums = &admin.breakers().await["metrics"];
    assert_eq!(
        (&sums["calls"], &sums["errors"], &sums["timeouts"]),
        (&json!(6), &json!(3), &json!(2)),
        "{sums}"
    );

    let states = scrape.all("circuit_breaker_state");
    let tools = scrape.values_of("tool");
    assert!(tools.len() >= 9, "{tools:?}");
    for tool in states.iter().map(|(labels, _)| labels["tool"].as_str()) {
        let of_tool = states.iter().filter(|(labels, _)| labels["tool"] == tool);
        let (ones, all) = of_tool.fold((0.0, 0), |(ones, all), (_, value)| (ones + value, all + 1));
        assert_eq!((ones, all), (1.0, 3), "{tool}");
    }
    let open = [("server", "gh"), ("tool", "web_search"), ("state", "open")];
    assert_eq!(scrape.value("circuit_breaker_state", &open), 1.0);
}

#[tokio::test]
async fn names_that_clients_invent_are_counted_as_unknown_only() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let served = server.served(&format!("{QUICK}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    call(&session, "get_issue", json!({})).await;
    let before = admin.scrape().await.values_of("tool");
    for number in 0..50 {
        call(&session, &format!("zz-invented-{number}"), json!({"zz-argument": "zz-value"})).await;
    }
    let unknown = [("server", "gh"), ("tool", "unknown"), ("class", "ok")];
    counts(&admin, "seawall_calls_total", &unknown, 50.0).await;
    let scrape = admin.scrape().await;
    assert_eq!(scrape.value("agent_tool_calls_total", &[("tool", "unknown")]), 50.0);
    let more: Vec<String> = scrape.values_of("tool").difference(&before).cloned().collect();
    assert!(more.iter().all(|tool| tool == "unknown" || tool.contains('/')), "{more:?}");
    assert!(
        !scrape.text.contains("zz-") && !admin.breakers().await.to_string().contains("zz-"),
        "{}",
        scrape.text
    );
}

#[tokio::test]
async fn what_servers_call_their_tools_cannot_break_a_scrape() {
    let wicked = [
        "a\"} 1\nwicked_total{x=\"",
        "back\\slash",
        "",
        "line\u{2028}\r\u{85}",
        &"long".repeat(1000),
        "unknown",
        "tools/list",
    ]
    .map(str::to_owned);
    let names = wicked.clone();
    let server = Upstream::start(move |asked, mut tcp| {
        let tools =
            names.clone().map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
        async move {
            let bytes = if asked.is("tools/list") {
                answer(&asked, &json!({"tools": tools}))
            } else {
                honest(&asked)
            };
            write(&mut tcp, &bytes).await;
        }
    })
    .await;
    let served =
        Served::with(&format!("{ADMIN}[servers.gh]\nurl = \"{}\"\ntype = \"http\"\n", server.url))
            .await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    for name in &wicked {
        call(&session, name, json!({"text": "x"})).await;
    }
    // The one with the name of a method is counted with that.
    until("all are counted", async || {
        let calls = admin.scrape().await.all("agent_tool_calls_total");
        calls.iter().map(|(_, count)| count).sum::<f64>() >= 6.0
    })
    .await;
    let scrape = admin.scrape().await;
    let tools = scrape.values_of("tool");
    assert!(tools.contains(wicked[0].as_str()) && tools.contains("back\\slash"), "{tools:?}");
    assert!(scrape.all("wicked_total").is_empty());
    assert!(tools.iter().all(|tool| tool.len() <= 256), "{tools:?}");
}

#[tokio::test]
async fn secrets_are_in_no_answer_of_the_admin_api() {
    let words = "no upstream-secret-77 here, nor Bearer upstream-secret-77, nor key=sk-live-abcdefgh12345678";
    let server =
        Faulty::start(move |_, _, _| End::Status("503 Service Unavailable", "", words)).await;
    let broken = Upstream::start(move |_, mut tcp| async move {
        write(
            &mut tcp,
            &super::upstream::response("500 Internal Server Error", "", words.as_bytes()),
        )
        .await;
    })
    .await;
    let header = "headers = { Authorization = \"Bearer upstream-secret-77\" }\n";
    let child = "[servers.child]\ncommand = \"/bin/sh\"\nargs = [\"-c\", \"echo I have $KEY >&2; exit 3\"]\nenv = { KEY = \"child-secret-88\" }\n";
    let config = format!(
        "{ONCE}{ADMIN}[servers.gh]\nurl = \"{}\"\ntype = \"http\"\n{header}[servers.broken]\nurl = \"{}?key=query-secret-99\"\ntype = \"http\"\n{header}{child}",
        server.url, broken.url
    );
    let served = Served::with(&config).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    for tool in ["gh__get_issue", "gh__argument-secret-66"] {
        call(&session, tool, json!({"password": "argument-secret-66"})).await;
    }
    let servers = || async { admin.get("/resilience/servers").await.1["servers"].clone() };
    until("all has failed", async || {
        let servers = servers().await;
        servers["broken"]["lastError"].is_string() && servers["child"]["stderr"][0].is_string()
    })
    .await;
    let (breakers, servers) = (admin.breakers().await, servers().await);
    assert!(servers["child"]["stderr"][0].as_str().unwrap().starts_with("I have"), "{servers}");
    let scrape = admin.scrape().await;
    assert_eq!(scrape.value("seawall_server_up", &[("server", "child")]), 0.0, "{}", scrape.text);
    for told in [breakers.to_string(), servers.to_string(), scrape.text] {
        for secret in ["secret-66", "secret-77", "secret-88", "secret-99", "sk-live", TOKEN] {
            assert!(!told.contains(secret), "{secret}: {told}");
        }
    }
}

#[tokio::test]
async fn servers_are_told_with_what_is_known_of_them() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let gone = "[servers.gone]\ncommand = \"/nonexistent/server\"\n";
    let served = Served::with(&format!(
        "{ADMIN}[servers.gh]\nurl = \"{}\"\ntype = \"http\"\nrequired = true\n{gone}",
        server.url
    ))
    .await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    let (status, answer) = admin.get("/resilience/servers").await;
    assert_eq!(status, 200);
    let (gh, gone): (&Value, &Value) = (&answer["servers"]["gh"], &answer["servers"]["gone"]);
    assert_eq!(
        (&gh["status"], &gh["tools"], &gh["required"], &gh["lastError"]),
        (&json!("up"), &json!(9), &json!(true), &json!(null)),
        "{gh}"
    );
    assert!(gh["since"].as_u64() > Some(1_700_000_000_000) && gh["restarts"] == 0, "{gh}");
    assert_eq!(
        (&gone["status"], &gone["tools"]),
        (&json!("away"), &Value::Null),
        "nobody listed it: {gone}"
    );
    assert_eq!((&gh["load"], &gone["load"]), (&json!("available"), &json!("permanent")));
    assert!(gone["lastError"].as_str().unwrap().contains("cannot be started"), "{gone}");
    let scrape = admin.scrape().await;
    assert_eq!(
        scrape.value("seawall_load_outcome", &[("server", "gone"), ("status", "permanent")]),
        1.0
    );
    assert_eq!(
        scrape.value("seawall_load_outcome", &[("server", "gone"), ("status", "available")]),
        0.0
    );
}

#[tokio::test]
async fn a_server_that_was_greeted_and_could_not_be_listed_is_not_up() {
    let json = "content-type: application/json\r\n";
    let closed = Upstream::start(move |asked, mut tcp| async move {
        let bytes = if asked.is("tools/list") {
            response("403 Forbidden", json, b"")
        } else {
            honest(&asked)
        };
        write(&mut tcp, &bytes).await;
    })
    .await;
    let well = Faulty::start(|_, _, _| End::Text("well")).await;
    let remote =
        |name: &str, url: &str| format!("[servers.{name}]\nurl = {url:?}\ntype = \"http\"\n");
    let served = Served::with(&format!(
        "{ADMIN}{}{}",
        remote("closed", &closed.url),
        remote("gh", &well.url)
    ))
    .await;
    let (_session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    let (_, answer) = admin.get("/resilience/servers").await;
    let closed = &answer["servers"]["closed"];
    let said = ["status", "load", "tools"].map(|key| closed[key].clone());
    assert_eq!(said, [json!("unlisted"), json!("denied"), Value::Null], "{closed}");
    assert!(
        closed["lastError"].as_str().unwrap().contains("could not be listed: HTTP 403"),
        "{closed}"
    );
    let gh = ["status", "load", "tools"].map(|key| answer["servers"]["gh"][key].clone());
    assert_eq!(gh, [json!("up"), json!("available"), json!(9)], "listed by nobody but the gateway");
    let scrape = admin.scrape().await;
    for (server, status, up) in [("closed", "denied", 0.0), ("gh", "available", 1.0)] {
        assert_eq!(
            scrape.value("seawall_load_outcome", &[("server", server), ("status", status)]),
            1.0
        );
        assert_eq!(scrape.value("seawall_server_up", &[("server", server)]), up);
    }
    let table = Shell::before(&admin).ok("servers").await;
    let row = table.lines().find(|line| line.starts_with("closed")).unwrap();
    assert!(row.starts_with("closed  unlisted (denied)  -  "), "{table}");
}
