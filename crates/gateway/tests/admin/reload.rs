//! The configuration is changed while the gateway runs: what the change does not name goes on as if
//! nothing had been.

use std::path::Path;

use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::kit::{Served, Session, children, fixture, soon, until};

const HEAD: &str = "listen = \"127.0.0.1:0\"\nprefix = \"always\"\n";

/// A configuration with these servers.
pub(crate) fn config(servers: &[&str]) -> String {
    let servers: String = servers.iter().map(|name| fixture(name, "legacy")).collect();
    format!("{HEAD}{ADMIN}{servers}")
}

pub(crate) async fn served(text: &str) -> (Served, AdminApi) {
    let served = Served::file("seawall.toml", text).await;
    let admin = AdminApi::of(&served);
    (served, admin)
}

/// Replaces a file, as editors do it.
pub(crate) fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, file).unwrap();
}

async fn tools(session: &Session<'_>) -> Vec<String> {
    let list = session.ask(7, "tools/list", json!({})).await;
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    list["result"]["tools"].as_array().unwrap().iter().map(name).collect()
}

fn of<'a>(tools: &'a [String], server: &str) -> Vec<&'a String> {
    tools.iter().filter(|name| name.starts_with(&format!("{server}__"))).collect()
}

async fn pids(admin: &AdminApi, server: &str) -> Value {
    admin.get("/resilience/servers").await.1["servers"][server]["pids"].clone()
}

/// Asks for a reload as an operator does.
pub(crate) async fn reload(admin: &AdminApi) -> (u16, Value) {
    let key = format!("Bearer {TOKEN}");
    let headers = [("authorization", key.as_str())];
    let (status, answer) = admin.send(Method::POST, "/resilience/reload", &headers).await;
    (status.as_u16(), serde_json::from_str(&answer).unwrap())
}

/// Opens the stream of a session that belongs to no request.
async fn general(served: &Served, session: &Session<'_>) -> Incoming {
    let headers = [("mcp-session-id", session.id.as_str()), ("mcp-protocol-version", "2025-11-25")];
    served.send(Method::GET, "/mcp", &headers, "").await.into_body()
}

async fn heard(stream: &mut Incoming, what: &str) {
    let mut heard = String::new();
    while !heard.contains(what) {
        let frame = soon(stream.frame()).await.unwrap_or_else(|| panic!("{what}: {heard}"));
        heard += &String::from_utf8_lossy(frame.unwrap().data_ref().unwrap());
    }
}

#[tokio::test]
async fn servers_come_and_go_with_the_file_and_the_others_notice_nothing() {
    let (served, admin) = served(&config(&["a", "b"])).await;
    let session = served.session("/mcp").await;
    let before = tools(&session).await;
    let (kept, left) = (pids(&admin, "a").await, pids(&admin, "b").await);
    let mut stream = general(&served, &session).await;

    // The watcher sees it: nobody asks.
    replace(&served.config, &config(&["a", "c"]));
    heard(&mut stream, "notifications/tools/list_changed").await;
    until("the new server is listed", async || !of(&tools(&session).await, "c").is_empty()).await;
    let after = tools(&session).await;
    assert_eq!((of(&after, "a"), of(&after, "b").len()), (of(&before, "a"), 0));
    assert_eq!(of(&after, "c").len(), of(&before, "b").len());
    assert_eq!(pids(&admin, "a").await, kept, "the process goes on");
    let left = u32::try_from(left[0].as_u64().unwrap()).unwrap();
    until("its process ends", async || !children(served.child.id().unwrap()).contains(&left)).await;
    for tool in ["a__test_simple_text", "c__test_simple_text"] {
        let call = json!({"name": tool, "arguments": {}});
        let answer = session.ask(8, "tools/call", call).await;
        assert!(answer["result"]["isError"].is_null(), "{answer}");
    }
    let gone = json!({"name": "b__test_simple_text", "arguments": {}});
    let answer = session.ask(9, "tools/call", gone).await;
    assert!(answer["error"].is_object() || answer["result"]["isError"] == true, "{answer}");
    // The endpoint of a server comes and goes too.
    served.session("/mcp/c").await;
    assert_eq!(served.send(Method::POST, "/mcp/b", &[], "{}").await.status(), 404);
}

