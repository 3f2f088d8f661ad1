//! Who is let in, and where the admin is.

use std::process::Stdio;

use http::Method;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::kit::{Served, Wrapped, children, fixture, program, soon, until};
use super::server::{End, Faulty, call, text};

async fn well() -> Faulty {
    Faulty::start(|_, _, _| End::Text("well")).await
}

#[tokio::test]
async fn without_a_section_there_is_no_admin_api() {
    let server = well().await;
    let served = server.served("").await;
    assert!(!served.log.lock().unwrap().iter().any(|line| line.contains("admin")));
    assert_eq!(
        served.send(Method::GET, "/metrics", &[], "").await.status(),
        404,
        "nor at the clients' own"
    );
}

#[tokio::test]
async fn a_foreign_page_is_turned_away_and_so_is_a_foreign_name() {
    let server = well().await;
    let served = server.served(ADMIN).await;
    let admin = AdminApi::of(&served);
    for headers in [[("host", "evil.example")], [("origin", "https://evil.example")]] {
        for path in ["/healthz", "/metrics", "/resilience/breakers"] {
            let (status, body) = admin.send(Method::GET, path, &headers).await;
            assert!(
                status == 403 && body.starts_with(r#"{"error":"#),
                "{path} {headers:?}: {body}"
            );
        }
    }
    assert_eq!(
        admin.send(Method::GET, "/metrics", &[("origin", "http://localhost:3000")]).await.0,
        200
    );
}

#[tokio::test]
async fn off_loopback_reading_needs_the_key_too() {
    let server = well().await;
    let served = server.served(&ADMIN.replace("127.0.0.1", "0.0.0.0")).await;
    let admin = AdminApi::of(&served);
    call(&served.session("/mcp/gh").await, "get_issue", json!({})).await;
    for path in
        ["/metrics", "/resilience/breakers", "/resilience/servers", "/resilience/policy/get_issue"]
    {
        assert_eq!(admin.send(Method::GET, path, &[]).await.0, 401, "{path}");
        assert_eq!(admin.send(Method::GET, path, &[("x-api-key", "wrong")]).await.0, 403, "{path}");
        assert_eq!(admin.send(Method::GET, path, &[("x-api-key", TOKEN)]).await.0, 200, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(
            admin.send(Method::GET, path, &[]).await.0,
            200,
            "{path}: whoever watches the process has no key"
        );
    }
}

#[tokio::test]
async fn whoever_guesses_tokens_waits_and_whoever_has_one_does_not() {
    let server = well().await;
    let served = server.served(ADMIN).await;
    let admin = AdminApi::of(&served);
    call(&served.session("/mcp/gh").await, "get_issue", json!({})).await;
    let took = async |key: &str, expected: u16| {
        let began = std::time::Instant::now();
        let (status, _) = admin.reset("get_issue", &[("x-api-key", key)]).await;
        assert_eq!(status.as_u16(), expected, "{key}");
        began.elapsed().as_millis()
    };
    for _ in 0..5 {
        took("wrong", 403).await;
    }
    assert!(took("wrong", 403).await >= 2_000, "the sixth waits");
    let warned = || {
        served
            .log
            .lock()
            .unwrap()
            .iter()
            .any(|line| line.contains("admin: 6 wrong tokens from 127.0.0.1"))
    };
    until("it is told", async || warned()).await;
    // While guesses wait, and more of them than may wait, the right one is let in at once.
    let guesses = futures_util::future::join_all(
        (0..20).map(|_| admin.reset("get_issue", &[("x-api-key", "wrong")])),
    );
    let right = async {
        for _ in 0..5 {
            assert!(took(TOKEN, 200).await < 2_000);
        }
    };
    let (guesses, ()) = tokio::join!(guesses, right);
    let of = |code: u16| guesses.iter().filter(|(status, _)| status.as_u16() == code).count();
    assert_eq!((of(403), of(429)), (8, 12));
}

#[tokio::test]
async fn without_a_token_nothing_is_changed() {
    let server = well().await;
    let served = server.served("[admin]\nlisten = \"127.0.0.1:0\"\n").await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "well");
    assert_eq!(admin.breakers().await["breakers"]["get_issue"], "closed");
    for key in ["", "x"] {
        let (status, why) = admin.reset("get_issue", &[("x-api-key", key)]).await;
        assert!(
            status == 403 && why["error"].as_str().unwrap().contains("no admin token"),
            "{why}"
        );
    }
}

#[tokio::test]
async fn what_is_asked_wrongly_is_answered_clearly() {
    let server = well().await;
    let served = server.served(ADMIN).await;
    let admin = AdminApi::of(&served);
    for (method, path, status) in [
        (Method::POST, "/", 405),
        (Method::GET, "/index.html", 404),
        (Method::GET, "/resilience", 404),
        (Method::POST, "/metrics", 405),
        (Method::DELETE, "/resilience/breakers", 405),
        (Method::GET, "/resilience/breakers/get_issue/reset", 405),
        (Method::POST, "/resilience/breakers//reset", 404),
        (Method::POST, "/resilience/breakers/%ff/reset", 404),
    ] {
        let (got, body) = admin.send(method.clone(), path, &[("x-api-key", TOKEN)]).await;
        assert!(got == status && body.starts_with(r#"{"error":"#), "{method} {path}: {got} {body}");
    }
    let (status, body) = admin.send(Method::HEAD, "/metrics", &[]).await;
    assert!(status == 200 && body.is_empty());
}

#[tokio::test]
async fn nothing_that_is_asked_here_starts_a_process() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = format!("[store]\npath = \"{}\"\n", folder.path().display());
    let served = Served::with(&format!("{ADMIN}{store}{}", fixture("it", "legacy"))).await;
    let admin = AdminApi::of(&served);
    let gateway = served.child.id().unwrap();
    let before = children(gateway);
    let command = json!({
        "state": "open", "command": "touch", "args": [folder.path().join("here")], "url": "http://127.0.0.1:1/",
        "even_if_executed": true, "servers": {"evil": {"command": "touch"}},
    });
    let paths = [
        "/",
        "/mcp",
        "/mcp/it",
        "/healthz",
        "/readyz",
        "/metrics",
        "/resilience/breakers",
        "/resilience/breakers/x/reset",
        "/resilience/breakers/reset",
        "/resilience/breakers/x/force",
        "/resilience/servers",
        "/resilience/servers/it",
        "/resilience/servers/it/restart",
        "/resilience/servers/it/start",
        "/resilience/servers/evil/restart",
        "/resilience/queue",
        "/resilience/queue/q1",
        "/resilience/queue/q1/retry",
        "/resilience/events/x",
        "/resilience/reload",
        "/resilience/config",
        "/%2e%2e/mcp",
    ];
    for path in paths {
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECTED"] {
            for body in ["", &command.to_string(), "\u{0}", "[[[["] {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let (status, _) =
                    admin.send_with(method.clone(), path, &[("x-api-key", TOKEN)], body).await;
                assert!(status.as_u16() < 500, "{method} {path}: {status}");
            }
        }
    }
    assert_eq!(children(gateway), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "the queue and nothing else");
}

#[tokio::test]
async fn a_port_that_is_taken_fails_a_gateway_and_not_a_client_s_server() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("seawall.toml");
    let server =
        format!("[servers.it]\ncommand = {:?}\nargs = [\"--stdio\"]\n", program("seawall-fixture"));
    std::fs::write(
        &file,
        format!("listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"{address}\"\n{server}"),
    )
    .unwrap();
    let seawall = |args: &[&str]| {
        let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
        process.args(args).args(["--no-catalog-cache", "--config"]).arg(&file).kill_on_drop(true);
        process
    };
    let output = soon(seawall(&["serve"]).output()).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains(&format!("cannot listen on {address} (admin)")), "{said}");

    let mut wrapped = Wrapped::start(seawall(&["serve", "--stdio"]));
    assert!(wrapped.initialize(json!({})).await["result"]["serverInfo"].is_object());
}

#[tokio::test]
async fn a_wrapper_has_an_admin_api_too() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("seawall.toml");
    let server =
        format!("[servers.it]\ncommand = {:?}\nargs = [\"--stdio\"]\n", program("seawall-fixture"));
    std::fs::write(&file, format!("{ADMIN}{server}")).unwrap();
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    process.args(["run", "--no-catalog-cache", "--config"]).arg(&file).stderr(Stdio::piped());
    let mut wrapped = Wrapped::start(process);
    let mut said = BufReader::new(wrapped.child.stderr.take().unwrap()).lines();
    let line = soon(said.next_line()).await.unwrap().unwrap();
    let admin = AdminApi::at(line.split("admin at ").nth(1).expect(&line));
    wrapped.initialize(json!({})).await;
    wrapped.ask(1, "tools/list", json!({})).await;
    assert_eq!(admin.get("/resilience/servers").await.1["servers"]["it"]["status"], "up");
}
