//! The scripted gRPC authorizer: every behaviour arrives as a client sees it.

use std::time::Duration;

use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use seawall_testkit::authz::{Act, Authorizer, Reply, json_of_struct};
use serde_json::json;
use tokio::time::{Instant, timeout};
use tonic::Code;

use super::{ask, call, verdict};

const MOMENT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_check_is_recorded_with_all_that_it_says() {
    let authorizer = Authorizer::start().await.unwrap();
    let mut request = call("github", "search", "ann", &[("X-Trace", "abc")]);
    let attributes = request.attributes.as_mut().unwrap();
    attributes.context_extensions.insert("server".to_owned(), "github".to_owned());
    attributes.source.get_or_insert_default().principal = "ann@example".to_owned();
    let answer = ask(&authorizer.url(), request).await.unwrap();
    assert_eq!(verdict(&answer), (0, ""));
    let [check] = &authorizer.checks()[..] else { panic!("one check") };
    assert_eq!((check.method.as_str(), check.path.as_str()), ("POST", "/mcp/github"));
    assert_eq!(check.header("x-trace"), Some("abc"));
    assert_eq!(check.call(), Some(("github".to_owned(), "search".to_owned())));
    assert_eq!(check.json()["id"], 7);
    assert_eq!(check.size, i64::try_from(check.raw_body.len()).unwrap());
    assert_eq!(check.filter_metadata, json!({"caipe.auth": {"sub": "ann"}}));
    assert_eq!(check.context_extensions["server"], "github");
    assert_eq!(check.principal, "ann@example");
    assert!(check.grpc["user-agent"].contains("tonic"));
}

#[tokio::test]
async fn an_allow_carries_headers_and_metadata_and_a_denial_its_own_response() {
    let authorizer = Authorizer::start().await.unwrap();
    let metadata = json!({"tier": "gold", "quota": 3.0, "tags": ["a", null, {"b": true}]});
    let allow = Reply::allow().header("x-user", "ann").remove("x-secret");
    authorizer.next(allow.response_header("x-seen", "1").metadata(&metadata));
    authorizer.next(Reply::deny("no").status(418).header("x-why", "tea").append("x-why", "pot"));
    authorizer.next(Reply::unauthenticated("who?").bare());
    let request = || call("s", "t", "ann", &[]);
    let answer = ask(&authorizer.url(), request()).await.unwrap();
    let Some(HttpResponse::OkResponse(ok)) = &answer.http_response else { panic!("{answer:?}") };
    assert_eq!(ok.headers[0].header.as_ref().unwrap().key, "x-user");
    assert_eq!(ok.headers_to_remove, ["x-secret"]);
    assert_eq!(ok.response_headers_to_add[0].header.as_ref().unwrap().value, "1");
    assert_eq!(json_of_struct(answer.dynamic_metadata.as_ref().unwrap()), metadata);
    let answer = ask(&authorizer.url(), request()).await.unwrap();
    assert_eq!(verdict(&answer), (7, "no"));
    let Some(HttpResponse::DeniedResponse(denied)) = &answer.http_response else { panic!("") };
    assert_eq!(denied.status.as_ref().unwrap().code, 418);
    assert_eq!(denied.headers.len(), 2);
    let answer = ask(&authorizer.url(), request()).await.unwrap();
    assert_eq!(verdict(&answer), (16, ""));
    assert!(answer.http_response.is_none());
    // The queue is empty: the rule holds again.
    assert_eq!(verdict(&ask(&authorizer.url(), request()).await.unwrap()), (0, ""));
}

#[tokio::test]
async fn errors_of_the_call_are_told_from_codes_in_an_answer() {
    let authorizer = Authorizer::start().await.unwrap();
    for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Internal] {
        authorizer.next(Reply::error(code, "broken"));
        authorizer.next(Reply::code(code, "broken"));
        let error = ask(&authorizer.url(), call("s", "t", "ann", &[])).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (code, "broken"));
        let answer = ask(&authorizer.url(), call("s", "t", "ann", &[])).await.unwrap();
        assert_eq!(verdict(&answer), (code as i32, "broken"));
    }
}

#[tokio::test]
async fn an_authorizer_hangs_delays_and_resets() {
    let authorizer = Authorizer::start().await.unwrap();
    let (url, request) = (authorizer.url(), || call("s", "t", "ann", &[]));
    authorizer.next(Act::Hang);
    assert!(timeout(MOMENT, ask(&url, request())).await.is_err());
    authorizer.next(Act::from(Reply::allow()).after(MOMENT));
    let began = Instant::now();
    assert_eq!(verdict(&ask(&url, request()).await.unwrap()), (0, ""));
    assert!(began.elapsed() >= MOMENT);
    // A reset takes everything on its connection along, and nothing on others.
    let mut client = AuthorizationClient::connect(url.clone()).await.unwrap();
    let mut same = client.clone();
    authorizer.next(Act::Hang);
    let hanging = tokio::spawn(async move { same.check(request()).await });
    while authorizer.under_way() == 0 {
        tokio::task::yield_now().await;
    }
    authorizer.next(Act::Reset);
    assert!(client.check(request()).await.is_err());
    let error = timeout(10 * MOMENT, hanging).await.unwrap().unwrap().unwrap_err();
    assert!(format!("{error:?}").contains("ConnectionReset"), "{error:?}");
    assert_eq!(verdict(&ask(&url, request()).await.unwrap()), (0, ""));
}

#[tokio::test]
async fn a_stopped_authorizer_refuses_and_comes_back_on_its_port() {
    let authorizer = Authorizer::start().await.unwrap();
    let mut client = AuthorizationClient::connect(authorizer.url()).await.unwrap();
    let request = || call("s", "t", "ann", &[]);
    client.check(request()).await.unwrap();
    for _ in 0..3 {
        authorizer.stop().await;
        assert!(client.check(request()).await.is_err());
        let refused = tokio::net::TcpStream::connect(authorizer.address()).await.unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        authorizer.again().await.unwrap();
        authorizer.again().await.unwrap();
        assert_eq!(verdict(&ask(&authorizer.url(), request()).await.unwrap()), (0, ""));
    }
    assert_eq!(authorizer.count(), 4);
}

#[tokio::test]
async fn the_peak_counts_checks_that_are_under_way_at_once() {
    let authorizer = Authorizer::start().await.unwrap();
    authorizer.decide(|check| match check.call().unwrap().1.as_str() {
        "slow" => Act::from(Reply::allow()).after(MOMENT),
        _ => Reply::deny("only slow tools").into(),
    });
    let client = AuthorizationClient::connect(authorizer.url()).await.unwrap();
    let checks = (0..12).map(|_| {
        let mut client = client.clone();
        async move { client.check(call("s", "slow", "ann", &[])).await.unwrap() }
    });
    futures_util::future::join_all(checks).await;
    let denied = ask(&authorizer.url(), call("s", "fast", "ann", &[])).await.unwrap();
    assert_eq!(verdict(&denied), (7, "only slow tools"));
    assert_eq!((authorizer.count(), authorizer.peak(), authorizer.under_way()), (13, 12, 0));
    authorizer.forget();
    assert_eq!((authorizer.count(), authorizer.peak()), (0, 0));
    // A check that its client gave up is no longer under way.
    authorizer.next(Act::Hang);
    assert!(timeout(MOMENT, ask(&authorizer.url(), call("s", "t", "a", &[]))).await.is_err());
    while authorizer.under_way() > 0 {
        tokio::task::yield_now().await;
    }
}
