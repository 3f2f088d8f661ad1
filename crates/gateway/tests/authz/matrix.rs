//! Nothing reaches a server or a client without an allow: by no endpoint, method, era or trick.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use seawall_testkit::authz::{Authorizer, Reply};
use serde_json::{Value, json};

use crate::client::Client;
use crate::kit::{Entry, Gateway, http};
use crate::server;

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
