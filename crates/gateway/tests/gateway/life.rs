//! Servers end: what the client is told then, and what is left of them.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::kit::{Served, Wrapped, children, fixture, program, soon, until};

/// A server that shakes hands, then dies on the first call with a last word.
const MORTAL: &str = r#"
read line; id=$(echo "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"m","version":"0"}}}'
read line; read line; echo "the disk is on fire, password=hunter2 $SECRET" >&2; exit 3
"#;

#[tokio::test]
async fn a_dead_server_is_told_with_its_exit_and_its_last_words_but_no_secret() {
    let mut wrapped = Wrapped::run(&["env", "SECRET=canary-1234", "sh", "-c", MORTAL]);
    wrapped.initialize(json!({})).await;
    let answer = wrapped.ask(1, "tools/call", json!({"name": "x", "arguments": {}})).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    let start = r#"x failed: the connection to env was lost or could not be made ("its process ended (exit status: 3); it last said: the disk is on fire, "#;
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("It may have been executed."), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    let answer = wrapped.ask(2, "resources/list", json!({})).await;
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
}

#[tokio::test]
async fn a_value_of_the_configuration_is_never_in_an_answer() {
    let server = format!(
        "[servers.m]\ncommand = \"sh\"\nargs = [\"-c\", '''{MORTAL}''']\nenv = {{ SECRET = \"canary-1234\" }}\n"
    );
    let served = Served::with(&server).await;
    let session = served.session("/mcp").await;
    let answer =
        session.ask(1, "tools/call", json!({"name": "x", "arguments": {}})).await.to_string();
    assert!(answer.contains("the disk is on fire") && !answer.contains("canary-1234"), "{answer}");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let mut wrapped = Wrapped::run(&["/nonexistent/server"]);
    let answer = wrapped.initialize(json!({})).await;
    let text = answer["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("cannot be started: there is no program \"/nonexistent/server\""),
        "{text}"
    );
}

#[tokio::test]
async fn a_machine_without_certificates_can_run_commands() {
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    process
        .args(["run", "--no-catalog-cache", "--", "cat"])
        .env("SSL_CERT_FILE", "/dev/null")
        .env("SSL_CERT_DIR", "/nonexistent");
    let ended = soon(process.stdin(std::process::Stdio::null()).status()).await.unwrap();
    assert!(ended.success(), "{ended}");
}

#[tokio::test]
async fn what_is_remembered_stands_in_the_store_where_there_is_one() {
    let folder = tempfile::TempDir::new().unwrap();
    let (config, store) = (folder.path().join("policies.toml"), folder.path().join("store"));
    std::fs::write(&config, format!("[store]\npath = \"{}\"\n", store.display())).unwrap();
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    process.args(["run", "--config"]).arg(&config).args([
        "--",
        &program("seawall-fixture"),
        "--stdio",
    ]);
    process.env("XDG_STATE_HOME", folder.path().join("state"));
    let mut wrapped = Wrapped::start(process);
    wrapped.initialize(json!({})).await;
    wrapped.ask(1, "tools/list", json!({})).await;
    wrapped.close();
    soon(wrapped.child.wait()).await.unwrap();
    let files = |path: std::path::PathBuf| std::fs::read_dir(path).map_or(0, Iterator::count);
    // One file for clients of this kind, and one for those of any other.
    assert_eq!((files(store.join("catalog")), files(folder.path().join("state"))), (2, 0));
}

#[tokio::test]
async fn a_killed_gateway_takes_its_servers_with_it() {
    let mut served = Served::with(&fixture("a", "legacy")).await;
    let gateway = served.child.id().unwrap();
    let _one = served.session("/mcp").await;
    let _two = served.session("/mcp").await;
    // A session is greeted from the catalog cache while its server still starts.
    until("each session has its server", async || children(gateway).len() == 2).await;
    let servers = children(gateway);
    kill_process(Pid::from_raw(gateway.cast_signed()).unwrap(), Signal::KILL).unwrap();
    drop((_one, _two));
    soon(served.child.wait()).await.unwrap();
    until("the servers are gone", async || servers.iter().all(|pid| !is_running(*pid))).await;
}

