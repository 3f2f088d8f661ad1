//! What a client may not send, as a body and as a line: refused with the reason, and the session
//! lives on.

use serde_json::{Value, json};

use crate::kit::client::tool_call;
use crate::kit::http::post;
use crate::kit::{Entry, Gateway, Legacy, MIB, Stdio, text, within};

async fn started() -> (Gateway, Legacy) {
    let gateway = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    (gateway, client)
}

/// Each of these is refused with this code and this reason, over HTTP and over stdio, under the id
/// `1` if that can be read from it, and the next call works. What is answered under an id is no
/// error of HTTP.
async fn refused(bad: &[(&[u8], bool, i64, &str)]) {
    let (gateway, client) = started().await;
    let memory = gateway.memory();
    for (body, has_id, code, reason) in bad {
        let answer = client.post(body.to_vec()).await;
        let shown = String::from_utf8_lossy(body).chars().take(80).collect::<String>();
        let (status, id) = if *has_id { (200, json!(1)) } else { (400, Value::Null) };
        assert_eq!(
            (answer.status, &answer.message()["id"], answer.error().0),
            (status, &id, *code),
            "{shown}"
        );
        assert!(answer.error().1.contains(reason), "{shown}: {:?}", answer.error());
    }
    memory.grew_at_most(
        10 * bad.iter().map(|(body, ..)| body.len() as u64).max().unwrap_or(0) + 4 * MIB,
    );
    client.works("echo").await;
    gateway.stop().await;

    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    for (line, has_id, code, reason) in bad.iter().filter(|(line, ..)| !line.contains(&b'\n')) {
        client.write(&[line, b"\n".as_slice()].concat()).await;
        let answer = client.hear().await;
        let shown = String::from_utf8_lossy(line).chars().take(80).collect::<String>();
        let id = if *has_id { json!(1) } else { Value::Null };
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{shown}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(reason), "{shown}: {answer}");
    }
    client.works().await;
    assert!(client.stop().await.success());
}

#[tokio::test]
async fn an_id_is_a_string_or_an_integer_of_bounded_length() {
    let ids = ["null", "1.5", "1e3", "true", "{}", "[1]"];
    let with =
        |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#).into_bytes();
    let mut bodies: Vec<Vec<u8>> = ids.map(with).to_vec();
    bodies.push(with(&format!("\"{}\"", "i".repeat(1025))));
    bodies.push(with(&"9".repeat(1025)));
    let bad: Vec<_> = bodies
        .iter()
        .map(|body| (body.as_slice(), false, -32600, "an id must be a string of at most"))
        .collect();
    refused(&bad).await;
}

#[tokio::test]
async fn the_longest_id_and_the_smallest_integer_come_back_as_they_went() {
    let (gateway, client) = started().await;
    for id in
        [json!("i".repeat(1024)), json!(i64::MIN), json!(i64::MAX), json!(""), json!("1"), json!(1)]
    {
        let answer = client
            .post(tool_call(id.clone(), "echo", json!({"text": "x"})).to_string())
            .await
            .message();
        assert_eq!((&answer["id"], text(&answer)), (&id, "x"));
    }
    // Larger than any number of this test's own: compared byte for byte.
    for id in ["18446744073709551616", "-18446744073709551617", &"9".repeat(1024)] {
        let call = tool_call(json!("ID"), "echo", json!({"text": "x"})).to_string();
        let answer = client.post(call.replace("\"ID\"", id)).await;
        let body = answer.text();
        assert!(body.contains(&format!("\"id\":{id}")), "{body}");
    }
    // Also where the call is refused before it is read as a whole.
    let id = "9".repeat(1024);
    let twice = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"a","name":"b"}}}}"#
    );
    let body = client.post(twice).await.text();
    assert!(body.contains(&format!("\"id\":{id}")), "{body}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_that_stands_twice_is_refused_wherever_a_decision_hangs_on_it() {
    refused(&[
        (br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}"#, false, -32600, "the key \"id\" stands twice"),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}"#,
            true,
            -32600,
            "the key \"method\" stands twice",
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{},"params":{"name":"x"}}"#,
            true,
            -32600,
            "\"params\"",
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
            true,
            -32600,
            "\"name\"",
        ),
        (
            br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","n\u0061me":"b"}}"#,
            true,
            -32600,
            "\"name\"",
        ),
        (br#"{"jsonrpc":"2.0","id":1,"m\u0065thod":"ping","method":"tools/call"}"#, true, -32600, "\"method\""),
        (br#"{"jsonrpc":"2.0","id":1,"method":"a","params":{"_meta":{"k":1,"k":2}}}"#, true, -32600, "\"k\""),
    ])
    .await;
}

