//! One caller, several accounts: what is allowed, cached, joined or kept for one of them is not for
//! another; and what is refused says nothing untrue about what ran before.

use std::sync::Arc;
use std::time::Duration;

use ::http::Method;
use seawall_testkit::authz::{
    Act, Authorizer, Check, HttpAuthorizer, Jwks, Key, KeyKind, Reply, claims,
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::client::Client;
use crate::kit::upstream::{STREAM, answer, honest, write};
use crate::kit::{Asked, Entry, Gateway, Upstream, http, text, until};
use crate::{calls, failure, server, tools};

/// A server that answers a call after a second with the account that it was made in.
async fn slow() -> Upstream {
    Upstream::start(|asked: Asked, mut tcp| async move {
        let account = asked.head.lines().find_map(|line| line.strip_prefix("x-account: "));
        let account = json!({"content": [{"type": "text", "text": account.unwrap_or("nobody")}]});
        let said = match asked.message["method"].as_str().unwrap_or_default() {
            "tools/list" => answer(&asked, &json!({"tools": tools()})),
            "tools/call" => {
                tokio::time::sleep(Duration::from_millis(1_000)).await;
                answer(&asked, &account)
            }
            _ => honest(&asked),
        };
        write(&mut tcp, &said).await;
    })
    .await
}

#[tokio::test]
async fn checks_of_one_caller_with_different_claims_are_different_checks() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let key = Key::new(KeyKind::Es256, "k1").unwrap();
    let jwks = Jwks::start(&[&key]).await.unwrap();
    let settings = format!(
        "[[identity.jwt]]\nissuer = \"https://idp.example\"\naudiences = [\"a\"]\njwks = {:?}\n\
         [ext_authz]\nservice = {:?}\nclaims = {{ who = [\"sub\", \"role\"] }}\ncache = \"1h\"\n",
        jwks.url(),
        authorizer.url(),
    );
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = |role: &str| {
        let mut claims = claims("ann", "https://idp.example", "a", 300);
        claims["role"] = json!(role);
        Client::new(&gateway, "/mcp/gh").bearer(&key.sign(&claims))
    };
    let (admin, guest) = (client("admin"), client("guest"));
    let (of_admin, of_guest) = (admin.session().await, guest.session().await);
    authorizer.decide(|check: &Check| {
        let is_admin = check.filter_metadata["who"]["role"] == "admin";
        let reply = if is_admin { Reply::allow() } else { Reply::deny("guests may not") };
        Act::from(reply).after(Duration::from_millis(300))
    });
    let mail = || json!({"to": "x"});
    let (one, two) = tokio::join!(
        admin.call(&of_admin, "send_mail", mail()),
        guest.call(&of_guest, "send_mail", mail())
    );
    assert!(one["result"]["isError"] != true, "{one}");
    assert_eq!(failure(&two)["code"], "DENIED", "{two}");
    assert_eq!(failure(&guest.call(&of_guest, "send_mail", mail()).await)["code"], "DENIED");
    assert_eq!(calls(&upstream, "send_mail"), 1);
}

#[tokio::test]
async fn nobody_gets_the_answer_of_a_call_that_was_made_in_another_account() {
    let upstream = slow().await;
    let rule = "pass_header = { from = \"x-token\", to = \"x-account\" }";
    let settings = "[defaults]\ncache = { ttl = \"1h\" }\nrejoin_after = \"100ms\"\n";
    let entry = Entry::url("gh", &upstream.url).with(rule);
    let gateway = Gateway::serve_with(settings, &[entry]).await;
    let client = |account: &str| {
        Client::new(&gateway, "/mcp/gh").bearer("one for all").with("x-token", account)
    };
    let (ann, bob) = (client("ann"), client("bob"));
    let (of_ann, of_bob) = (ann.session().await, bob.session().await);
    for tool in ["echo", "send_mail"] {
        let late = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            bob.call(&of_bob, tool, json!({"text": "x"})).await
        };
        let (one, two) = tokio::join!(ann.call(&of_ann, tool, json!({"text": "x"})), late);
        assert_eq!((text(&one), text(&two)), ("ann", "bob"), "{tool}");
        assert_eq!(calls(&upstream, tool), 2, "{tool}");
        if tool == "echo" {
            let cached = bob.call(&of_bob, tool, json!({"text": "x"})).await;
            assert_eq!((text(&cached), calls(&upstream, tool)), ("bob", 2), "cached");
        }
    }
}

