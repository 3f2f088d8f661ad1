//! A client's own header reaches a server only by the server's own rule.

use serde_json::json;

use crate::client::Client;
use crate::kit::upstream::{answer, honest, write};
use crate::kit::{Asked, Entry, Gateway, Upstream, text};

/// A server that answers with the head of its request.
async fn telling() -> Upstream {
    Upstream::start(|asked: Asked, mut tcp| async move {
        let head = json!({"content": [{"type": "text", "text": asked.head}]});
        let said = if asked.is("tools/call") { answer(&asked, &head) } else { honest(&asked) };
        write(&mut tcp, &said).await;
    })
    .await
}

#[tokio::test]
async fn one_named_header_is_passed_on_under_another_name_and_nothing_else() {
    let (with, without) = (telling().await, telling().await);
    let rule = "pass_header = { from = \"x-caipe-provider-token\", to = \"authorization\", prefix = \"Bearer \", default = \"\" }";
    let entries = [Entry::url("with", &with.url).with(rule), Entry::url("without", &without.url)];
    let gateway = Gateway::serve(&entries).await;
    let ann =
        Client::new(&gateway, "/mcp").bearer("of ann").with("x-caipe-provider-token", "ann's");
    let bob = Client::new(&gateway, "/mcp").bearer("of bob");
    for (client, value) in [(&ann, "bearer ann's"), (&bob, "bearer")] {
        let session = client.session().await;
        let head = client.call(&session, "with__echo", json!({})).await;
        let head = text(&head).to_owned();
        let got = head.lines().find_map(|line| line.strip_prefix("authorization:")).map(str::trim);
        assert_eq!(got, Some(value), "{head}");
        let modern = client.modern_call("with__echo", json!({})).await.message();
        assert!(text(&modern).contains(&format!("authorization: {value}")), "{}", text(&modern));
        let head = client.call(&session, "without__echo", json!({})).await;
        assert!(
            !text(&head).contains("authorization") && !text(&head).contains("caipe"),
            "{}",
            text(&head)
        );
    }
    // The handshake carries it too, each client's own.
    let greeted: Vec<String> = with
        .seen()
        .iter()
        .filter(|asked| asked.is("initialize"))
        .filter_map(|asked| {
            asked.head.lines().find_map(|line| {
                line.strip_prefix("authorization:").map(|value| value.trim().to_owned())
            })
        })
        .collect();
    assert!(
        greeted.contains(&"bearer ann's".to_owned()) && greeted.contains(&"bearer".to_owned()),
        "{greeted:?}"
    );
    assert!(
        with.seen()
            .iter()
            .all(|asked| !asked.head.contains("of ann") && !asked.head.contains("of bob"))
    );
}

#[tokio::test]
async fn the_header_of_one_server_does_not_follow_the_call_to_another() {
    let (down, other) = (telling().await, telling().await);
    let down_url = down.url.clone();
    drop(down);
    let rule = "pass_header = { from = \"x-token\", to = \"authorization\" }";
    let fallback = "[tools.\"first/echo\"]\neffect = \"read_only\"\nfallback = [{ tool = \"other/echo\" }]\n\
                    [tools.\"other/echo\"]\neffect = \"read_only\"\n[reconnect]\nwait = \"1s\"\n";
    let entries = [Entry::url("first", &down_url).with(rule), Entry::url("other", &other.url)];
    let gateway = Gateway::serve_with(fallback, &entries).await;
    let client = Client::new(&gateway, "/mcp").with("x-token", "for the first alone");
    let session = client.session().await;
    client.ask(&session, "tools/list", json!({})).await;
    let answer = client.call(&session, "first__echo", json!({})).await;
    assert_eq!(answer["result"]["_meta"]["seawall/served"]["by"], "alternate", "{answer}");
    let seen = other.seen();
    assert!(seen.iter().any(|asked| asked.is("tools/call")));
    assert!(seen.iter().all(|asked| !asked.head.contains("for the first alone")), "{seen:?}");
}