#[tokio::test]
async fn what_is_not_clean_json_is_refused() {
    refused(&[
        (
            b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
            false,
            -32700,
            "not valid JSON at byte 0",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\0",
            false,
            -32700,
            "not valid JSON at byte 40",
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\0ng\"}", true, -32700, "not valid JSON"),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
            true,
            -32700,
            "not valid UTF-8 at byte 34",
        ),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}",
            true,
            -32700,
            "not valid UTF-8",
        ),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\rb\"}", true, -32700, "not valid JSON"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\nb\"}", true, -32700, "not valid JSON"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"", false, -32700, "not valid JSON"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":01,\"method\":\"ping\"}", false, -32700, "not valid JSON"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}{}", false, -32700, "not valid JSON"),
        (b"{\"jsonrpc\":\"2.0\",\"id\":NaN,\"method\":\"ping\"}", false, -32700, "not valid JSON"),
        (b"7", false, -32600, "it is not an object"),
        (b"{\"id\":1,\"method\":\"ping\"}", true, -32600, "\"jsonrpc\" is not \"2.0\""),
        (
            b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"result\":1}",
            true,
            -32600,
            "a request and an answer at once",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_batch_is_refused_whatever_is_in_it() {
    let one = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let many = format!("[{}]", vec![one; 10_000].join(","));
    let single = format!("[{one}]");
    let bodies = [b"[]".as_slice(), single.as_bytes(), many.as_bytes()];
    refused(&bodies.map(|body| (body, false, -32600, "batches of messages"))).await;
}

#[tokio::test]
async fn carriage_returns_between_tokens_never_end_a_message() {
    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    let call = tool_call("crlf", "echo", json!({"text": "one"})).to_string();
    client.write(format!("{call}\r\n").as_bytes()).await;
    assert_eq!(text(&client.answer(&json!("crlf")).await), "one");
    let call = tool_call("cr", "echo", json!({"text": "two"}))
        .to_string()
        .replace(",\"jsonrpc\"", ",\r\"jsonrpc\"");
    assert!(call.contains('\r'));
    client.write(format!("{call}\n").as_bytes()).await;
    assert_eq!(text(&client.answer(&json!("cr")).await), "two");
    client.works().await;
    client.stop().await;

    let (gateway, http) = started().await;
    let call = tool_call("lf", "echo", json!({"text": "three"}))
        .to_string()
        .replace(",\"jsonrpc\"", ",\r\n\"jsonrpc\"");
    assert_eq!(text(&http.post(call).await.message()), "three");
    gateway.stop().await;
}

#[tokio::test]
async fn a_compressed_request_is_not_read() {
    let (gateway, client) = started().await;
    let body = tool_call(1, "echo", json!({"text": "x"})).to_string();
    for encoding in ["gzip", "deflate", "br", "zstd", "gzip, identity", "x-whatever"] {
        let headers = [client.headers().as_slice(), &[("content-encoding", encoding)]].concat();
        let answer = post(client.address, &client.path, &headers, body.clone()).await;
        assert_eq!(
            (answer.status, answer.error().1.as_str()),
            (415, "a compressed body is not read here")
        );
    }
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_web_form_can_send_is_not_read() {
    let (gateway, client) = started().await;
    let body = tool_call(1, "echo", json!({"text": "x"})).to_string();
    for kind in
        ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
    {
        let headers = [client.headers().as_slice(), &[("content-type", kind)]].concat();
        let body = body.clone().into();
        let response = crate::kit::http::send(
            client.address,
            http::Method::POST,
            &client.path,
            &headers,
            body,
        )
        .await;
        let answer = crate::kit::http::whole(response).await;
        assert_eq!(
            (answer.status, answer.error().1.as_str()),
            (415, "Content-Type must be application/json")
        );
    }
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_body_of_nothing_but_keys_costs_no_more_than_ten_times_its_size() {
    let (gateway, client) = started().await;
    let keys: Vec<String> = (0..400_000).map(|key| format!(r#""{key:x}":0"#)).collect();
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{}}}}}"#,
        keys.join(",")
    );
    assert!(body.len() < 4 << 20);
    let memory = gateway.memory();
    let answer = client.post(body.clone()).await;
    memory.grew_at_most(10 * body.len() as u64);
    assert_eq!((answer.status, answer.error().0), (200, -32600), "{}", answer.text());
    client.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn an_id_in_use_is_refused_and_its_first_call_answered() {
    let (gateway, client) = started().await;
    let first = client.begin(7, "delay", json!({"ms": 3_000, "text": "first"}));
    let second = async {
        client.counted("delayed", 1).await;
        client.post(tool_call(7, "echo", json!({"text": "second"})).to_string()).await.message()
    };
    let (first, second) = within(10, "both answers", async { tokio::join!(first, second) }).await;
    let first = crate::kit::http::whole(first).await.message();
    assert_eq!((text(&first), &first["id"]), ("first", &json!(7)));
    assert_eq!(second["error"]["message"], "this id is in use by a call that is under way");
    assert_eq!(second["error"]["code"], -32600);
    client.works("echo").await;
    gateway.stop().await;

    let mut client = Stdio::ready(&["--tag", "$TAG"]).await;
    let (first, second) = (
        tool_call(7, "delay", json!({"ms": 1_000, "text": "first"})),
        tool_call(7, "echo", json!({"text": "second"})),
    );
    client.write(format!("{first}\n{second}\n").as_bytes()).await;
    let second = client.answer(&json!(7)).await;
    assert_eq!(second["error"]["code"], -32600);
    assert_eq!(text(&client.answer(&json!(7)).await), "first");
    client.works().await;
    client.stop().await;
}
