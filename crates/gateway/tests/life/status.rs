//! What is known of a server from outside, as the operator will read it.

use std::sync::Arc;
use std::time::Duration;

use seawall_gateway::Era;
use seawall_gateway::HandshakeParams;
use seawall_gateway::Lifecycle;
use seawall_gateway::NoClient;
use seawall_gateway::Observations;
use seawall_gateway::{Config, StartupConfig};
use seawall_gateway::{ConnectionSupervisor, Server, http_client};
use serde_json::json;

use crate::kit::process::scripted;
use crate::kit::until;
use crate::{Ledger, kill};

fn server(args: &[&str]) -> (Arc<Server>, Arc<ConnectionSupervisor>, Arc<Lifecycle>) {
    let command =
        std::iter::once(scripted()).chain(args.iter().copied()).map(str::to_owned).collect();
    let config = Config::for_command(Some("it"), command).unwrap().servers.remove(0);
    let lifecycle = Arc::new(Lifecycle::default());
    let (http, env) = (http_client::SharedHttpClient::default(), seawall::Env::new());
    let server = Server::new(
        config,
        StartupConfig::default(),
        http,
        Arc::clone(&lifecycle),
        Arc::default(),
        env,
    );
    let info = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let handshake = HandshakeParams {
        headers: Default::default(),
        prefer: Era::Legacy,
        initialize: info.to_string().into(),
        meta: "{}".into(),
    };
    let supervisor = ConnectionSupervisor::new(
        &server,
        handshake,
        Arc::new(NoClient),
        Box::new(|connection| Box::pin(async move { connection.initialized().await })),
    );
    (server, supervisor, lifecycle)
}

#[tokio::test]
async fn the_status_tells_pids_restarts_the_last_exit_and_what_was_said() {
    let (server, supervisor, lifecycle) = server(&["--noise"]);
    assert_eq!(server.status.seen().word(), "resting");
    let connection = supervisor.connection(Duration::from_secs(20)).await.unwrap();
    let before = server.status.seen();
    assert_eq!((before.word(), before.restarts, before.pids.len(), before.noise), ("up", 0, 1, 9));

    let lost = connection.ask("tools/call", br#"{"name": "only_wrong_id", "arguments": {}}"#);
    let killed = async {
        until(5, "the stray answer", async || server.status.seen().strays == 1).await;
        kill(before.pids[0].cast_signed());
    };
    assert!(tokio::join!(lost, killed).0.is_err());
    until(5, "it is back", async || server.status.seen().restarts == 1).await;

    let seen = server.status.seen();
    assert_eq!((seen.word(), seen.open, seen.noise), ("up", 1, 18));
    assert_eq!(seen.last_exit.as_deref(), Some("signal: 9 (SIGKILL)"));
    assert!(seen.last_error.unwrap().starts_with("lost: its process ended (signal: 9 (SIGKILL))"));
    until(5, "the dead process is struck off", async || {
        let pids = server.status.seen().pids;
        pids.len() == 1 && pids != before.pids
    })
    .await;
    drop(connection);
    supervisor.close().await;
    lifecycle.end().await;
    let seen = server.status.seen();
    assert_eq!((seen.word(), seen.pids.len()), ("resting", 0));
    assert_eq!(server.reconnect.wait(), Duration::ZERO, "to be closed is no failure");
}

#[tokio::test]
async fn the_last_words_of_a_server_that_cannot_start_are_kept() {
    let ledger = Ledger::new();
    let (server, supervisor, lifecycle) = server(&["--needs", ledger.path()]);
    supervisor.begin();
    until(5, "it is away", async || server.status.seen().word() == "away").await;
    let failure = supervisor.connection(Duration::ZERO).await.err().unwrap();
    assert!(failure.to_string().contains("what I need is not there"), "{failure}");
    let is_told = |seen: &Observations| {
        seen.stderr.iter().any(|line| line.contains("what I need is not there"))
    };
    until(5, "it is told", async || is_told(&server.status.seen())).await;
    until(5, "its end is told", async || server.status.seen().last_exit.is_some()).await;
    let seen = server.status.seen();
    assert_eq!((seen.word(), seen.last_exit.as_deref()), ("away", Some("exit status: 7")));
    supervisor.close().await;
    lifecycle.end().await;
}

#[tokio::test]
async fn a_restart_by_hand_gives_everybody_a_new_process_at_once() {
    let (server, supervisor, lifecycle) = server(&[]);
    let connection = supervisor.connection(Duration::from_secs(20)).await.unwrap();
    let before = server.status.seen().pids;
    server.restart();
    until(5, "the old one is told to go", async || !connection.is_alive()).await;
    let again = supervisor.connection(Duration::from_secs(20)).await.unwrap();
    assert!(again.ask("tools/list", b"{}").await.is_ok());
    assert_eq!(server.reconnect.last(), None, "a restart is no failure, so nothing is waited for");
    assert_ne!(server.status.seen().pids.last(), before.last());
    drop((connection, again));
    supervisor.close().await;
    lifecycle.end().await;
}
