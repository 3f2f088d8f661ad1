//! Whoever rebuilds a server restarts it, and no client loses its session.

use http::Method;
use serde_json::{Value, json};

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::kit::{Served, fixture, until};

async fn pids(admin: &AdminApi) -> Value {
    admin.get("/resilience/servers").await.1["servers"]["a"]["pids"].clone()
}

#[tokio::test]
async fn a_server_is_restarted_by_hand_and_its_clients_keep_their_sessions() {
    let served = Served::with(&format!("{ADMIN}{}", fixture("a", "legacy"))).await;
    let admin = AdminApi::of(&served);
    let session = served.session("/mcp/a").await;
    let list = session.ask(1, "tools/list", json!({})).await;
    let before = pids(&admin).await;
    assert_eq!(before.as_array().map(Vec::len), Some(1), "{before}");

    let restart = async |name: &str, headers: &[(&str, &str)]| {
        let (status, answer) =
            admin.send(Method::POST, &format!("/resilience/servers/{name}/restart"), headers).await;
        (status.as_u16(), serde_json::from_str::<Value>(&answer).unwrap()["restarts"].clone())
    };
    let key = format!("Bearer {TOKEN}");
    let key = [("authorization", key.as_str())];
    assert_eq!((restart("a", &[]).await.0, restart("b", &key).await.0), (401, 404));
    assert_eq!(pids(&admin).await, before, "nothing happened yet");
    assert_eq!(restart("a", &key).await, (200, json!(0)), "the server's status, as it still is");

    until("another process is there", async || {
        let now = pids(&admin).await;
        now != before && now.as_array().map(Vec::len) == Some(1)
    })
    .await;
    let answer =
        session.ask(2, "tools/call", json!({"name": "test_simple_text", "arguments": {}})).await;
    assert!(answer["result"]["isError"].is_null(), "{answer}");
    assert_eq!(session.ask(1, "tools/list", json!({})).await, list);
}
