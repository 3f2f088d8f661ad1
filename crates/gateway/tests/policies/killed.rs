//! Seawall is killed, or left by its client, under a write: the next process knows of it.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::kit::{Wrapped, soon, until};
use super::server::{End, Faulty, failure, text};

/// Longer than a script takes to close its end.
const GIVES_UP: Duration = Duration::from_millis(300);

/// A wrapper around the server, with all that is kept in `folder`.
async fn wrapper(server: &Faulty, folder: &Path) -> Wrapped {
    wrapper_in(server, folder, folder, "me").await
}

/// The same, started in another place and for another account.
async fn wrapper_in(server: &Faulty, folder: &Path, cwd: &Path, account: &str) -> Wrapped {
    let config = folder.join("seawall.toml");
    // Written once: another wrapper may be reading it.
    if !config.exists() {
        std::fs::write(&config, server.config("", "")).unwrap();
    }
    let mut process = tokio::process::Command::new(env!("CARGO_BIN_EXE_seawall"));
    process.env("XDG_STATE_HOME", folder).args(["serve", "--stdio", "--config"]).arg(&config);
    process.current_dir(cwd).env("ACCOUNT", account);
    let mut wrapper = Wrapped::start(process);
    wrapper.initialize(json!({})).await;
    wrapper.ask(1, "tools/list", json!({})).await;
    wrapper
}

fn write(id: i64) -> String {
    let params = json!({"name": "create_issue", "arguments": {"title": "x"}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
}

/// What another process gets that makes the same write.
async fn repeated(server: &Faulty, folder: &Path) -> Value {
    written(wrapper(server, folder).await).await
}

async fn written(mut wrapper: Wrapped) -> Value {
    wrapper.send(&write(2)).await;
    let answer = wrapper.answer(&json!(2)).await.0;
    wrapper.close();
    soon(wrapper.child.wait()).await.unwrap();
    answer
}

async fn look(server: &Faulty, folder: &Path) {
    looked(wrapper(server, folder).await).await;
}

async fn looked(mut wrapper: Wrapped) {
    let answer =
        wrapper.ask(2, "tools/call", json!({"name": "list_issues", "arguments": {}})).await;
    assert_eq!(text(&answer), "fine");
    wrapper.close();
    soon(wrapper.child.wait()).await.unwrap();
}

async fn holding() -> (Faulty, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&go);
    let server = Faulty::start(move |tool, count, _| match (tool, count) {
        ("create_issue", 1) => End::Held(Arc::clone(&held), "made"),
        _ => End::Text("fine"),
    })
    .await;
    (server, go)
}

#[tokio::test]
async fn a_write_under_way_in_a_wrapper_that_was_killed_is_not_sent_by_the_next_until_somebody_looked()
 {
    let ((server, _go), folder) = (holding().await, tempfile::TempDir::new().unwrap());
    let mut first = wrapper(&server, folder.path()).await;
    first.send(&write(2)).await;
    until("the write runs", async || server.calls("create_issue") == 1).await;
    first.child.kill().await.unwrap();
    // Three at once, as an agent does that starts a process for each call.
    let repeats =
        futures_util::future::join_all((0..3).map(|_| repeated(&server, folder.path()))).await;
    for answer in &repeats {
        assert_eq!(failure(answer)["code"], "WRITE_UNCERTAIN", "{answer}");
        assert_eq!(failure(answer)["mayHaveExecuted"], true, "{answer}");
    }
    assert_eq!(server.calls("create_issue"), 1);
    look(&server, folder.path()).await;
    assert_eq!(
        text(&repeated(&server, folder.path()).await),
        "fine",
        "its client has looked, and means it"
    );
    assert_eq!(text(&repeated(&server, folder.path()).await), "fine", "what was delivered is over");
    assert_eq!(server.calls("create_issue"), 3);
}

#[tokio::test]
async fn a_write_whose_client_closed_its_end_is_known_while_it_runs_and_after_its_answer_came() {
    let ((server, go), folder) = (holding().await, tempfile::TempDir::new().unwrap());
    let mut first = wrapper(&server, folder.path()).await;
    first.send(&write(2)).await;
    until("the write runs", async || server.calls("create_issue") == 1).await;
    tokio::time::sleep(GIVES_UP).await;
    first.close();
    until("it is known that the client has gone", async || {
        failure(&repeated(&server, folder.path()).await)["code"] == "WRITE_UNCERTAIN"
    })
    .await;
    look(&server, folder.path()).await;
    let code = failure(&repeated(&server, folder.path()).await)["code"].clone();
    assert_eq!(code, "WRITE_UNCERTAIN", "what still runs cannot be seen yet");
    go.add_permits(1);
    soon(first.child.wait()).await.unwrap();
    let code = failure(&repeated(&server, folder.path()).await)["code"].clone();
    assert_eq!(
        (code, server.calls("create_issue")),
        (json!("WRITE_UNCERTAIN"), 1),
        "nobody has read the answer"
    );
    look(&server, folder.path()).await;
    assert_eq!(text(&repeated(&server, folder.path()).await), "fine");
}

/// Whether a journal below the folder holds a write that its client has left: its slot of 64 bytes
/// has a time at 40.
fn has_left(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| match path.extension() {
        Some(name) if name == "slots" => {
            let slots = std::fs::read(&path).unwrap_or_default();
            slots.chunks_exact(64).any(|slot| slot[40..48] != [0; 8])
        }
        _ => path.is_dir() && has_left(&path),
    })
}

