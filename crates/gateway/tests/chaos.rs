//! `seawall chaos` as somebody uses it who tests an agent: the real command, on pipes and on HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that is surprised should stop"
)]
#![allow(clippy::disallowed_methods, reason = "the command runs in its own process, in real time")]

#[allow(dead_code, reason = "shared with other tests, which need more of it")]
#[path = "gateway/kit.rs"]
mod kit;

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use self::kit::{Wrapped, soon};

fn chaos(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seawall"));
    command.arg("chaos").args(arguments).kill_on_drop(true);
    command
}

/// A script in a folder of its own.
fn script(text: &str) -> (TempDir, String) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("chaos.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn fault(fault: &str, more: &str) -> String {
    format!("[[faults]]\nfault = \"{fault}\"\npercent = 100\n{more}\n")
}

/// What comes of a call: its text, marked if it is an error.
fn end(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    match (answer["error"]["message"].as_str(), &answer["result"]["isError"]) {
        (Some(error), _) => format!("rpc: {error}"),
        (None, Value::Bool(true)) => format!("error: {}", text.unwrap()),
        _ => text.unwrap().to_owned(),
    }
}

async fn call(server: &mut Wrapped, id: i64, tool: &str, note: u64) -> Value {
    server.ask(id, "tools/call", json!({"name": tool, "arguments": {"id": note}})).await
}

/// A server on HTTP, its address, and what it said first.
async fn on_http(arguments: &[&str]) -> (Child, String, String) {
    let listen = ["--listen", "127.0.0.1:0"];
    let mut child = chaos(&[arguments, &listen].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = soon(lines.next_line()).await.unwrap().unwrap();
    let address = told.split("http://").nth(1).unwrap().trim_end_matches("/mcp").to_owned();
    (child, address, told)
}

/// One exchange as bytes; empty if the server is not there or hangs up without an answer.
async fn post(address: &str, session: &str, message: &Value) -> String {
    let Ok(mut tcp) = soon(TcpStream::connect(address)).await else { return String::new() };
    let body = message.to_string();
    let length = body.len();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nmcp-session-id: {session}\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut answer = Vec::new();
    if tcp.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
        return String::new();
    }
    // A server with faults may break off; one without ends its head with the length of its body.
    while !is_whole(&String::from_utf8_lossy(&answer)) {
        if soon(tcp.read_buf(&mut answer)).await.unwrap_or(0) == 0 {
            break;
        }
    }
    String::from_utf8(answer).unwrap()
}

fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    body.len() == length.parse::<usize>().unwrap()
}

async fn session(address: &str) -> Option<String> {
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}});
    let answer = post(address, "", &hello).await;
    answer.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).map(str::to_owned)
}

fn reading(note: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read_note", "arguments": {"id": note}}})
}

/// How a server of the script that is played by default answers a hundred calls, without those
/// that it never answers: these are waited for a moment only.
async fn played(seed: &str) -> Vec<String> {
    let (_folder, path) = script(&script_without_hangs());
    let mut server = Wrapped::start(chaos(&["--script", &path, "--seed", seed]));
    server.initialize(json!({})).await;
    let mut ends = Vec::new();
    for note in 0..100 {
        ends.push(end(&call(&mut server, note + 1, "read_note", note.unsigned_abs()).await));
    }
    ends
}

fn script_without_hangs() -> String {
    ["throttled", "unavailable", "tool_error", "rpc_error", "disguised"]
        .map(|name| fault(name, "").replace("100", "12"))
        .concat()
}

#[tokio::test]
async fn the_same_seed_gives_the_same_faults_and_another_gives_others() {
    let one = played("7").await;
    assert_eq!(one, played("7").await);
    assert_ne!(one, played("8").await);
    for kind in [
        "rpc: 429",
        "rpc: 503",
        "error: The service",
        "rpc: Internal error",
        "Error: the",
        "read_note",
    ] {
        assert!(one.iter().any(|end| end.starts_with(kind)), "{kind}: {one:?}");
    }
}

