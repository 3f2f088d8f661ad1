//! What an operator sees of the breakers, and how one is closed by hand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::{Value, json};

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::kit::{Served, until};
use super::server::{End, Faulty, call, failure, text};

/// One attempt each, so that calls and failures are the same number; three of them open a breaker
/// for long.
pub(crate) const ONCE: &str = "[defaults]\nretry = { attempts = 1 }\nloop = { mode = \"off\" }\nfallback = []\n\
                               breaker = { failures = 3, cooldown = \"10m\" }\n";

/// A server that is down until it is told to be well.
pub(crate) async fn patient() -> (Faulty, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let looked = Arc::clone(&is_well);
    let end = move |_: &str, _, _: &Value| match looked.load(Ordering::SeqCst) {
        true => End::Text("well"),
        false => End::Status("503 Service Unavailable", "", ""),
    };
    (Faulty::start(end).await, is_well)
}

fn names(answer: &Value) -> BTreeSet<&str> {
    answer["breakers"].as_object().unwrap().keys().map(String::as_str).collect()
}

const LISTED: [&str; 9] = [
    "batch_label_issues",
    "create_issue",
    "cypher",
    "get_issue",
    "list_issues",
    "search_issues",
    "timeout_report",
    "update_issue",
    "web_search",
];

#[tokio::test]
async fn breakers_have_the_names_that_clients_use() {
    let (server, _) = patient().await;
    let served = server.served(&format!("prefix = \"always\"\n{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    let told = admin.breakers().await;
    assert_eq!(
        names(&told),
        LISTED.map(|name| format!("gh__{name}")).iter().map(String::as_str).collect(),
        "{told}"
    );
}

#[tokio::test]
async fn a_reset_needs_the_key_and_closes_the_breaker_for_the_next_call() {
    let (server, is_well) = patient().await;
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    for _ in 0..3 {
        call(&session, "get_issue", json!({})).await;
    }
    is_well.store(true, Ordering::SeqCst);
    let seen = admin.breakers().await;
    assert_eq!(
        (&seen["breakers"]["get_issue"], &seen["breakers"]["list_issues"]),
        (&json!("open"), &json!("closed"))
    );
    let detail = &seen["details"]["get_issue"];
    assert_eq!(
        (&detail["status"], &detail["failures"], &detail["server"], &detail["trips"]),
        (&json!("open"), &json!(3), &json!("gh"), &json!(1))
    );
    let wait = detail["retryAfterMs"].as_u64().unwrap();
    assert!((590_000..=600_000).contains(&wait), "{detail}");
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let last = u128::from(detail["lastFailure"].as_u64().unwrap());
    assert!(now >= last && now - last < 20_000, "{detail}");
    let rest = &seen["details"]["list_issues"];
    assert_eq!(
        rest,
        &json!({"status": "closed", "mode": "auto", "failures": 0, "lastFailure": null, "retryAfterMs": null, "server": "gh", "trips": 0})
    );

    let missing = (http::StatusCode::UNAUTHORIZED, json!({"error": "Missing X-API-Key header"}));
    let invalid = (http::StatusCode::FORBIDDEN, json!({"error": "Invalid API key"}));
    assert_eq!(admin.reset("get_issue", &[]).await, missing);
    assert_eq!(admin.reset("nobody", &[]).await, missing, "who has no key learns nothing");
    assert_eq!(admin.reset("get_issue", &[("x-api-key", "open-sesame-1002")]).await, invalid);
    assert_eq!(admin.reset("get_issue", &[("authorization", "Bearer no")]).await, invalid);
    let bearer = format!("Bearer {TOKEN}");
    let (status, why) = admin.reset("nobody", &[("authorization", &bearer)]).await;
    assert!(status == 404 && why["error"].is_string(), "{why}");
    assert_eq!(
        failure(&call(&session, "get_issue", json!({})).await)["code"],
        "CIRCUIT_OPEN",
        "it is still open"
    );

    let done = admin.reset("get%5Fissue", &[("authorization", &bearer)]).await;
    assert_eq!(done, (http::StatusCode::OK, json!({"status": "reset", "tool": "get_issue"})));
    assert_eq!(admin.breakers().await["breakers"]["get_issue"], "closed");
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "well");
}

#[tokio::test]
async fn nothing_is_listed_that_was_only_asked_about() {
    let (server, is_well) = patient().await;
    is_well.store(true, Ordering::SeqCst);
    let served = server.served(&format!("{ONCE}{ADMIN}")).await;
    let admin = AdminApi::of(&served);
    assert_eq!(
        names(&admin.breakers().await),
        BTreeSet::new(),
        "no server was asked for its tools yet"
    );
    let session = served.session("/mcp/gh").await;
    for tool in ["get_issue", "invented-by-a-client", "rm -rf"] {
        call(&session, tool, json!({})).await;
    }
    let key = [("x-api-key", TOKEN)];
    for tool in
        ["invented-by-a-client", "invented-by-an-operator", "gh", "global", "unknown", "tools/list"]
    {
        assert_eq!(admin.reset(tool, &key).await.0, 404, "{tool}");
        assert_eq!(
            admin.send(Method::GET, &format!("/resilience/breakers/{tool}"), &[]).await.0,
            404
        );
    }
    assert_eq!(names(&admin.breakers().await), BTreeSet::from(LISTED));
    let states = admin.scrape().await.all("circuit_breaker_state");
    assert_eq!(
        states.iter().map(|(labels, _)| labels["tool"].as_str()).collect::<BTreeSet<_>>(),
        BTreeSet::from(LISTED)
    );
}

#[tokio::test]
async fn several_servers_have_public_names_and_shared_breakers_have_their_own() {
    let ((one, one_is_well), (two, _)) = (patient().await, patient().await);
    let servers = format!(
        "{ONCE}{ADMIN}[tools.\"one/*\"]\nbreaker = {{ scope = \"server\" }}\n[tools.\"two/cypher\"]\nbreaker = {{ scope = \"global\" }}\n\
         [servers.one]\nurl = \"{}\"\ntype = \"http\"\n[servers.two]\nurl = \"{}\"\ntype = \"http\"\n",
        one.url, two.url
    );
    let served = Served::with(&servers).await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    for n in 0..3 {
        call(&session, "one__get_issue", json!({})).await;
        call(&session, "two__get_issue", json!({})).await;
        // Another write each time: the same one would not be sent again.
        call(&session, "two__invented", json!({ "n": n })).await;
    }
    let seen = admin.breakers().await;
    let all =
        [LISTED.map(|tool| format!("one__{tool}")), LISTED.map(|tool| format!("two__{tool}"))]
            .concat();
    let more = ["one", "global", "two__unknown"].map(str::to_owned);
    assert_eq!(names(&seen), all.iter().chain(&more).map(String::as_str).collect());
    for (tool, state) in [
        ("one__get_issue", "open"),
        ("one__cypher", "open"),
        ("one", "open"),
        ("two__get_issue", "open"),
        ("two__unknown", "open"),
        ("two__cypher", "closed"),
        ("global", "closed"),
    ] {
        assert_eq!(seen["breakers"][tool], state, "{tool}");
    }
    assert_eq!(
        (&seen["details"]["one"]["server"], &seen["details"]["global"]["server"]),
        (&json!("one"), &json!(null))
    );

    one_is_well.store(true, Ordering::SeqCst);
    assert_eq!(admin.reset("one", &[("x-api-key", TOKEN)]).await.0, 200);
    assert_eq!(text(&call(&session, "one__cypher", json!({})).await), "well");
    assert_eq!(
        admin.breakers().await["breakers"]["two__get_issue"],
        "open",
        "the other server is not touched"
    );
}

#[tokio::test]
async fn every_transition_is_told_once_and_resetting_a_closed_breaker_is_none() {
    let (server, is_well) = patient().await;
    let short = ONCE.replace("10m", "200ms");
    let served = server.served(&format!("{short}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    let key = [("x-api-key", TOKEN)];
    for _ in 0..3 {
        call(&session, "get_issue", json!({})).await;
    }
    // A probe that fails, one that works.
    until("it is tried again", async || {
        call(&session, "get_issue", json!({})).await;
        server.calls("get_issue") == 4
    })
    .await;
    is_well.store(true, Ordering::SeqCst);
    until("it closes", async || {
        call(&session, "get_issue", json!({})).await["result"]["isError"].is_null()
    })
    .await;
    for _ in 0..3 {
        assert_eq!(admin.reset("get_issue", &key).await.0, 200);
    }
    is_well.store(false, Ordering::SeqCst);
    for _ in 0..3 {
        call(&session, "get_issue", json!({})).await;
    }
    for _ in 0..3 {
        assert_eq!(admin.reset("get_issue", &key).await.0, 200);
    }
    let told = || -> Vec<String> {
        let log = served.log.lock().unwrap();
        log.iter()
            .filter_map(|line| line.split("[CircuitBreaker] gh/get_issue: ").nth(1))
            .map(str::to_owned)
            .collect()
    };
    let expected = [
        "closed → open",
        "open → half-open",
        "half-open → open",
        "open → half-open",
        "half-open → closed",
        "closed → open",
        "open → closed",
    ];
    until("everything is told", async || told().len() >= expected.len()).await;
    // Whatever else would be told is told before this.
    assert_eq!(admin.reset("cypher", &key).await.0, 200);
    let is_over = |line: &String| line.contains("resets the breaker of cypher");
    until("the last reset is told", async || served.log.lock().unwrap().iter().any(is_over)).await;
    assert_eq!(told(), expected);
}
