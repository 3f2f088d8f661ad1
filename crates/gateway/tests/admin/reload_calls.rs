//! Calls during a change of the configuration: none is lost, none is executed twice, and the next
//! goes out as the new configuration says.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::admin_api::{ADMIN, AdminApi};
use super::kit::{Served, until};
use super::reload::{reload, replace};
use super::server::{End, Faulty};
use super::upstream::{Upstream, honest, write};

fn named(server: &Faulty, more: &str) -> String {
    format!("listen = \"127.0.0.1:0\"\n{ADMIN}{}", server.config("", more))
}

async fn served(text: &str) -> (Served, AdminApi) {
    let served = Served::file("seawall.toml", text).await;
    let admin = AdminApi::of(&served);
    (served, admin)
}

fn call(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"n": 1}})
}

#[tokio::test]
async fn a_call_under_way_is_answered_although_its_server_is_removed_or_opened_anew() {
    for change in ["headers = { X-Other = \"1\" }\n", "disabled = true\n"] {
        let held = Arc::new(Semaphore::new(0));
        let hold = Arc::clone(&held);
        let server = Faulty::start(move |_, _, _| End::Held(Arc::clone(&hold), "late")).await;
        let other = "[servers.other]\ncommand = \"true\"\nlazy = true\n";
        let (served, admin) = served(&(named(&server, "") + other)).await;
        let session = served.session("/mcp/gh").await;
        let answer = session.ask(1, "tools/call", call("create_issue"));
        let changed = async {
            until("it is under way", async || server.calls("create_issue") == 1).await;
            replace(&served.config, &(named(&server, change) + other));
            let (status, told) = reload(&admin).await;
            assert_eq!(status, 200, "{told}");
            held.add_permits(1);
        };
        let (answer, ()) = tokio::join!(answer, changed);
        assert_eq!(answer["result"]["content"][0]["text"], "late", "{change}: {answer}");
        assert_eq!(server.calls("create_issue"), 1, "{change}");
    }
}

#[tokio::test]
async fn a_secret_that_is_rotated_in_its_file_is_sent_with_the_next_call() {
    let server = Upstream::start(|asked, mut tcp| async move {
        write(&mut tcp, &honest(&asked)).await;
    })
    .await;
    let secrets = tempfile::TempDir::new().unwrap();
    let token = secrets.path().join("token");
    std::fs::write(&token, "first\n").unwrap();
    let text = format!(
        "listen = \"127.0.0.1:0\"\n{ADMIN}[servers.gh]\nurl = {:?}\ntype = \"http\"\nheaders = {{ Authorization = \"Bearer ${{file:{}}}\" }}\n",
        server.url,
        token.display()
    );
    let (served, admin) = served(&text).await;
    let session = served.session("/mcp/gh").await;
    session.ask(1, "tools/call", call("echo")).await;
    let sent = || {
        let calls = server.seen().into_iter().filter(|asked| asked.is("tools/call"));
        calls.map(|asked| asked.head.contains("bearer second")).collect::<Vec<_>>()
    };
    assert_eq!(sent(), [false]);
    replace(&token, "second\n");
    until("it is read", async || {
        admin.get("/resilience/reload").await.1["taken"].as_u64() >= Some(1)
    })
    .await;
    session.ask(2, "tools/call", call("echo")).await;
    let log = served.log.lock().unwrap().join("\n");
    assert_eq!(sent(), [false, true], "{log}");
    assert!(!log.contains("second") && !log.contains("first"), "{log}");
}

