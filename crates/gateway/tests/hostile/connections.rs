//! Attacks on HTTP itself: heads that two readers read differently, heads without measure, streams
//! without end.

use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::kit::client::tool_call;
use crate::kit::h2::{self, frame};
use crate::kit::http::raw;
use crate::kit::{Entry, Gateway, Legacy, MIB, within};

async fn started() -> (Gateway, Legacy) {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    (gateway, client)
}

/// A request that would be one of its own if it got through.
const SMUGGLED: &str = "DELETE /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n";

#[tokio::test]
async fn a_request_is_never_read_as_two() {
    let (gateway, client) = started().await;
    let body = tool_call(1, "echo", json!({"text": "x"})).to_string();
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let heads = [
        (
            format!(
                "content-length: {}\r\ntransfer-encoding: chunked\r\n\r\n{chunked}",
                body.len()
            ),
            "200",
        ),
        (format!("transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n{chunked}"), "200"),
        (format!("content-length: {}\r\ncontent-length: 5\r\n\r\n{body}", body.len()), "400"),
        (format!("content-length: {}, 5\r\n\r\n{body}", body.len()), "400"),
        (format!("content-length: +{}\r\n\r\n{body}", body.len()), "400"),
        (format!("content-length: -1\r\n\r\n{body}"), "400"),
        (format!("content-length: 99999999999999999999999\r\n\r\n{body}"), "400"),
        (format!("content-length : {}\r\n\r\n{body}", body.len()), "400"),
        (format!("transfer-encoding: xchunked\r\n\r\n{chunked}"), "400"),
        (format!("transfer-encoding: chunked, identity\r\n\r\n{chunked}"), "400"),
        (
            format!("transfer-encoding: identity\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
            "400",
        ),
        (format!("x-folded: a\r\n b\r\ncontent-length: {}\r\n\r\n{body}", body.len()), "400"),
        (format!("x-nul: a\0b\r\ncontent-length: {}\r\n\r\n{body}", body.len()), "400"),
        (format!("x-return: a\rb\r\ncontent-length: {}\r\n\r\n{body}", body.len()), "400"),
        (format!("transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{body}"), "400"),
        (format!("transfer-encoding: chunked\r\n\r\n-5\r\n{body}"), "400"),
    ];
    for (rest, status) in heads {
        let start = "POST /mcp/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nmcp-session-id: ";
        let request = format!("{start}{}\r\n{rest}{SMUGGLED}", client.session);
        let answer = raw(client.address, request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{rest}\n-> {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{rest}\n-> {answer}");
    }
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_head_without_measure_is_refused() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let long = format!("x-long: {}\r\n", "y".repeat(100 << 10));
    let many: String = (0..200).map(|number| format!("x-{number}: y\r\n")).collect();
    let endless = format!("GET /{} HTTP/1.1\r\n", "y".repeat(100 << 10));
    for head in [
        format!("GET /mcp HTTP/1.1\r\n{long}\r\n"),
        format!("GET /mcp HTTP/1.1\r\n{many}\r\n"),
        endless,
    ] {
        let answer = raw(client.address, head.as_bytes()).await;
        let is_refused = answer.starts_with("HTTP/1.1 431 ") || answer.starts_with("HTTP/1.1 414 ");
        assert!(is_refused, "{answer}");
    }
    memory.grew_at_most(4 * MIB);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn streams_that_are_reset_as_soon_as_they_open_end_their_connection() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let mut tcp = h2::connect(gateway.address).await;
    let mut flood = Vec::new();
    for stream in (1..20_000).step_by(2) {
        flood.extend(frame(h2::HEADERS, h2::END_HEADERS, stream, &h2::post_head("localhost")));
        flood.extend(frame(h2::RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    // The gateway may hang up before all of it is written.
    let _hung_up = tcp.write_all(&flood).await;
    let goodbye = within(10, "the connection ends", async {
        let mut goodbye = None;
        while let Some((kind, _, payload)) = h2::next(&mut tcp).await {
            if kind == h2::GOAWAY {
                goodbye = Some(payload);
            }
        }
        goodbye
    });
    if let Some(payload) = goodbye.await {
        // ENHANCE_YOUR_CALM
        assert_eq!(payload[4..8], 11_u32.to_be_bytes());
    }
    memory.grew_at_most(16 * MIB);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_connection_has_a_hundred_streams() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let mut tcp = h2::connect(gateway.address).await;
    for stream in (1..400).step_by(2) {
        let head = frame(h2::HEADERS, h2::END_HEADERS, stream, &h2::post_head("localhost"));
        tcp.write_all(&head).await.unwrap();
    }
    tcp.write_all(&frame(h2::PING, 0, 0, &[7; 8])).await.unwrap();
    let mut refused = 0;
    within(10, "the ping comes back", async {
        loop {
            let (kind, _, payload) = h2::next(&mut tcp).await.expect("the connection lives");
            match (kind, payload.as_slice()) {
                // REFUSED_STREAM
                (h2::RST_STREAM, [0, 0, 0, 7]) => refused += 1,
                (h2::PING, [7, ..]) => return,
                _ => {}
            }
        }
    })
    .await;
    assert!(refused >= 100, "{refused} of 200 streams were refused");
    memory.grew_at_most(8 * MIB);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_head_in_endless_pieces_ends_its_connection() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let mut tcp = h2::connect(gateway.address).await;
    let _hung_up = tcp.write_all(&frame(h2::HEADERS, 0, 1, &h2::post_head("localhost"))).await;
    // Never-indexed literals of 16 KiB, and no end.
    let field = [&[0x10, 1, b'x', 0x7f, 0xe1, 0x7e], vec![b'y'; 16_000 - 6].as_slice()].concat();
    let piece = frame(h2::CONTINUATION, 0, 1, &field);
    let flood = async { while tcp.write_all(&piece).await.is_ok() {} };
    within(10, "the connection ends", flood).await;
    memory.grew_at_most(8 * MIB);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_foreign_authority_is_refused_over_http_2() {
    let (gateway, client) = started().await;
    for (authority, status) in [("localhost", 0x8d), ("evil.example", 0)] {
        let mut tcp = h2::connect(gateway.address).await;
        let flags = h2::END_HEADERS | h2::END_STREAM;
        tcp.write_all(&frame(h2::HEADERS, flags, 1, &h2::post_head(authority))).await.unwrap();
        let (head, body) = within(5, "an answer", async {
            let mut head = Vec::new();
            loop {
                match h2::next(&mut tcp).await.expect("the connection lives") {
                    (h2::HEADERS, 1, payload) => head = payload,
                    (h2::DATA, 1, payload) if !payload.is_empty() => return (head, payload),
                    _ => {}
                }
            }
        })
        .await;
        let body = String::from_utf8_lossy(&body).into_owned();
        assert_eq!(
            body.contains("this Host is not served here"),
            status == 0,
            "{authority}: {head:?} {body}"
        );
    }
    client.works("echo").await;
    gateway.stop().await;
}
