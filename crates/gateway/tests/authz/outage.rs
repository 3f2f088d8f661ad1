//! No storm: identical checks are one, allowances may be remembered, and an authorizer that is away
//! is left alone.

use std::time::Duration;

use futures_util::future::join_all;
use seawall_testkit::authz::{Act, Authorizer, Reply};
use serde_json::json;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::Client;
use crate::kit::{Entry, Gateway, text};
use crate::{calls, failure, server};

#[tokio::test]
async fn identical_checks_in_flight_are_one_and_different_ones_are_not() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let settings = format!("[ext_authz]\nservice = {:?}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    authorizer.forget();
    authorizer.always(Act::from(Reply::allow()).after(Duration::from_millis(500)));
    let lists = join_all((0..20).map(|_| client.modern("tools/list", json!({})))).await;
    assert!(lists.iter().all(|answer| answer.status == 200));
    assert_eq!(authorizer.count(), 1);
    authorizer.forget();
    let other = Client::new(&gateway, "/mcp/gh").bearer("somebody else");
    let (one, two) =
        tokio::join!(client.modern("tools/list", json!({})), other.modern("tools/list", json!({})));
    assert_eq!((one.status, two.status, authorizer.count()), (200, 200, 2));
    drop(session);
}

#[tokio::test]
async fn an_allowance_is_remembered_for_its_caller_server_and_tool_only_where_configured() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let settings = format!("[ext_authz]\nservice = {:?}\ncache = \"1h\"\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let ann = Client::new(&gateway, "/mcp/gh").bearer("ann");
    let bob = Client::new(&gateway, "/mcp/gh").bearer("bob");
    let (of_ann, of_bob) = (ann.session().await, bob.session().await);
    authorizer.forget();
    for number in 0..3 {
        ann.call(&of_ann, "echo", json!({"text": number.to_string()})).await;
    }
    assert_eq!(authorizer.count(), 1, "whatever the arguments");
    ann.call(&of_ann, "get_secret", json!({})).await;
    assert_eq!(authorizer.count(), 2);
    authorizer.always(Reply::deny("not bob"));
    let denied = bob.call(&of_bob, "echo", json!({"text": "x"})).await;
    assert_eq!(failure(&denied)["code"], "DENIED");
    // Neither a denial nor an outage is remembered.
    authorizer.always(Reply::allow());
    assert_eq!(text(&bob.call(&of_bob, "echo", json!({"text": "y"})).await), "y");
}

