//! A server that never comes: how often it is tried, and what whoever waits is told. Time is paused.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::*;
use crate::config::{Config, Reconnecting, StartupConfig};
use crate::protocol::limits;
use crate::protocol::names::Era;
use crate::runtime::lifecycle::Lifecycle;
use crate::upstream::call::Nowhere;
use crate::upstream::client;
use crate::upstream::processes::Processes;

/// The keeper of a server for which there is never room.
fn hopeless(reconnect: Reconnecting) -> (Arc<Keeper>, Arc<Lifecycle>) {
    let mut config = Config::for_command(Some("it"), vec!["sh".to_owned()]).unwrap().servers.remove(0);
    config.life.reconnect = reconnect;
    let lifecycle = Arc::new(Lifecycle::default());
    let processes: Arc<Processes> = Arc::default();
    processes.close();
    let (http, env) = (client::Shared::default(), seawall::Env::new());
    let server = Server::new(config, StartupConfig::default(), http, Arc::clone(&lifecycle), processes, env);
    let opening = Opening { prefer: Era::Legacy, initialize: "{}".into(), meta: "{}".into() };
    (Keeper::new(&server, opening, Arc::new(Nowhere), Box::new(|_| Box::pin(async {}))), lifecycle)
}

#[tokio::test(start_paused = true)]
async fn t14_a_call_fails_with_the_limit_once_it_is_reached_and_tries_nothing_more() {
    let (keeper, _lifecycle) = hopeless(Reconnecting { attempts: Some(3), ..Reconnecting::default() });
    let began = Instant::now();
    let failure = keeper.link(Duration::from_secs(60)).await.err().unwrap();
    assert_eq!(failure, Failure::GivenUp(3));
    // 500 + 1000 + 2000 ms, give or take.
    let took = began.elapsed().as_millis();
    assert!((2_900..=4_100).contains(&took), "{took}");
    let began = Instant::now();
    assert_eq!(keeper.link(Duration::from_secs(60)).await.err(), Some(Failure::GivenUp(3)));
    assert_eq!(began.elapsed(), Duration::ZERO);

    keeper.server.reconnect.forgive();
    let again = keeper.link(Duration::from_secs(1)).await.err().unwrap();
    assert!(matches!(again, Failure::NoRoom(_)), "{again}");
}

#[tokio::test(start_paused = true)]
async fn t14_a_restart_by_hand_starts_over_at_once() {
    let (keeper, _lifecycle) = hopeless(Reconnecting { attempts: Some(8), ..Reconnecting::default() });
    assert_eq!(keeper.link(Duration::from_secs(3600)).await.err(), Some(Failure::GivenUp(8)));
    keeper.server.restart();
    let failure = keeper.link(Duration::from_secs(100)).await.err().unwrap();
    assert!(matches!(failure, Failure::NoRoom(_)), "{failure}");
    // Also one that waits for its next try: the eighth delay ends 105 to 142 s after the restart, by chance.
    assert!(keeper.server.reconnect.wait() > Duration::from_secs(2));
    keeper.server.restart();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(keeper.server.reconnect.wait() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn t14_without_a_limit_it_is_tried_for_ever() {
    let (keeper, _lifecycle) = hopeless(Reconnecting::default());
    for _ in 0..100 {
        let failure = keeper.link(Duration::from_secs(59)).await.err().unwrap();
        assert_eq!(failure, Failure::NoRoom(limits::PROCESSES));
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn t14_the_end_of_the_gateway_ends_the_wait() {
    let (keeper, lifecycle) = hopeless(Reconnecting { max: Duration::from_secs(1), ..Reconnecting::default() });
    let waiting = tokio::spawn({
        let keeper = Arc::clone(&keeper);
        async move { keeper.link(Duration::from_secs(3600)).await.err() }
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    let began = Instant::now();
    lifecycle.end().await;
    let failure = waiting.await.unwrap().unwrap();
    assert_eq!(failure.to_string(), "could not be reached: the gateway is going down");
    assert_eq!(began.elapsed(), Duration::ZERO);
}
