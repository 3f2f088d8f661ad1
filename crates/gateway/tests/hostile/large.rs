//! Requests that are too large or too deep: answered under their own id, and the session lives on.

use serde_json::{Value, json};

use crate::kit::client::{modern_headers, modern_request};
use crate::kit::{Entry, Gateway, Legacy, MIB, Stdio, failure, http, text};

const LIMIT: usize = 16 << 20;

async fn started() -> (Gateway, Legacy) {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    (gateway, client)
}

/// A request that is exactly this long, written as the common client libraries do: its id stands
/// last.
fn of_size(bytes: usize, id: u64, method: &str) -> String {
    let head = format!(
        r#"{{"method":"{method}","params":{{"name":"echo","arguments":{{"text":"still here","pad":""#
    );
    let tail = format!(r#""}}}},"jsonrpc":"2.0","id":{id}}}"#);
    format!("{head}{}{tail}", "x".repeat(bytes - head.len() - tail.len()))
}

/// A call whose arguments are so deep.
fn of_depth(levels: usize, id: u64) -> String {
    // The envelope, the params and the arguments are three levels.
    let inner = format!("{}{}", "[".repeat(levels - 3), "]".repeat(levels - 3));
    let params = format!(r#"{{"name":"echo","arguments":{{"text":"deep","deep":{inner}}}}}"#);
    format!(r#"{{"method":"tools/call","params":{params},"jsonrpc":"2.0","id":{id}}}"#)
}

/// What a model reads, and what a program reads.
fn refused(answer: &Value, id: u64) -> (&str, &Value) {
    assert_eq!(answer["id"], id, "{answer}");
    let object = &answer["result"]["_meta"]["seawall/failure"];
    assert_eq!(failure(answer), object["message"]);
    let facts =
        json!([object["code"], object["retryable"], object["attempts"], object["mayHaveExecuted"]]);
    assert_eq!(facts, json!(["VALIDATION_ERROR", false, 0, false]));
    (failure(answer), object)
}

const TOO_LARGE: &str = "The call of echo has 16777217 bytes; at most 16777216 are taken. It was not executed. Make it \
    smaller: split what it carries over several calls, or name a file or an address that the tool can read instead.";
const TOO_DEEP: &str = "The arguments of echo are nested deeper than 128 levels. It was not executed. Make them flatter, \
    or pass the inner part as text if the tool takes it so.";

#[tokio::test]
async fn a_call_that_is_too_large_fails_under_its_id_over_http() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    assert_eq!(text(&client.post(of_size(LIMIT, 1, "tools/call")).await.message()), "still here");
    let answer = client.post(of_size(LIMIT + 1, 2, "tools/call")).await;
    let message = answer.message();
    let (told, object) = refused(&message, 2);
    assert_eq!((answer.status, told), (200, TOO_LARGE));
    assert_eq!((&object["tool"], &object["server"]), (&json!("echo"), &json!("a")));
    let answer = client.post(of_size(LIMIT + 1, 3, "resources/read")).await;
    assert_eq!((answer.status, &answer.message()["id"]), (200, &json!(3)));
    assert_eq!(answer.error(), (-32600, "larger than 16777216 bytes".to_owned()));
    // The session is one that must be there; and what has no id is refused as before.
    let foreign = http::post(
        client.address,
        "/mcp/a",
        &[("mcp-session-id", "x")],
        of_size(LIMIT + 1, 4, "tools/call"),
    );
    assert_eq!(foreign.await.status, 404);
    let answer = client.post(" ".repeat(LIMIT + 1)).await;
    assert_eq!((answer.status, &answer.message()["id"]), (413, &Value::Null));
    memory.grew_at_most(10 * LIMIT as u64);
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_without_a_length_in_its_head_fails_under_its_id_too() {
    let (gateway, client) = started().await;
    let call = of_size(LIMIT + 1, 7, "tools/call");
    let head = format!(
        "POST /mcp/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nmcp-session-id: {}\r\n\
         connection: close\r\ntransfer-encoding: chunked\r\n\r\n",
        client.session
    );
    let pieces: String = call
        .as_bytes()
        .chunks(1 << 20)
        .map(|piece| format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)))
        .collect();
    let answer = http::raw(client.address, format!("{head}{pieces}0\r\n\r\n").as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ")
            && answer.contains(r#""id":7,"#)
            && answer.contains(TOO_LARGE),
        "{answer}"
    );
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_that_is_too_large_fails_under_its_id_on_a_pipe() {
    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    let memory = client.memory();
    client.write(format!("{}\n", of_size(LIMIT, 1, "tools/call")).as_bytes()).await;
    assert_eq!(text(&client.answer(&json!(1)).await), "still here");
    client.write(format!("{}\n", of_size(LIMIT + 1, 2, "tools/call")).as_bytes()).await;
    assert_eq!(refused(&client.hear().await, 2).0, TOO_LARGE);
    client.write(format!("{}\n", of_size(3 * LIMIT, 3, "prompts/get")).as_bytes()).await;
    let answer = client.hear().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["message"]),
        (&json!(3), &json!("larger than 16777216 bytes"))
    );
    // Forty mebibytes without an end that are no message: said once, thrown away, and what follows
    // is read again.
    for _ in 0..40 {
        client.write(&vec![b'x'; 1 << 20]).await;
    }
    let answer = client.hear().await;
    assert_eq!(answer["error"], json!({"code": -32600, "message": "larger than 16777216 bytes"}));
    client.write(b"\n").await;
    client.works().await;
    memory.grew_at_most(10 * LIMIT as u64);
    client.stop().await;
}

#[tokio::test]
async fn a_modern_call_that_is_too_large_is_complete_all_the_same() {
    let (gateway, _client) = started().await;
    let pad = "x".repeat(LIMIT);
    let request =
        modern_request(5, "tools/call", json!({"name": "echo", "arguments": {"text": pad}}));
    let headers = modern_headers(&request);
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let response = http::send(
        gateway.address,
        ::http::Method::POST,
        "/mcp/a",
        &headers,
        request.to_string().into(),
    );
    let answer = http::whole(response.await).await;
    let message = answer.message();
    refused(&message, 5);
    assert_eq!((answer.status, &message["result"]["resultType"]), (200, &json!("complete")));
    gateway.stop().await;
}

#[tokio::test]
async fn nesting_ends_at_128() {
    let (gateway, client) = started().await;
    // One level less: the server here is read by serde_json, which refuses 128 itself.
    assert_eq!(text(&client.post(of_depth(127, 1)).await.message()), "deep");
    for (levels, id) in [(129, 2), (2_000_000, 3)] {
        let answer = client.post(of_depth(levels, id)).await;
        assert_eq!((answer.status, refused(&answer.message(), id).0), (200, TOO_DEEP));
    }
    client.works("echo").await;
    gateway.stop().await;
    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    client.write(format!("{}\n", of_depth(129, 9)).as_bytes()).await;
    assert_eq!(refused(&client.hear().await, 9).0, TOO_DEEP);
    client.works().await;
    client.stop().await;
}

#[tokio::test]
async fn the_limit_is_a_setting() {
    let gateway =
        Gateway::serve_with("max_request = \"64KiB\"", &[Entry::scripted("a", &["--tag", "$TAG"])])
            .await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(
        text(&client.post(of_size(64 << 10, 1, "tools/call")).await.message()),
        "still here"
    );
    let answer = client.post(of_size((64 << 10) + 1, 2, "tools/call")).await.message();
    assert!(refused(&answer, 2).0.contains("has 65537 bytes; at most 65536 are taken"), "{answer}");
    gateway.stop().await;
}

/// Otherwise the server would wait for it until its own limit.
#[tokio::test]
async fn an_answer_that_is_too_large_fails_the_question() {
    let folder = tempfile::TempDir::new().unwrap();
    let notes = folder.path().join("ledger");
    let args = ["--tag", "$TAG", "--asks-roots", "--ledger", notes.to_str().unwrap()];
    let mut client = Stdio::ready(&args).await;
    let question = client.hear().await;
    assert_eq!(question["method"], "roots/list");
    let roots = "x".repeat(LIMIT);
    client
        .say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": [roots]}}))
        .await;
    client.works().await;
    let said = || std::fs::read_to_string(&notes).unwrap_or_default();
    crate::kit::until(10, "the server is told", async || said().contains("roots null")).await;
    client.stop().await;
}

/// Many clients that each send what is allowed hold a bounded amount together.
#[tokio::test]
async fn many_large_requests_at_once_hold_a_bounded_amount() {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    let begin = |bytes: usize| {
        let call = of_size(bytes, 1, "tools/call");
        let head = format!(
            "POST /mcp/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nmcp-session-id: {}\r\n\
             content-length: {bytes}\r\n\r\n",
            client.session
        );
        async move {
            let mut tcp = tokio::net::TcpStream::connect(client.address).await.unwrap();
            let part = [head.as_bytes(), &call.as_bytes()[..bytes - 1]].concat();
            tokio::io::AsyncWriteExt::write_all(&mut tcp, &part).await.unwrap();
            tcp
        }
    };
    // Thirty that lack one byte each.
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(begin(LIMIT).await);
    }
    memory.grew_at_most(600 * MIB);
    client.works("echo").await;
    drop(held);
    crate::kit::until(10, "there is room again", async || {
        let answer = client.post(of_size(LIMIT, 1, "tools/call")).await.message();
        text(&answer) == "still here"
    })
    .await;
    gateway.stop().await;
}
