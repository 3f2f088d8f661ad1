//! Who calls: tokens of known issuers, API keys, and what everybody else is told.

use ::http::Method;
use seawall_testkit::authz::{Jwks, Key, KeyKind, claims};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client::Client;
use crate::kit::{Asked, Entry, Gateway, Upstream, http, text, until, upstream, within};
use crate::server;

const ISSUER: &str = "https://idp.example";

/// An issuer with one key, and the configuration that knows it.
async fn issuer(more: &str) -> (Key, Jwks, String) {
    let key = Key::new(KeyKind::Es256, "k1").unwrap();
    let jwks = Jwks::start(&[&key]).await.unwrap();
    let settings = format!(
        "[[identity.jwt]]\nissuer = {ISSUER:?}\naudiences = [\"seawall\"]\njwks = {:?}\n{more}\n",
        jwks.url()
    );
    (key, jwks, settings)
}

fn token(key: &Key, subject: &str) -> String {
    key.sign(&claims(subject, ISSUER, "seawall", 300))
}

fn digest(key: &str) -> String {
    Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn every_kind_of_key_is_accepted_and_every_wicked_token_refused() {
    let upstream = server().await;
    let (_, jwks, settings) = issuer("").await;
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    for kind in KeyKind::ALL {
        let key = Key::new(kind, "k2").unwrap();
        jwks.serve(&[&key]);
        // Another key under the same name: the gateway fetches again when a name is not known, so
        // each kind has its own.
        let key = Key::new(kind, kind.name()).unwrap();
        jwks.serve(&[&key]);
        let right = claims("ann", ISSUER, "seawall", 300);
        let client = Client::new(&gateway, "/mcp/gh").bearer(&key.sign(&right));
        until(20, kind.name(), async || client.greet().await.status == 200).await;
        for wicked in key.wicked(&right).unwrap() {
            let answer = Client::new(&gateway, "/mcp/gh").bearer(&wicked.token).greet().await;
            assert_eq!(answer.status, 401, "{kind:?} {}: {}", wicked.what, answer.text());
        }
        for (what, wrong) in [
            ("expired", claims("ann", ISSUER, "seawall", -60)),
            ("another audience", claims("ann", ISSUER, "somebody", 300)),
            ("another issuer", claims("ann", "https://evil.example", "seawall", 300)),
            ("no subject", {
                let mut it = right.clone();
                it.as_object_mut().unwrap().remove("sub");
                it
            }),
            ("no end", {
                let mut it = right.clone();
                it.as_object_mut().unwrap().remove("exp");
                it
            }),
            ("no audience", {
                let mut it = right.clone();
                it.as_object_mut().unwrap().remove("aud");
                it
            }),
        ] {
            let answer = Client::new(&gateway, "/mcp/gh").bearer(&key.sign(&wrong)).greet().await;
            assert_eq!(answer.status, 401, "{kind:?} {what}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_client_without_a_token_learns_where_to_get_one() {
    let upstream = server().await;
    let (key, _jwks, settings) = issuer("servers = [\"gh\"]").await;
    let settings =
        format!("[identity]\nresource = \"https://mcp.example\"\nscopes = [\"mcp\"]\n{settings}");
    let entry = Entry::url("gh", &upstream.url).with("scopes = [\"issues\"]");
    let gateway = Gateway::serve_with(&settings, &[entry]).await;
    let answer = Client::new(&gateway, "/mcp/gh").greet().await;
    assert_eq!(answer.status, 401);
    assert_eq!(
        answer.headers["www-authenticate"],
        "Bearer resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource/mcp/gh\", scope=\"mcp\""
    );
    assert!(answer.error().1.starts_with("HTTP 401 Unauthorized: a token is needed"));
    let wrong = Client::new(&gateway, "/mcp/gh").bearer("nonsense").greet().await;
    let challenge = wrong.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.starts_with("Bearer error=\"invalid_token\""), "{challenge}");
    let path = "/.well-known/oauth-protected-resource/mcp/gh";
    let metadata =
        http::whole(http::send(gateway.address, Method::GET, path, &[], "".into()).await).await;
    let metadata: Value = serde_json::from_slice(&metadata.body).unwrap();
    assert_eq!(
        metadata,
        json!({"resource": "https://mcp.example/mcp/gh", "authorization_servers": [ISSUER],
            "bearer_methods_supported": ["header"], "scopes_supported": ["mcp", "issues"]})
    );
    // A token without the scopes is told which ones to get.
    let poor = Client::new(&gateway, "/mcp/gh").bearer(&token(&key, "ann")).greet().await;
    assert_eq!(poor.status, 403);
    assert_eq!(
        poor.headers["www-authenticate"],
        "Bearer error=\"insufficient_scope\", scope=\"mcp issues\""
    );
    let mut rich = claims("ann", ISSUER, "seawall", 300);
    rich["scope"] = json!("mcp issues more");
    assert_eq!(Client::new(&gateway, "/mcp/gh").bearer(&key.sign(&rich)).greet().await.status, 200);
    assert_eq!(upstream.seen().iter().filter(|asked| asked.is("initialize")).count(), 1);
}

#[tokio::test]
async fn scopes_of_a_server_are_asked_for_where_its_tool_is_called_on_the_merged_endpoint() {
    let (one, two) = (server().await, server().await);
    let (key, _jwks, settings) = issuer("").await;
    let entries =
        [Entry::url("one", &one.url), Entry::url("two", &two.url).with("scopes = [\"two\"]")];
    let gateway = Gateway::serve_with(&settings, &entries).await;
    let client = Client::new(&gateway, "/mcp").bearer(&token(&key, "ann"));
    let session = client.session().await;
    assert_eq!(text(&client.call(&session, "one__echo", json!({"text": "x"})).await), "x");
    let call = json!({"name": "two__echo", "arguments": {"text": "x"}});
    let answer = client.ask(&session, "tools/call", call).await;
    assert_eq!((answer.status, &answer.message()["id"]), (403, &json!(7)));
    assert_eq!(
        answer.headers["www-authenticate"],
        "Bearer error=\"insufficient_scope\", scope=\"two\""
    );
    assert!(two.seen().iter().all(|asked| !asked.is("tools/call") && !asked.is("initialize")));
}

#[tokio::test]
async fn a_task_or_resource_of_a_server_that_the_caller_may_not_use_is_told_as_denied() {
    let unknown = async || {
        Upstream::start(|asked: Asked, mut tcp| async move {
            let said = match asked.message["method"].as_str().unwrap_or_default() {
                method if method.starts_with("tasks/") || method == "resources/read" => {
                    let error = json!({"code": -32602, "message": "no such thing"});
                    let whole =
                        json!({"jsonrpc": "2.0", "id": asked.message["id"], "error": error});
                    let head = "content-type: application/json\r\n";
                    upstream::response("200 OK", head, whole.to_string().as_bytes())
                }
                _ => upstream::honest(&asked),
            };
            upstream::write(&mut tcp, &said).await;
        })
        .await
    };
    let (one, two) = (unknown().await, unknown().await);
    let (key, _jwks, settings) = issuer("").await;
    let entries =
        [Entry::url("one", &one.url), Entry::url("two", &two.url).with("scopes = [\"two\"]")];
    let gateway = Gateway::serve_with(&settings, &entries).await;
    let client = Client::new(&gateway, "/mcp").bearer(&token(&key, "ann"));
    let session = client.session().await;
    let denied = client.ask(&session, "prompts/get", json!({"name": "two__x"})).await;
    assert!(denied.error().1.starts_with("HTTP 403 Forbidden: the token lacks the scope two"));
    for (method, params) in [
        ("tasks/get", json!({"taskId": "t1"})),
        ("tasks/result", json!({"taskId": "t2"})),
        ("tasks/cancel", json!({"taskId": "t3"})),
        ("resources/read", json!({"uri": "x://y"})),
    ] {
        let answer = client.ask(&session, method, params).await;
        assert_eq!(answer.error(), denied.error(), "{method}");
        assert_eq!(answer.status, denied.status);
    }
    let is_get = |asked: &Asked| asked.is("tasks/get");
    assert_eq!(one.seen().iter().filter(|asked| is_get(asked)).count(), 1, "it may have had it");
    assert!(!two.seen().iter().any(is_get));
}

#[tokio::test]
async fn an_api_key_is_known_by_its_digest_and_may_be_for_some_servers_only() {
    let (one, two) = (server().await, server().await);
    let settings = format!(
        "[[identity.api_keys]]\nname = \"ci\"\nsha256 = {:?}\nservers = [\"one\"]\n",
        digest("s3cret")
    );
    let gateway =
        Gateway::serve_with(&settings, &[Entry::url("one", &one.url), Entry::url("two", &two.url)])
            .await;
    for client in [
        Client::new(&gateway, "/mcp/one").bearer("s3cret"),
        Client::new(&gateway, "/mcp/one").with("x-api-key", "s3cret"),
    ] {
        assert_eq!(client.greet().await.status, 200);
    }
    assert_eq!(Client::new(&gateway, "/mcp/two").bearer("s3cret").greet().await.status, 403);
    for client in [
        Client::new(&gateway, "/mcp/one"),
        Client::new(&gateway, "/mcp/one").bearer("S3cret"),
        Client::new(&gateway, "/mcp/one").bearer(&digest("s3cret")),
        Client::new(&gateway, "/mcp/one").bearer("s3cret").with("x-api-key", "s3cret"),
        Client::new(&gateway, "/mcp/one").bearer("s3cret").bearer("other"),
        Client::new(&gateway, "/mcp/one").with("authorization", "Basic s3cret"),
    ] {
        assert_eq!(client.greet().await.status, 401);
    }
    // On the merged endpoint the key sees the servers that it may use.
    let client = Client::new(&gateway, "/mcp").bearer("s3cret");
    let session = client.session().await;
    let list = client.ask(&session, "tools/list", json!({})).await.message();
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 3);
    assert_eq!(list["result"]["_meta"]["seawall/servers"]["two"]["status"], "denied");
    let answer = client.call(&session, "two__echo", json!({"text": "x"})).await;
    assert_eq!(crate::failure(&answer)["code"], "DENIED");
    assert!(two.seen().is_empty());
}

#[tokio::test]
async fn the_last_good_keys_serve_through_an_outage_and_new_keys_are_fetched_when_needed() {
    let upstream = server().await;
    let (key, jwks, settings) = issuer("").await;
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let greet = async |token: &str| Client::new(&gateway, "/mcp/gh").bearer(token).greet().await;
    assert_eq!(greet(&token(&key, "ann")).await.status, 200);
    jwks.stop().await;
    assert_eq!(greet(&token(&key, "bob")).await.status, 200, "the keys are known");
    // A new key while the issuer is away cannot be known, which is no fault of the client's; when
    // the issuer is back, it is known.
    let next = Key::new(KeyKind::Es256, "k2").unwrap();
    assert_eq!(greet(&token(&next, "ann")).await.status, 503);
    jwks.serve(&[&next]);
    jwks.again().await.unwrap();
    until(20, "the new key is known", async || greet(&token(&next, "ann")).await.status == 200)
        .await;
    assert_eq!(greet(&token(&key, "ann")).await.status, 401, "a key that was taken back");
    // Made-up names of keys do not make the gateway fetch for each of them: those for which it did
    // not cannot be told from keys that came a moment ago.
    let before = jwks.fetches();
    for number in 0..50 {
        let made_up = key.sign_with_id(&format!("x{number}"), &claims("a", ISSUER, "seawall", 9));
        assert!([401, 503].contains(&greet(&made_up).await.status));
    }
    assert!(jwks.fetches() - before <= 2, "{}", jwks.fetches() - before);
}

#[tokio::test]
async fn keys_that_were_never_to_be_had_are_an_outage_and_not_a_denial() {
    let upstream = server().await;
    let (key, jwks, settings) = issuer("").await;
    jwks.stop().await;
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh").bearer(&token(&key, "ann"));
    let answer = client.greet().await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.headers.contains_key("retry-after"));
    let begins = "HTTP 503 Service Unavailable: authorization service unavailable";
    assert!(answer.error().1.starts_with(begins), "{}", answer.error().1);
    jwks.again().await.unwrap();
    until(20, "the keys are there", async || client.greet().await.status == 200).await;
}

#[tokio::test]
async fn a_session_belongs_to_whoever_opened_it_also_with_a_renewed_token() {
    let upstream = server().await;
    let (key, _jwks, settings) = issuer("").await;
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let ann = Client::new(&gateway, "/mcp/gh").bearer(&token(&key, "ann"));
    let session = ann.session().await;
    let renewed = key.sign(&claims("ann", ISSUER, "seawall", 900));
    let ann_later = Client::new(&gateway, "/mcp/gh").bearer(&renewed);
    assert_eq!(text(&ann_later.call(&session, "echo", json!({"text": "x"})).await), "x");
    let bob = Client::new(&gateway, "/mcp/gh").bearer(&token(&key, "bob"));
    let nobody = Client::new(&gateway, "/mcp/gh");
    for (client, status) in [(bob, 404), (nobody, 401)] {
        let call = json!({"name": "echo", "arguments": {"text": "x"}});
        assert_eq!(client.ask(&session, "tools/call", call).await.status, status);
        for method in [Method::GET, Method::DELETE] {
            let token = token(&key, "bob");
            let bearer = format!("Bearer {token}");
            let mut headers =
                vec![("mcp-session-id", session.as_str()), ("accept", "text/event-stream")];
            if status == 404 {
                headers.push(("authorization", &bearer));
            }
            let sent = http::send(gateway.address, method, "/mcp/gh", &headers, "".into()).await;
            assert_eq!(sent.status().as_u16(), status);
        }
    }
    assert_eq!(text(&ann.call(&session, "echo", json!({"text": "still"})).await), "still");
}

#[tokio::test]
async fn a_stream_ends_with_the_token_of_its_reader() {
    let upstream = server().await;
    let (key, _jwks, settings) = issuer("").await;
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    // Accepted for a few seconds more: clocks may differ by 30 s.
    let ends = |after: i64| key.sign(&claims("ann", ISSUER, "seawall", after - 30));
    let lasting = Client::new(&gateway, "/mcp/gh").bearer(&token(&key, "ann"));
    let session = lasting.session().await;
    let open = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [
            ("mcp-session-id", session.as_str()),
            ("accept", "text/event-stream"),
            ("authorization", &bearer),
        ];
        http::send(gateway.address, Method::GET, "/mcp/gh", &headers, "".into()).await
    };
    let short = ends(4);
    let stream = open(&short).await;
    assert_eq!(stream.status(), 200);
    let listen = json!({"notifications": {"toolsListChanged": true}});
    let listener = Client::new(&gateway, "/mcp/gh").bearer(&short);
    let listens = listener.modern("subscriptions/listen", listen.clone());
    // Both end by themselves, and whoever comes back needs another token.
    let (_, ended) = tokio::join!(within(20, "the end", http::whole(stream)), listens);
    assert_eq!(ended.status, 200, "{}", ended.text());
    assert_eq!(open(&short).await.status(), 401);
    assert_eq!(listener.modern("subscriptions/listen", listen).await.status, 401);
    assert_eq!(open(&token(&key, "ann")).await.status(), 200, "the session goes on");
    assert_eq!(text(&lasting.call(&session, "echo", json!({"text": "x"})).await), "x");
}

#[tokio::test]
async fn a_gateway_that_knows_its_callers_may_be_reached_from_elsewhere() {
    let upstream = server().await;
    let (key, _jwks, settings) = issuer("").await;
    let settings = settings.replace("[[identity.jwt]]", "#\n[[identity.jwt]]");
    let gateway = Gateway::on("0.0.0.0:0", &settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh")
        .with("host", "seawall.tools.svc")
        .bearer(&token(&key, "a"));
    assert_eq!(client.greet().await.status, 200);
    let client = Client::new(&gateway, "/mcp/gh").with("host", "seawall.tools.svc");
    assert_eq!(client.greet().await.status, 401);
}