#[tokio::test]
async fn a_repeat_is_one_though_the_authorizer_adds_another_header_to_each_call() {
    for era in ["legacy", "modern"] {
        let (upstream, authorizer) = (slow().await, Authorizer::start().await.unwrap());
        let settings = format!(
            "[ext_authz]\nservice = {:?}\n[defaults]\nrejoin_after = \"100ms\"\n",
            authorizer.url()
        );
        let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
        let client = Client::new(&gateway, "/mcp/gh").bearer("ann");
        let session = client.session().await;
        let send = async || match era {
            "legacy" => client.call(&session, "send_mail", json!({"to": "x"})).await,
            _ => client.modern_call("send_mail", json!({"to": "x"})).await.message(),
        };
        authorizer.always(Reply::allow().header("x-request-id", "1"));
        let again = async {
            tokio::time::sleep(Duration::from_millis(400)).await;
            authorizer.always(Reply::allow().header("x-request-id", "2"));
            send().await
        };
        let (first, again) = tokio::join!(send(), again);
        for answer in [first, again] {
            assert!(answer["result"]["isError"] != true, "{era}: {answer}");
        }
        assert_eq!(calls(&upstream, "send_mail"), 1, "{era}");
    }
}

/// Also where nobody joins a call.
#[tokio::test]
async fn a_write_in_doubt_is_held_back_though_the_authorizer_adds_another_header() {
    let (upstream, authorizer) = (slow().await, Authorizer::start().await.unwrap());
    let settings = format!(
        "[ext_authz]\nservice = {:?}\n[defaults]\nrejoin = \"off\"\ntimeout = \"300ms\"\n",
        authorizer.url()
    );
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh").bearer("ann");
    let session = client.session().await;
    for (number, code) in [("1", "TIMEOUT"), ("2", "WRITE_UNCERTAIN")] {
        authorizer.always(Reply::allow().header("x-request-id", number));
        let answer = client.call(&session, "send_mail", json!({"to": "x"})).await;
        assert_eq!(failure(&answer)["code"], code, "{answer}");
    }
    assert_eq!(calls(&upstream, "send_mail"), 1);
}

#[tokio::test]
async fn a_client_that_may_not_greet_a_server_any_more_gets_no_new_stream_of_it() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let settings = format!("[ext_authz]\nservice = {:?}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let session = Client::new(&gateway, "/mcp/gh").session().await;
    let open = async || {
        let headers = [("mcp-session-id", session.as_str()), ("accept", "text/event-stream")];
        http::send(gateway.address, Method::GET, "/mcp/gh", &headers, "".into()).await.status()
    };
    authorizer.always(Reply::deny("not any more"));
    assert_eq!(open().await, 403);
    authorizer.always(Reply::allow());
    assert_eq!(open().await, 200);
}

#[tokio::test]
async fn a_refused_repeat_of_a_write_under_way_does_not_say_that_nothing_was_executed() {
    let (upstream, authorizer) = (slow().await, Authorizer::start().await.unwrap());
    let settings = format!("[ext_authz]\nservice = {:?}\ntimeout = \"300ms\"\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh").bearer("ann");
    for reply in [Act::from(Reply::deny("no")), Act::Hang] {
        authorizer.always(Reply::allow());
        let sessions = [client.session().await, client.session().await];
        let mail = || json!({"to": format!("{reply:?}")});
        let begun = client.call(&sessions[0], "send_mail", mail());
        let left = tokio::time::timeout(Duration::from_millis(400), begun).await;
        assert!(left.is_err(), "its client gave up");
        authorizer.always(reply.clone());
        let refused = client.call(&sessions[1], "send_mail", mail()).await;
        assert_eq!(failure(&refused)["mayHaveExecuted"], true, "{refused}");
        let told = text(&refused);
        assert!(
            !told.contains("not executed") && told.contains("may have been executed"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_notification_reaches_no_server_that_its_client_may_not_use() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let settings = format!("[ext_authz]\nservice = {:?}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    let tell = async |method: &str| {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": {"x": 1}});
        assert_eq!(client.post(&[("mcp-session-id", &session)], &message).await.status, 202);
    };
    tell("notifications/first").await;
    let has = |name: &str| upstream.seen().iter().any(|asked| asked.is(name));
    until(10, "what is allowed arrives", async || has("notifications/first")).await;
    authorizer.always(Reply::deny("no"));
    tell("notifications/second").await;
    authorizer.always(Reply::allow());
    tell("notifications/third").await;
    until(10, "the next arrives", async || has("notifications/third")).await;
    assert!(!has("notifications/second"));
}

#[tokio::test]
async fn what_names_no_tool_is_remembered_with_all_that_it_says() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    authorizer.decide(|check: &Check| match check.json().to_string().contains("secret") {
        true => Reply::deny("no").into(),
        false => Reply::allow().into(),
    });
    let settings = format!("[ext_authz]\nservice = {:?}\ncache = \"1h\"\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh");
    for method in ["completion/complete", "made/up"] {
        let params = |name: &str| json!({"ref": {"type": "ref/prompt", "name": name}, "argument": {"name": "a", "value": ""}});
        client.modern(method, params("open")).await;
        let denied = client.modern(method, params("secret")).await;
        assert_eq!(denied.status, 403, "{method}: {}", denied.text());
    }
    assert!(upstream.seen().iter().all(|asked| !asked.message.to_string().contains("secret")));
}