#[tokio::test]
async fn an_authorizer_that_is_away_fails_closed_at_once_and_is_used_when_it_is_back() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let settings = format!("[ext_authz]\nservice = {:?}\ntimeout = \"300ms\"\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    authorizer.stop().await;
    for number in 0..3 {
        let answer = client.call(&session, "echo", json!({"text": number.to_string()})).await;
        assert_eq!(failure(&answer)["code"], "AUTHZ_UNAVAILABLE");
    }
    // The breaker is open: nobody is asked, and the client learns when it is worth trying.
    let answer = client.call(&session, "echo", json!({"text": "at once"})).await;
    assert!(text(&answer).contains("is not asked now"), "{}", text(&answer));
    let after = failure(&answer)["retryAfter"].as_u64().unwrap();
    assert!((1..=5).contains(&after), "{after}");
    authorizer.again().await.unwrap();
    let back = async {
        loop {
            let answer = client.call(&session, "echo", json!({"text": "back"})).await;
            if answer["result"]["isError"] != true {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let answer = crate::kit::within(8, "the authorizer is used again", back).await;
    assert_eq!((text(&answer), calls(&upstream, "echo")), ("back", 1));
}

#[tokio::test]
async fn many_checks_that_fail_together_are_one_outage_and_the_next_try_works() {
    let upstream = server().await;
    let authorizer = Authorizer::start().await.unwrap();
    let settings = format!("[ext_authz]\nservice = {:?}\ntimeout = \"300ms\"\n", authorizer.url());
    let entries: Vec<Entry> =
        (0..15).map(|number| Entry::url(&format!("s{number}"), &upstream.url)).collect();
    let gateway = Gateway::serve_with(&settings, &entries).await;
    let paths: Vec<&'static str> =
        (0..15).map(|number| &*Box::leak(format!("/mcp/s{number}").into_boxed_str())).collect();
    let load = async || -> Vec<u16> {
        let clients = paths.iter().map(|path| Client::new(&gateway, path));
        join_all(clients.map(|client| async move { client.greet().await.status })).await
    };
    authorizer.stop().await;
    assert_eq!(load().await, [503; 15]);
    authorizer.again().await.unwrap();
    assert_eq!(load().await, [200; 15], "all of them, at the first try after it is back");
}

#[tokio::test]
async fn an_outage_costs_only_the_servers_that_the_authorizer_decides_about() {
    let (upstream, free) = (server().await, server().await);
    let authorizer = Authorizer::start().await.unwrap();
    let settings = format!("[ext_authz]\nservice = {:?}\ntimeout = \"300ms\"\n", authorizer.url());
    let open = Entry::url("open", &free.url).with("ext_authz = { enabled = false }");
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url), open]).await;
    authorizer.stop().await;
    let client = Client::new(&gateway, "/mcp");
    let session = client.session().await;
    let list = client.ask(&session, "tools/list", json!({})).await.message();
    let names: Vec<&str> = list["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["open__echo", "open__get_secret", "open__send_mail"]);
    assert_eq!(list["result"]["_meta"]["seawall/servers"]["gh"]["status"], "transient");
    assert_eq!(text(&client.call(&session, "open__echo", json!({"text": "x"})).await), "x");
    assert!(upstream.seen().is_empty());
    authorizer.again().await.unwrap();
    let all = async {
        loop {
            let list = client.ask(&session, "tools/list", json!({})).await.message();
            if list["result"]["tools"].as_array().unwrap().len() == 6 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    crate::kit::within(10, "all tools are listed", all).await;
}

#[tokio::test]
async fn the_three_outcomes_are_told_as_events_and_metrics() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let settings = format!(
        "[ext_authz]\nservice = {:?}\ntimeout = \"300ms\"\n[admin]\nlisten = \"127.0.0.1:0\"\n",
        authorizer.url()
    );
    let mut gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let admin = gateway.address_said("admin at").await;
    gateway.address = gateway.address_said("listening on").await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    client.call(&session, "echo", json!({"text": "x"})).await;
    authorizer.always(Reply::deny("no"));
    client.call(&session, "echo", json!({"text": "x"})).await;
    authorizer.always(Act::Hang);
    client.call(&session, "echo", json!({"text": "x"})).await;
    let metrics = async || {
        let sent = crate::kit::http::send(admin, ::http::Method::GET, "/metrics", &[], "".into());
        crate::kit::http::whole(sent.await).await.text()
    };
    let counted = async || {
        let text = metrics().await;
        [
            "denied_total{server=\"gh\"} 1",
            "unavailable_total{server=\"gh\"} 1",
            "seconds_count{server=\"gh\"} 4",
        ]
        .iter()
        .all(|sample| text.contains(&format!("seawall_authz_{sample}")))
    };
    crate::kit::until(10, "the outcomes are counted", counted).await;
    assert!(metrics().await.contains("seawall_authz_allowed_total{server=\"gh\"} 2"));
    let mut events = tokio::net::TcpStream::connect(admin).await.unwrap();
    let request = format!("GET /resilience/events?last=100 HTTP/1.1\r\nhost: {admin}\r\n\r\n");
    events.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let all = async {
        let has = |heard: &[u8], name: &str| String::from_utf8_lossy(heard).contains(name);
        while !["call_allowed", "call_denied", "authorizer_unavailable"]
            .iter()
            .all(|name| has(&heard, name))
        {
            assert!(events.read_buf(&mut heard).await.unwrap() > 0);
        }
    };
    crate::kit::within(10, "the events are told", all).await;
}