#[tokio::test]
async fn a_file_with_mistakes_changes_nothing_and_the_operator_is_told() {
    let (served, admin) = served(&config(&["a"])).await;
    let session = served.session("/mcp").await;
    let before = tools(&session).await;
    replace(&served.config, &config(&["a"]).replace("prefix", "prefxi"));
    let (status, answer) = reload(&admin).await;
    let error = answer["error"].as_str().unwrap().to_owned();
    assert!(status == 422 && error.contains("prefxi") && error.contains("seawall.toml"), "{error}");
    assert_eq!(tools(&session).await, before);
    let told = admin.get("/resilience/reload").await.1;
    assert_eq!((&told["error"], &told["taken"]), (&json!(error), &json!(0)), "{told}");
    let metrics = admin.send(Method::GET, "/metrics", &[]).await.1;
    assert!(metrics.contains("\nseawall_config_last_reload_successful 0\n"), "{metrics}");
    assert!(metrics.contains("seawall_config_reloads_total{result=\"refused\"}"), "{metrics}");
    let said = || served.log.lock().unwrap().join("\n");
    until("it is logged", async || said().contains("the one before stays in force")).await;

    replace(&served.config, &config(&["a"]));
    until("the mended file is taken by itself", async || {
        admin.get("/resilience/reload").await.1["error"].is_null()
    })
    .await;
    let metrics = admin.send(Method::GET, "/metrics", &[]).await.1;
    assert!(metrics.contains("\nseawall_config_last_reload_successful 1\n"), "{metrics}");
}

#[tokio::test]
async fn a_reload_names_what_changed_and_what_needs_a_restart() {
    let (served, admin) = served(&config(&["a", "b"])).await;
    let key = format!("Bearer {TOKEN}");
    let mut events = admin.tap("", &[("authorization", key.as_str())]).await.unwrap();
    let change =
        config(&["c", "b"]).replace("prefix = \"always\"", "prefix = \"always\"\ngrace = \"3s\"");
    let change = change + "concurrency = 3\n[kinds.read]\ntimeout = \"7s\"\n";
    replace(&served.config, &change);
    let event = events.until(|event| event["event"] == "config_changed").await.pop().unwrap();
    let expected = json!({
        "added": ["c"], "removed": ["a"], "reopened": [], "rules": ["b"],
        "settings": ["policies"], "needsRestart": ["grace"],
    });
    for (part, names) in expected.as_object().unwrap() {
        assert_eq!(&event[part], names, "{part}: {event}");
    }
    // The watcher was first: nothing is left to change, and the restart is still needed.
    let (status, answer) = reload(&admin).await;
    assert_eq!((status, &answer["change"]["added"]), (200, &json!([])), "{answer}");
    assert_eq!(admin.get("/resilience/reload").await.1["needsRestart"], json!(["grace"]));
}

