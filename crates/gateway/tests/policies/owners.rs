//! Resources and tasks on the endpoint of several servers: whom they are asked of, and who is not
//! waited for.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::kit::{Served, until};
use super::server::{End, Faulty};

/// A server with these resource templates: it has every resource that it is asked for.
async fn with_templates(templates: &'static [&'static str]) -> Faulty {
    Faulty::answering(move |_, method, _, _| match method {
        "resources/templates/list" => {
            let template = |uri: &&str| json!({"uriTemplate": uri, "name": uri});
            let listed: Vec<Value> = templates.iter().map(template).collect();
            Some(End::Result(json!({ "resourceTemplates": listed })))
        }
        "resources/list" => Some(End::Result(json!({"resources": []}))),
        "resources/read" => Some(End::Result(json!({"contents": []}))),
        "resources/subscribe" => Some(End::Result(json!({}))),
        _ => None,
    })
    .await
}

fn of(name: &str, server: &Faulty) -> String {
    format!("[servers.{name}]\nurl = \"{}\"\ntype = \"http\"\n", server.url)
}

#[tokio::test]
async fn a_resource_is_asked_of_the_server_whose_template_it_fits() {
    let one = with_templates(&["one://{id}", "file:///{+path}"]).await;
    let two = with_templates(&["two://{id}/part", "two://{id}{?page,size}"]).await;
    let served = Served::with(&format!("{}{}", of("one", &one), of("two", &two))).await;
    let all = served.session("/mcp").await;
    all.ask(1, "resources/templates/list", json!({})).await;
    let counts = |method: &str| (one.calls(method), two.calls(method));
    for (uri, expected) in [
        ("two://7/part", (0, 1)),
        ("two://7?page=2", (0, 2)),
        ("one://7", (1, 2)),
        ("file:///a/b", (2, 2)),
    ] {
        let read = all.ask(2, "resources/read", json!({ "uri": uri })).await;
        assert!(read["result"]["contents"].is_array(), "{read}");
        assert_eq!(counts("resources/read"), expected, "{uri}");
    }
    all.ask(3, "resources/subscribe", json!({"uri": "two://8/part"})).await;
    assert_eq!(counts("resources/subscribe"), (0, 1));
    let (_, modern) = served.modern("/mcp", "resources/read", json!({"uri": "two://9/part"})).await;
    assert!(modern["result"]["contents"].is_array(), "{modern}");
    assert_eq!(counts("resources/read"), (2, 3));
}

#[tokio::test]
async fn a_task_that_no_server_knows_waits_for_none_that_is_away_and_names_it() {
    let well = Faulty::answering(|_, method, _, _| match method {
        "tasks/get" => Some(End::Error(-32602, "there is no such task", Value::Null)),
        _ => None,
    })
    .await;
    let away = "[servers.gone]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let served = Served::with(&format!("{away}{}", of("well", &well))).await;
    let all = served.session("/mcp").await;
    let is_known = |list: &Value| list["result"]["_meta"]["seawall/servers"]["gone"].is_object();
    until("it is known to be away", async || is_known(&all.ask(1, "tools/list", json!({})).await))
        .await;
    let began = Instant::now();
    let task = all.ask(2, "tasks/get", json!({"taskId": "t1"})).await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}: {task}", began.elapsed());
    assert_eq!(task["error"]["code"], -32602, "{task}");
    let told = task["error"]["message"].as_str().unwrap();
    assert!(told.starts_with("there is no such task") && told.contains("gone"), "{told}");
    assert_eq!(task["error"]["data"]["away"], json!(["gone"]), "{task}");
    let read = all.ask(3, "resources/read", json!({"uri": "x://y"})).await;
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}: {read}", began.elapsed());
}

#[tokio::test]
async fn the_list_keeps_its_bytes_while_a_server_is_away_and_its_next_try_comes_nearer() {
    let well = with_templates(&[]).await;
    // It is tried again after a minute.
    let away = "[reconnect]\nbase = \"50s\"\n[servers.gone]\nurl = \"http://127.0.0.1:9/mcp\"\n";
    let served = Served::with(&format!("{away}{}", of("well", &well))).await;
    let all = served.session("/mcp").await;
    let gone = |list: &Value| list["result"]["_meta"]["seawall/servers"]["gone"].clone();
    until("it is known to be away", async || {
        gone(&all.ask(1, "tools/list", json!({})).await)["retryAfter"].is_u64()
    })
    .await;
    let first = all.ask(2, "tools/list", json!({})).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let second = all.ask(2, "tools/list", json!({})).await;
    assert_eq!(first.to_string(), second.to_string());
    assert!(matches!(gone(&first)["retryAfter"].as_u64(), Some(30 | 60 | 120)), "{first}");
}
