//! How conversations end: when the client goes, when the gateway goes, and never by themselves.

use super::client::{Client, FACES, Face};
use super::server::{KINDS, Kind, Server};

/// How a server sees that a conversation ended as it should.
pub(crate) fn farewell(kind: Kind) -> &'static str {
    match kind {
        Kind::Sse => "gone",
        Kind::Ws => "close 1000",
    }
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_conversation_with_it() {
    for kind in KINDS {
        let server = Server::start(kind);
        let mut piped = Client::of(Face::Run, &server.url()).await;
        piped.greet().await;
        piped.leave().await;
        server.saw(farewell(kind), 1).await;
        assert!(piped.ended().await.success());

        let mut first = Client::of(Face::Serve, &server.url()).await;
        first.greet().await;
        let mut second = first.beside();
        second.greet().await;
        first.leave().await;
        server.saw(farewell(kind), 2).await;
        // The other client's is untouched.
        let called = second.call("test_simple_text", serde_json::json!({})).await;
        assert_eq!(called.get("isError"), None, "{kind:?}");
        assert_eq!(server.seen.count(farewell(kind)), 2);
    }
}

#[tokio::test]
async fn a_gateway_that_is_told_to_end_says_goodbye_and_is_gone() {
    for (face, kind) in FACES.iter().flat_map(|face| KINDS.map(|kind| (*face, kind))) {
        let server = Server::start(kind);
        let mut client = Client::of(face, &server.url()).await;
        client.greet().await;
        client.terminate();
        server.saw(farewell(kind), 1).await;
        assert!(client.ended().await.success(), "{face:?} {kind:?}");
    }
}

#[tokio::test]
async fn a_ping_of_the_server_is_answered() {
    let server = Server::start(Kind::Ws);
    let mut client = Client::of(Face::Run, &server.url()).await;
    client.greet().await;
    server.saw("pong alive?", 1).await;
}
