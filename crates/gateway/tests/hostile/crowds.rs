//! Many at once: slow ones that hold what they can, and honest ones that all say the same.

use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::kit::client::{modern_begin, modern_request, tool_call};
use crate::kit::http::{self, whole};
use crate::kit::{Entry, Gateway, Legacy, MIB, before, failure, text, until, within};

/// The attackers are ourselves, and need descriptors.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(8_192, |most| most.min(8_192));
    if limit.current.is_some_and(|now| now < wanted) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    }
}

async fn started() -> (Gateway, Legacy) {
    allow_many_descriptors();
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    (gateway, client)
}

async fn slow(gateway: &Gateway, count: usize, start: &str) -> Vec<TcpStream> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut tcp = TcpStream::connect(gateway.address).await.unwrap();
        tcp.write_all(start.as_bytes()).await.unwrap();
        held.push(tcp);
    }
    held
}

/// A thousand connections that begin like this and go on byte by byte leave others as they were.
async fn healthy_among(start: &str, drip: &str) {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let mut held = slow(&gateway, 1_000, start).await;
    let calls = async {
        for _ in 0..10 {
            client.works("echo").await;
            Legacy::connect(&gateway, "/mcp/a").await.works("echo").await;
            for tcp in &mut held {
                // One that the gateway has had enough of is as good as one it suffers.
                let _closed = tcp.write_all(drip.as_bytes()).await;
            }
        }
    };
    // Sooner than slow bodies are given up.
    before(25, "twenty healthy calls", calls).await;
    memory.grew_at_most(100 * MIB);
    gateway.stop().await;
}