/// Not gone, and not a zombie that nobody has waited for.
fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn what_a_server_started_goes_with_it() {
    let script = format!("sleep 1000 & exec {} --stdio", program("seawall-fixture"));
    let mut wrapped = Wrapped::run(&["sh", "-c", &script]);
    wrapped.initialize(json!({})).await;
    let server = children(wrapped.child.id().unwrap())[0];
    let grandchildren = children(server);
    assert_eq!(grandchildren.len(), 1);
    wrapped.close();
    soon(wrapped.child.wait()).await.unwrap();
    until("nothing is left", async || !is_running(server) && !is_running(grandchildren[0])).await;
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_killed_server_comes_back_and_the_client_keeps_its_session_and_its_tools() {
    let mut wrapped = Wrapped::run(&[&program("seawall-fixture"), "--stdio", "--era", "legacy"]);
    wrapped.initialize(json!({})).await;
    let before = wrapped.ask(1, "tools/list", json!({})).await;
    for round in 0..3 {
        let server = children(wrapped.child.id().unwrap())[0];
        kill(server);
        until("the server is gone", async || !is_running(server)).await;
        let list = wrapped.ask(10 + round, "tools/list", json!({})).await;
        assert_eq!(
            list["result"]["tools"], before["result"]["tools"],
            "the same through an outage"
        );
        // A call like none before: no copy can stand in for the server.
        let call = json!({"name": "echo_meta", "arguments": {"round": round}});
        let call = wrapped.ask(20 + round, "tools/call", call).await;
        assert_eq!(call["result"]["structuredContent"]["name"], "echo_meta", "{call}");
    }
    until("one is left", async || children(wrapped.child.id().unwrap()).len() == 1).await;
}

/// The answer to a call of `slow` that takes this long and whose server is killed while it works on
/// it.
async fn killed_at_work(policy: &str, ms: u64) -> serde_json::Value {
    let served = Served::with(&format!("{}{policy}", fixture("a", "legacy"))).await;
    let session = served.session("/mcp/a").await;
    session.ask(1, "tools/list", json!({})).await;
    let call = session.ask(2, "tools/call", json!({"name": "slow", "arguments": {"ms": ms}}));
    let killed = async {
        until("the call is under way", async || {
            session.ask(3, "tools/call", json!({"name": "counters"})).await["result"]["structuredContent"]["calls"] == 1
        })
        .await;
        kill(children(served.child.id().unwrap())[0]);
    };
    soon(async { tokio::join!(call, killed) }).await.0
}

#[tokio::test]
async fn a_write_under_way_when_its_server_is_killed_is_not_repeated_and_said_to_be_in_doubt() {
    let answer = killed_at_work("[tools.\"a/slow\"]\neffect = \"write\"\n", 60_000).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let failure = &answer["result"]["_meta"]["seawall/failure"];
    assert_eq!(
        (&failure["code"], &failure["mayHaveExecuted"]),
        (&json!("CONNECTION_LOST"), &json!(true)),
        "{answer}"
    );
    assert_eq!(failure["attempts"], 1, "{answer}");
}

#[tokio::test]
async fn a_read_under_way_when_its_server_is_killed_is_answered_by_the_next_process() {
    let answer = killed_at_work("", 1_000).await;
    assert!(
        answer["result"]["isError"].is_null() && answer["result"]["content"][0]["text"].is_string(),
        "{answer}"
    );
}

#[tokio::test]
async fn a_handshake_is_answered_from_memory_while_the_server_takes_its_time() {
    let folder = tempfile::TempDir::new().unwrap();
    let flag = folder.path().join("slow");
    let fixture = program("seawall-fixture");
    let script = format!(
        "while [ -e {} ]; do sleep 0.05; done; exec {fixture} --stdio --era legacy",
        flag.display()
    );
    let command = ["sh", "-c", script.as_str()];

    let mut first = Wrapped::remembering(folder.path(), &command);
    let info = first.initialize(json!({})).await;
    let list = first.ask(1, "tools/list", json!({})).await;
    first.close();
    soon(first.child.wait()).await.unwrap();

    std::fs::write(&flag, "").unwrap();
    let mut second = Wrapped::remembering(folder.path(), &command);
    assert_eq!(second.initialize(json!({})).await["result"], info["result"]);
    let early = second.ask(1, "tools/list", json!({})).await;
    assert_eq!(early["result"]["tools"], list["result"]["tools"]);
    assert_eq!(early["result"]["_meta"]["seawall/servers"]["sh"]["status"], "transient", "{early}");
    second.send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo_meta","arguments":{}}}"#).await;
    std::fs::remove_file(&flag).unwrap();
    let (answer, others) = second.answer(&json!(2)).await;
    assert_eq!(
        answer["result"]["structuredContent"]["name"], "echo_meta",
        "a call is held, not refused: {answer}"
    );
    assert!(others.is_empty(), "nothing has changed, so nothing is said: {others:?}");
}

#[tokio::test]
async fn a_known_client_that_ends_its_session_under_a_call_gets_the_answer_in_its_next_one() {
    let server = format!("[servers.a]\ncommand = {:?}\n", program("seawall-scripted"));
    let served = Served::with(&server).await;
    let session = served.session_as("/mcp/a", Some("Bearer me")).await;
    let delay = json!({"name": "delay", "arguments": {"ms": 1_500, "text": "done"}});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": delay}).to_string();
    let leave = async {
        until("it runs", async || {
            let counters =
                session.ask(2, "tools/call", json!({"name": "counters", "arguments": {}})).await;
            counters["result"]["structuredContent"]["delayed"] == 1
        })
        .await;
        session.end().await;
    };
    let (_called_off, ()) = tokio::join!(session.raw(&body), leave);
    let next = served.session_as("/mcp/a", Some("Bearer me")).await;
    let answer = next.ask(1, "tools/call", delay).await;
    assert_eq!(answer["result"]["_meta"]["seawall/served"]["by"], "rejoined", "{answer}");
    assert_eq!(answer["result"]["content"][1]["text"], "done", "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_wait_for_the_handshake_gets_its_own_servers_tools_from_one_child() {
    let folder = tempfile::TempDir::new().unwrap();
    let starts = folder.path().join("starts");
    let fixture = program("seawall-fixture");
    let counted = format!("echo x >> {}; exec {fixture} --stdio --era legacy", starts.display());
    let scripted = program("seawall-scripted");
    let info = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "hasty", "version": "1"}}});
    let all = [
        info.to_string(),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{}}"#.to_owned(),
    ];
    for round in 1..=10 {
        for (command, tool) in
            [(vec!["sh", "-c", &counted], "echo_meta"), (vec![scripted.as_str()], "echo")]
        {
            let mut client = Wrapped::remembering(folder.path(), &command);
            client.send(&all.join("\n")).await;
            let (list, _) = client.answer(&json!(2)).await;
            let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}"));
            let is_there = |name: &str| tools.iter().any(|known| known["name"] == name);
            assert_eq!(
                (is_there("echo_meta"), is_there("echo")),
                (tool == "echo_meta", tool == "echo"),
                "{list}"
            );
            client.close();
            soon(client.child.wait()).await.unwrap();
        }
        assert_eq!(
            std::fs::read_to_string(&starts).unwrap().lines().count(),
            round,
            "one child each time"
        );
    }
}

#[tokio::test]
async fn a_server_that_crashes_at_its_start_is_not_started_again_and_again() {
    let folder = tempfile::TempDir::new().unwrap();
    let starts = folder.path().join("starts");
    let script = format!("echo x >> {}; echo no luck >&2; exit 7", starts.display());
    let mut wrapped = Wrapped::run(&["sh", "-c", &script]);
    let info = wrapped.initialize(json!({})).await;
    assert!(info["result"]["instructions"].as_str().unwrap().contains("no luck"), "{info}");
    let count = std::fs::read_to_string(&starts).unwrap().lines().count();
    assert!(count <= 8, "{count} starts within seconds");
}
