//! Nothing reaches a server or a client without an allow: by no endpoint, method, era or trick.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::http::Method;
use seawall_testkit::authz::{Authorizer, Check, Jwks, Key, KeyKind, Reply, claims};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::client::Client;
use crate::kit::upstream::{answer, honest, write};
use crate::kit::{Asked, Entry, Gateway, Upstream, http, within};
use crate::{server, tools};

/// Every request that a client can make, with what it would need from the server.
fn requests() -> Vec<(&'static str, Value)> {
    vec![
        ("tools/list", json!({})),
        ("tools/call", json!({"name": "echo", "arguments": {"text": "x"}})),
        ("tools/call", json!({"name": "send_mail", "arguments": {"to": "x"}})),
        ("prompts/list", json!({})),
        ("prompts/get", json!({"name": "p"})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({"uri": "file:///secret"})),
        ("resources/subscribe", json!({"uri": "file:///secret"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "p"}})),
        ("logging/setLevel", json!({"level": "debug"})),
        ("tasks/get", json!({"taskId": "t"})),
        ("ping", json!({})),
        ("made/up", json!({})),
    ]
}

/// A call under the name that an endpoint has for its tool.
fn named(path: &str, params: &Value) -> Value {
    let mut params = params.clone();
    if let Some(name) = params["name"].as_str().filter(|_| path == "/mcp") {
        params["name"] = json!(format!("gh__{name}"));
    }
    params
}

#[tokio::test]
async fn nothing_reaches_a_server_before_an_allow_by_any_request_on_any_endpoint() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let settings = format!(
        "prefix = \"always\"\n[ext_authz]\nservice = {:?}\ntimeout = \"200ms\"\n",
        authorizer.url()
    );
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    // Sessions of a time when everything was allowed, with the server's list remembered.
    let paths: [&'static str; 2] = ["/mcp", "/mcp/gh"];
    let mut sessions = Vec::new();
    for path in paths {
        let client = Client::new(&gateway, path);
        let session = client.session().await;
        client.ask(&session, "tools/list", json!({})).await;
        client
            .call(
                &session,
                named(path, &json!({"name": "echo"}))["name"].as_str().unwrap(),
                json!({"text": "warm"}),
            )
            .await;
        sessions.push((path, session));
    }
    authorizer.always(Reply::deny("nobody may"));
    let before = upstream.seen().len();
    for (path, session) in &sessions {
        let client = Client::new(&gateway, path);
        for (method, params) in requests() {
            let params = named(path, &params);
            let legacy = client.ask(session, method, params.clone()).await;
            let modern = client.modern(method, params.clone()).await;
            for (era, answer) in [("legacy", legacy), ("modern", modern)] {
                let said = answer.text();
                assert!(
                    !said.contains("inside") && !said.contains("inputSchema"),
                    "{path} {era} {method}: {said}"
                );
            }
        }
    }
    let reached: Vec<Value> =
        upstream.seen()[before..].iter().map(|asked| asked.message["method"].clone()).collect();
    assert_eq!(reached, Vec::<Value>::new());
}

#[tokio::test]
async fn tricks_with_names_paths_keys_and_batches_do_not_slip_past() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    authorizer.decide(|check| match check.call() {
        Some((server, tool)) if server == "gh" && tool == "echo" => Reply::allow().into(),
        None => Reply::allow().into(),
        Some(_) => Reply::deny("only echo").into(),
    });
    let settings = format!("prefix = \"always\"\n[ext_authz]\nservice = {:?}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh");
    let session = client.session().await;
    let bodies = [
        // Of two equal keys, different readers believe different ones.
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","name":"send_mail","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call","params":{"name":"send_mail","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"},"params":{"name":"send_mail"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_mail","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_mail","arguments":{}}}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_mail","arguments":{}}}]"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_mail ","arguments":{}}}"#,
    ];
    for body in bodies {
        for path in
            ["/mcp/gh", "/mcp/gh/", "/mcp/gh?x=/mcp/other", "/mcp//gh", "/mcp/./gh", "/mcp/%67h"]
        {
            let headers = [("mcp-session-id", session.as_str())];
            http::post(gateway.address, path, &headers, body.to_owned()).await;
        }
    }
    // The headers of a modern request must say what its body says.
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "send_mail", "arguments": {},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}});
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "echo"),
    ];
    let answer = http::post(gateway.address, "/mcp/gh", &headers, body.to_string()).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    let mailed = upstream
        .seen()
        .iter()
        .filter(|asked| asked.message.to_string().contains("send_mail"))
        .count();
    assert_eq!(mailed, 0);
}