#[tokio::test]
async fn a_write_whose_client_ends_the_wrapper_by_a_signal_is_in_doubt_though_the_pipe_took_its_answer()
 {
    for signal in [Signal::TERM, Signal::INT] {
        let ((server, go), folder) = (holding().await, tempfile::TempDir::new().unwrap());
        let mut first = wrapper(&server, folder.path()).await;
        first.send(&write(2)).await;
        until("the write runs", async || server.calls("create_issue") == 1).await;
        tokio::time::sleep(GIVES_UP).await;
        let id = first.child.id().unwrap().cast_signed();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
        until("the write is noted as left", async || has_left(folder.path())).await;
        go.add_permits(1);
        soon(first.child.wait()).await.unwrap();
        let code = failure(&repeated(&server, folder.path()).await)["code"].clone();
        assert_eq!((code, server.calls("create_issue")), (json!("WRITE_UNCERTAIN"), 1));
    }
}

#[tokio::test]
async fn a_script_that_asks_closes_its_end_and_reads_may_do_so_again() {
    let (server, folder) =
        (Faulty::start(|_, _, _| End::After(300, "made")).await, tempfile::TempDir::new().unwrap());
    for round in 1..=2 {
        let mut script = wrapper(&server, folder.path()).await;
        script.send(&write(2)).await;
        script.close();
        assert_eq!(text(&script.answer(&json!(2)).await.0), "made");
        soon(script.child.wait()).await.unwrap();
        assert_eq!(server.calls("create_issue"), round);
    }
}

#[tokio::test]
async fn a_write_of_a_wrapper_whose_client_is_there_is_no_other_clients_affair() {
    let ((server, go), folder) = (holding().await, tempfile::TempDir::new().unwrap());
    let mut first = wrapper(&server, folder.path()).await;
    first.send(&write(2)).await;
    until("the write runs", async || server.calls("create_issue") == 1).await;
    assert_eq!(text(&repeated(&server, folder.path()).await), "fine", "two clients, two intents");
    go.add_permits(1);
    assert_eq!(text(&first.answer(&json!(2)).await.0), "made");
}

/// The pipes of a wrapper. A client's end is closed once nobody holds it: a process that another
/// test starts at the same moment has a copy until it becomes its own program.
struct WrapperPipes {
    input: File,
    output: PathBuf,
}

impl WrapperPipes {
    /// Before the client closes its ends.
    fn of(wrapper: &Wrapped) -> Self {
        let of_process = |descriptor: u32| {
            PathBuf::from(format!("/proc/{}/fd/{descriptor}", wrapper.child.id().unwrap()))
        };
        let input = at_once().read(true).open(of_process(0)).unwrap();
        Self { input, output: of_process(1) }
    }

    async fn have_no_writer(&self) {
        let ended = async || matches!((&self.input).read(&mut [0]), Ok(0));
        until("the wrapper's input has ended", ended).await;
    }

    async fn have_no_reader(&self) {
        let refused = async || at_once().write(true).open(&self.output).is_err();
        until("nobody can read the wrapper's output", refused).await;
    }
}

/// Opens a pipe without waiting for its other end.
fn at_once() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    options
}

#[tokio::test]
async fn a_client_that_dies_or_gives_up_sooner_than_a_second_leaves_its_write_in_doubt_too() {
    for dies in [true, false] {
        let ((server, go), folder) = (holding().await, tempfile::TempDir::new().unwrap());
        let mut first = wrapper(&server, folder.path()).await;
        first.send(&write(2)).await;
        until("the write runs", async || server.calls("create_issue") == 1).await;
        let pipes = WrapperPipes::of(&first);
        if dies {
            // Both of its ends close at once; the answer has nowhere to go.
            first.die();
            pipes.have_no_reader().await;
            go.add_permits(1);
        } else {
            tokio::time::sleep(GIVES_UP).await;
            // The wrapper finds the closed end and the answer at the same time.
            signal(&first.child, Signal::STOP);
            first.close();
            pipes.have_no_writer().await;
            go.add_permits(1);
            until("the server has answered", async || server.finished() == 1).await;
            signal(&first.child, Signal::CONT);
        }
        soon(first.child.wait()).await.unwrap();
        let code = failure(&repeated(&server, folder.path()).await)["code"].clone();
        assert_eq!(
            (code, server.calls("create_issue")),
            (json!("WRITE_UNCERTAIN"), 1),
            "dies: {dies}"
        );
    }
}

