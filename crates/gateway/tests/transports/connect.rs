//! A conversation as its owner holds it: how long it may take to open, and that it ends when it is
//! told to.

use std::sync::Arc;

use bytes::Bytes;
use seawall_gateway::Era;
use seawall_gateway::HandshakeParams;
use seawall_gateway::Lifecycle;
use seawall_gateway::{ClientSink, NoClient};
use seawall_gateway::{Config, StartupConfig};
use seawall_gateway::{Connection, Server, UpstreamFailure, http_client};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::client::PATIENCE;
use super::ending::farewell;
use super::server::{KINDS, Kind, Server as Fixture};

/// What handshake a conversation with the server at `url` comes to.
async fn open(url: &str, lifecycle: &Arc<Lifecycle>) -> Result<Arc<Connection>, UpstreamFailure> {
    let config = Config::for_url(Some("it"), url).unwrap().servers.remove(0);
    let once = StartupConfig { attempts: 1, ..StartupConfig::default() };
    let server = Server::new(
        config,
        once,
        http_client::SharedHttpClient::default(),
        Arc::clone(lifecycle),
        Arc::default(),
        seawall::Env::new(),
    );
    let handshake = HandshakeParams {
        headers: Default::default(),
        prefer: Era::Legacy,
        initialize: Bytes::from("{}"),
        meta: Bytes::from("{}"),
    };
    let nowhere: Arc<dyn ClientSink> = Arc::new(NoClient);
    server.open(&handshake, &nowhere).await
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_the_connection_and_says_nothing_is_waited_for_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for url in [format!("ws://{address}/ws"), format!("http://{address}/sse")] {
        let began = Instant::now();
        let failure = open(&url, &Arc::default()).await.err().unwrap();
        assert_eq!(
            failure,
            UpstreamFailure::Unreachable("no connection within 10 s".to_owned()),
            "{url}"
        );
        assert_eq!(began.elapsed().as_secs(), 10, "{url}");
    }
}

#[tokio::test]
async fn a_gateway_that_ends_waits_for_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for url in [format!("ws://{address}/ws"), format!("http://{address}/sse")] {
        let lifecycle = Arc::new(Lifecycle::default());
        let ending = async {
            let _connection = listener.accept().await.unwrap();
            lifecycle.end().await;
            std::future::pending::<()>().await;
        };
        let opened = tokio::select! {
            opened = tokio::time::timeout(PATIENCE, open(&url, &lifecycle)) => opened.unwrap(),
            () = ending => unreachable!(),
        };
        assert_eq!(
            opened.err().unwrap(),
            UpstreamFailure::Unreachable("the gateway is going down".to_owned()),
            "{url}"
        );
    }
}

#[tokio::test]
async fn a_conversation_ends_when_it_is_told_to_whoever_still_holds_it() {
    for kind in KINDS {
        let (server, lifecycle) = (Fixture::start(kind), Arc::default());
        let connection = open(&server.url(), &lifecycle).await.unwrap();

        connection.ended.cancel();

        server.saw(farewell(kind), 1).await;
        let asked = connection.ask("tools/list", b"{}").await;
        assert!(asked.is_err(), "{kind:?}");
    }
}

#[tokio::test]
async fn a_gateway_that_ends_waits_for_its_conversations_to_end() {
    for kind in KINDS {
        let (server, lifecycle) = (Fixture::start(kind), Arc::default());
        let connection = open(&server.url(), &lifecycle).await.unwrap();

        tokio::time::timeout(PATIENCE, lifecycle.end()).await.unwrap();

        assert!(!connection.is_alive(), "{kind:?}");
        // Not later: a WebSocket's goodbye is part of its end.
        assert!(kind == Kind::Sse || server.seen.count(farewell(kind)) == 1, "{kind:?}");
        server.saw(farewell(kind), 1).await;
    }
}