#[tokio::test]
async fn an_authorizer_that_sees_all_headers_gets_the_whole_body_over_http() {
    let (upstream, authorizer) = (server().await, HttpAuthorizer::start().await.unwrap());
    let more = "protocol = \"http\"\nheaders = [\"*\"]\nfilter_lists = true\ntimeout = \"2s\"";
    let settings =
        format!("prefix = \"always\"\n[ext_authz]\nservice = {:?}\n{more}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp").with("x-mine", "seen");
    let session = client.session().await;
    client.ask(&session, "tools/list", json!({})).await;
    assert_eq!(text(&client.call(&session, "gh__echo", json!({"text": "x"})).await), "x");
    for check in authorizer.checks() {
        assert_eq!(check.header("x-mine"), Some("seen"));
        let body: serde_json::Value = serde_json::from_slice(&check.body).unwrap();
        assert_eq!(
            check.header("content-length"),
            Some(check.body.len().to_string().as_str()),
            "{body}"
        );
    }
}

#[tokio::test]
async fn tools_appear_by_themselves_when_the_authorizer_is_back() {
    let (upstream, free) = (server().await, server().await);
    let authorizer = Authorizer::start().await.unwrap();
    let own = format!("ext_authz = {{ service = {:?}, timeout = \"300ms\" }}", authorizer.url());
    let entries = [Entry::url("open", &free.url), Entry::url("gh", &upstream.url).with(&own)];
    let gateway = Gateway::serve(&entries).await;
    authorizer.stop().await;
    let client = Client::new(&gateway, "/mcp");
    let session = client.session().await;
    let headers = [("mcp-session-id", session.as_str()), ("accept", "text/event-stream")];
    let stream =
        crate::kit::http::send(gateway.address, ::http::Method::GET, "/mcp", &headers, "".into())
            .await;
    authorizer.again().await.unwrap();
    let mut body = stream.into_body();
    let heard = async {
        loop {
            let frame = http_body_util::BodyExt::frame(&mut body).await.unwrap().unwrap();
            let data = frame.into_data().unwrap_or_default();
            if String::from_utf8_lossy(&data).contains("notifications/tools/list_changed") {
                return;
            }
        }
    };
    crate::kit::within(10, "the client is told", heard).await;
    let list = client.ask(&session, "tools/list", json!({})).await.message();
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 6, "{list}");
}

#[tokio::test]
async fn a_client_that_comes_back_for_an_answer_must_still_be_allowed_to_have_it() {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let upstream = Upstream::start(move |asked: Asked, mut tcp| {
        let go = Arc::clone(&held);
        async move {
            if !asked.is("tools/call") {
                let list = asked.is("tools/list");
                let said = if list { answer(&asked, &json!({"tools": tools()})) } else { honest(&asked) };
                write(&mut tcp, &said).await;
                return;
            }
            let log = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "begun"}});
            let result = json!({"jsonrpc": "2.0", "id": asked.message["id"], "result": {"content": [{"type": "text", "text": "the secret"}]}});
            write(&mut tcp, STREAM).await;
            write(&mut tcp, format!("data: {log}\n\n").as_bytes()).await;
            let _leave = go.acquire().await.unwrap();
            write(&mut tcp, format!("data: {result}\n\n").as_bytes()).await;
        }
    })
    .await;
    let authorizer = Authorizer::start().await.unwrap();
    let settings = format!("[ext_authz]\nservice = {:?}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    let body = crate::kit::client::tool_call(7, "echo", json!({"text": "x"})).to_string();
    let plain = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", session.as_str()),
    ];
    let post = http::send(gateway.address, Method::POST, "/mcp/gh", &plain, body.into()).await;
    let mut stream = post.into_body();
    let mut heard = String::new();
    let begun = async {
        while !heard.contains("begun") {
            let frame = http_body_util::BodyExt::frame(&mut stream).await.unwrap().unwrap();
            heard.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap_or_default()));
        }
    };
    crate::kit::within(10, "the call begins", begun).await;
    let event = heard.lines().rev().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    drop(stream);
    go.add_permits(1);
    let resume = async || {
        let headers = [
            ("mcp-session-id", session.as_str()),
            ("accept", "text/event-stream"),
            ("last-event-id", event.as_str()),
        ];
        http::send(gateway.address, Method::GET, "/mcp/gh", &headers, "".into()).await
    };
    authorizer.always(Reply::deny("not any more"));
    let refused = http::whole(resume().await).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(!refused.text().contains("the secret"));
    authorizer.always(Reply::allow());
    let answered = http::whole(resume().await).await;
    assert!(answered.text().contains("the secret"), "{}", answered.text());
}
