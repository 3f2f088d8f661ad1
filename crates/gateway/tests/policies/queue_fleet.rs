//! Writes that wait in a Redis that two gateways share: made once, whoever is killed, and read from
//! either.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use seawall_testkit::redis::RedisServer;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::kit::{Served, soon, until};
use super::server::{End, Faulty};

const PATH: &str = "/mcp/gh";
/// The same client at both gateways.
const ME: Option<&str> = Some("Bearer me");

/// Gateways on one Redis, before one server that is too busy until it is told to be well, and then
/// holds each call until it is let go.
struct Fleet {
    redis: RedisServer,
    _server: Faulty,
    is_well: Arc<AtomicBool>,
    hold: Arc<Semaphore>,
    /// The titles of the writes that it executed.
    executed: Arc<Mutex<Vec<String>>>,
    config: String,
    folder: TempDir,
}

impl Fleet {
    /// `None`: Redis is not installed.
    async fn start() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let redis = RedisServer::start(folder.path()).await.unwrap()?;
        let (is_well, hold) = (Arc::new(AtomicBool::new(false)), Arc::new(Semaphore::new(0)));
        let (looked, held) = (Arc::clone(&is_well), Arc::clone(&hold));
        let executed: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&executed);
        let server = Faulty::start(move |_, _, with| {
            if !looked.load(Ordering::SeqCst) {
                return End::Status("429 Too Many Requests", "", "");
            }
            log.lock().unwrap().extend(with["title"].as_str().map(str::to_owned));
            End::Held(Arc::clone(&held), "made")
        })
        .await;
        let policies = format!(
            "[store]\nredis = \"{}\"\n[defaults]\nretry = {{ attempts = 1 }}\nbreaker = {{ failures = 0 }}\n",
            redis.url()
        );
        let config = server.config(&policies, "");
        Some(Self { redis, _server: server, is_well, hold, executed, config, folder })
    }

    async fn gateway(&self) -> Served {
        Served::with(&self.config).await
    }

    /// Has a write queued; returns its resource.
    async fn queued(&self, gateway: &Served, title: &str) -> String {
        let params = json!({"name": "create_issue", "arguments": {"title": title}});
        let (_, answer) = gateway.modern_as(PATH, "tools/call", params, ME).await;
        let served = &answer["result"]["_meta"]["seawall/served"];
        assert_eq!(served["code"], "QUEUED", "{answer}");
        served["resource"].as_str().unwrap().to_owned()
    }

    fn executed(&self) -> Vec<String> {
        self.executed.lock().unwrap().clone()
    }
}

async fn became(gateway: &Served, resource: &str) -> Value {
    let (_, answer) = gateway.modern_as(PATH, "resources/read", json!({"uri": resource}), ME).await;
    match answer["result"]["contents"][0]["text"].as_str() {
        Some(text) => serde_json::from_str(text).unwrap(),
        None => answer,
    }
}

async fn is_state(gateway: &Served, resource: &str, state: &str) -> bool {
    became(gateway, resource).await["state"] == state
}

#[tokio::test]
async fn a_write_queued_at_one_gateway_is_made_once_by_either_and_read_from_both() {
    let Some(fleet) = Fleet::start().await else { return };
    let (one, two) = (fleet.gateway().await, fleet.gateway().await);
    let mut resources = Vec::new();
    for (n, gateway) in [&one, &two, &one, &two].into_iter().enumerate() {
        resources.push(fleet.queued(gateway, &format!("n{n}")).await);
    }
    fleet.hold.add_permits(100);
    fleet.is_well.store(true, Ordering::SeqCst);
    for gateway in [&one, &two] {
        for resource in &resources {
            until("it is made", async || is_state(gateway, resource, "delivered").await).await;
            let item = became(gateway, resource).await;
            assert_eq!(item["result"]["content"][0]["text"], "made", "{item}");
        }
    }
    assert_eq!(fleet.executed(), ["n0", "n1", "n2", "n3"], "once, and in order");
}

