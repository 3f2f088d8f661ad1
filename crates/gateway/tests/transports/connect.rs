//! How long a connection may take.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seawall_gateway::call::{Nowhere, Outlet};
use seawall_gateway::ops::config::Config;
use seawall_gateway::ops::lifecycle::Lifecycle;
use seawall_gateway::upstream::handshake::Opening;
use seawall_gateway::upstream::{Failure, Server, client};
use seawall_gateway::wire::names::Era;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// A server at `url`, and what opening a conversation with it comes to.
async fn open(url: &str, lifecycle: &Arc<Lifecycle>) -> Failure {
    let config = Config::for_url(Some("it"), url).unwrap().servers.remove(0);
    let server = Server::new(config, client::client().unwrap(), Arc::clone(lifecycle));
    let opening = Opening { prefer: Era::Legacy, initialize: Bytes::from("{}"), meta: Bytes::from("{}") };
    let nowhere: Arc<dyn Outlet> = Arc::new(Nowhere);
    server.open(&opening, &nowhere).await.err().expect("nobody is there")
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_the_connection_and_says_nothing_is_waited_for_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    for url in [format!("ws://{address}/ws"), format!("http://{address}/sse")] {
        let began = Instant::now();
        let failure = open(&url, &Arc::default()).await;
        assert_eq!(failure, Failure::Unreachable("no connection within 10 s".to_owned()), "{url}");
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
        let failure = tokio::select! {
            failure = tokio::time::timeout(Duration::from_secs(5), open(&url, &lifecycle)) => failure.unwrap(),
            () = ending => unreachable!(),
        };
        assert_eq!(failure, Failure::Unreachable("the gateway is going down".to_owned()), "{url}");
    }
}
