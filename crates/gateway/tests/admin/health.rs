//! Whether the process is alive, and whether it is fit to be sent clients.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::Semaphore;

use super::admin_api::{ADMIN, AdminApi};
use super::kit::{Served, program, soon, until};
use super::server::{End, Faulty};
use super::upstream::{Upstream, honest, write};

#[tokio::test]
async fn it_is_ready_when_every_required_server_is_loaded() {
    let is_up = Arc::new(AtomicBool::new(false));
    let looked = Arc::clone(&is_up);
    let server = Upstream::start(move |asked, mut tcp| {
        let is_up = Arc::clone(&looked);
        async move {
            while !is_up.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            write(&mut tcp, &honest(&asked)).await;
        }
    })
    .await;
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("seawall.toml");
    let of = |name: &str| format!("[servers.{name}]\nurl = \"{}\"\ntype = \"http\"\n", server.url);
    let servers = format!("{}required = true\n{}", of("slow"), of("other"));
    std::fs::write(&file, format!("listen = \"127.0.0.1:0\"\n{ADMIN}{servers}")).unwrap();
    let mut process = Command::new(env!("CARGO_BIN_EXE_seawall"));
    process
        .args(["serve", "--no-catalog-cache", "--config"])
        .arg(&file)
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = process.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = soon(lines.next_line()).await.unwrap().unwrap();
    let admin = AdminApi::at(line.split("admin at ").nth(1).expect(&line));

    let not_ready = json!({"status": "not ready", "missing": ["slow"]});
    assert_eq!(admin.get("/readyz").await, (StatusCode::SERVICE_UNAVAILABLE, not_ready));
    assert_eq!(admin.get("/healthz").await, (StatusCode::OK, json!({"status": "ok"})));
    is_up.store(true, Ordering::SeqCst);
    until("it is ready", async || {
        admin.get("/readyz").await == (StatusCode::OK, json!({"status": "ready"}))
    })
    .await;
    let line = soon(lines.next_line()).await.unwrap().unwrap();
    assert!(line.contains("listening on"), "{line}");
}

#[tokio::test]
async fn a_gateway_that_goes_down_is_alive_and_not_ready() {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |_, _, _| End::Held(Arc::clone(&held), "late")).await;
    let served = server.served(ADMIN).await;
    let (session, admin) = (served.session("/mcp/gh").await, AdminApi::of(&served));
    assert_eq!(admin.get("/readyz").await.0, 200, "nothing is required");
    let under_way = async {
        let params = json!({"name": "get_issue", "arguments": {}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            .to_string();
        super::kit::last(session.raw(&body).await).await
    };
    let watched = async {
        until("the call is under way", async || server.calls("get_issue") == 1).await;
        let pid = served.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
        until("it is not ready", async || {
            admin.get("/readyz").await
                == (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "draining"}))
        })
        .await;
        assert_eq!(admin.get("/healthz").await.0, 200);
        go.add_permits(1);
    };
    let (answer, ()) = tokio::join!(under_way, watched);
    assert_eq!(super::server::text(&answer), "late");
}

#[tokio::test]
async fn a_required_server_that_is_lost_makes_it_unready_until_it_is_back() {
    let folder = tempfile::TempDir::new().unwrap();
    let (file, away) = (folder.path().join("server"), folder.path().join("away"));
    std::fs::copy(program("seawall-fixture"), &file).unwrap();
    let server =
        format!("[servers.it]\ncommand = {file:?}\nargs = [\"--stdio\"]\nrequired = true\n");
    let served = Served::with(&format!("{ADMIN}{server}")).await;
    let admin = AdminApi::of(&served);
    let session = served.session("/mcp").await;
    session.ask(1, "tools/list", json!({})).await;
    assert_eq!(admin.get("/readyz").await.0, 200);

    std::fs::rename(&file, &away).unwrap();
    let servers = admin.get("/resilience/servers").await.1;
    let pid = servers["servers"]["it"]["pids"][0].to_string();
    assert!(
        Command::new("kill").args(["-KILL", &pid]).status().await.unwrap().success(),
        "{servers}"
    );
    let not_ready =
        (StatusCode::SERVICE_UNAVAILABLE, json!({"status": "not ready", "missing": ["it"]}));
    until("it is not ready", async || admin.get("/readyz").await == not_ready).await;
    assert_eq!(admin.scrape().await.value("seawall_server_up", &[("server", "it")]), 0.0);

    std::fs::rename(&away, &file).unwrap();
    served.session("/mcp").await;
    until("it is ready again", async || admin.get("/readyz").await.0 == 200).await;
    assert_eq!(admin.scrape().await.value("seawall_server_up", &[("server", "it")]), 1.0);
}
