//! Allowed, denied, unavailable: what the authorizer is asked, and what each answer becomes.

use std::time::Duration;

use seawall_testkit::authz::{Act, Authorizer, HttpAuthorizer, HttpReply, Reply};
use serde_json::json;
use tonic::Code;

use crate::client::Client;
use crate::kit::upstream::{answer, write};
use crate::kit::{Asked, Entry, Gateway, Upstream, text};
use crate::{calls, failure, server};

fn asked(service: &str, more: &str) -> String {
    format!("[ext_authz]\nservice = {service:?}\n{more}\n")
}

#[tokio::test]
async fn the_authorizer_sees_the_resolved_call_as_envoys_own_filter_would_tell_it() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let more = "headers = [\"x-agent\"]\ncontext_extensions = { stage = \"test\" }";
    let settings = format!("prefix = \"always\"\n{}", asked(&authorizer.url(), more));
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp").with("x-agent", "a7").with("x-other", "secret");
    let session = client.session().await;
    authorizer.forget();
    let answer = client.call(&session, "gh__echo", json!({"text": "hi"})).await;
    assert_eq!(text(&answer), "hi");
    let checks = authorizer.checks();
    let check = checks.last().unwrap();
    assert_eq!((check.path.as_str(), check.method.as_str()), ("/mcp/gh", "POST"));
    assert_eq!((check.header("x-agent"), check.header("x-other")), (Some("a7"), None));
    assert_eq!(check.context_extensions["stage"], "test");
    let mcp = &check.filter_metadata["envoy.filters.http.mcp"];
    assert_eq!(mcp["method"], "tools/call");
    assert_eq!(mcp["params"], json!({"name": "echo", "arguments": {"text": "hi"}}));
    // The body is what the server gets: its own name for the tool.
    assert_eq!(check.json()["params"]["name"], "echo");
    assert_eq!(check.json()["id"], 7);
}

#[tokio::test]
async fn a_denial_is_told_in_the_authorizers_words_and_nothing_reaches_the_server() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    authorizer.decide(|check| match check.call() {
        Some((_, tool)) if tool == "send_mail" => Reply::deny("caller lacks tool grant").into(),
        _ => Reply::allow().into(),
    });
    let gateway =
        Gateway::serve_with(&asked(&authorizer.url(), ""), &[Entry::url("gh", &upstream.url)])
            .await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    authorizer.forget();
    let answer = client.call(&session, "send_mail", json!({"to": "a"})).await;
    let told = failure(&answer);
    assert_eq!((&told["code"], &told["retryable"]), (&json!("DENIED"), &json!(false)));
    assert_eq!(told["mayHaveExecuted"], false);
    assert!(told.get("retryAfter").is_none());
    assert_eq!(
        text(&answer),
        "send_mail was denied: caller lacks tool grant. It was not executed. Repeating it gives the same answer; \
         whoever runs this gateway can allow it."
    );
    assert_eq!((calls(&upstream, "send_mail"), authorizer.count()), (0, 1));
    assert_eq!(text(&client.call(&session, "echo", json!({"text": "yes"})).await), "yes");
}

#[tokio::test]
async fn a_denied_handshake_is_a_403_with_the_words_and_leaves_no_session() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let gateway =
        Gateway::serve_with(&asked(&authorizer.url(), ""), &[Entry::url("gh", &upstream.url)])
            .await;
    let client = Client::new(&gateway, "/mcp/gh");
    for (reply, status, begins) in [
        (Reply::deny("denied by OpenFGA"), 403, "HTTP 403 Forbidden: denied by OpenFGA"),
        (
            Reply::unauthenticated("missing authenticated subject"),
            401,
            "HTTP 401 Unauthorized: missing authenticated subject",
        ),
        (
            // Headers that frame its own answer say nothing about this one.
            Reply::deny("pay first")
                .status(402)
                .header("x-why", "money")
                .header("content-length", "3"),
            402,
            "HTTP 402 Payment Required: pay first",
        ),
        (Reply::code(Code::FailedPrecondition, "").bare(), 403, "HTTP 403 Forbidden: "),
    ] {
        authorizer.always(reply);
        for answer in [client.greet().await, client.modern("tools/list", json!({})).await] {
            assert_eq!(answer.status, status, "{}", answer.text());
            let (_, told) = answer.error();
            assert!(told.starts_with(begins), "{told}");
            assert!(!answer.headers.contains_key("mcp-session-id"));
            assert_eq!(answer.message()["error"]["data"]["code"], "DENIED");
            assert_eq!(answer.headers.get("x-why").is_some(), status == 402);
        }
    }
    assert!(upstream.seen().is_empty(), "{:?}", upstream.seen());
}

#[tokio::test]
async fn what_is_no_decision_is_asked_again_within_its_time() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let gateway =
        Gateway::serve_with(&asked(&authorizer.url(), ""), &[Entry::url("gh", &upstream.url)])
            .await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    for trouble in [
        Act::from(Reply::code(Code::Unavailable, "OpenFGA check error")),
        Reply::code(Code::DeadlineExceeded, "").into(),
        Reply::code(Code::Internal, "").into(),
        Reply::error(Code::Unavailable, "no healthy upstream").into(),
        Reply::error(Code::PermissionDenied, "a proxy between us").into(),
        Act::Reset,
    ] {
        authorizer.forget();
        authorizer.next(trouble.clone());
        let answer = client.call(&session, "echo", json!({"text": "after all"})).await;
        assert_eq!(text(&answer), "after all", "{trouble:?}");
        assert_eq!(authorizer.count(), 2, "{trouble:?}");
    }
}

