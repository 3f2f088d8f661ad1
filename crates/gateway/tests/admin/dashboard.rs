//! The page for operators, and the numbers of each tool that it shows. `tests/operate/dashboard`
//! uses it in a browser.

use http::Method;
use serde_json::{Value, json};

use super::admin_api::{ADMIN, AdminApi};
use super::kit::until;
use super::server::{End, Faulty, call};

#[tokio::test]
async fn the_page_loads_nothing_from_elsewhere_and_runs_only_its_own_script() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    // Off loopback too: the page itself tells nothing.
    let served = server.served(&ADMIN.replace("127.0.0.1", "0.0.0.0")).await;
    let admin = AdminApi::of(&served);
    let (status, page) = admin.send(Method::GET, "/", &[]).await;
    assert_eq!(status, 200);
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    let outside: Vec<&str> = page.lines().filter(|line| line.contains("://")).collect();
    let is_name = |line: &&str| line.contains("http://www.w3.org/2000/svg");
    assert!(outside.iter().all(is_name), "{outside:?}");
    assert!(!page.contains(" style=") && !page.contains(" onclick="), "the policy would refuse it");
    let headers = admin.headers("/").await;
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(headers["x-frame-options"], "DENY");
}

#[tokio::test]
async fn every_tool_is_told_with_its_calls_errors_and_times() {
    let server = Faulty::start(|tool, _, _| match tool {
        "get_issue" => End::Text("well"),
        _ => End::Status("503 Service Unavailable", "", ""),
    })
    .await;
    let policies = "[defaults]\nretry = { attempts = 2, base = \"20ms\" }\nfallback = []\n";
    let served = server.served(&format!("{policies}{ADMIN}")).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    for tool in ["get_issue", "get_issue", "web_search", "invented"] {
        call(&session, tool, json!({})).await;
    }
    let tools = || async { admin.get("/resilience/tools").await.1["tools"].clone() };
    until("all are counted", async || {
        tools().await["unknown"]["calls"] == 1 && tools().await["web_search"]["calls"] == 1
    })
    .await;
    let tools = tools().await;
    let keys = ["calls", "errors", "attempts", "retries"];
    let of = |tool: &str| keys.map(|key| tools[tool][key].as_u64().unwrap());
    assert_eq!(of("get_issue"), [2, 0, 2, 0]);
    assert_eq!(of("web_search"), [1, 1, 2, 1]);
    assert_eq!(of("list_issues"), [0; 4], "listed, and never called");
    assert_eq!(tools["list_issues"]["p50Ms"], Value::Null);
    let times = ["p50Ms", "p99Ms"].map(|key| tools["web_search"][key].as_f64().unwrap());
    assert!(times[0] > 10.0 && times[0] <= times[1], "{times:?}");
    assert_eq!(tools["unknown"]["listed"], false);
}