#[tokio::test]
async fn what_was_remembered_detached_or_kept_is_checked_again_when_it_is_used() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let is_allowed = Arc::new(AtomicBool::new(true));
    let looked = Arc::clone(&is_allowed);
    authorizer.decide(move |_| match looked.load(Ordering::SeqCst) {
        true => Reply::allow().into(),
        false => Reply::deny("not any more").into(),
    });
    let policy = "[defaults]\ncache = { ttl = \"1h\" }\nmax_result = 1000\n";
    let settings = format!("{policy}[ext_authz]\nservice = {:?}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh").bearer("ann");
    let session = client.session().await;
    let long = "a secret ".repeat(1_000);
    let cut = client.call(&session, "echo", json!({"text": long})).await;
    let resource =
        cut["result"]["_meta"]["seawall/served"]["resource"].as_str().unwrap().to_owned();
    let read = client.ask(&session, "resources/read", json!({"uri": resource})).await;
    assert!(read.text().contains("a secret"), "{}", read.text());
    assert_eq!(
        client.call(&session, "get_secret", json!({"text": "kept"})).await["result"]["isError"],
        json!(null)
    );
    is_allowed.store(false, Ordering::SeqCst);
    let answers = [
        client.ask(&session, "resources/read", json!({"uri": resource})).await,
        client
            .ask(
                &session,
                "tools/call",
                json!({"name": "get_secret", "arguments": {"text": "kept"}}),
            )
            .await,
        client.ask(&session, "tools/list", json!({})).await,
    ];
    for answer in answers {
        let said = answer.text();
        assert!(said.contains("not any more"), "{said}");
        assert!(
            !said.contains("a secret") && !said.contains("kept") && !said.contains("inputSchema"),
            "{said}"
        );
    }
}

/// Makes every request with these headers, with and without somebody's session: nothing comes back.
async fn stays_outside(gateway: &Gateway, path: &str, session: &str, shown: &[(&str, &str)]) {
    for (method, params) in requests() {
        let params = named(path, &params);
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        for with_session in [true, false] {
            let mut headers = shown.to_vec();
            if with_session {
                headers.push(("mcp-session-id", session));
            }
            let said = http::post(gateway.address, path, &headers, body.to_string()).await;
            let text = said.text();
            let is_told = text.contains("inside") || text.contains("inputSchema");
            assert!(!is_told, "{path} {shown:?} {method}: {text}");
            assert!(said.status >= 400 || text.contains("only ann"), "{shown:?} {text}");
        }
    }
    for method in [Method::GET, Method::DELETE, Method::PUT, Method::OPTIONS] {
        let mut headers = shown.to_vec();
        headers.push(("mcp-session-id", session));
        headers.push(("accept", "text/event-stream"));
        let sent = http::send(gateway.address, method.clone(), path, &headers, "".into()).await;
        assert!(sent.status().as_u16() >= 400, "{path} {shown:?} {method}");
    }
}

#[tokio::test]
async fn no_host_origin_or_identity_gets_past_on_any_endpoint_by_any_method() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    let key = Key::new(KeyKind::Es256, "k1").unwrap();
    let jwks = Jwks::start(&[&key]).await.unwrap();
    authorizer.decide(|check: &Check| match check.filter_metadata["who"]["sub"].as_str() {
        Some("ann") => Reply::allow().into(),
        _ => Reply::deny("only ann").into(),
    });
    let issuer = "https://idp.example";
    let settings = format!(
        "prefix = \"always\"\n[[identity.jwt]]\nissuer = {issuer:?}\naudiences = [\"a\"]\njwks = {:?}\n\
         [ext_authz]\nservice = {:?}\nclaims = {{ who = [\"sub\"] }}\n",
        jwks.url(),
        authorizer.url(),
    );
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let bearer = |subject: &str| format!("Bearer {}", key.sign(&claims(subject, issuer, "a", 300)));
    let (ann, eve) = (bearer("ann"), bearer("eve"));
    let mut sessions = Vec::new();
    for path in ["/mcp", "/mcp/gh"] {
        let client = Client::new(&gateway, path).with("authorization", &ann);
        let session = client.session().await;
        client.ask(&session, "tools/list", json!({})).await;
        sessions.push((path, session));
    }
    let before = upstream.seen().len();
    // Who comes, and whether they could be anybody: all of them are refused, whatever they ask.
    let strangers: [&[(&str, &str)]; 7] = [
        &[],
        &[("authorization", "Bearer nonsense")],
        &[("authorization", &eve)],
        &[("authorization", &ann), ("host", "evil.example")],
        &[("authorization", &ann), ("origin", "https://evil.example")],
        &[("authorization", &ann), ("authorization", &eve)],
        &[("authorization", &ann), ("x-api-key", "k")],
    ];
    for (path, session) in &sessions {
        for shown in strangers {
            stays_outside(&gateway, path, session, shown).await;
        }
    }
    let reached: Vec<Value> =
        upstream.seen()[before..].iter().map(|asked| asked.message["method"].clone()).collect();
    assert_eq!(reached, Vec::<Value>::new());
    // And whoever may still does.
    for (path, session) in &sessions {
        let client = Client::new(&gateway, path).with("authorization", &ann);
        let list = client.ask(session, "tools/list", json!({})).await;
        assert!(list.text().contains("inputSchema"), "{}", list.text());
    }
}

