//! Servers over HTTP that misbehave: the call fails with the reason or the answer still comes, and
//! the next call works.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::kit::client::{modern_begin, modern_request};
use crate::kit::upstream::{STREAM, answer, honest, response, write};
use crate::kit::{
    Asked, Entry, Gateway, Legacy, MIB, Upstream, failure, modern, shown, text, until, within,
};

const FROM_SERVER: u64 = 16 * MIB;

/// A server that answers the tool `attack` with what `respond` writes, and everything else
/// honestly.
async fn attacked<F, R>(respond: F) -> (Upstream, Gateway, Legacy)
where
    F: Fn(Asked, TcpStream) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let upstream = Upstream::start(move |asked, mut tcp| {
        let respond = respond.clone();
        async move {
            if asked.tool() == "attack" {
                return respond(asked, tcp).await;
            }
            write(&mut tcp, &honest(&asked)).await;
        }
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    (upstream, gateway, client)
}

/// The attack fails its call with this reason, in both eras, within this much memory, and the next
/// call works.
async fn breaks<F, R>(reason: &str, memory: u64, respond: F)
where
    F: Fn(Asked, TcpStream) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let (_upstream, gateway, client) = attacked(respond).await;
    let watched = gateway.memory();
    let answer = client.call("attack", json!({})).await;
    assert!(failure(&answer).contains(reason), "{}", shown(&answer));
    client.works("echo").await;
    let answer = modern(&gateway, "/mcp/a", "attack", json!({})).await.message();
    assert!(failure(&answer).contains(reason), "{}", shown(&answer));
    watched.grew_at_most(memory);
    client.works("echo").await;
    gateway.stop().await;
}

fn result_of(asked: &Asked, text: &str) -> Vec<u8> {
    let result = json!({"content": [{"type": "text", "text": text}]});
    json!({"jsonrpc": "2.0", "id": asked.message["id"], "result": result}).to_string().into_bytes()
}

fn event(message: &[u8]) -> Vec<u8> {
    [b"data: ", message, b"\n\n"].concat()
}

