//! The end: calls under way finish, new ones are refused, nothing is left behind.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::kit::{Served, Wrapped, children, fixture, program, soon, until};

fn ask_to_go(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::TERM).unwrap();
}

fn is_gone(pid: u32) -> bool {
    !std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn a_call_under_way_is_answered_and_the_children_end() {
    let mut served = Served::with(&fixture("a", "legacy")).await;
    let gateway = served.child.id().unwrap();
    let session = served.session("/mcp").await;
    let servers = children(gateway);
    assert_eq!(servers.len(), 1);

    let call = session.ask(1, "tools/call", json!({"name": "slow", "arguments": {"ms": 700}}));
    let (answer, ()) = tokio::join!(call, async {
        until("the call is under way", async || {
            session.ask(2, "tools/call", json!({"name": "counters"})).await["result"]["structuredContent"]["calls"] == 1
        })
        .await;
        ask_to_go(gateway);
    });
    assert!(
        answer["result"]["isError"] != true && answer["result"]["content"].is_array(),
        "{answer}"
    );
    drop(session);
    assert!(soon(served.child.wait()).await.unwrap().success());
    until("its server is gone", async || is_gone(servers[0])).await;
}

#[tokio::test]
async fn a_client_that_closes_its_end_still_gets_its_answers() {
    let mut wrapped = Wrapped::run(&[&program("seawall-fixture"), "--stdio"]);
    wrapped.initialize(json!({})).await;
    let servers = children(wrapped.child.id().unwrap());
    wrapped
        .send(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"slow","arguments":{"ms":300}}}"#)
        .await;
    wrapped.close();
    let (answer, _) = wrapped.answer(&json!(5)).await;
    assert!(answer["result"]["content"].is_array(), "{answer}");
    assert!(soon(wrapped.child.wait()).await.unwrap().success());
    assert_eq!(servers.len(), 1);
    until("its server is gone", async || is_gone(servers[0])).await;
}

#[tokio::test]
async fn a_call_that_outlasts_the_grace_of_a_client_that_closed_its_end_has_a_last_answer() {
    for (effect, may_have_run) in [("read_only", false), ("write", true)] {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("seawall.toml");
        let server = fixture("a", "legacy");
        let tool = format!("[tools.\"a/slow\"]\neffect = {effect:?}\n");
        std::fs::write(&file, format!("grace = \"200ms\"\n{server}{tool}")).unwrap();
        let mut process = tokio::process::Command::new(program("seawall"));
        process.args(["serve", "--stdio", "--no-catalog-cache", "--config"]).arg(&file);
        let mut wrapped = Wrapped::start(process);
        wrapped.initialize(json!({})).await;
        wrapped.ask(1, "tools/list", json!({})).await;
        let servers = children(wrapped.child.id().unwrap());
        let params = json!({"name": "slow", "arguments": {"ms": 60_000}});
        let call = json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params});
        wrapped.send(&call.to_string()).await;
        wrapped.close();
        let (answer, _) = wrapped.answer(&json!(5)).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let failure = &answer["result"]["_meta"]["seawall/failure"];
        assert_eq!(failure["mayHaveExecuted"], may_have_run, "{answer}");
        assert!(soon(wrapped.child.wait()).await.unwrap().success());
        until("its server is gone", async || is_gone(servers[0])).await;
    }
}

#[tokio::test]
async fn a_second_signal_does_not_wait() {
    let mut served = Served::with(&fixture("a", "legacy")).await;
    let gateway = served.child.id().unwrap();
    let session = served.session("/mcp").await;
    let servers = children(gateway);
    let call = session.ask(1, "tools/call", json!({"name": "slow", "arguments": {"ms": 60_000}}));
    let ended = async {
        until("the call is under way", async || {
            session.ask(2, "tools/call", json!({"name": "counters"})).await["result"]["structuredContent"]["calls"] == 1
        })
        .await;
        ask_to_go(gateway);
        let has_heard =
            || served.log.lock().unwrap().iter().any(|line| line.contains("going down"));
        until("it has heard", async || has_heard()).await;
        ask_to_go(gateway);
    };
    let (answer, ()) = tokio::join!(call, ended);
    assert_eq!(
        answer["result"]["isError"], true,
        "also a call that is cut short is answered: {answer}"
    );
    soon(served.child.wait()).await.unwrap();
    until("its server is gone", async || is_gone(servers[0])).await;
}
