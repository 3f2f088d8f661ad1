//! `filter_lists`: a caller sees only the tools that it may call, always in the same bytes.

use std::time::Duration;

use seawall_testkit::authz::{Act, Authorizer, Check, Reply};
use serde_json::{Value, json};

use crate::client::Client;
use crate::kit::{Entry, Gateway};
use crate::server;

fn names(list: &Value) -> Vec<&str> {
    let tools = list["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_list_shows_what_its_reader_may_call_by_a_check_for_each_tool_under_a_limit() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let more = "filter_lists = true\nconcurrency = 2\nheaders = [\"x-user\"]";
    let settings = format!("[ext_authz]\nservice = {:?}\n{more}\n", authorizer.url());
    let servers = ["gh", "one", "two", "three", "four"];
    let entries = servers.map(|name| Entry::url(name, &upstream.url));
    let gateway = Gateway::serve_with(&settings, &entries).await;
    authorizer.decide(|check: &Check| {
        let is_mail = check.call().is_some_and(|(_, tool)| tool == "send_mail");
        let is_guest = check.header("x-user") == Some("guest");
        match is_mail && is_guest {
            true => Reply::deny("no mail").into(),
            false => Act::from(Reply::allow()).after(Duration::from_millis(50)),
        }
    });
    for path in ["/mcp/gh", "/mcp"] {
        let guest = Client::new(&gateway, path).with("x-user", "guest");
        let member = Client::new(&gateway, path).with("x-user", "member");
        // The first list may be the one that the gateway read itself.
        guest.modern("tools/list", json!({})).await;
        let first = guest.modern("tools/list", json!({})).await;
        let again = guest.modern("tools/list", json!({})).await;
        assert_eq!(first.body, again.body);
        assert_eq!(first.message()["result"]["cacheScope"], "private");
        let (few, many) = (first.message(), member.modern("tools/list", json!({})).await.message());
        assert!(!names(&few).iter().any(|name| name.contains("send_mail")), "{few}");
        assert!(names(&many).iter().any(|name| name.contains("send_mail")), "{many}");
        assert!(names(&few).iter().any(|name| name.contains("echo")));
    }
    assert_eq!(authorizer.peak(), 2, "checks of one list at a time, over all its servers");
}

#[tokio::test]
async fn a_list_may_be_filtered_by_one_check_that_names_the_tools() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let settings =
        format!("[ext_authz]\nservice = {:?}\nfilter_lists = \"once\"\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    authorizer.decide(|check: &Check| {
        let params = &check.filter_metadata["envoy.filters.http.mcp"]["params"];
        match params.get("tools") {
            Some(tools) => {
                assert_eq!(*tools, json!(["echo", "get_secret", "send_mail"]));
                Reply::allow().metadata(&json!({"tools": ["send_mail", "echo", "made_up"]})).into()
            }
            None => Reply::allow().into(),
        }
    });
    let client = Client::new(&gateway, "/mcp/gh");
    let list = client.modern("tools/list", json!({})).await.message();
    assert_eq!(names(&list), ["echo", "send_mail"], "in the server's order");
    assert_eq!(authorizer.count(), 2, "the list itself, and its tools");
}

#[tokio::test]
async fn a_list_that_nobody_can_decide_about_is_an_outage_and_not_an_empty_list() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let more = "filter_lists = true\ntimeout = \"300ms\"";
    let settings = format!("[ext_authz]\nservice = {:?}\n{more}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    authorizer.decide(|check: &Check| match check.call() {
        Some(_) => Act::Hang,
        None => Reply::allow().into(),
    });
    for path in ["/mcp/gh", "/mcp"] {
        let answer = Client::new(&gateway, path).modern("tools/list", json!({})).await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
    }
}