#[tokio::test]
async fn a_compressed_answer_is_refused_and_never_inflated() {
    let reason = "sent a message that cannot be read: not a JSON-RPC 2.0 message: it is compressed";
    for kind in ["application/json", "text/event-stream"] {
        breaks(reason, 8 * MIB, move |_, mut tcp: TcpStream| async move {
            let headers = format!("content-type: {kind}\r\ncontent-encoding: gzip\r\n");
            write(&mut tcp, &response("200 OK", &headers, &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0])).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_body_of_twenty_mebibytes_is_refused_with_and_without_a_length() {
    breaks(
        "larger than 16777216 bytes",
        10 * FROM_SERVER,
        |asked: Asked, mut tcp: TcpStream| async move {
            let body = result_of(&asked, &"x".repeat(20 << 20));
            write(&mut tcp, &response("200 OK", "content-type: application/json\r\n", &body)).await;
        },
    )
    .await;
    breaks(
        "larger than 16777216 bytes",
        10 * FROM_SERVER,
        |_: Asked, mut tcp: TcpStream| async move {
            write(
                &mut tcp,
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n",
            )
            .await;
            let piece = vec![b' '; 1 << 20];
            while write(&mut tcp, &piece).await {}
        },
    )
    .await;
}

#[tokio::test]
async fn a_body_in_chunks_of_one_byte_costs_no_more_than_ten_times_its_size() {
    const SIZE: usize = 1 << 18;
    let (_upstream, gateway, client) = attacked(|asked: Asked, mut tcp: TcpStream| async move {
        let body = result_of(&asked, &"x".repeat(SIZE));
        write(&mut tcp, b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
        let chunks: Vec<u8> = body.iter().flat_map(|byte| [b'1', b'\r', b'\n', *byte, b'\r', b'\n']).collect();
        write(&mut tcp, &[&chunks, b"0\r\n\r\n".as_slice()].concat()).await;
    })
    .await;
    let memory = gateway.memory();
    assert_eq!(text(&client.call("attack", json!({})).await).len(), SIZE);
    memory.grew_at_most(10 * SIZE as u64);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_event_without_an_end_is_refused() {
    for line in ["data: x", "", ": x", "data: x\n", "event: x", "id: x"] {
        let reason = "sent a message that cannot be read: larger than 16777216 bytes";
        breaks(reason, 10 * FROM_SERVER, move |_, mut tcp: TcpStream| async move {
            write(&mut tcp, STREAM).await;
            write(&mut tcp, line.as_bytes()).await;
            let piece = if line.ends_with('\n') {
                "data: xxxxxxxxxxxxxxxx\n".repeat(50_000)
            } else {
                "x".repeat(1 << 20)
            };
            while write(&mut tcp, piece.as_bytes()).await {}
        })
        .await;
    }
}

#[tokio::test]
async fn a_flood_of_events_does_not_keep_the_answer_from_its_caller() {
    let log = event(br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#);
    let (_upstream, gateway, client) = attacked(move |asked, mut tcp| {
        let flood = log.repeat(1_000);
        async move {
            write(&mut tcp, STREAM).await;
            for _ in 0..50 {
                write(&mut tcp, &flood).await;
            }
            write(&mut tcp, &event(&result_of(&asked, "survived"))).await;
            while write(&mut tcp, &flood).await {}
        }
    })
    .await;
    let memory = gateway.memory();
    assert_eq!(text(&client.call("attack", json!({})).await), "survived");
    assert_eq!(text(&modern(&gateway, "/mcp/a", "attack", json!({})).await.message()), "survived");
    memory.grew_at_most(16 * MIB);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_answer_that_is_not_one_fails_its_call() {
    let bodies: [(&[u8], &str); 6] = [
        (
            br#"{"jsonrpc":"2.0","id":987654,"result":{}}"#,
            "the answer carries another id than the request",
        ),
        (br#"{"jsonrpc":"2.0","id":null,"result":{}}"#, "an id must be a string"),
        (br#"[{"jsonrpc":"2.0","id":1,"result":{}}]"#, "batches of messages"),
        (br#"{"jsonrpc":"2.0","id":1,"id":2,"result":{}}"#, "the key 'id' stands twice"),
        (b"<html>", "not valid JSON at byte 0"),
        (b"", "not valid JSON at byte 0"),
    ];
    for (body, reason) in bodies {
        breaks(reason, 8 * MIB, move |_, mut tcp: TcpStream| async move {
            write(&mut tcp, &response("200 OK", "content-type: application/json\r\n", body)).await;
        })
        .await;
    }
}

#[tokio::test]
async fn an_error_page_is_shown_by_its_beginning() {
    breaks(
        "HTTP 500 Internal Server Error: <html>",
        8 * MIB,
        |_: Asked, mut tcp: TcpStream| async move {
            let page = format!("<html>\x1b[2J{}", "y".repeat(60_000));
            write(
                &mut tcp,
                &response(
                    "500 Internal Server Error",
                    "content-type: text/html\r\n",
                    page.as_bytes(),
                ),
            )
            .await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_fails_its_call() {
    breaks(
        "the stream ended before the answer",
        8 * MIB,
        |_: Asked, mut tcp: TcpStream| async move {
            write(&mut tcp, STREAM).await;
            write(&mut tcp, b"data: {\"jsonrpc\":\"2.0\",").await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_server_that_pings_on_its_stream_is_not_answered_without_end() {
    const PINGS: usize = 20_000;
    let open = Arc::new(AtomicUsize::new(0));
    let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&open));
    let peak = Arc::clone(&most);
    let upstream = Upstream::start(move |asked, mut tcp| {
        let (peak, now) = (Arc::clone(&peak), Arc::clone(&now));
        async move {
            if asked.message.get("result").is_some() {
                // The answer to a ping: never taken.
                peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let _gone = tcp.read(&mut [0; 1]).await;
                now.fetch_sub(1, Ordering::SeqCst);
            } else if asked.tool() == "attack" {
                let ping = event(br#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#);
                write(&mut tcp, &[STREAM, &ping.repeat(PINGS)].concat()).await;
                write(&mut tcp, &event(&result_of(&asked, "pinged"))).await;
            } else {
                write(&mut tcp, &honest(&asked)).await;
            }
        }
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let memory = gateway.memory();
    assert_eq!(text(&client.call("attack", json!({})).await), "pinged");
    client.works("echo").await;
    memory.grew_at_most(64 * MIB);
    let most = most.load(Ordering::SeqCst);
    assert!(most <= 256, "{most} connections for the answers to pings");
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_sends_its_listener_away_at_once_is_not_asked_without_pause() {
    let gets = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gets);
    let upstream = Upstream::start(move |asked, mut tcp| {
        let counted = Arc::clone(&counted);
        async move {
            if asked.head.starts_with("get ") {
                counted.fetch_add(1, Ordering::SeqCst);
                write(&mut tcp, &[STREAM, b"id: 1\nretry: 0\ndata: \n\n"].concat()).await;
            } else {
                write(&mut tcp, &honest(&asked)).await;
            }
        }
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    until(5, "the gateway listens", async || gets.load(Ordering::SeqCst) > 0).await;
    // A second of honest calls is the time in which it must not be asked too often; the last may
    // take longer.
    let begun = tokio::time::Instant::now();
    while begun.elapsed().as_millis() < 1_000 {
        client.works("echo").await;
    }
    let (asked, took) = (gets.load(Ordering::SeqCst), begun.elapsed());
    assert!(asked as u128 <= took.as_millis() / 40, "asked {asked} times in {took:?}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_never_takes_a_notification_does_not_hold_up_the_client() {
    let upstream = Upstream::start(async |asked: Asked, mut tcp: TcpStream| {
        if asked.is("notifications/initialized") || asked.is("notifications/roots/list_changed") {
            let _gone = tcp.read(&mut [0; 1]).await;
        }
        write(&mut tcp, &honest(&asked)).await;
    })
    .await;
    let gateway =
        Gateway::serve(&[Entry::url("a", &upstream.url), Entry::scripted("b", &["--tag", "$TAG"])])
            .await;
    let client = within(10, "the handshake", Legacy::connect(&gateway, "/mcp")).await;
    let changed =
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}).to_string();
    let tell = async {
        for _ in 0..20 {
            assert_eq!(client.post(changed.clone()).await.status, 202);
        }
    };
    within(5, "twenty notifications", tell).await;
    client.works("b__echo").await;
    client.works("a__echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_modern_call_that_its_client_leaves_is_closed_at_the_server() {
    let closed = Arc::new(AtomicUsize::new(0));
    let (seen, begun) = (Arc::clone(&closed), Arc::new(AtomicUsize::new(0)));
    let under_way = Arc::clone(&begun);
    let upstream = Upstream::start(move |asked, mut tcp| {
        let (seen, under_way) = (Arc::clone(&seen), Arc::clone(&under_way));
        async move {
            let discovered: Value =
                json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}});
            if asked.is("server/discover") {
                write(&mut tcp, &answer(&asked, &discovered)).await;
            } else if asked.tool() == "attack" {
                under_way.fetch_add(1, Ordering::SeqCst);
                while tcp.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
                seen.fetch_add(1, Ordering::SeqCst);
            } else {
                write(&mut tcp, &honest(&asked)).await;
            }
        }
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let request = modern_request(1, "tools/call", json!({"name": "attack", "arguments": {}}));
    tokio::select! {
        _ = modern_begin(gateway.address, "/mcp/a", &request) => panic!("too early"),
        () = until(5, "it is under way", async || begun.load(Ordering::SeqCst) == 1) => {}
    }
    until(5, "it is closed", async || closed.load(Ordering::SeqCst) == 1).await;
    assert_eq!(
        text(&modern(&gateway, "/mcp/a", "echo", json!({"text": "y"})).await.message()),
        "y"
    );
    gateway.stop().await;
}
