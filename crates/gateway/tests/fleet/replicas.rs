//! Replicas on one Redis, and what each says of the others.

use std::time::Duration;

use futures_util::future::join_all;
use seawall_testkit::redis::RedisServer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use super::admin_api::{ADMIN, AdminApi};
use super::kit::{Served, Session, until};
use super::server::{Faulty, call};

/// One attempt each, so that calls and failures are the same number; two of them open a breaker.
pub(crate) const ONCE: &str =
    "[defaults]\nretry = { attempts = 1 }\nloop = { mode = \"off\" }\nfallback = []\n";

/// One gateway, and its operator.
pub(crate) struct Replica {
    pub(crate) served: Served,
    pub(crate) admin: AdminApi,
}

impl Replica {
    pub(crate) async fn session(&self) -> Session<'_> {
        let session = self.served.session("/mcp/gh").await;
        session.ask(1, "tools/list", json!({})).await;
        session
    }

    /// What it knows of the others.
    pub(crate) async fn fleet(&self) -> Value {
        let (status, answer) = self.admin.get("/resilience/fleet").await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    pub(crate) async fn breaker(&self, tool: &str) -> Value {
        self.admin.breakers().await["details"][tool].clone()
    }

    pub(crate) async fn is(&self, tool: &str, status: &str) -> bool {
        self.breaker(tool).await["status"] == status
    }
}

/// So many gateways before one server, which know each other.
pub(crate) async fn replicas(
    count: usize,
    redis: &RedisServer,
    server: &Faulty,
    policies: &str,
    of_server: &str,
) -> Vec<Replica> {
    let start = (0..count).map(|_| replica(redis, server, policies, of_server));
    let all: Vec<Replica> = join_all(start).await;
    met(&all).await;
    all
}

/// One more gateway.
pub(crate) async fn replica(
    redis: &RedisServer,
    server: &Faulty,
    policies: &str,
    of_server: &str,
) -> Replica {
    let store = format!("[store]\nredis = {:?}\n", redis.url());
    let served =
        Served::with(&server.config(&format!("{policies}{ADMIN}{store}"), of_server)).await;
    let admin = AdminApi::of(&served);
    Replica { served, admin }
}

/// Waits until each knows all others.
pub(crate) async fn met(all: &[Replica]) {
    for one in all {
        until("all are live", async || one.fleet().await["replicas"] == all.len()).await;
    }
}

/// A Redis, unless it is not installed.
pub(crate) async fn redis() -> Option<(TempDir, RedisServer)> {
    let folder = TempDir::new().unwrap();
    let redis = RedisServer::start(folder.path()).await.unwrap()?;
    Some((folder, redis))
}

/// Fails twice, which opens the breaker.
pub(crate) async fn open(session: &Session<'_>, tool: &str) {
    for _ in 0..2 {
        call(session, tool, json!({})).await;
    }
}

/// How long it took until something was so.
pub(crate) async fn took(what: &str, is_so: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    until(what, is_so).await;
    began.elapsed()
}
