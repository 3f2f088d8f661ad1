//! The bridge: which checks it makes, one after the other, and what it says of denials and outages.

use std::time::Duration;

use futures_util::future::join_all;
use seawall_testkit::authz::{
    Act, Bridge, BridgeSettings, HttpAuthorizer, HttpReply, Jwks, Key, KeyKind, agent_context,
    check_request, claims,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ask, call, verdict};

/// A stand-in for OpenFGA that grants exactly these.
async fn granting(grants: &'static [[&'static str; 3]]) -> HttpAuthorizer {
    let server = HttpAuthorizer::start().await.unwrap();
    server.decide(move |asked| {
        let body: Value = serde_json::from_slice(&asked.body).unwrap();
        let key = &body["tuple_key"];
        let asked = [&key["user"], &key["relation"], &key["object"]];
        let is_granted = grants.iter().any(|grant| (0..3).all(|i| asked[i] == grant[i]));
        HttpReply::new(200).body(json!({"allowed": is_granted}).to_string()).into()
    });
    server
}

const GATEWAY: [&str; 3] = ["user:ann", "can_call", "mcp_gateway:list"];

#[tokio::test]
async fn every_denial_has_its_words_and_its_number_of_checks() {
    let grants = &[
        GATEWAY,
        ["service_account:bot", "can_call", "mcp_gateway:list"],
        ["user:ann", "can_invoke", "mcp_server:secret"],
        ["user:ann", "can_use", "agent:helper"],
        ["user:ann", "can_use", "agent:poor"],
        ["agent:helper", "can_call", "tool:github/*"],
        ["agent:stranger", "can_call", "tool:github/search"],
        ["user:ann", "can_call", "tool:github/search"],
    ];
    let openfga = granting(grants).await;
    let mut settings = BridgeSettings::new(&openfga.url(), "store");
    settings.restricted = vec!["secret".to_owned(), "closed".to_owned()];
    settings.agent_secret = Some("hush".to_owned());
    settings.check_caller = true;
    let bridge = Bridge::start(settings).await.unwrap();
    let signed = |agent, secret, seconds| agent_context(agent, secret, seconds);
    let none = [(String::new(), String::new()), (String::new(), String::new())];
    let helper = signed("helper", "hush", 60);
    let cases = [
        ("", "github", "search", &helper, (16, "missing authenticated subject"), 0),
        ("bob", "github", "search", &helper, (7, "denied by OpenFGA"), 1),
        ("ann", "closed", "x", &helper, (7, "caller lacks MCP server invoke grant"), 2),
        ("ann", "github", "search", &none, (7, "missing or invalid signed agent context"), 1),
        (
            "ann",
            "github",
            "search",
            &signed("helper", "forged", 60),
            (7, "missing or invalid signed agent context"),
            1,
        ),
        (
            "ann",
            "github",
            "search",
            &signed("helper", "hush", -1),
            (7, "missing or invalid signed agent context"),
            1,
        ),
        (
            "ann",
            "github",
            "search",
            &signed("stranger", "hush", 60),
            (7, "user lacks dynamic agent grant"),
            3,
        ),
        (
            "ann",
            "github",
            "search",
            &signed("poor", "hush", 60),
            (7, "dynamic agent lacks agent tool grant"),
            4,
        ),
        ("ann", "github", "delete", &helper, (7, "caller lacks tool grant"), 6),
        ("ann", "github", "search", &helper, (0, ""), 5),
    ];
    for (sub, server, tool, context, expected, checks) in cases {
        bridge.forget();
        let headers = [
            (context[0].0.as_str(), context[0].1.as_str()),
            (context[1].0.as_str(), context[1].1.as_str()),
        ];
        let answer = ask(&bridge.url(), call(server, tool, sub, &headers)).await.unwrap();
        assert_eq!(verdict(&answer), expected, "{sub} {server} {tool}");
        assert_eq!(bridge.asked().len(), checks, "{sub} {server} {tool}: {:?}", bridge.asked());
    }
    // What calls no tool needs no agent, and a service account is known by its name.
    let metadata = json!({"caipe.auth": {"sub": "bot", "preferred_username": "service-account-b"}});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    bridge.forget();
    let request = check_request("/mcp/github", &[], &list, &metadata);
    assert_eq!(verdict(&ask(&bridge.url(), request).await.unwrap()), (0, ""));
    assert_eq!(bridge.asked(), [["service_account:bot", "can_call", "mcp_gateway:list"]]);
    assert_eq!(openfga.checks()[0].path, "/stores/store/check");
}