#[tokio::test]
async fn a_gateway_that_is_killed_under_a_delivery_leaves_it_uncertain_and_nobody_repeats_it() {
    let Some(fleet) = Fleet::start().await else { return };
    let mut one = fleet.gateway().await;
    let resource = fleet.queued(&one, "x").await;
    fleet.is_well.store(true, Ordering::SeqCst);
    until("it is sent", async || fleet.executed() == ["x"]).await;
    let two = fleet.gateway().await;
    assert!(is_state(&two, &resource, "delivering").await, "the other sees it");

    kill_process(Pid::from_raw(one.child.id().unwrap().cast_signed()).unwrap(), Signal::KILL)
        .unwrap();
    soon(one.child.wait()).await.unwrap();
    fleet.hold.add_permits(100);

    until("it is given up", async || is_state(&two, &resource, "dead").await).await;
    let item = became(&two, &resource).await;
    assert_eq!(
        (&item["mayHaveExecuted"], &item["note"]),
        (&json!(true), &json!("may have been executed when its gateway stopped")),
        "{item}"
    );
    // The line goes on: the next write is made, and the one in doubt is not sent again.
    fleet.is_well.store(false, Ordering::SeqCst);
    let next = fleet.queued(&two, "y").await;
    fleet.is_well.store(true, Ordering::SeqCst);
    until("the next is made", async || is_state(&two, &next, "delivered").await).await;
    assert_eq!(fleet.executed(), ["x", "y"]);
}

#[tokio::test]
async fn redis_that_dies_under_a_delivery_loses_nothing_and_repeats_nothing() {
    let Some(mut fleet) = Fleet::start().await else { return };
    let (one, two) = (fleet.gateway().await, fleet.gateway().await);
    let resource = fleet.queued(&one, "x").await;
    fleet.is_well.store(true, Ordering::SeqCst);
    until("it is sent", async || fleet.executed() == ["x"]).await;

    fleet.redis.kill().await.unwrap();
    fleet.hold.add_permits(100);
    let params = json!({"name": "get_issue", "arguments": {}});
    for gateway in [&one, &two] {
        let (_, answer) = gateway.modern_as(PATH, "tools/call", params.clone(), ME).await;
        assert_eq!(answer["result"]["content"][0]["text"], "made", "calls pass: {answer}");
    }
    fleet.redis.restart().await.unwrap();

    until("its end is recorded", async || {
        is_state(&one, &resource, "delivered").await || is_state(&one, &resource, "dead").await
    })
    .await;
    let item = became(&two, &resource).await;
    let is_honest = item["state"] == "delivered" || item["mayHaveExecuted"] == true;
    assert!(is_honest, "{item}");
    assert_eq!(fleet.executed(), ["x"], "it is not sent again");
}

#[tokio::test]
async fn what_waits_in_a_file_is_moved_to_redis_by_a_command_and_made_from_there() {
    let Some(fleet) = Fleet::start().await else { return };
    let store = fleet.folder.path().join("store");
    let redis = format!("redis = \"{}\"", fleet.redis.url());
    let path = format!("path = \"{}\"", store.display());
    let mut before = Served::with(&fleet.config.replace(&redis, &path)).await;
    let first = fleet.queued(&before, "x").await;
    fleet.queued(&before, "y").await;
    let both = fleet.config.replace(&redis, &format!("{redis}\n{path}"));
    let config = fleet.folder.path().join("both.toml");
    std::fs::write(&config, &both).unwrap();
    let moved = async || {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
        command.args(["queue", "move", "--to", "redis", "--config"]).arg(&config);
        let end = soon(command.output()).await.unwrap();
        let text = [end.stdout, end.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
        (end.status.success(), text)
    };
    let (is_done, said) = moved().await;
    assert!(!is_done && said.contains("in use by another process"), "{said}");
    kill_process(Pid::from_raw(before.child.id().unwrap().cast_signed()).unwrap(), Signal::TERM)
        .unwrap();
    soon(before.child.wait()).await.unwrap();

    let served = Served::with(&both).await;
    let warned = "holds 2 writes that nothing sends while [store] redis is set";
    assert!(served.log.lock().unwrap().iter().any(|line| line.contains(warned)));
    assert_eq!(moved().await, (true, "2 writes moved to Redis\n".to_owned()));
    assert_eq!(moved().await, (true, "0 writes moved to Redis\n".to_owned()));

    fleet.hold.add_permits(100);
    fleet.is_well.store(true, Ordering::SeqCst);
    until("both are made", async || fleet.executed() == ["x", "y"]).await;
    until("it can be read", async || is_state(&served, &first, "delivered").await).await;
}
