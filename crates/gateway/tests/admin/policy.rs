//! How a tool is treated, asked of the gateway that treats it.

use http::Method;
use serde_json::json;

use super::admin_api::{ADMIN, AdminApi, TOKEN};
use super::kit::{Served, fixture};
use super::server::{End, Faulty, call};

async fn well() -> Faulty {
    Faulty::start(|_, _, _| End::Text("well")).await
}

#[tokio::test]
async fn a_running_gateway_explains_what_its_servers_listed() {
    let server = well().await;
    let served =
        server.served(&format!("{ADMIN}[kinds.write]\nretry = {{ attempts = 5 }}\n")).await;
    let admin = AdminApi::of(&served);
    assert_eq!(admin.get("/resilience/policy/get_issue").await.0, 404, "nobody has listed it yet");
    let session = served.session("/mcp/gh").await;
    call(&session, "get_issue", json!({})).await;

    let (status, told) = admin.get("/resilience/policy/get_issue").await;
    assert_eq!((status.as_u16(), &told["listed"]), (200, &json!(true)), "{told}");
    let effect = &told["values"]["effect"];
    assert_eq!(
        (&effect["value"], &effect["from"]),
        (&json!("read_only"), &json!("annotation")),
        "{effect}"
    );
    let (_, write) = admin.get("/resilience/policy/gh%2Fcreate_issue").await;
    let attempts = &write["values"]["retry.attempts"];
    assert_eq!(
        (&attempts["value"], &attempts["place"]),
        (&json!(5), &json!("[kinds.write]")),
        "{attempts}"
    );
    assert!(
        attempts["line"].is_u64() && attempts["file"].as_str().unwrap().ends_with("seawall.toml"),
        "{attempts}"
    );

    let (status, why) = admin.get("/resilience/policy/get_isue").await;
    assert!(
        status == 404 && why["error"].as_str().unwrap().contains("did you mean \"get_issue\"?"),
        "{why}"
    );
    assert_eq!(
        admin.send(Method::POST, "/resilience/policy/get_issue", &[("x-api-key", TOKEN)]).await.0,
        405
    );
}

#[tokio::test]
async fn among_several_servers_a_tool_has_its_public_name() {
    let served =
        Served::with(&format!("{ADMIN}{}{}", fixture("one", "legacy"), fixture("two", "modern")))
            .await;
    let (session, admin) = (served.session("/mcp").await, AdminApi::of(&served));
    session.ask(1, "tools/list", json!({})).await;
    assert_eq!(admin.get("/resilience/policy/two__slow").await.1["server"], "two");
    let (status, why) = admin.get("/resilience/policy/slow").await;
    assert!(
        status == 404 && why["error"].as_str().unwrap().contains("one, two have a tool \"slow\""),
        "{why}"
    );
}
