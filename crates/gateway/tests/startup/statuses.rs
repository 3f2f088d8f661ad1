//! How often a server is tried at the start, and what its refusal means.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::kit::*;
use super::upstream::{Upstream, honest, response, write};

#[tokio::test]
async fn a_transient_failure_is_tried_three_times_with_growing_pauses() {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&times);
    let flaky = scripted(move |asked, nth| {
        if asked.is("initialize") {
            noted.lock().unwrap().push(Instant::now());
        }
        if nth < 3 { response("503 Service Unavailable", "", b"") } else { honest(asked) }
    })
    .await;
    let ok = healthy().await;
    let (mut client, _, _) =
        Client::connect(&(remote("flaky", &flaky.url) + &remote("ok", &ok.url))).await;

    until("it was tried three times", || shakes(&flaky) == 3).await;
    let times = times.lock().unwrap().clone();
    assert_eq!(times.len(), 3);
    assert!(times[1] - times[0] >= Duration::from_millis(250), "{times:?}");
    assert!(times[2] - times[1] >= Duration::from_millis(500), "{times:?}");
    assert_eq!(names(&client.list().await), ["flaky__echo", "ok__echo"]);
}

#[tokio::test]
async fn success_takes_one_attempt_and_a_denial_gets_no_second_one() {
    let (ok, closed, slow) = (
        healthy().await,
        refusing("403 Forbidden", "").await,
        refusing("503 Service Unavailable", "").await,
    );
    let config =
        remote("ok", &ok.url) + &remote("closed", &closed.url) + &remote("slow", &slow.url);
    let (mut client, _, _) = Client::connect(&config).await;
    client.list().await;
    until("the one that is retried was tried often", || shakes(&slow) >= 5).await;
    client.list().await;
    assert_eq!((shakes(&ok), shakes(&closed)), (1, 1));
}

#[tokio::test]
async fn the_operator_says_how_often_a_server_is_tried() {
    let (flaky, ok) = (
        scripted(|asked, nth| {
            if nth < 6 { response("503 Service Unavailable", "", b"") } else { honest(asked) }
        })
        .await,
        healthy().await,
    );
    let config = format!(
        "[startup]\nattempts = 6\nbackoff = \"10ms\"\n{}{}",
        remote("flaky", &flaky.url),
        remote("ok", &ok.url)
    );
    let (_client, info, _) = Client::connect(&config).await;
    assert_eq!((info.get("instructions"), shakes(&flaky)), (None, 6), "{info}");
}

#[tokio::test]
async fn one_hung_server_of_fifteen_keeps_no_other_from_the_client() {
    let stuck = hung().await;
    let mut servers: Vec<(String, Upstream)> = Vec::new();
    for number in 0..14 {
        servers.push((format!("s{number}"), healthy().await));
    }
    let mut config: String =
        servers.iter().map(|(name, server)| remote(name, &server.url)).collect();
    config += &remote("stuck", &stuck.url);
    let (mut client, info, took) = Client::connect(&config).await;
    assert!(
        took < Duration::from_secs(10),
        "the least patient client waits for ten seconds: {took:?}"
    );
    assert_eq!(
        info["instructions"],
        "**MCP servers still starting up (will retry; tools may appear shortly):** stuck"
    );
    let began = Instant::now();
    let list = client.list().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(names(&list).len(), 14);
    assert_eq!(told(&list, "stuck")["status"], "transient", "{list}");
}