#[tokio::test]
async fn a_wrapper_that_was_there_before_knows_of_the_write_too_and_its_look_counts() {
    let ((server, _go), folder) = (holding().await, tempfile::TempDir::new().unwrap());
    let (mut first, mut second) =
        (wrapper(&server, folder.path()).await, wrapper(&server, folder.path()).await);
    first.send(&write(2)).await;
    until("the write runs", async || server.calls("create_issue") == 1).await;
    first.child.kill().await.unwrap();
    second.send(&write(3)).await;
    let refused = second.answer(&json!(3)).await.0;
    assert_eq!(failure(&refused)["code"], "WRITE_UNCERTAIN", "{refused}");
    second.ask(4, "tools/call", json!({"name": "list_issues", "arguments": {}})).await;
    assert_eq!(text(&repeated(&server, folder.path()).await), "fine", "it was looked at");
}

#[tokio::test]
async fn a_server_in_another_folder_is_another_one_and_another_accounts_look_lifts_nothing() {
    let ((server, _go), folder) = (holding().await, tempfile::TempDir::new().unwrap());
    let elsewhere = tempfile::TempDir::new().unwrap();
    let mut first = wrapper(&server, folder.path()).await;
    first.send(&write(2)).await;
    until("the write runs", async || server.calls("create_issue") == 1).await;
    first.child.kill().await.unwrap();
    looked(wrapper_in(&server, folder.path(), folder.path(), "bob").await).await;
    let code = failure(&repeated(&server, folder.path()).await)["code"].clone();
    assert_eq!(code, "WRITE_UNCERTAIN", "bob has seen his own");
    let other = written(wrapper_in(&server, folder.path(), elsewhere.path(), "me").await).await;
    assert_eq!(text(&other), "fine", "it is another project's");
}

/// Sends a signal to a process.
fn signal(process: &tokio::process::Child, signal: Signal) {
    let id = process.id().unwrap().cast_signed();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn a_write_that_the_end_of_the_wrapper_cuts_off_is_told_as_one_that_may_have_run() {
    let ((server, _go), folder) = (holding().await, tempfile::TempDir::new().unwrap());
    let mut wrapper = wrapper(&server, folder.path()).await;
    wrapper.send(&write(2)).await;
    until("the write runs", async || server.calls("create_issue") == 1).await;
    tokio::time::sleep(GIVES_UP).await;
    signal(&wrapper.child, Signal::TERM);
    until("the signal is heard", async || has_left(folder.path())).await;
    signal(&wrapper.child, Signal::TERM);
    let answer = wrapper.answer(&json!(2)).await.0;
    assert_eq!(failure(&answer)["code"], "CONNECTION_LOST", "{answer}");
    assert_eq!(failure(&answer)["mayHaveExecuted"], true, "{answer}");
    assert!(text(&answer).contains("may have been executed: check"), "{answer}");
}

#[tokio::test]
async fn calls_of_both_eras_that_the_end_of_the_gateway_cuts_off_say_whether_they_may_have_run() {
    let (server, _go) = holding().await;
    let away = "[servers.away]\nurl = \"http://127.0.0.1:9/mcp\"\ntype = \"http\"\n";
    let served = super::kit::Served::with(&format!("{}{away}", server.config("", ""))).await;
    let params = json!({"name": "create_issue", "arguments": {"title": "x"}});
    let lost = json!({"name": "create_issue", "arguments": {"title": "y"}});
    let modern = served.modern("/mcp/gh", "tools/call", params);
    let waits = served.modern("/mcp/away", "tools/call", lost);
    let ended = async {
        until("the write runs", async || server.calls("create_issue") == 1).await;
        signal(&served.child, Signal::TERM);
        let has_heard =
            || served.log.lock().unwrap().iter().any(|line| line.contains("going down"));
        until("it has heard", async || has_heard()).await;
        signal(&served.child, Signal::TERM);
    };
    let ((_, modern), (_, waits), ()) = tokio::join!(modern, waits, ended);
    assert_eq!(failure(&modern)["code"], "CONNECTION_LOST", "{modern}");
    assert_eq!(failure(&modern)["mayHaveExecuted"], true, "{modern}");
    assert_eq!(failure(&waits)["mayHaveExecuted"], false, "{waits}");
}
