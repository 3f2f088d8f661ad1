//! A Redis that hangs, dies, is wiped and comes back: no call fails of it, and none waits for it.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::kit::until;
use super::replicas::{ONCE, met, open, redis, replicas};
use super::server::{End, Faulty, call, failure, text};

#[tokio::test]
async fn calls_go_on_without_redis_and_the_fleet_finds_together_again() {
    let Some((_folder, mut redis)) = redis().await else { return };
    let end = |tool: &str, _, _: &serde_json::Value| match tool {
        "get_issue" => End::Text("well"),
        _ => End::Status("503 Service Unavailable", "", ""),
    };
    let server = Faulty::start(end).await;
    let policies = format!("{ONCE}breaker = {{ failures = 2, cooldown = \"100ms\" }}\n");
    let all = replicas(2, &redis, &server, &policies, "").await;
    let session = all[0].session().await;
    let mut events = all[0].admin.tap("", &[]).await.unwrap();

    redis.freeze().unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..100 {
        let began = Instant::now();
        assert_eq!(text(&call(&session, "get_issue", json!({})).await), "well");
        slowest = slowest.max(began.elapsed());
    }
    println!("the slowest of 100 calls beside a frozen Redis took {slowest:?}");
    // Of a tool whose breaker is due for a probe, which would ask Redis.
    open(&session, "list_issues").await;
    let mut probes = 0;
    for _ in 0..40 {
        let began = Instant::now();
        let answer = call(&session, "list_issues", json!({})).await;
        let took = began.elapsed();
        assert!(took < Duration::from_millis(500), "{took:?}");
        probes += usize::from(failure(&answer)["code"] == "UPSTREAM_ERROR");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(probes > 0, "it probes by what it knows itself");
    events.until(|event| event["event"] == "store_away").await;
    let fleet = all[0].fleet().await;
    assert_eq!(fleet["redis"], "away", "{fleet}");
    assert!(all[0].admin.scrape().await.text.contains("\nseawall_redis_connected 0\n"));

    redis.thaw().unwrap();
    events.until(|event| event["event"] == "store_connected").await;
    met(&all).await;
    redis.wipe().await.unwrap();
    until("the fleet is there again", async || {
        redis.command(&["ZCARD", "seawall:v1:replicas"]).await.unwrap() == ["2"]
    })
    .await;

    redis.kill().await.unwrap();
    events.until(|event| event["event"] == "store_away").await;
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "well");
    redis.restart().await.unwrap();
    met(&all).await;
    until("it says so", async || {
        let scrape = all[0].admin.scrape().await.text;
        scrape.contains("\nseawall_redis_connected 1\n")
            && scrape.contains("\nseawall_fleet_replicas 2\n")
    })
    .await;
    let lines = redis.command(&["KEYS", "*"]).await.unwrap();
    for key in lines {
        let ttl = redis.command(&["PTTL", &key]).await.unwrap();
        assert!(key.starts_with("seawall:v1:") && ttl[0] != "-1", "{key} stays for ever");
    }
}

#[tokio::test]
async fn a_gateway_starts_and_serves_without_redis() {
    let Some((_folder, mut redis)) = redis().await else { return };
    redis.kill().await.unwrap();
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let all = replicas(1, &redis, &server, ONCE, "").await;
    let session = all[0].session().await;
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "well");
    assert_eq!(all[0].fleet().await["redis"], "away");
    redis.restart().await.unwrap();
    until("it joins", async || all[0].fleet().await["redis"] == "connected").await;
}
