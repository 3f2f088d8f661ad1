//! Whatever goes in comes out as it was: random messages, compared byte for byte behind the
//! gateway.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng, TestRunner};
use serde_json::json;

use super::kit::{Served, Wrapped, program, soon};
use http_body_util::BodyExt;

/// Random JSON text: numbers of every form, any unicode, escapes, space, nesting.
fn text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("false".to_owned()),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        any::<String>().prop_map(|text| json!(text).to_string()),
        Just(r#""\/\u00e9\ud83d\ude00\b""#.to_owned()),
    ];
    leaf.prop_recursive(12, 64, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5)
                .prop_map(|items| format!("[{}]", items.join(" ,"))),
            prop::collection::vec(inner, 0..5).prop_map(|values| {
                let members: Vec<String> = values
                    .iter()
                    .enumerate()
                    .map(|(place, value)| format!("\"k{place}\"\t: {value}"))
                    .collect();
                format!("{{{}}}", members.join(" , "))
            }),
        ]
    })
}

/// Params: unknown members beside those the gateway looks at.
fn params() -> impl Strategy<Value = String> {
    (text(), text(), text()).prop_map(|(a, b, c)| {
        format!(r#"{{"z":{a},"name":"tool", "arguments" : {b},"_meta":{{"x/y":{c}}},"a":1.0}}"#)
    })
}

/// An id: a number or a string, as a client may write it.
fn id() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|id| id.to_string()),
        "[a-zA-Z0-9 \u{e9}-\u{ff}]{1,40}".prop_map(|id| json!(id).to_string())
    ]
}

fn cases(count: usize) -> Vec<(String, String)> {
    let rng = TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..count).map(|_| (id(), params()).new_tree(&mut runner).unwrap().current()).collect()
}

/// What the echo server answers: the params as they are, in an envelope with a member nobody knows.
fn expected(id: &str, params: &str) -> String {
    format!(r#"{{"result":{params} , "x-unknown":[1.0e+2],"jsonrpc":"2.0","id":{id}}}"#)
}

#[tokio::test]
async fn random_messages_pass_from_pipe_to_pipe_as_they_are() {
    let mut wrapped = Wrapped::run(&[&program("seawall-echo")]);
    wrapped.initialize(json!({})).await;
    for (id, params) in cases(300) {
        wrapped
            .send(&format!(
                r#"{{"method":"any/thing", "id":{id},"params":{params},"jsonrpc":"2.0"}}"#
            ))
            .await;
        assert_eq!(wrapped.line().await, expected(&id, &params));
    }
}

#[tokio::test]
async fn random_messages_pass_from_http_to_pipe_as_they_are() {
    let served =
        Served::with(&format!("[servers.echo]\ncommand = {:?}\n", program("seawall-echo"))).await;
    let session = served.session("/mcp").await;
    for (id, params) in cases(300) {
        let response = session
            .raw(&format!(
                r#"{{"method":"any/thing", "id":{id},"params":{params},"jsonrpc":"2.0"}}"#
            ))
            .await;
        let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
        assert_eq!(String::from_utf8(body.to_vec()).unwrap(), expected(&id, &params));
    }
}

#[tokio::test]
async fn a_message_over_several_lines_reaches_a_pipe_on_one() {
    let served =
        Served::with(&format!("[servers.echo]\ncommand = {:?}\n", program("seawall-echo"))).await;
    let session = served.session("/mcp").await;
    let response =
        session.raw("{\n\"jsonrpc\":\"2.0\",\r\n\"id\":1,\"method\":\"x\",\"params\":{\n\"a\":\"b\\nc\"}}\n").await;
    let body = soon(response.into_body().collect()).await.unwrap().to_bytes();
    assert_eq!(body, expected("1", "{ \"a\":\"b\\nc\"}"));
}

#[tokio::test]
async fn a_progress_token_comes_back_as_the_client_wrote_it() {
    for token in [r#""t\u00e9""#, "7", r#""1""#] {
        let mut wrapped = Wrapped::run(&[&program("seawall-fixture"), "--stdio"]);
        wrapped.initialize(json!({})).await;
        let request = format!(
            r#"{{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{{"name":"slow","arguments":{{"ms":30}},"_meta":{{"progressToken":{token}}}}}}}"#
        );
        wrapped.send(&request).await;
        let line = wrapped.line().await;
        assert!(line.contains(&format!(r#""progressToken":{token}"#)), "{line}");
        let (answer, others) = wrapped.answer(&json!("a")).await;
        assert_eq!(others.len(), 2, "{answer}");
    }
}
