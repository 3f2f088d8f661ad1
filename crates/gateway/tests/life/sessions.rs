//! Sessions that servers forget, streams that are cut: normal things that no client should hear of.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Sender, channel};

use crate::kit::client::{modern_headers, modern_request};
use crate::kit::upstream::{STREAM, answer, honest, response, write};
use crate::kit::{Asked, Entry, Gateway, Legacy, Upstream, http, modern, text, until};
use crate::{Ledger, ONCE, failed};

/// A status, and a body in which `$ID` is the id of the request.
type Refusal = (&'static str, &'static str);

/// As the protocol wants it, with a body that nobody knows.
const NOT_FOUND: Refusal = ("404 Not Found", r#"{"error": "no valid session"}"#);

/// A legacy server with sessions, which it can forget.
#[derive(Clone, Default)]
struct Forgetful {
    known: Arc<Mutex<HashSet<String>>>,
    next: Arc<AtomicUsize>,
    /// Whether it forgets a session as soon as it gave it away.
    is_hopeless: Arc<AtomicBool>,
}

impl Forgetful {
    /// One that refuses an unknown session with this status and body.
    async fn start(&self, refusal: Refusal) -> Upstream {
        let server = self.clone();
        Upstream::start(move |asked: Asked, mut tcp: TcpStream| {
            let said = server.answer(&asked, refusal);
            async move {
                write(&mut tcp, &said).await;
            }
        })
        .await
    }

    fn answer(&self, asked: &Asked, (status, body): Refusal) -> Vec<u8> {
        let session = asked.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        if asked.is("initialize") {
            let session = format!("s{}", self.next.fetch_add(1, Ordering::SeqCst));
            let answer = String::from_utf8(honest(asked)).unwrap();
            if !self.is_hopeless.load(Ordering::SeqCst) {
                self.known.lock().unwrap().insert(session.clone());
            }
            return answer
                .replacen("\r\n", &format!("\r\nmcp-session-id: {session}\r\n"), 1)
                .into_bytes();
        }
        match session {
            Some(session) if self.known.lock().unwrap().contains(session) => {
                match asked.is("logging/setLevel") {
                    true => answer(asked, &json!({})),
                    false => honest(asked),
                }
            }
            _ if asked.is("server/discover") => honest(asked),
            _ => response(
                status,
                "",
                body.replace("$ID", &asked.message["id"].to_string()).as_bytes(),
            ),
        }
    }

    fn forget_all(&self) {
        self.known.lock().unwrap().clear();
    }
}

fn asked_for(upstream: &Upstream, method: &str) -> Vec<Asked> {
    upstream.seen().into_iter().filter(|asked| asked.is(method)).collect()
}

#[tokio::test]
async fn a_server_that_forgot_the_session_is_greeted_again_and_the_call_sent_again() {
    let under_its_id =
        r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32001,"message":"Session not found"}}"#;
    let again = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"Session not found. Re-initialize."}}"#;
    let of_the_sdk = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
    for refusal in [
        NOT_FOUND,
        ("404 Not Found", ""),
        ("404 Not Found", under_its_id),
        ("404 Not Found", again),
        ("400 Bad Request", of_the_sdk),
        ("400 Bad Request", "Bad Request: No valid session ID provided"),
        ("401 Unauthorized", "Unauthorized: Session not found"),
    ] {
        let server = Forgetful::default();
        let upstream = server.start(refusal).await;
        let gateway =
            Gateway::serve_with("[reconnect]\nbase = \"15s\"", &[Entry::url("a", &upstream.url)])
                .await;
        let client = Legacy::connect(&gateway, "/mcp/a").await;
        client.request("logging/setLevel", json!({"level": "debug"})).await;
        client.works("echo").await;
        for round in 1..=3 {
            server.forget_all();
            let began = tokio::time::Instant::now();
            client.works("echo").await;
            assert!(
                began.elapsed().as_secs() < 10,
                "{refusal:?}: it is greeted at once, not after a pause"
            );
            assert_eq!(asked_for(&upstream, "initialize").len(), 1 + round, "{refusal:?}");
        }
        let levels = asked_for(&upstream, "logging/setLevel").len();
        assert_eq!(levels, 4, "{refusal:?}: the state of the session is told again");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_call_under_way_when_the_session_is_forgotten_is_not_sent_again() {
    let server = Forgetful::default();
    let (forgetful, go_on) = (server.clone(), Arc::new(tokio::sync::Notify::new()));
    let finish = Arc::clone(&go_on);
    let upstream = Upstream::start(move |asked: Asked, mut tcp: TcpStream| {
        let (said, go_on) = (forgetful.answer(&asked, NOT_FOUND), Arc::clone(&finish));
        async move {
            if asked.tool() == "work" {
                go_on.notified().await;
            }
            write(&mut tcp, &said).await;
        }
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;
    let works = || upstream.seen().iter().filter(|asked| asked.tool() == "work").count();
    let working = client.call("work", json!({"text": "done"}));
    let meanwhile = async {
        until(10, "it is under way", async || works() == 1).await;
        server.forget_all();
        client.works("echo").await;
        go_on.notify_waiters();
        go_on.notify_one();
    };
    let (answer, ()) = tokio::join!(working, meanwhile);
    assert_eq!(
        (text(&answer), works()),
        ("done", 1),
        "the server worked on it, whatever became of its session"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn a_session_that_is_lost_twice_in_a_row_is_an_honest_failure_and_no_loop() {
    let server = Forgetful::default();
    let upstream = server.start(NOT_FOUND).await;
    let gateway = Gateway::serve_with(ONCE, &[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;
    server.is_hopeless.store(true, Ordering::SeqCst);
    server.forget_all();
    let before = asked_for(&upstream, "tools/call").len();
    let answer = client.call("echo", json!({"text": "x"})).await;
    assert_eq!(
        (&failed(&answer)["code"], &failed(&answer)["mayHaveExecuted"]),
        (&json!("CONNECTION_LOST"), &json!(false)),
        "{answer}"
    );
    assert_eq!(asked_for(&upstream, "tools/call").len(), before + 2);
    // Once it remembers again, so does everybody.
    server.is_hopeless.store(false, Ordering::SeqCst);
    until(20, "it works again", async || {
        client.call("echo", json!({"text": "x"})).await["result"]["isError"].is_null()
    })
    .await;
    gateway.stop().await;
}

/// A server of before streamable HTTP: a stream for each session, whose name is in the address for
/// messages.
#[derive(Clone, Default)]
struct OnSse {
    streams: Arc<Mutex<HashMap<String, Sender<Vec<u8>>>>>,
    next: Arc<AtomicUsize>,
}

impl OnSse {
    async fn respond(self, asked: Asked, mut tcp: TcpStream) {
        if asked.head.starts_with("get ") {
            let session = format!("s{}", self.next.fetch_add(1, Ordering::SeqCst));
            let (say, mut said) = channel(64);
            let begin = format!("event: endpoint\ndata: /messages?{session}\n\n");
            write(&mut tcp, &[STREAM, begin.as_bytes()].concat()).await;
            self.streams.lock().unwrap().insert(session, say);
            // A stream that somebody between the two keeps open, whatever became of the session.
            while let Some(event) = said.recv().await {
                write(&mut tcp, &event).await;
            }
            return std::future::pending().await;
        }
        let session = asked.head.split(['?', ' ']).nth(2).unwrap_or_default().to_owned();
        let say = self.streams.lock().unwrap().get(&session).cloned();
        let Some(say) = say else {
            write(&mut tcp, &response("404 Not Found", "", b"Could not find session")).await;
            return;
        };
        write(&mut tcp, &response("202 Accepted", "", b"")).await;
        if asked.message.get("id").is_some() {
            let answer = String::from_utf8(honest(&asked)).unwrap();
            let body = answer.split("\r\n\r\n").nth(1).unwrap();
            let _gone = say.send(format!("data: {body}\n\n").into_bytes()).await;
        }
    }
}

#[tokio::test]
async fn a_session_that_a_server_on_sse_forgot_is_opened_again_though_its_stream_lasts() {
    let server = OnSse::default();
    let answering = server.clone();
    let upstream = Upstream::start(move |asked, tcp| answering.clone().respond(asked, tcp)).await;
    let entry = Entry::url("a", &upstream.url).with("type = \"sse\"");
    let gateway = Gateway::serve(&[entry]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;
    for round in 1..=2 {
        // Forgotten, but the streams stay open.
        let forgotten = std::mem::take(&mut *server.streams.lock().unwrap());
        client.works("echo").await;
        assert_eq!(asked_for(&upstream, "initialize").len(), 1 + round);
        drop(forgotten);
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_server_that_answers_404_to_everything_is_asked_twice_and_greeted_once_more_per_call() {
    let server = Forgetful::default();
    let upstream = server.start(NOT_FOUND).await;
    // As many attempts as the defaults allow, to a tool that reads.
    let settings = "[reconnect]\nbase = \"10ms\"\n[tools.\"a/echo\"]\neffect = \"read_only\"";
    let gateway = Gateway::serve_with(settings, &[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    client.works("echo").await;
    server.is_hopeless.store(true, Ordering::SeqCst);
    server.forget_all();
    let before = asked_for(&upstream, "tools/call").len();
    let answer = client.call("echo", json!({"text": "another"})).await;
    assert_eq!(failed(&answer)["code"], "CONNECTION_LOST", "{answer}");
    assert_eq!(asked_for(&upstream, "tools/call").len(), before + 2);
    gateway.stop().await;
}

#[tokio::test]
async fn a_write_that_is_refused_in_words_about_a_session_is_executed_once() {
    let written = "the possession record was written, but the audit log is full";
    let under_its_id = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"session quota is used up"}}"#;
    for (status, body, is_in_doubt) in [
        ("400 Bad Request", written, true),
        ("409 Conflict", "the session was saved, its index was not", true),
        ("422 Unprocessable Content", written, true),
        (
            "400 Bad Request",
            r#"{"error": "No valid session ID provided for the second step"}"#,
            true,
        ),
        ("403 Forbidden", "saved; then: request timeout", true),
        ("403 Forbidden", "saved; then: rate limit exceeded", true),
        ("401 Unauthorized", written, false),
    ] {
        let server = Forgetful::default();
        let forgetful = server.clone();
        let upstream = Upstream::start(move |asked: Asked, mut tcp: TcpStream| {
            let said = match asked.tool() {
                "save" => response(status, "", body.as_bytes()),
                _ => forgetful.answer(&asked, NOT_FOUND),
            };
            async move {
                write(&mut tcp, &said).await;
            }
        })
        .await;
        let settings = "[defaults]\nretry = { attempts = 3, base = \"10ms\" }\n";
        let gateway = Gateway::serve_with(settings, &[Entry::url("a", &upstream.url)]).await;
        let client = Legacy::connect(&gateway, "/mcp/a").await;
        client.works("echo").await;
        let answer = client.call("save", json!({"text": "x"})).await;
        assert_eq!(failed(&answer)["mayHaveExecuted"], is_in_doubt, "{status} {body}: {answer}");
        let saved = upstream.seen().iter().filter(|asked| asked.tool() == "save").count();
        assert_eq!(
            (saved, asked_for(&upstream, "initialize").len()),
            (1, 1),
            "{status} {body}: {answer}"
        );
        gateway.stop().await;
    }
    // An error of the protocol under the id of the request is the server's answer, and stays its
    // bytes.
    let upstream = Upstream::start(move |asked: Asked, mut tcp: TcpStream| async move {
        let body = under_its_id.replace("$ID", &asked.message["id"].to_string());
        let said = if asked.tool() == "save" {
            response("400 Bad Request", "", body.as_bytes())
        } else {
            honest(&asked)
        };
        write(&mut tcp, &said).await;
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let answer = Legacy::connect(&gateway, "/mcp/a").await.call("save", json!({})).await;
    assert_eq!(answer["error"]["message"], "session quota is used up", "{answer}");
    assert_eq!(upstream.seen().iter().filter(|asked| asked.tool() == "save").count(), 1);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stream_that_is_cut_when_idle_fails_nothing_and_is_opened_again() {
    let gets = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gets);
    let upstream = Upstream::start(move |asked: Asked, mut tcp: TcpStream| {
        let counted = Arc::clone(&counted);
        async move {
            if asked.head.starts_with("get ") {
                // The first is cut in silence, the second refused, the third says something.
                match counted.fetch_add(1, Ordering::SeqCst) {
                    0 => drop(write(&mut tcp, STREAM).await),
                    1 => drop(write(&mut tcp, &response("503 Service Unavailable", "", b"")).await),
                    _ => {
                        let news = b"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n";
                        write(&mut tcp, &[STREAM, news].concat()).await;
                        std::future::pending::<()>().await;
                    }
                }
            } else if asked.tool() == "slow" {
                tokio::time::sleep(std::time::Duration::from_secs(3)).await;
                write(&mut tcp, &honest(&asked)).await;
            } else {
                write(&mut tcp, &honest(&asked)).await;
            }
        }
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    let call = client.call("slow", json!({"text": "done"}));
    let (answer, ()) =
        tokio::join!(call, until(20, "three streams", async || gets.load(Ordering::SeqCst) == 3));
    assert_eq!(text(&answer), "done", "a call under way does not hear of it");
    client.works("echo").await;
    assert_eq!(asked_for(&upstream, "initialize").len(), 1, "the session is the same");
    assert!(!gateway.said("attempt"), "{:?}", gateway.log.lock().unwrap());
    gateway.stop().await;
}

#[tokio::test]
async fn a_call_whose_stream_breaks_may_have_been_executed_and_is_not_sent_again() {
    for is_modern in [false, true] {
        let upstream = Upstream::start(move |asked: Asked, mut tcp: TcpStream| async move {
            if asked.tool() == "cut" {
                write(&mut tcp, &[STREAM, b": alive\n\n"].concat()).await;
            } else if asked.is("server/discover") && is_modern {
                let info = json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete"});
                write(&mut tcp, &answer(&asked, &info)).await;
            } else {
                write(&mut tcp, &honest(&asked)).await;
            }
        })
        .await;
        let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
        let answer = if is_modern {
            modern(&gateway, "/mcp/a", "cut", json!({})).await.message()
        } else {
            Legacy::connect(&gateway, "/mcp/a").await.call("cut", json!({})).await
        };
        let failure = failed(&answer);
        assert_eq!(
            (&failure["code"], &failure["mayHaveExecuted"]),
            (&json!("CONNECTION_LOST"), &json!(true)),
            "{answer}"
        );
        let calls: Vec<Value> =
            asked_for(&upstream, "tools/call").into_iter().map(|asked| asked.message).collect();
        assert_eq!(calls.len(), 1, "{calls:?}");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_know_ping_is_never_asked_for_it() {
    let upstream = Upstream::start(async |asked: Asked, mut tcp: TcpStream| {
        let answer = if asked.is("ping") {
            response("500 Internal Server Error", "", b"")
        } else {
            honest(&asked)
        };
        write(&mut tcp, &answer).await;
    })
    .await;
    let gateway =
        Gateway::serve(&[Entry::url("a", &upstream.url), Entry::scripted("b", &["--tag", "$TAG"])])
            .await;
    let client = Legacy::connect(&gateway, "/mcp").await;
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    for _ in 0..5 {
        client.works("a__echo").await;
    }
    assert!(asked_for(&upstream, "ping").is_empty());
    gateway.stop().await;
}

#[tokio::test]
async fn one_handshake_serves_all_calls_of_a_client() {
    let upstream = Upstream::start(async |asked: Asked, mut tcp: TcpStream| {
        write(&mut tcp, &honest(&asked)).await;
    })
    .await;
    let gateway = Gateway::serve(&[Entry::url("a", &upstream.url)]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    for _ in 0..10 {
        client.works("echo").await;
    }
    assert_eq!(asked_for(&upstream, "initialize").len(), 1);
    for _ in 0..10 {
        let answer = modern(&gateway, "/mcp/a", "echo", json!({"text": "x"})).await.message();
        assert_eq!(text(&answer), "x");
    }
    // The stateless clients share one more.
    assert_eq!(asked_for(&upstream, "initialize").len(), 2);
    gateway.stop().await;
}

#[tokio::test]
async fn a_stateless_client_that_drops_its_call_and_asks_again_gets_the_one_answer() {
    // A pipe to a server of the legacy era: the call is execution over from one era to the other.
    for capabilities in [json!({}), json!({"elicitation": {}})] {
        let ledger = Ledger::new();
        let gateway =
            Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG", "--ledger", ledger.path()])])
                .await;
        let ask = async |tool: &str, arguments: Value| {
            let mut request =
                modern_request(1, "tools/call", json!({"name": tool, "arguments": arguments}));
            request["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                capabilities.clone();
            let mut headers = modern_headers(&request);
            headers.push(("authorization", "Bearer me".to_owned()));
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let body = request.to_string().into();
            http::whole(
                http::send(gateway.address, ::http::Method::POST, "/mcp/a", &headers, body).await,
            )
            .await
            .message()
        };
        let begun = || ledger.count("delay done");
        let delay = json!({"ms": 1_500, "text": "done"});
        tokio::select! {
            answer = ask("delay", delay.clone()) => panic!("too early: {answer}"),
            () = until(10, "it runs", async || begun() == 1) => {}
        }
        let answer = ask("delay", delay).await;
        assert_eq!(
            answer["result"]["_meta"]["seawall/served"]["by"], "rejoined",
            "{capabilities}: {answer}"
        );
        assert_eq!(
            (&answer["result"]["content"][1]["text"], begun()),
            (&json!("done"), 1),
            "{capabilities}"
        );
        gateway.stop().await;
    }
}
