//! The real OpenFGA behind the bridge, and Istio's server; left out, and counted,
//! where they are not built.

use std::time::Duration;

use seawall_testkit::authz::{Bridge, BridgeSettings, Istio, OpenFga, agent_context};

use super::{ask, call, fetch, get, verdict};

#[tokio::test]
async fn the_real_openfga_decides_through_the_bridge() {
    let grants = [
        ["user:ann", "can_call", "mcp_gateway:list"],
        ["user:ann", "can_use", "agent:helper"],
        ["user:ann", "can_invoke", "mcp_server:github"],
        ["agent:helper", "can_call", "tool:github/*"],
        ["user:ann", "can_call", "tool:github/search"],
    ];
    let Some(mut openfga) = OpenFga::start(&grants).await.unwrap() else { return };
    assert!(openfga.allows(grants[0]).await.unwrap());
    assert!(!openfga.allows(["user:bob", "can_call", "mcp_gateway:list"]).await.unwrap());
    let mut settings = BridgeSettings::new(&openfga.url(), openfga.store());
    settings.timeout = Duration::from_secs(2);
    settings.restricted = vec!["github".to_owned()];
    settings.agent_secret = Some("hush".to_owned());
    settings.check_caller = true;
    let bridge = Bridge::start(settings).await.unwrap();
    let context = agent_context("helper", "hush", 60);
    let headers = [
        (context[0].0.as_str(), context[0].1.as_str()),
        (context[1].0.as_str(), context[1].1.as_str()),
    ];
    let by = async |sub: &str, tool: &str| {
        let answer = ask(&bridge.url(), call("github", tool, sub, &headers)).await.unwrap();
        let (code, words) = verdict(&answer);
        (code, words.to_owned())
    };
    let said = |code: i32, words: &str| (code, words.to_owned());
    assert_eq!(by("ann", "search").await, said(0, ""));
    assert_eq!(bridge.asked().len(), 6);
    assert_eq!(by("bob", "search").await, said(7, "denied by OpenFGA"));
    assert_eq!(by("ann", "delete").await, said(7, "caller lacks tool grant"));
    openfga.grant(&[["user:ann", "can_call", "tool:github/*"]]).await.unwrap();
    assert_eq!(by("ann", "delete").await, said(0, ""));
    openfga.revoke(&[["user:ann", "can_invoke", "mcp_server:github"]]).await.unwrap();
    assert_eq!(by("ann", "delete").await, said(7, "caller lacks MCP server invoke grant"));
    openfga.freeze().unwrap();
    assert_eq!(by("ann", "delete").await, said(14, "OpenFGA check error"));
    openfga.thaw().unwrap();
    assert_eq!(by("bob", "search").await, said(7, "denied by OpenFGA"));
    openfga.kill().await.unwrap();
    assert_eq!(by("bob", "search").await, said(14, "OpenFGA check error"));
}

#[tokio::test]
async fn istios_server_decides_by_a_header_or_the_principal() {
    let Some(mut istio) = Istio::start().await.unwrap() else { return };
    let denial = "denied by ext_authz for not found header `x-ext-authz: allow` in the request";
    let request = |word| call("github", "search", "ann", &[("x-ext-authz", word)]);
    let allowed = ask(&istio.url(), request("allow")).await.unwrap();
    assert_eq!(verdict(&allowed), (0, ""));
    let denied = ask(&istio.url(), request("deny")).await.unwrap();
    assert_eq!(verdict(&denied), (7, denial));
    let mut named = call("github", "search", "ann", &[]);
    let source = named.attributes.as_mut().unwrap().source.get_or_insert_default();
    source.principal = "spiffe://cluster/ns/x/sa/a".to_owned();
    assert_eq!(verdict(&ask(&istio.url(), named).await.unwrap()), (0, ""));
    let header = "connection: close\r\nx-ext-authz: allow\r\n";
    let request = get("/mcp/github").replace("connection: close\r\n", header);
    assert_eq!(fetch(istio.http_address(), &request).await.unwrap(), (200, String::new()));
    let denied = fetch(istio.http_address(), &get("/mcp/github")).await.unwrap();
    assert_eq!(denied, (403, denial.to_owned()));
    istio.kill().await.unwrap();
    assert!(ask(&istio.url(), call("github", "search", "ann", &[])).await.is_err());
}