/// Clients that read nothing hold no more than the budget together; whose answer does not fit is
/// told so.
#[tokio::test]
async fn answers_that_nobody_reads_share_one_budget() {
    let gateway = Gateway::serve_with(
        "answer_memory = \"20MiB\"",
        &[Entry::scripted("a", &["--tag", "$TAG"])],
    )
    .await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let memory = gateway.memory();
    // Far more than the system buffers of such a connection hold.
    let big = json!({"bytes": 15 << 20});
    let call = tool_call(1, "big", big.clone()).to_string();
    let slow = Legacy::connect(&gateway, "/mcp/a").await;
    let unread = http::unread(gateway.address, "/mcp/a", &slow.headers(), &call).await;
    // Its answer has begun to come, so it has its share: without that, it might be the one that is
    // refused.
    within(10, "the answer begins", unread.readable()).await.unwrap();
    let mut refused = Vec::new();
    until(20, "the budget is used up", async || {
        let answer = client.call("big", big.clone()).await;
        let is_refused = answer["result"]["isError"] == true;
        refused.push(answer);
        is_refused
    })
    .await;
    let answer = refused.pop().unwrap();
    let failed = &answer["result"]["_meta"]["seawall/failure"];
    assert_eq!(
        (&failed["code"], &failed["mayHaveExecuted"]),
        (&json!("OVERLOADED"), &json!(true)),
        "{answer}"
    );
    let told = failure(&answer);
    assert!(
        told.starts_with("The answer of big has ")
            && told.ends_with("It was executed: check before you repeat it."),
        "{told}"
    );
    // Nobody else is harmed, also not by twenty more.
    let headers = slow.headers();
    let calls: Vec<String> =
        (2..22).map(|id| tool_call(id, "big", big.clone()).to_string()).collect();
    let more =
        join_all(calls.iter().map(|call| http::unread(gateway.address, "/mcp/a", &headers, call)))
            .await;
    for _ in 0..5 {
        client.works("echo").await;
        assert_eq!(client.call("big", big.clone()).await["result"]["isError"], true);
    }
    memory.grew_at_most(150 * MIB);
    drop((unread, more));
    until(20, "there is room again", async || {
        client.call("big", big.clone()).await["result"]["isError"] != true
    })
    .await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_thousand_slow_heads_leave_others_as_they_were() {
    healthy_among("POST /mcp/a HTTP/1.1\r\nhost: localhost\r\nx-slow: ", "y").await;
}

#[tokio::test]
async fn a_thousand_slow_bodies_leave_others_as_they_were() {
    let head = "POST /mcp/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n\r\n";
    healthy_among(&format!("{head}{}", "{".repeat(1_000)), " ").await;
}

#[tokio::test]
async fn a_thousand_that_say_nothing_leave_others_as_they_were() {
    healthy_among("PRI * HT", "").await;
}

#[tokio::test]
async fn connections_that_have_not_asked_give_way_the_oldest_first() {
    let (gateway, client) = started().await;
    let listening = client.begin(1, "delay", json!({"ms": 3_000, "text": "done"}));
    let crowd = async {
        client.counted("delayed", 1).await;
        let mut held = Vec::new();
        for start in ["", "P", "POST /mcp/a HTTP/1.1\r\nhost: localhost\r\nx-slow: "] {
            held.extend(slow(&gateway, 700, start).await);
            // Sooner than slow ones are given up.
            before(9, "a healthy call", async {
                client.works("echo").await;
                Legacy::connect(&gateway, "/mcp/a").await.works("echo").await;
            })
            .await;
        }
        let read = before(9, "the oldest is closed", held[0].read(&mut [0; 1])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
        held
    };
    let (done, held) = tokio::join!(listening, crowd);
    assert_eq!(text(&whole(done).await.message()), "done", "who has asked is not closed");
    drop(held);
    gateway.stop().await;
}

#[tokio::test]
async fn the_connection_after_the_last_is_closed_and_the_next_is_welcome_when_one_goes() {
    let (gateway, client) = started().await;
    // They have asked, and do not come to an end.
    let head = "POST /mcp/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 4000\r\n\r\n{";
    let mut held = slow(&gateway, 1_100, head).await;
    // One whose head is not read yet gives way to it, and a place may be free again: it is filled
    // like the others. Once all are read, the next is the one too many.
    until(20, "one too many is closed", async || {
        let mut one_too_many = TcpStream::connect(gateway.address).await.unwrap();
        // Far sooner than a slow one is given up.
        let read =
            tokio::time::timeout(Duration::from_secs(1), one_too_many.read(&mut [0; 1])).await;
        let is_closed = matches!(read, Ok(Ok(0) | Err(_)));
        if !is_closed {
            let _closed = one_too_many.write_all(head.as_bytes()).await;
            held.push(one_too_many);
        }
        is_closed
    })
    .await;
    held.truncate(100);
    until(5, "there is room again", async || {
        let call = tool_call(1, "echo", json!({"text": "x"})).to_string();
        let head = format!("POST /mcp/a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\nmcp-session-id: {}\r\ncontent-length: {}\r\n\r\n{call}", client.session, call.len());
        let Ok(mut tcp) = TcpStream::connect(gateway.address).await else { return false };
        let mut answer = String::new();
        tcp.write_all(head.as_bytes()).await.is_ok() && tcp.read_to_string(&mut answer).await.is_ok() && answer.contains("\"x\"")
    })
    .await;
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_with_few_descriptors_raises_its_limit() {
    allow_many_descriptors();
    let gateway = Gateway::serve_limited(256, &[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let held = slow(&gateway, 500, "GET").await;
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count();
    until(5, "all are let in", async || descriptors() > 500).await;
    client.works("echo").await;
    Legacy::connect(&gateway, "/mcp/a").await.works("echo").await;
    drop(held);
    gateway.stop().await;
}

/// Sixty-four legacy clients call at once, all with id 1; each hears its own text.
async fn each_hears_its_own(entry: Entry, path: &str, tool: &str) {
    let gateway = Gateway::serve(&[entry, Entry::scripted("z", &["--tag", "$TAG"])]).await;
    let clients = join_all((0..64).map(|_| Legacy::connect(&gateway, path))).await;
    for round in 0..3_u64 {
        let calls = clients.iter().enumerate().map(|(number, client)| async move {
            let said = format!("round {round} client {number}");
            let delay = (number as u64 * 37 + round * 13) % 50;
            let answer = whole(client.begin(1, tool, json!({"ms": delay, "text": said})).await)
                .await
                .message();
            assert_eq!((text(&answer), &answer["id"]), (said.as_str(), &json!(1)));
        });
        within(20, "all answers", join_all(calls)).await;
    }
    gateway.stop().await;
}

#[tokio::test]
async fn sixty_four_clients_with_the_same_id_hear_their_own_answers() {
    each_hears_its_own(Entry::scripted("a", &["--tag", "$TAG"]), "/mcp/a", "delay").await;
}

#[tokio::test]
async fn sixty_four_clients_of_a_shared_server_hear_their_own_answers() {
    each_hears_its_own(Entry::scripted("a", &["--tag", "$TAG"]).shared(), "/mcp/a", "delay").await;
}

#[tokio::test]
async fn sixty_four_modern_clients_with_the_same_id_hear_their_own_answers() {
    let gateway = Gateway::serve(&[
        Entry::scripted("a", &["--tag", "$TAG"]),
        Entry::scripted("b", &["--tag", "$TAG"]),
    ])
    .await;
    for path in ["/mcp/a", "/mcp"] {
        let calls = (0..64_u64).map(|number| {
            let tool = if path == "/mcp" {
                ["a__delay", "b__delay"][number as usize % 2]
            } else {
                "delay"
            };
            let said = format!("client {number}");
            let arguments = json!({"ms": number * 37 % 50, "text": said});
            let request =
                modern_request(1, "tools/call", json!({"name": tool, "arguments": arguments}));
            let gateway = &gateway;
            async move {
                let answer =
                    whole(modern_begin(gateway.address, path, &request).await).await.message();
                assert_eq!((text(&answer), &answer["id"]), (said.as_str(), &json!(1)));
            }
        });
        within(20, "all answers", join_all(calls)).await;
    }
    gateway.stop().await;
}
