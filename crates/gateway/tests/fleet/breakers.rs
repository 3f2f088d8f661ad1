//! Breakers of a fleet: a quorum opens them, one probe closes them, an operator reaches them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::kit::until;
use super::replicas::{ONCE, open, redis, replica, replicas, took};
use super::server::{End, Faulty, call, failure, text};

/// The time within which every replica has to know.
const KNOWN: Duration = Duration::from_secs(1);

fn policies(cooldown: &str) -> String {
    format!("{ONCE}breaker = {{ failures = 2, cooldown = \"{cooldown}\" }}\n")
}

/// A server that is down until it is told to be well.
async fn patient() -> (Faulty, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let looked = Arc::clone(&is_well);
    let end = move |_: &str, _, _: &Value| match looked.load(Ordering::SeqCst) {
        true => End::Text("well"),
        false => End::Status("503 Service Unavailable", "", ""),
    };
    (Faulty::start(end).await, is_well)
}

#[tokio::test]
async fn one_replica_opens_nobody_elses_breaker_and_two_open_the_third_within_a_second() {
    let Some((_folder, redis)) = redis().await else { return };
    let (server, _) = patient().await;
    let all = replicas(3, &redis, &server, &policies("10m"), "").await;
    let (one, two) = (all[0].session().await, all[1].session().await);
    let _third = all[2].session().await;
    open(&one, "get_issue").await;
    let seen = json!({"gh/get_issue": {"replicas": 1, "quorum": false}});
    for other in &all[1..] {
        let told = took("it is told", async || other.fleet().await["open"] == seen).await;
        assert!(told < KNOWN, "{told:?}");
        assert!(other.is("get_issue", "closed").await, "one is no quorum");
    }
    open(&two, "get_issue").await;
    let opened = took("the third opens", async || all[2].is("get_issue", "open").await).await;
    println!("the third opened after {opened:?}");
    assert!(opened < KNOWN, "{opened:?}");
    assert_eq!(server.calls("get_issue"), 4, "the third sent none");
    let detail = all[2].breaker("get_issue").await;
    assert!(detail["retryAfterMs"].as_u64().unwrap() > 590_000, "{detail}");
    assert!(all[2].is("list_issues", "closed").await, "no other tool is meant");
}

#[tokio::test]
async fn a_whole_fleet_sends_one_probe_a_cool_down_and_its_success_closes_all() {
    let Some((_folder, redis)) = redis().await else { return };
    let (server, is_well) = patient().await;
    let all = replicas(3, &redis, &server, &policies("2s"), "").await;
    let sessions = join_all(all.iter().map(|one| one.session())).await;
    for session in &sessions {
        open(session, "get_issue").await;
    }
    let before = server.calls("get_issue");
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_secs(7) {
        let calls = sessions.iter().map(|session| call(session, "get_issue", json!({})));
        for answer in join_all(calls).await {
            assert!(failure(&answer)["code"].is_string(), "{answer}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let probes = server.calls("get_issue") - before;
    println!("{probes} probes in 7 s of 2 s cool-downs, 3 replicas");
    assert!((1..=3).contains(&probes), "{probes} probes in 7 s, at most one in 2 s");

    is_well.store(true, Ordering::SeqCst);
    until("a probe gets through", async || {
        let calls = sessions.iter().map(|session| call(session, "get_issue", json!({})));
        join_all(calls).await.iter().any(|answer| answer["result"]["isError"] != true)
    })
    .await;
    for one in &all {
        let closed = took("it closes", async || one.is("get_issue", "closed").await).await;
        assert!(closed < KNOWN, "{closed:?}");
    }
    for session in &sessions {
        assert_eq!(text(&call(session, "get_issue", json!({})).await), "well");
    }
}

#[tokio::test]
async fn what_an_operator_does_at_one_replica_all_do_also_one_that_comes_later() {
    let Some((_folder, redis)) = redis().await else { return };
    let (server, is_well) = patient().await;
    let all = replicas(2, &redis, &server, &policies("10m"), "").await;
    let sessions = join_all(all.iter().map(|one| one.session())).await;
    for session in &sessions {
        open(session, "get_issue").await;
    }
    is_well.store(true, Ordering::SeqCst);
    let token = format!("Bearer {}", super::admin_api::TOKEN);
    all[0].admin.reset("get_issue", &[("authorization", &token)]).await;
    let reset = took("it is reset", async || all[1].is("get_issue", "closed").await).await;
    assert!(reset < KNOWN, "{reset:?}");

    let forced = |status: &'static str, mode: &'static str| {
        move |detail: &Value| detail["status"] == status && detail["mode"] == mode
    };
    assert_eq!(all[1].admin.force("get_issue", "open").await.0, 200);
    let is_held = forced("open", "forced_open");
    let held = took("it is held open", async || is_held(&all[0].breaker("get_issue").await)).await;
    assert!(held < KNOWN, "{held:?}");
    redis.wipe().await.unwrap();
    let late = replica(&redis, &server, &policies("10m"), "").await;
    let _listed = late.session().await;
    until("the late one holds it too", async || is_held(&late.breaker("get_issue").await)).await;
    assert_eq!(late.admin.force("get_issue", "auto").await.0, 200);
    for one in &all {
        let is_free = forced("closed", "auto");
        until("it is let go", async || is_free(&one.breaker("get_issue").await)).await;
    }
    assert_eq!(text(&call(&sessions[0], "get_issue", json!({})).await), "well");
}

#[tokio::test]
async fn a_stranger_who_writes_to_redis_opens_and_forces_nothing() {
    let Some((_folder, redis)) = redis().await else { return };
    let (server, is_well) = patient().await;
    is_well.store(true, Ordering::SeqCst);
    let all = replicas(1, &redis, &server, &policies("10m"), "").await;
    let session = all[0].session().await;
    let forged = json!({"at": u32::MAX, "by": "x", "deed": {"force": "forced_open"}}).to_string();
    let signed = "x".repeat(32) + &forged;
    for text in [&forged, &signed] {
        redis.command(&["HSET", "seawall:v1:orders", "gh/get_issue", text]).await.unwrap();
        redis.command(&["PUBLISH", "seawall:v1:fleet", text]).await.unwrap();
        until("it is thrown away", async || {
            redis.command(&["HLEN", "seawall:v1:orders"]).await.unwrap() == ["0"]
        })
        .await;
    }
    assert_eq!(text(&call(&session, "get_issue", json!({})).await), "well");
    assert_eq!(all[0].fleet().await["open"], json!({}));
}
