//! The scripted HTTP authorizer and the server of keys.

use std::io::ErrorKind;
use std::time::Duration;

use seawall_testkit::authz::{Act, HttpAuthorizer, HttpReply, Jwks, Key, KeyKind};
use tokio::time::timeout;

use super::{fetch, get, parse};

const MOMENT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn an_http_authorizer_records_and_answers_as_it_is_told() {
    let authorizer = HttpAuthorizer::start().await.unwrap();
    authorizer.next(HttpReply::new(403).header("x-why", "no").body("not you"));
    let request = "POST /authz/mcp/a?x=1 HTTP/1.1\r\nhost: x\r\nX-A: 1\r\nx-a: 2\r\n\
        content-length: 4\r\nconnection: close\r\n\r\nbody";
    assert_eq!(fetch(authorizer.address(), request).await.unwrap(), (403, "not you".to_owned()));
    assert_eq!(fetch(authorizer.address(), &get("/")).await.unwrap().0, 200);
    let checks = authorizer.checks();
    let (method, path) = (checks[0].method.as_str(), checks[0].path.as_str());
    assert_eq!((method, path), ("POST", "/authz/mcp/a?x=1"));
    assert_eq!(checks[0].header("x-a"), Some("1, 2"));
    assert_eq!(checks[0].body, b"body");
    authorizer.next(Act::Reset);
    let error = fetch(authorizer.address(), &get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    authorizer.next(Act::Hang);
    assert!(timeout(MOMENT, fetch(authorizer.address(), &get("/"))).await.is_err());
    authorizer.stop().await;
    let error = fetch(authorizer.address(), &get("/")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    authorizer.again().await.unwrap();
    assert_eq!(fetch(authorizer.address(), &get("/")).await.unwrap().0, 200);
    assert_eq!((authorizer.count(), authorizer.peak()), (5, 1));
}

#[tokio::test]
async fn a_key_server_rotates_fails_hangs_goes_away_and_comes_back() {
    let (old, new) =
        (Key::new(KeyKind::Es256, "old").unwrap(), Key::new(KeyKind::EdDsa, "new").unwrap());
    let jwks = Jwks::start(&[&old]).await.unwrap();
    let ids = async || {
        let (status, body) = fetch(jwks.address(), &get("/jwks.json")).await.unwrap();
        assert_eq!(status, 200);
        let keys = parse(&body)["keys"].as_array().unwrap().clone();
        keys.iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids().await, ["old"]);
    jwks.serve(&[&old, &new]);
    assert_eq!(ids().await, ["old", "new"]);
    jwks.fail(500);
    assert_eq!(fetch(jwks.address(), &get("/jwks.json")).await.unwrap().0, 500);
    jwks.hang();
    assert!(timeout(MOMENT, fetch(jwks.address(), &get("/jwks.json"))).await.is_err());
    jwks.serve(&[&new]);
    jwks.stop().await;
    let error = fetch(jwks.address(), &get("/jwks.json")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    jwks.again().await.unwrap();
    assert_eq!(ids().await, ["new"]);
    assert_eq!(fetch(jwks.address(), &get("/else")).await.unwrap().0, 404);
    assert!(jwks.url().ends_with("/jwks.json"));
    assert_eq!(jwks.fetches(), 6);
}
