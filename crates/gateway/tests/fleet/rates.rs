//! A server's rate is one rate for the whole fleet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::replicas::{ONCE, redis, replicas};
use super::server::{End, Faulty, call};

/// What the fleet sends in so long, when so many clients of each replica ask without a pause.
async fn sent(
    sessions: &[super::kit::Session<'_>],
    clients: &[usize],
    server: &Faulty,
    time: Duration,
) -> usize {
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let ask = async |replica: usize| {
        while !is_over.load(Ordering::SeqCst) {
            // No two are the same: those would share one answer.
            let number = count.fetch_add(1, Ordering::SeqCst);
            call(&sessions[replica], "get_issue", json!({"n": number})).await;
        }
    };
    let all = clients.iter().enumerate().flat_map(|(replica, count)| vec![replica; *count]);
    let all = join_all(all.map(ask));
    let watch = async {
        // The shares follow the calls of the last seconds.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let before = server.calls("get_issue");
        tokio::time::sleep(time).await;
        let sent = server.calls("get_issue") - before;
        is_over.store(true, Ordering::SeqCst);
        sent
    };
    tokio::join!(all, watch).1
}

#[tokio::test]
async fn three_replicas_send_what_one_may_whoever_gets_the_calls() {
    let Some((_folder, redis)) = redis().await else { return };
    let server = Faulty::start(|_, _, _| End::Text("well")).await;
    let all = replicas(3, &redis, &server, ONCE, "rate = \"40/s\"\n").await;
    let sessions = join_all(all.iter().map(|one| one.session())).await;
    for clients in [[4, 4, 4], [9, 3, 0]] {
        let time = Duration::from_secs(10);
        let sent = sent(&sessions, &clients, &server, time).await;
        let allowed = 400.0;
        println!("{clients:?} clients: {sent} of {allowed} calls");
        let off = (sent as f64 - allowed) / allowed;
        assert!(off < 0.05 && off > -0.10, "{clients:?}: {sent} calls instead of {allowed}");
    }
}
