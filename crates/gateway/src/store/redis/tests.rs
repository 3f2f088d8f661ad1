//! The connection beside a real Redis: it ends, hangs and comes back.

use std::time::Duration;

use seawall_testkit::redis::{PASSWORD, RedisServer};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{CALL_WAIT, Redis, RedisScript, RedisState, RedisTrouble, TASK_WAIT};
use crate::config::{RedisConfig, Secret};

fn config(url: &str) -> RedisConfig {
    RedisConfig {
        url: Secret::new(url),
        prefix: "t".to_owned(),
        key: Secret::new(PASSWORD),
        wait_replicas: 0,
        quorum_share: 0.5,
        quorum_min: 2,
    }
}

/// A handle and the task that keeps its connection.
fn open(config: &RedisConfig) -> (Redis, AbortOnDropHandle<()>) {
    let redis = Redis::new(config, &["news"]).unwrap();
    let kept = tokio::spawn(redis.keep(CancellationToken::new()));
    (redis, AbortOnDropHandle::new(kept))
}

async fn until(redis: &Redis, is_connected: bool) {
    let mut state = redis.state();
    let changed = state.wait_for(|state| state.is_connected() == is_connected);
    tokio::time::timeout(Duration::from_secs(30), changed).await.unwrap().unwrap();
}

#[tokio::test]
async fn values_and_messages_pass_and_those_of_strangers_do_not() {
    let folder = TempDir::new().unwrap();
    let Some(server) = RedisServer::start(folder.path()).await.unwrap() else { return };
    let (redis, _kept) = open(&config(&server.url()));
    assert_eq!(redis.get("k", CALL_WAIT).await, Err(RedisTrouble::Away), "before it is connected");
    until(&redis, true).await;

    let key = redis.key(&["kind", "name"]);
    assert_eq!(key, "t:v1:kind:name");
    redis.set(&key, b"value", Duration::from_secs(9), TASK_WAIT).await.unwrap();
    assert_eq!(redis.get(&key, TASK_WAIT).await, Ok(Some(b"value".to_vec())));
    assert_eq!(redis.get("t:v1:none", TASK_WAIT).await, Ok(None));
    server.command(&["COPY", &key, "t:v1:other"]).await.unwrap();
    assert_eq!(redis.get("t:v1:other", TASK_WAIT).await, Ok(None), "it was moved");
    server.command(&["SET", &key, "a stranger's"]).await.unwrap();
    assert_eq!(redis.get(&key, TASK_WAIT).await, Ok(None));

    let script = RedisScript::new("return {KEYS[1], ARGV[1], redis.call('TIME')[1]}");
    let told: (String, Vec<u8>, u64) =
        redis.eval(&script, std::slice::from_ref(&key), &[b"\xff"], TASK_WAIT).await.unwrap();
    assert_eq!((told.0, told.1), (key, vec![0xff]));
    let wrong: Result<(), _> =
        redis.eval(&RedisScript::new("return redis.call('NO')"), &[], &[], TASK_WAIT).await;
    assert!(matches!(wrong, Err(RedisTrouble::Failed(_))), "{wrong:?}");
    assert!(redis.state().borrow().is_connected(), "a refused command is no outage");

    let mut messages = redis.messages();
    redis.publish("news", b"hello", TASK_WAIT).await.unwrap();
    let heard = messages.recv().await.unwrap();
    assert_eq!(redis.unseal(&heard.channel, &heard.value), Some(&b"hello"[..]));
    assert_eq!(redis.is_replicated(CALL_WAIT).await, Ok(true), "none is asked for");
}

#[tokio::test]
async fn a_redis_that_hangs_costs_one_wait_and_one_that_died_none() {
    let folder = TempDir::new().unwrap();
    let Some(mut server) = RedisServer::start(folder.path()).await.unwrap() else { return };
    let (redis, _kept) = open(&config(&server.url()));
    until(&redis, true).await;

    server.freeze().unwrap();
    let began = Instant::now();
    let mut late = 0;
    for _ in 0..100 {
        match redis.get("k", CALL_WAIT).await {
            Err(RedisTrouble::Late) => late += 1,
            other => assert_eq!(other, Err(RedisTrouble::Away)),
        }
    }
    assert_eq!(late, 1, "who comes later does not wait");
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    until(&redis, false).await;
    server.thaw().unwrap();
    until(&redis, true).await;

    let mut messages = redis.messages();
    server.kill().await.unwrap();
    until(&redis, false).await;
    assert_eq!(redis.get("k", CALL_WAIT).await, Err(RedisTrouble::Away));
    let RedisState::Away { why, .. } = redis.state().borrow().clone() else { panic!() };
    assert!(!why.is_empty() && !why.contains(PASSWORD), "{why}");
    server.restart().await.unwrap();
    until(&redis, true).await;
    redis.publish("news", b"again", TASK_WAIT).await.unwrap();
    let heard = messages.recv().await.unwrap();
    assert_eq!(redis.unseal(&heard.channel, &heard.value), Some(&b"again"[..]), "heard anew");
}

#[tokio::test]
async fn a_wrong_password_or_a_peer_that_is_no_redis_is_an_outage_with_its_reason() {
    let folder = TempDir::new().unwrap();
    let Some(server) = RedisServer::start(folder.path()).await.unwrap() else { return };
    for url in [
        format!("redis://:not-{PASSWORD}@{}", server.address()),
        format!("rediss://:{PASSWORD}@{}", server.address()),
    ] {
        let (redis, _kept) = open(&config(&url));
        let mut state = redis.state();
        let told =
            |state: &RedisState| matches!(state, RedisState::Away { why, .. } if !why.is_empty());
        let told = tokio::time::timeout(Duration::from_secs(30), state.wait_for(told)).await;
        let told = format!("{:?}", *told.unwrap().unwrap());
        assert!(!told.contains(PASSWORD), "{told}");
    }
}