/// The classes of servers that refuse everything with these statuses and bodies, as the list tells
/// them.
async fn classes(cases: &[(&'static str, &'static str, &'static str)]) {
    let mut servers = vec![healthy().await];
    let mut config = remote("ok", &servers[0].url);
    for (number, (status, body, _)) in cases.iter().enumerate() {
        let server = refusing(status, body).await;
        config += &remote(&format!("s{number}"), &server.url);
        servers.push(server);
    }
    let (mut client, _, _) = Client::connect(&config).await;
    let list = client.list().await;
    assert_eq!(names(&list), ["ok__echo"]);
    for (number, (status, body, class)) in cases.iter().enumerate() {
        let told = told(&list, &format!("s{number}"));
        assert_eq!(told["status"], *class, "{status} {body}: {told}");
        let reason = format!("HTTP {status} from http://127.0.0.1:");
        assert!(told["reason"].as_str().unwrap().starts_with(&reason), "{status}: {told}");
    }
}

#[tokio::test]
async fn the_status_says_whether_it_will_help_to_wait() {
    classes(&[
        ("401 Unauthorized", "", "denied"),
        ("403 Forbidden", "", "denied"),
        ("404 Not Found", "", "permanent"),
        ("400 Bad Request", "", "permanent"),
        ("405 Method Not Allowed", "", "permanent"),
        ("408 Request Timeout", "", "transient"),
        ("429 Too Many Requests", "", "transient"),
        ("500 Internal Server Error", "", "transient"),
        ("502 Bad Gateway", "", "transient"),
        ("503 Service Unavailable", "", "transient"),
        ("504 Gateway Timeout", "", "transient"),
    ])
    .await;
}

#[tokio::test]
async fn the_body_decides_what_an_ambiguous_403_is() {
    classes(&[
        ("403 Forbidden", "Authorization service unavailable", "transient"),
        ("403 Forbidden", "Authorization service timeout", "transient"),
        ("403 Forbidden", "OpenFGA check error", "transient"),
        ("403 Forbidden", "upstream call timeout", "transient"),
        ("403 Forbidden", "no healthy backends", "transient"),
        ("403 Forbidden", "denied by OpenFGA", "denied"),
        ("403 Forbidden", "external authorization failed", "denied"),
        ("403 Forbidden", "caller lacks tool grant; upstream call timeout", "denied"),
        ("403 Forbidden", "missing authenticated subject", "denied"),
        ("403 Forbidden", "timeout", "denied"),
    ])
    .await;
}

#[tokio::test]
async fn the_connection_says_whether_it_will_help_to_wait() {
    let closes = Upstream::start(|_, tcp| async move { drop(tcp) }).await;
    let garbage =
        scripted(|_, _| response("200 OK", "content-type: application/json\r\n", b"<html>")).await;
    let (ok, gone) = (healthy().await, nobody());
    let config =
        [("ok", &ok.url), ("closes", &closes.url), ("garbage", &garbage.url), ("gone", &gone)];
    let mut config: String = config.iter().map(|(name, url)| remote(name, url)).collect();
    config += "[servers.missing]\ncommand = \"/nonexistent/timeout-server\"\n";
    config += &remote("nowhere", "http://nowhere.invalid/mcp");
    let (mut client, _, _) = Client::connect(&config).await;
    let list = client.list().await;
    let status = |server| told(&list, server)["status"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        ["closes", "garbage", "gone", "missing"].map(status),
        ["transient", "transient", "permanent", "permanent"],
        "{list}"
    );
    assert!(
        ["permanent", "transient"].contains(&status("nowhere").as_str()),
        "whatever the resolver says: {list}"
    );
}

#[tokio::test]
async fn a_lost_session_is_opened_again_and_not_a_wrong_route() {
    let server = scripted(|asked, nth| match () {
        () if asked.is("initialize") => {
            let text = String::from_utf8(honest(asked)).unwrap();
            text.replacen("\r\n", &format!("\r\nmcp-session-id: s{nth}\r\n"), 1).into_bytes()
        }
        () if nth == 1 && asked.is("tools/list") => response("404 Not Found", "", b""),
        () => honest(asked),
    })
    .await;
    let ok = healthy().await;
    let (mut client, _, _) =
        Client::connect(&(remote("forgets", &server.url) + &remote("ok", &ok.url))).await;
    until("it is listed again", || shakes(&server) == 1).await;
    client.list().await;
    until("the session was opened again", || shakes(&server) == 2).await;
    let list = client.list().await;
    assert_eq!(
        (names(&list), list.get("_meta")),
        (vec!["forgets__echo", "ok__echo"], None),
        "{list}"
    );
}

#[tokio::test]
async fn an_error_that_hides_what_happened_is_probed_once_before_it_is_believed() {
    let opaque = scripted(|asked, nth| {
        if nth > 1 {
            return response("403 Forbidden", "", b"");
        }
        let error = json!({"code": 32600, "message": "Session terminated"});
        let body = json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": error}).to_string();
        response("200 OK", "content-type: application/json\r\n", body.as_bytes())
    })
    .await;
    let ok = healthy().await;
    let (mut client, info, _) =
        Client::connect(&(remote("opaque", &opaque.url) + &remote("ok", &ok.url))).await;
    let denied = format!("HTTP 403 Forbidden from {}", opaque.url);
    assert_eq!(
        info["instructions"],
        format!("**MCP servers that denied access:** opaque: {denied}")
    );
    assert_eq!(told(&client.list().await, "opaque")["status"], "denied");
    assert_eq!(shakes(&opaque), 2);
}

#[tokio::test]
async fn a_server_that_asks_for_a_pause_gets_it() {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&times);
    let busy = Upstream::start(move |asked, mut tcp| {
        let noted = Arc::clone(&noted);
        async move {
            let nth = {
                let mut times = noted.lock().unwrap();
                if asked.is("initialize") {
                    times.push(Instant::now());
                }
                times.len()
            };
            let bytes = if nth < 2 {
                response("429 Too Many Requests", "retry-after: 1\r\n", b"")
            } else {
                honest(&asked)
            };
            write(&mut tcp, &bytes).await;
        }
    })
    .await;
    let ok = healthy().await;
    let (_client, _, _) =
        Client::connect(&(remote("busy", &busy.url) + &remote("ok", &ok.url))).await;
    until("it was tried again", || shakes(&busy) == 2).await;
    let times = times.lock().unwrap().clone();
    assert!(times[1] - times[0] >= Duration::from_secs(1), "{times:?}");
}