#[tokio::test]
async fn an_outage_of_openfga_is_code_14_in_an_answer_without_an_http_status() {
    use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
    let openfga = granting(&[GATEWAY]).await;
    let mut settings = BridgeSettings::new(&openfga.url(), "store");
    settings.timeout = Duration::from_millis(100);
    let bridge = Bridge::start(settings).await.unwrap();
    let request = || call("github", "search", "ann", &[]);
    let outage = async || {
        let answer = ask(&bridge.url(), request()).await.unwrap();
        assert_eq!(verdict(&answer), (14, "OpenFGA check error"));
        let Some(HttpResponse::DeniedResponse(denied)) = answer.http_response else { panic!("") };
        assert_eq!(denied.status, None);
    };
    openfga.next(HttpReply::new(500));
    outage().await;
    openfga.next(Act::Hang);
    outage().await;
    openfga.stop().await;
    outage().await;
    openfga.again().await.unwrap();
    assert_eq!(verdict(&ask(&bridge.url(), request()).await.unwrap()), (0, ""));
}

#[tokio::test]
async fn ten_at_a_time_wait_for_each_other_and_for_a_cold_start() {
    let openfga = granting(&[GATEWAY]).await;
    let mut settings = BridgeSettings::new(&openfga.url(), "store");
    settings.latency = Duration::from_millis(100);
    settings.cold_start = Duration::from_millis(500);
    let began = Instant::now();
    let bridge = Bridge::start(settings).await.unwrap();
    let url = bridge.url();
    let answers = join_all((0..15).map(|_| ask(&url, call("github", "search", "ann", &[])))).await;
    assert!(answers.iter().all(|answer| verdict(answer.as_ref().unwrap()) == (0, "")));
    // Two rounds of ten, after the cold start.
    assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
    assert_eq!((bridge.peak(), bridge.asked_peak()), (15, 10));
    let warm = Instant::now();
    ask(&url, call("github", "search", "ann", &[])).await.unwrap();
    assert!(warm.elapsed() < Duration::from_millis(450), "{:?}", warm.elapsed());
    bridge.stop().await;
    assert!(ask(&url, call("github", "search", "ann", &[])).await.is_err());
    let again = Instant::now();
    bridge.again().await.unwrap();
    ask(&url, call("github", "search", "ann", &[])).await.unwrap();
    assert!(again.elapsed() >= Duration::from_millis(600), "cold again: {:?}", again.elapsed());
}

#[tokio::test]
async fn a_token_that_holds_says_who_calls_before_the_metadata_does() {
    let openfga = granting(&[GATEWAY]).await;
    let key = Key::new(KeyKind::Es256, "k").unwrap();
    let jwks = Jwks::start(&[&key]).await.unwrap();
    let mut settings = BridgeSettings::new(&openfga.url(), "store");
    settings.jwks = Some(jwks.url());
    let bridge = Bridge::start(settings).await.unwrap();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let asked = async |token: &str, metadata: Value| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let request = check_request("/mcp/github", &headers, &list, &metadata);
        verdict(&ask(&bridge.url(), request).await.unwrap()).0
    };
    let bob = json!({"caipe.auth": {"sub": "bob"}});
    let (good, over) = (claims("ann", "i", "a", 60), claims("ann", "i", "a", -3600));
    assert_eq!(asked(&key.sign(&good), bob.clone()).await, 0);
    assert_eq!(asked(&key.sign(&good), json!({})).await, 0);
    assert_eq!(asked(&key.sign(&over), bob.clone()).await, 7);
    assert_eq!(asked(&key.sign(&over), json!({})).await, 16);
    for wicked in key.wicked(&good).unwrap() {
        assert_eq!(asked(&wicked.token, json!({})).await, 16, "{}", wicked.what);
    }
    jwks.stop().await;
    assert_eq!(asked(&key.sign(&good), bob).await, 7);
}