#[tokio::test]
async fn a_detached_calls_answer_is_not_given_to_a_caller_who_may_not_have_it_any_more() {
    let upstream = Upstream::start(|asked: Asked, mut tcp| async move {
        let said = match asked.message["method"].as_str().unwrap_or_default() {
            "tools/list" => answer(&asked, &json!({"tools": tools()})),
            "tools/call" => {
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                answer(&asked, &json!({"content": [{"type": "text", "text": "the late secret"}]}))
            }
            _ => honest(&asked),
        };
        write(&mut tcp, &said).await;
    })
    .await;
    let authorizer = Authorizer::start().await.unwrap();
    let policy = "[defaults]\non_abandon = \"finish\"\nrejoin_after = \"100ms\"\n";
    let settings = format!("{policy}[ext_authz]\nservice = {:?}\n", authorizer.url());
    let gateway = Gateway::serve_with(&settings, &[Entry::url("gh", &upstream.url)]).await;
    let client = Client::new(&gateway, "/mcp/gh").bearer("ann");
    let sessions = [client.session().await, client.session().await, client.session().await];
    let call = |place: usize| client.call(&sessions[place], "send_mail", json!({"to": "x"}));
    let left = tokio::time::timeout(Duration::from_millis(500), call(0)).await;
    assert!(left.is_err(), "its client gave up");
    authorizer.always(Reply::deny("not any more"));
    let joined = call(1).await;
    assert_eq!(crate::failure(&joined)["code"], "DENIED", "{joined}");
    authorizer.always(Reply::allow());
    let joined = call(2).await;
    assert!(joined.to_string().contains("the late secret"), "{joined}");
    assert_eq!(crate::calls(&upstream, "send_mail"), 1);
}

#[tokio::test]
async fn a_wrapper_asks_its_authorizer_too() {
    let (upstream, authorizer) = (server().await, Authorizer::start().await.unwrap());
    authorizer.decide(|check: &Check| match check.call() {
        Some((_, tool)) if tool == "send_mail" => Reply::deny("no mail").into(),
        _ => Reply::allow().into(),
    });
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("seawall.toml");
    std::fs::write(&config, format!("[ext_authz]\nservice = {:?}\n", authorizer.url())).unwrap();
    let mut wrapper = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"))
        .args(["run", "--no-catalog-cache", "--config"])
        .arg(&config)
        .arg(&upstream.url)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = wrapper.stdin.take().unwrap();
    let mut lines = BufReader::new(wrapper.stdout.take().unwrap()).lines();
    let call = |id, tool| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {"text": "x"}}});
    let messages = [
        crate::kit::client::initialize(),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        call(1, "send_mail"),
        call(2, "echo"),
    ];
    for message in messages {
        stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    let mut answers = std::collections::HashMap::new();
    while answers.len() < 3 {
        let line = within(20, "an answer", lines.next_line()).await.unwrap().unwrap();
        let message: Value = serde_json::from_str(&line).unwrap();
        if let Some(id) = message["id"].as_i64() {
            answers.insert(id, message);
        }
    }
    assert_eq!(crate::failure(&answers[&1])["code"], "DENIED");
    assert_eq!(crate::kit::text(&answers[&2]), "x");
    assert_eq!(crate::calls(&upstream, "send_mail"), 0);
}
