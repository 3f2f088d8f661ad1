//! A server that never comes up: how often it is tried, and the failures that waiting calls get.
//! Time is paused.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::config::{Config, ReconnectConfig, StartupConfig};
use crate::protocol::limits;
use crate::protocol::names::Era;
use crate::runtime::http_client;
use crate::runtime::lifecycle::Lifecycle;
use crate::upstream::call::NoClient;
use crate::upstream::processes::Processes;

/// The supervisor of a server whose process never gets a permit.
fn hopeless(reconnect: ReconnectConfig) -> (Arc<ConnectionSupervisor>, Arc<Lifecycle>) {
    let mut config =
        Config::for_command(Some("it"), vec!["sh".to_owned()]).unwrap().servers.remove(0);
    config.life.reconnect = reconnect;
    let lifecycle = Arc::new(Lifecycle::default());
    let processes: Arc<Processes> = Arc::default();
    processes.close();
    let (http, env) = (http_client::SharedHttpClient::default(), seawall::Env::new());
    let server =
        Server::new(config, StartupConfig::default(), http, Arc::clone(&lifecycle), processes, env);
    let handshake = HandshakeParams {
        prefer: Era::Legacy,
        initialize: "{}".into(),
        meta: "{}".into(),
        headers: Default::default(),
    };
    (
        ConnectionSupervisor::new(
            &server,
            handshake,
            Arc::new(NoClient),
            Box::new(|_| Box::pin(async {})),
        ),
        lifecycle,
    )
}

#[tokio::test(start_paused = true)]
async fn a_call_fails_with_the_limit_once_it_is_reached_and_tries_nothing_more() {
    let (supervisor, _lifecycle) =
        hopeless(ReconnectConfig { attempts: Some(3), ..ReconnectConfig::default() });
    let began = Instant::now();
    let failure = supervisor.connection(Duration::from_secs(60)).await.err().unwrap();
    assert_eq!(failure, UpstreamFailure::GivenUp(3));
    // 500 + 1000 + 2000 ms, with jitter.
    let took = began.elapsed().as_millis();
    assert!((2_900..=4_100).contains(&took), "{took}");
    let began = Instant::now();
    assert_eq!(
        supervisor.connection(Duration::from_secs(60)).await.err(),
        Some(UpstreamFailure::GivenUp(3))
    );
    assert_eq!(began.elapsed(), Duration::ZERO);

    supervisor.server.reconnect.forgive();
    let again = supervisor.connection(Duration::from_secs(1)).await.err().unwrap();
    assert!(matches!(again, UpstreamFailure::NoRoom(_)), "{again}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_by_hand_starts_over_at_once() {
    let (supervisor, _lifecycle) =
        hopeless(ReconnectConfig { attempts: Some(8), ..ReconnectConfig::default() });
    assert_eq!(
        supervisor.connection(Duration::from_secs(3600)).await.err(),
        Some(UpstreamFailure::GivenUp(8))
    );
    supervisor.server.restart();
    let failure = supervisor.connection(Duration::from_secs(100)).await.err().unwrap();
    assert!(matches!(failure, UpstreamFailure::NoRoom(_)), "{failure}");
    // A restart also ends the wait for the next try: with jitter, the eighth delay ends 105 to 142
    // s after the first restart.
    assert!(supervisor.server.reconnect.wait() > Duration::from_secs(2));
    supervisor.server.restart();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(supervisor.server.reconnect.wait() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_a_server_is_tried_for_ever() {
    let (supervisor, _lifecycle) = hopeless(ReconnectConfig::default());
    for _ in 0..100 {
        let failure = supervisor.connection(Duration::from_secs(59)).await.err().unwrap();
        assert_eq!(failure, UpstreamFailure::NoRoom(limits::PROCESSES));
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_gateway_ends_the_wait() {
    let (supervisor, lifecycle) =
        hopeless(ReconnectConfig { max: Duration::from_secs(1), ..ReconnectConfig::default() });
    let waiting = tokio::spawn({
        let supervisor = Arc::clone(&supervisor);
        async move { supervisor.connection(Duration::from_secs(3600)).await.err() }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    let began = Instant::now();
    lifecycle.end().await;
    let failure = waiting.await.unwrap().unwrap();
    assert_eq!(failure.to_string(), "could not be reached: the gateway is going down");
    assert_eq!(began.elapsed(), Duration::ZERO);
}