#[tokio::test]
async fn on_http_each_fault_is_what_it_is_called() {
    for (name, more, wanted) in [
        (
            "throttled_for",
            "retry_after = 7",
            "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: 7\r\n",
        ),
        ("throttled", "", "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n"),
        ("unavailable", "status = 502", "HTTP/1.1 502 Bad Gateway"),
        ("expired", "", "HTTP/1.1 401 Unauthorized"),
        ("lost_session", "", "HTTP/1.1 404 Not Found"),
        ("rpc_error", "", r#""error":{"code":-32603,"message":"Internal error"}"#),
        ("refused", "", r#""isError":true"#),
        (
            "disguised",
            "",
            r#"Error: the service answered 503 Service Unavailable.","type":"text"}],"isError":false"#,
        ),
        ("slow", "delay = \"1ms\"", "read_note 3: done."),
    ] {
        let (_folder, path) = script(&fault(name, more));
        let (_child, address, _) = on_http(&["--script", &path]).await;
        let session = session(&address).await.unwrap();
        let answer = post(&address, &session, &reading(3)).await;
        assert!(answer.contains(wanted), "{name}: {answer}");
    }
}

#[tokio::test]
async fn a_server_that_crashes_or_is_cut_off_breaks_the_connection_and_comes_back() {
    for name in ["crash_before", "crash_after", "cut_off"] {
        let (_folder, path) = script(&fault(name, "attempts = 1"));
        let (_child, address, _) = on_http(&["--script", &path]).await;
        let before = session(&address).await.unwrap();
        let broken = post(&address, &before, &reading(3)).await;
        assert!(!is_whole(&broken), "{name}: {broken}");
        let mut after = None;
        kit::until("it is back", async || {
            after = session(&address).await;
            after.is_some()
        })
        .await;
        let after = after.unwrap();
        assert!(post(&address, &after, &reading(3)).await.contains("done."), "{name}: once only");
    }
}

#[tokio::test]
async fn on_pipes_a_crash_ends_the_process_and_the_next_goes_on_where_it_ended() {
    let (folder, path) = script(&(fault("crash_after", "attempts = 1\ntool = \"add_note\"")));
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    let start = || Wrapped::start(chaos(&["--script", &path, "--state", state]));
    let mut first = start();
    first.initialize(json!({})).await;
    assert_eq!(end(&call(&mut first, 1, "read_note", 5).await), "read_note 5: done.");
    first.send(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "add_note", "arguments": {"id": 5}}}).to_string()).await;
    assert_eq!(soon(first.child.wait()).await.unwrap().code(), Some(1));
    let mut next = start();
    next.initialize(json!({})).await;
    let read = end(&call(&mut next, 3, "read_note", 5).await);
    assert_eq!(read, "read_note 5: done. It is there.", "the write was executed before the crash");
    assert_eq!(end(&call(&mut next, 4, "add_note", 5).await), "add_note 5: done.");
}

#[tokio::test]
async fn it_says_that_it_fails_on_purpose_and_ends_at_a_signal() {
    let (mut child, _, told) = on_http(&[]).await;
    assert!(told.starts_with("seawall: this server fails on purpose: seed 1, 8 faults striking at most 44 % of calls; at http://127.0.0.1:"), "{told}");
    let pid = rustix::process::Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(soon(child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_bad_script_is_told_with_its_lines_and_what_to_write() {
    let (_folder, path) = script(
        "sed = 1\nlist = \"full\"\n\n[[faults]]\nfault = \"explode\"\npercent = 10\n\n[[faults]]\nfault = \"hang\"\npercent = 0\n\n\
         [[faults]]\nfault = \"hang\"\npercent = 60\ndelay = \"1s\"\n\n[[faults]]\npercent = 60\ntool = \"read_notes\"\n\n\
         [[faults]]\nfault = \"unavailable\"\npercent = 60\nstatus = 200\n",
    );
    let output = soon(chaos(&["--script", &path]).stdin(Stdio::null()).output()).await.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    insta::assert_snapshot!("chaos_bad_script", told.replace(&path, "chaos.toml"));
    let much = ["hang", "slow"].map(|name| fault(name, "").replace("100", "60")).concat();
    let (_folder, path) = script(&much);
    let output = soon(chaos(&["--script", &path]).stdin(Stdio::null()).output()).await.unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("faults: strike 120 of a hundred calls of read_note; at most one fault strikes a call, so lower percent"), "{told}");
    let output = soon(chaos(&["--script", "none.toml"]).output()).await.unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.starts_with("seawall: none.toml: cannot be read: No such file"), "{told}");
}

/// The page shows the script that is played by default, and it is read as it is.
#[tokio::test]
async fn the_script_in_the_documents_is_the_one_that_is_printed_and_plays() {
    let output = soon(chaos(&["--print-script"]).output()).await.unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/testing-agents.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&format!("```script\n{printed}```\n")), "{printed}");
    let (_folder, path) = script(&printed);
    let output = soon(chaos(&["--script", &path]).stdin(Stdio::null()).output()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Behind Seawall an agent gets more answers than without, and no write is made twice: that is what
/// the command is for.
#[tokio::test]
async fn behind_the_gateway_a_bad_day_is_a_better_one() {
    let (folder, path) = script(
        &["throttled", "unavailable"]
            .map(|name| fault(name, "attempts = 1").replace("100", "30"))
            .concat(),
    );
    let seawall = env!("CARGO_BIN_EXE_seawall");
    let mut direct = Wrapped::start(chaos(&["--script", &path]));
    let config = folder.path().join("seawall.toml");
    std::fs::write(&config, "[defaults]\nretry = { base = \"10ms\" }\n").unwrap();
    let mut guarded = Command::new(seawall);
    guarded.args(["run", "--no-catalog-cache", "--config"]).arg(&config);
    guarded.args(["--", seawall, "chaos", "--script", &path]);
    let mut guarded = Wrapped::start(guarded);
    let mut good = [0, 0];
    for (server, good) in [&mut direct, &mut guarded].into_iter().zip(&mut good) {
        server.initialize(json!({})).await;
        for note in 0..20_u64 {
            let answer = call(server, 1 + note.cast_signed(), "read_note", note).await;
            *good += u64::from(end(&answer) == format!("read_note {note}: done."));
        }
    }
    assert!(good[0] < 12 && good[1] > good[0], "{good:?}");
}
