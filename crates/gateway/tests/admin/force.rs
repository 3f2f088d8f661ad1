//! An operator holds a breaker open, leaves it out, or lets it decide again; and what clients are
//! told meanwhile.

use std::sync::atomic::Ordering;

use http::Method;
use serde_json::{Value, json};

use super::admin_api::{ADMIN, AdminApi};
use super::breakers::{ONCE, patient};
use super::kit::{Served, until};
use super::server::{End, Faulty, call, failure, text};

#[tokio::test]
async fn a_tool_that_is_held_open_is_not_called_and_says_who_switched_it_off() {
    let (server, is_well) = patient().await;
    is_well.store(true, Ordering::SeqCst);
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "well");

    let held = admin.force("get_issue", "open").await;
    let covers = json!({"scope": "tool", "tools": ["get_issue"], "more": 0});
    let answered = |status: &str, mode: &str| {
        let mut told = json!({"status": status, "mode": mode, "tool": "get_issue"});
        told.as_object_mut().unwrap().extend(covers.as_object().unwrap().clone());
        (200, told)
    };
    assert_eq!(held, answered("open", "forced_open"));
    let answer = call(&session, "get_issue", json!({})).await;
    assert_eq!(
        text(&answer),
        "get_issue was not executed: an operator switched it off. It stays off until a person switches it on."
    );
    let told = failure(&answer);
    assert_eq!(
        (&told["code"], &told["retryable"], &told["retryAfter"], &told["attempts"]),
        (&json!("SERVER_UNAVAILABLE"), &json!(false), &Value::Null, &json!(0)),
        "{told}"
    );
    assert_eq!(
        text(&call(&session, "list_issues", json!({})).await),
        "well",
        "the others are not touched"
    );
    let seen = admin.breakers().await;
    let detail = &seen["details"]["get_issue"];
    assert_eq!(
        (
            &seen["breakers"]["get_issue"],
            &detail["status"],
            &detail["mode"],
            &detail["retryAfterMs"]
        ),
        (&json!("open"), &json!("open"), &json!("forced_open"), &Value::Null)
    );
    let state = [("server", "gh"), ("tool", "get_issue"), ("state", "open")];
    assert_eq!(admin.scrape().await.value("circuit_breaker_state", &state), 1.0);
    let reset = admin.change(Method::POST, "/resilience/breakers/get_issue/reset", "").await;
    assert!(
        reset.0 == 409 && reset.1["error"].as_str().unwrap().contains("an operator holds it open"),
        "{reset:?}"
    );
    assert_eq!(server.calls("get_issue"), 1);

    let back = admin.force("get_issue", "auto").await;
    assert_eq!(back, answered("closed", "auto"));
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "well");
    let told = ["closed → open", "open → closed"]
        .map(|change| format!("[CircuitBreaker] gh/get_issue: {change}"));
    until("both are in the log", async || {
        let log = served.log.lock().unwrap();
        told.iter().all(|told| log.iter().any(|line| line.contains(told)))
    })
    .await;
}

#[tokio::test]
async fn a_copy_says_that_the_tool_is_switched_off() {
    let (server, is_well) = patient().await;
    is_well.store(true, Ordering::SeqCst);
    let served = server.served(ADMIN).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    call(&session, "get_issue", json!({})).await;
    assert_eq!(admin.force("get_issue", "open").await.0, 200);
    let answer = call(&session, "get_issue", json!({})).await;
    assert!(text(&answer).ends_with("live read failed (switched off by an operator)."), "{answer}");
}

#[tokio::test]
async fn a_breaker_that_is_left_out_lets_every_call_pass_and_counts_nothing() {
    let (server, _) = patient().await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    for _ in 0..3 {
        call(&session, "get_issue", json!({})).await;
    }
    assert_eq!(admin.breakers().await["breakers"]["get_issue"], "open");
    let out = admin.force("get_issue", "closed").await;
    assert_eq!(
        (out.0, &out.1["status"], &out.1["mode"]),
        (200, &json!("closed"), &json!("disabled"))
    );
    for _ in 0..5 {
        assert_eq!(
            failure(&call(&session, "get_issue", json!({})).await)["code"],
            "UPSTREAM_ERROR"
        );
    }
    assert_eq!(server.calls("get_issue"), 8);
    let detail = admin.breakers().await["details"]["get_issue"].clone();
    assert_eq!((&detail["status"], &detail["trips"]), (&json!("closed"), &json!(1)), "{detail}");

    assert_eq!(admin.force("get_issue", "auto").await.1["status"], "closed", "it decides anew");
    for _ in 0..3 {
        call(&session, "get_issue", json!({})).await;
    }
    assert_eq!(failure(&call(&session, "get_issue", json!({})).await)["code"], "CIRCUIT_OPEN");
}