#[tokio::test]
async fn t20_an_authorizer_that_never_answers_denies_at_the_end_of_its_time_and_never_allows() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let (timeout, status) = ("timeout = \"700ms\"", "on_unavailable = 403");
    for (more, expected) in [(timeout.to_owned(), 503), (format!("{timeout}\n{status}"), 403)] {
        let gateway = Gateway::serve_with(
            &asked(&authorizer.url(), &more),
            &[Entry::url("gh", &upstream.url)],
        )
        .await;
        let client = Client::new(&gateway, "/mcp/gh");
        authorizer.always(Reply::allow());
        let session = client.session().await;
        authorizer.always(Act::Hang);
        let began = tokio::time::Instant::now();
        let answer = client.greet().await;
        assert!(began.elapsed() >= Duration::from_millis(700), "{:?}", began.elapsed());
        assert_eq!(answer.status, expected, "{}", answer.text());
        assert_eq!(answer.headers["retry-after"], "1");
        let (_, told) = answer.error();
        let begins = match expected {
            503 => "HTTP 503 Service Unavailable: authorization service unavailable",
            _ => "HTTP 403 Forbidden: authorization service unavailable",
        };
        assert!(told.starts_with(begins), "{told}");
        let before = upstream.seen().len();
        let answer = client.call(&session, "send_mail", json!({"to": "b"})).await;
        let told = failure(&answer);
        assert_eq!(
            (&told["code"], &told["retryable"], &told["mayHaveExecuted"]),
            (&json!("AUTHZ_UNAVAILABLE"), &json!(true), &json!(false))
        );
        assert!(told["retryAfter"].as_u64().unwrap() >= 1);
        assert_eq!(upstream.seen().len(), before);
    }
}

#[tokio::test]
async fn a_request_larger_than_the_authorizer_takes_is_refused_under_its_id() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let gateway = Gateway::serve_with(
        &asked(&authorizer.url(), "max_body = 2000"),
        &[Entry::url("gh", &upstream.url)],
    )
    .await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    let answer = client.call(&session, "echo", json!({"text": "x".repeat(3_000)})).await;
    assert_eq!((&answer["id"], &failure(&answer)["code"]), (&json!(7), &json!("VALIDATION_ERROR")));
    assert!(text(&answer).contains("the authorizer is sent at most 2000"), "{}", text(&answer));
    let long = json!({"uri": "x".repeat(3_000)});
    let answer = client.modern("resources/templates/list", long).await;
    assert_eq!((answer.status, &answer.message()["id"]), (413, &json!(7)));
    assert_eq!(calls(&upstream, "echo"), 0);
}

#[tokio::test]
async fn headers_that_the_authorizer_sets_or_removes_reach_the_server() {
    let upstream = Upstream::start(|asked: Asked, mut tcp| async move {
        let head = json!({"content": [{"type": "text", "text": asked.head}]});
        let said = match asked.is("tools/call") {
            true => answer(&asked, &head),
            false => crate::kit::upstream::honest(&asked),
        };
        write(&mut tcp, &said).await;
    })
    .await;
    let authorizer = Authorizer::start().await.unwrap();
    let entry = Entry::url("gh", &upstream.url)
        .with("headers = { X-Configured = \"yes\", X-Kept = \"here\" }");
    let gateway = Gateway::serve_with(&asked(&authorizer.url(), ""), &[entry]).await;
    let client = Client::new(&gateway, "/mcp/gh").with("x-mine", "not passed on");
    let session = client.session().await;
    authorizer.always(Reply::allow().header("x-user", "ann").remove("x-configured"));
    let head = client.call(&session, "echo", json!({})).await;
    let head = text(&head);
    assert!(head.contains("x-user: ann\r\n") && head.contains("x-kept: here\r\n"), "{head}");
    assert!(!head.contains("x-configured") && !head.contains("x-mine"), "{head}");
}

#[tokio::test]
async fn the_same_over_http() {
    let (upstream, authorizer) = (server().await, HttpAuthorizer::start().await.unwrap());
    let more = "protocol = \"http\"\nheaders = [\"x-agent\"]\ntimeout = \"600ms\"";
    let gateway =
        Gateway::serve_with(&asked(&authorizer.url(), more), &[Entry::url("gh", &upstream.url)])
            .await;
    let client = Client::new(&gateway, "/mcp/gh").with("x-agent", "a7");
    let session = client.session().await;
    let last = authorizer.checks().last().cloned().unwrap();
    assert_eq!((last.path.as_str(), last.header("x-agent")), ("/mcp/gh", Some("a7")));
    authorizer.always(HttpReply::new(403).body("not you"));
    let denied = client.call(&session, "echo", json!({"text": "x"})).await;
    assert_eq!(failure(&denied)["code"], "DENIED");
    assert!(text(&denied).contains("denied: not you."));
    authorizer.always(HttpReply::new(503).body("later"));
    let away = client.call(&session, "echo", json!({"text": "x"})).await;
    assert_eq!(failure(&away)["code"], "AUTHZ_UNAVAILABLE");
    authorizer.always(HttpReply::new(200));
    assert_eq!(text(&client.call(&session, "echo", json!({"text": "x"})).await), "x");
    assert_eq!(calls(&upstream, "echo"), 1);
}
