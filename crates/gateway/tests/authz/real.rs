//! Authorizers that we did not write: OpenFGA behind a bridge like CAIPE's, Istio's server, and
//! Open Policy Agent.

use std::time::Duration;

use futures_util::future::join_all;
use seawall_testkit::authz::{
    Bridge, BridgeSettings, Istio, Jwks, Key, KeyKind, Opa, OpenFga, claims,
};
use serde_json::json;

use crate::client::Client;
use crate::kit::{Entry, Gateway, text};
use crate::server;

const SERVERS: usize = 15;
const ISSUER: &str = "https://idp.example";

/// Fifteen servers behind the bridge, which is cold; how many of them a client finds available at
/// first load.
async fn available(timeout: &str, status: u16) -> Option<usize> {
    let fga = OpenFga::start(&[["user:ann", "can_call", "mcp_gateway:list"]]).await.unwrap()?;
    let mut settings = BridgeSettings::new(&fga.url(), fga.store());
    settings.latency = Duration::from_millis(150);
    settings.cold_start = Duration::from_secs(2);
    let bridge = Bridge::start(settings).await.unwrap();
    let key = Key::new(KeyKind::Es256, "k1").unwrap();
    let jwks = Jwks::start(&[&key]).await.unwrap();
    let upstream = server().await;
    let entries: Vec<Entry> =
        (0..SERVERS).map(|number| Entry::url(&format!("s{number}"), &upstream.url)).collect();
    let config = format!(
        "[[identity.jwt]]\nissuer = {ISSUER:?}\naudiences = [\"caipe-platform\"]\njwks = {:?}\n\
         [ext_authz]\nservice = {:?}\n{timeout}\non_unavailable = {status}\n\
         claims = {{ \"caipe.auth\" = [\"sub\", \"preferred_username\"] }}\n",
        jwks.url(),
        bridge.url(),
    );
    let gateway = Gateway::serve_with(&config, &entries).await;
    let token = key.sign(&claims("ann", ISSUER, "caipe-platform", 300));
    let paths: Vec<&'static str> = (0..SERVERS)
        .map(|number| &*Box::leak(format!("/mcp/s{number}").into_boxed_str()))
        .collect();
    let load = paths.iter().map(|path| {
        let client = Client::new(&gateway, path).bearer(&token);
        async move {
            let greeted = client.greet().await;
            if greeted.status != 200 {
                return false;
            }
            let session = greeted.headers["mcp-session-id"].to_str().unwrap().to_owned();
            let list = client.ask(&session, "tools/list", json!({})).await.message();
            list["result"]["tools"].as_array().is_some_and(|tools| tools.len() == 3)
        }
    });
    Some(join_all(load).await.into_iter().filter(|is_there| *is_there).count())
}

#[tokio::test]
async fn fifteen_servers_behind_a_cold_authorizer_are_all_available_at_first_load() {
    let Some(found) = available("", 503).await else { return };
    assert_eq!(found, SERVERS);
}

#[tokio::test]
async fn with_200_ms_the_same_load_shows_the_failure_that_10_s_are_for() {
    let Some(found) = available("timeout = \"200ms\"", 403).await else { return };
    assert!(found < SERVERS, "{found}: this load would not show a timeout that is too short");
}

#[tokio::test]
async fn a_denial_and_an_outage_of_the_real_openfga_are_told_apart() {
    let Some(mut fga) =
        OpenFga::start(&[["user:ann", "can_call", "mcp_gateway:list"]]).await.unwrap()
    else {
        return;
    };
    let bridge = Bridge::start(BridgeSettings::new(&fga.url(), fga.store())).await.unwrap();
    let key = Key::new(KeyKind::Rs256, "k1").unwrap();
    let jwks = Jwks::start(&[&key]).await.unwrap();
    let upstream = server().await;
    let config = format!(
        "[[identity.jwt]]\nissuer = {ISSUER:?}\naudiences = [\"a\"]\njwks = {:?}\n\
         [ext_authz]\nservice = {:?}\ntimeout = \"1500ms\"\nclaims = {{ \"caipe.auth\" = [\"sub\"] }}\n",
        jwks.url(),
        bridge.url(),
    );
    let gateway = Gateway::serve_with(&config, &[Entry::url("gh", &upstream.url)]).await;
    let client = |subject: &str| {
        Client::new(&gateway, "/mcp/gh").bearer(&key.sign(&claims(subject, ISSUER, "a", 300)))
    };
    let ann = client("ann");
    let session = ann.session().await;
    assert_eq!(text(&ann.call(&session, "echo", json!({"text": "x"})).await), "x");
    let eve = client("eve").greet().await;
    assert_eq!(
        (eve.status, eve.error().1.starts_with("HTTP 403 Forbidden: denied by OpenFGA")),
        (403, true),
        "{}",
        eve.text()
    );
    fga.kill().await.unwrap();
    let away = ann.greet().await;
    assert_eq!(away.status, 503, "{}", away.text());
    assert!(away.error().1.contains("authorization service unavailable"), "{}", away.text());
    let call = ann.call(&session, "echo", json!({"text": "x"})).await;
    assert_eq!(crate::failure(&call)["code"], "AUTHZ_UNAVAILABLE");
}

#[tokio::test]
async fn istios_authorizer_decides_over_grpc_and_http() {
    let Some(istio) = Istio::start().await.unwrap() else { return };
    let upstream = server().await;
    for (service, protocol) in [(istio.url(), "grpc"), (istio.http_url(), "http")] {
        let config = format!(
            "[ext_authz]\nservice = {service:?}\nprotocol = {protocol:?}\nheaders = [\"x-ext-authz\"]\n"
        );
        let gateway = Gateway::serve_with(&config, &[Entry::url("gh", &upstream.url)]).await;
        let allowed = Client::new(&gateway, "/mcp/gh").with("x-ext-authz", "allow");
        let session = allowed.session().await;
        assert_eq!(text(&allowed.call(&session, "echo", json!({"text": "x"})).await), "x");
        let denied = Client::new(&gateway, "/mcp/gh").greet().await;
        assert_eq!(denied.status, 403, "{protocol}: {}", denied.text());
        assert!(denied.error().1.starts_with("HTTP 403 Forbidden: "), "{}", denied.text());
    }
}

#[tokio::test]
async fn open_policy_agent_decides_on_the_resolved_call() {
    let Some(opa) = Opa::start().await.unwrap() else { return };
    let upstream = server().await;
    let config =
        format!("prefix = \"always\"\n[ext_authz]\nservice = {:?}\ntimeout = \"2s\"\n", opa.url());
    let gateway = Gateway::serve_with(&config, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp");
    let session = client.session().await;
    // The policy knows the server's own names only.
    assert_eq!(text(&client.call(&session, "gh__echo", json!({"text": "x"})).await), "x");
    let denied = client.call(&session, "gh__send_mail", json!({"to": "a"})).await;
    assert_eq!(crate::failure(&denied)["code"], "DENIED");
    assert!(text(&denied).contains("the policy lets nobody call this tool"), "{}", text(&denied));
    opa.freeze().unwrap();
    let away = client.call(&session, "gh__echo", json!({"text": "x"})).await;
    assert_eq!(crate::failure(&away)["code"], "AUTHZ_UNAVAILABLE");
    opa.thaw().unwrap();
    assert_eq!(crate::calls(&upstream, "send_mail"), 0);
}