/// Every change opens the server anew; a call that waits for it loses nothing, and its tool is not
/// thought to be broken.
#[tokio::test]
async fn a_call_that_waits_for_its_server_outlasts_changes_of_the_server() {
    let greetings = Arc::new(Semaphore::new(1));
    let greets = Arc::clone(&greetings);
    let server = Upstream::start(move |asked, mut tcp| {
        let greets = Arc::clone(&greets);
        async move {
            if asked.is("initialize") {
                greets.acquire().await.unwrap().forget();
            }
            write(&mut tcp, &honest(&asked)).await;
        }
    })
    .await;
    let greeted = || server.seen().iter().filter(|asked| asked.is("initialize")).count();
    let text = |header: &str| {
        format!(
            "listen = \"127.0.0.1:0\"\n{ADMIN}[servers.gh]\nurl = {:?}\ntype = \"http\"\nheaders = {{ X-Other = {header:?} }}\n",
            server.url
        )
    };
    let (served, admin) = served(&text("1")).await;
    let session = served.session("/mcp/gh").await;
    replace(&served.config, &text("2"));
    assert_eq!(reload(&admin).await.0, 200);
    let answer = session.ask(1, "tools/call", call("create_issue"));
    tokio::pin!(answer);
    let changed = async {
        until("it is greeted anew", async || greeted() == 2).await;
        replace(&served.config, &text("3"));
        assert_eq!(reload(&admin).await.0, 200);
        until("and once more", async || greeted() == 3).await;
    };
    tokio::select! {
        ended = &mut answer => panic!("it did not wait: {ended}"),
        () = changed => {}
    }
    let waits = tokio::time::timeout(std::time::Duration::from_secs(1), &mut answer).await;
    assert!(waits.is_err(), "it did not wait: {waits:?}");
    greetings.add_permits(9);
    let answer = answer.await;
    assert!(answer["result"]["_meta"].get("seawall/failure").is_none(), "{answer}");
    let breakers = admin.get("/resilience/breakers").await.1;
    assert_eq!(
        breakers["details"]["create_issue"]["failures"].as_u64().unwrap_or(0),
        0,
        "{breakers}"
    );
}

#[tokio::test]
async fn an_api_key_that_is_taken_away_opens_nothing_any_more() {
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let key = |name: &str, sha: &str| {
        format!("[[identity.api_keys]]\nname = {name:?}\nsha256 = {sha:?}\n")
    };
    // The hashes of "one" and "two".
    let one = key("one", "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed");
    let two = key("two", "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3");
    let (served, admin) = served(&(named(&server, "") + &one + &two)).await;
    let open = async |key: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
        served.send(Method::POST, "/mcp", &[("x-api-key", key)], &body).await.status().as_u16()
    };
    assert_ne!((open("one").await, open("two").await), (401, 401));
    replace(&served.config, &(named(&server, "") + &two));
    assert_eq!(reload(&admin).await.0, 200);
    assert_eq!(open("one").await, 401);
    assert_ne!(open("two").await, 401);
}

#[tokio::test]
async fn a_write_that_waits_is_delivered_once_also_if_the_configuration_changes_meanwhile() {
    let store = tempfile::TempDir::new().unwrap();
    let server = Faulty::start(|_, count, _| match count {
        1 | 2 => End::Status("429 Too Many Requests", "retry-after: 1\r\n", "slow down"),
        _ => End::Text("created"),
    })
    .await;
    let with = |more: &str| {
        let store = format!("[store]\npath = {:?}\n", store.path().to_str().unwrap());
        format!("{}{store}{more}", named(&server, ""))
    };
    let (served, admin) = served(&with("[kinds.write]\nretry = { attempts = 1 }\n")).await;
    let session = served.session("/mcp/gh").await;
    let answer = session.ask(1, "tools/call", call("create_issue")).await;
    assert_eq!(answer["result"]["_meta"]["seawall/served"]["by"], "queue", "{answer}");
    for round in 1..=5 {
        let more = format!("[kinds.write]\nretry = {{ attempts = 1, base = \"{round}s\" }}\n");
        replace(&served.config, &with(&more));
        assert_eq!(reload(&admin).await.0, 200);
    }
    until("it is delivered", async || {
        let queue = admin.get("/resilience/queue?state=delivered").await.1;
        queue["items"].as_array().is_some_and(|items| items.len() == 1)
    })
    .await;
    assert_eq!(server.calls("create_issue"), 3, "two refusals, one execution");
}