#[tokio::test]
async fn what_is_asked_wrongly_changes_nothing_and_is_told_what_is_allowed() {
    let (server, is_well) = patient().await;
    is_well.store(true, Ordering::SeqCst);
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    call(&session, "get_issue", json!({})).await;
    let path = "/resilience/breakers/get_issue/force";
    let open = r#"{"state": "open"}"#;
    for (headers, status) in [([].as_slice(), 401), (&[("x-api-key", "wrong")], 403)] {
        assert_eq!(admin.send_with(Method::POST, path, headers, open).await.0, status);
    }
    assert_eq!(admin.change(Method::GET, path, "").await.0, 405);
    assert_eq!(admin.force("nobody", "open").await.0, 404);
    for body in
        ["", "{}", "[]", "open", r#"{"state": "half-open"}"#, r#"{"state": "open", "for": "1h"}"#]
    {
        let (status, why) = admin.change(Method::POST, path, body).await;
        assert_eq!(status, 400, "{body}");
        let allowed =
            r#"the body must be {"state": "open"}, {"state": "closed"} or {"state": "auto"}"#;
        assert_eq!(why["error"], allowed, "{body}");
    }
    for size in [4_097, 1 << 20] {
        let padded = format!("{}{open}", " ".repeat(size));
        assert_eq!(admin.change(Method::POST, path, &padded).await.0, 413, "{size}");
    }
    assert_eq!(admin.breakers().await["details"]["get_issue"]["mode"], "auto");
    assert_eq!(admin.change(Method::POST, path, open).await.0, 200);
}

#[tokio::test]
async fn a_shared_breaker_is_held_open_by_its_own_name() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let servers = format!(
        "{ONCE}{ADMIN}[tools.\"one/*\"]\nbreaker = {{ scope = \"server\" }}\n[tools.\"two/cypher\"]\nbreaker = {{ scope = \"global\" }}\n\
         [servers.one]\nurl = \"{0}\"\ntype = \"http\"\n[servers.two]\nurl = \"{0}\"\ntype = \"http\"\n",
        server.url
    );
    let served = Served::with(&servers).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    for (name, tool, other) in
        [("one", "one__cypher", "two__get_issue"), ("global", "two__cypher", "two__get_issue")]
    {
        assert_eq!(admin.force(name, "open").await.1["mode"], "forced_open");
        assert_eq!(admin.breakers().await["details"][tool]["mode"], "forced_open", "{tool}");
        assert_eq!(failure(&call(&session, tool, json!({})).await)["code"], "SERVER_UNAVAILABLE");
        assert_eq!(text(&call(&session, other, json!({})).await), "well");
        assert_eq!(admin.force(name, "auto").await.1["mode"], "auto");
        assert_eq!(text(&call(&session, tool, json!({})).await), "well");
    }
}

#[tokio::test]
async fn whoever_forces_one_tool_is_told_what_else_its_breaker_covers() {
    let tools: Vec<Value> = (0..60)
        .map(|n| json!({"name": format!("t{n:02}"), "inputSchema": {"type": "object"}}))
        .collect();
    let many = json!({ "tools": tools });
    let server = Faulty::answering(move |_, name, _, _: &Value| match name {
        "tools/list" => Some(End::Result(many.clone())),
        _ => None,
    })
    .await;
    let few = Faulty::start(|_, _, _| End::Text("well")).await;
    let servers = format!(
        "{ONCE}{ADMIN}[tools.\"one/*\"]\nbreaker = {{ scope = \"server\" }}\n[tools.\"two/t*\"]\nbreaker = {{ scope = \"global\" }}\n\
         [tools.\"one/get_issue\"]\nbreaker = {{ scope = \"global\" }}\n\
         [servers.one]\nurl = \"{}\"\ntype = \"http\"\n[servers.two]\nurl = \"{}\"\ntype = \"http\"\n",
        few.url, server.url
    );
    let served = Served::with(&servers).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    let mut tap = admin.tap("?last=0", &[]).await.unwrap();

    let (status, told) = admin.force("one__cypher", "open").await;
    let of_one = [
        "batch_label_issues",
        "create_issue",
        "cypher",
        "list_issues",
        "search_issues",
        "timeout_report",
    ];
    let of_one = of_one
        .into_iter()
        .chain(["unknown", "update_issue", "web_search"])
        .map(|tool| format!("one__{tool}"));
    let of_one: Vec<String> = of_one.collect();
    assert_eq!(
        (status, &told["tool"], &told["scope"]),
        (200, &json!("one__cypher"), &json!("server")),
        "{told}"
    );
    assert_eq!((&told["tools"], &told["more"]), (&json!(of_one), &json!(0)));
    for tool in &of_one {
        assert_eq!(
            failure(&call(&session, tool, json!({})).await)["code"],
            "SERVER_UNAVAILABLE",
            "{tool}"
        );
    }
    assert_eq!(
        text(&call(&session, "one__get_issue", json!({})).await),
        "well",
        "it shares another one"
    );
    let changed = tap.until(|event| event["event"] == "breaker_changed").await.pop().unwrap();
    assert_eq!(
        (&changed["tool"], &changed["scope"]),
        (&json!("one"), &json!("server")),
        "{changed}"
    );
    let line =
        "the breaker of one__cypher (shared by its server: 9 tools) is held open by an operator";
    until("the log tells it", async || {
        served.log.lock().unwrap().iter().any(|told| told.contains(line))
    })
    .await;
    assert_eq!(admin.force("one", "auto").await.1["tools"], json!(of_one), "by its own name too");

    let (_, told) = admin.force("two__t07", "open").await;
    assert_eq!((&told["scope"], &told["more"]), (&json!("global"), &json!(11)), "{told}");
    let named = told["tools"].as_array().unwrap();
    assert_eq!(
        (named.len(), &named[0], &named[1]),
        (50, &json!("one__get_issue"), &json!("two__t00"))
    );
}