#[tokio::test]
async fn a_hangup_reads_the_file_again_and_a_breaker_that_was_forced_stays_so() {
    let (served, admin) = served(&config(&["a"])).await;
    let session = served.session("/mcp").await;
    tools(&session).await;
    let key = format!("Bearer {TOKEN}");
    let headers = [("authorization", key.as_str())];
    let path = "/resilience/breakers/a__test_simple_text/force";
    let (status, _) = admin.send_with(Method::POST, path, &headers, r#"{"state":"open"}"#).await;
    assert_eq!(status, 200);
    std::fs::write(&served.config, config(&["a"]) + "hint = \"Ask ops.\"\n").unwrap();
    let pid = Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    until("it was read again", async || {
        admin.get("/resilience/reload").await.1["taken"].as_u64() >= Some(1)
    })
    .await;
    let call = json!({"name": "a__test_simple_text", "arguments": {}});
    let answer = session.ask(8, "tools/call", call).await;
    let failure = &answer["result"]["_meta"]["seawall/failure"];
    assert_eq!(failure["code"], "SERVER_UNAVAILABLE", "{answer}");
    assert!(failure["message"].as_str().unwrap().contains("Ask ops."), "the new hint: {answer}");
}

#[tokio::test]
async fn a_token_of_the_admin_api_that_is_rotated_is_the_only_one() {
    let (served, admin) = served(&config(&["a"])).await;
    replace(&served.config, &config(&["a"]).replace(TOKEN, "another-token-2002"));
    until("the old one is refused", async || reload(&admin).await.0 == 403).await;
    let headers = [("x-api-key", "another-token-2002")];
    assert_eq!(admin.send(Method::POST, "/resilience/reload", &headers).await.0, 200);
}

/// What needs a restart is not half taken: who may reach the address was decided when it was
/// opened.
#[tokio::test]
async fn an_identity_that_the_file_loses_stays_in_force_until_a_restart() {
    let digest: String =
        Sha256::digest("s3cret").iter().map(|byte| format!("{byte:02x}")).collect();
    let identity = format!("[[identity.api_keys]]\nname = \"ci\"\nsha256 = {digest:?}\n");
    let open = config(&["a", "b"]);
    let (served, admin) = served(&(config(&["a"]) + &identity)).await;
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let known = [("authorization", "Bearer s3cret")];
    let greeted = served.send(Method::POST, "/mcp", &known, hello).await;
    let session = greeted.headers()["mcp-session-id"].to_str().unwrap();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let status = async |headers: &[(&str, &str)]| {
        let version = ("mcp-protocol-version", "2025-11-25");
        let headers = [headers, &[version, ("mcp-session-id", session)]].concat();
        served.send(Method::POST, "/mcp", &headers, call).await.status().as_u16()
    };
    assert_eq!(status(&[]).await, 401);
    for file in [open.clone(), open.replace(TOKEN, "another-token-2002")] {
        replace(&served.config, &file);
        until("the other changes are taken", async || {
            admin.get("/resilience/reload").await.1["needsRestart"] == json!(["identity"])
        })
        .await;
        assert_eq!(status(&[]).await, 401, "with the id of somebody's session, and no key");
        assert_eq!(status(&[("authorization", "Bearer wrong")]).await, 401);
        assert_eq!(status(&known).await, 200);
    }
}

#[tokio::test]
async fn a_token_stays_with_the_address_that_waits_for_a_restart() {
    let (served, admin) = served(&config(&["a"])).await;
    let elsewhere = ADMIN.replace("127.0.0.1:0", "127.0.0.2:0").replace(TOKEN, "weak");
    assert_ne!(elsewhere, ADMIN);
    for file in [config(&["b"]).replace(ADMIN, &elsewhere), config(&["c"]).replace(ADMIN, "")] {
        replace(&served.config, &file);
        until("it waits", async || {
            admin.get("/resilience/reload").await.1["needsRestart"] == json!(["admin.listen"])
        })
        .await;
        assert_eq!(reload(&admin).await.0, 200, "the token is the old one");
        assert_eq!(
            admin.send(Method::POST, "/resilience/reload", &[("x-api-key", "weak")]).await.0,
            403
        );
    }
}

#[tokio::test]
async fn a_pipe_in_the_place_of_the_file_is_refused_and_the_next_file_is_taken() {
    let (served, admin) = served(&config(&["a"])).await;
    std::fs::remove_file(&served.config).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&served.config).status().unwrap();
    assert!(made.success());
    until("it is refused", async || {
        let told = admin.get("/resilience/reload").await.1;
        told["error"].as_str().is_some_and(|error| error.contains("is not a regular file"))
    })
    .await;
    replace(&served.config, &config(&["a", "b"]));
    until("the next file is taken", async || {
        admin.get("/resilience/reload").await.1["error"].is_null()
    })
    .await;
    assert!(!pids(&admin, "b").await.is_null());
}
