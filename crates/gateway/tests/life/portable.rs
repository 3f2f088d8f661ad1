//! What only holds where Linux is taken for any other Unix: how a server starts, who ends what a
//! killed gateway leaves, and what nobody finds.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, getpgid};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::kit::process::{SEAWALL, processes};
use crate::kit::{Entry, Gateway, Legacy, text, until, within};
use crate::{kill, leave};

/// A server that nothing but SIGKILL ends, with a child of the same kind in its group.
const SURVIVORS: &[&str] =
    &["--tag", "$TAG", "--forks", "1", "--ignore-term", "--outlive", "--ignore-eof"];

/// What `start-server` runs when this is written to its stdin, which then ends.
async fn started(input: &[u8]) -> (Option<i32>, Vec<u8>) {
    let mut command = Command::new(SEAWALL);
    command.args(["start-server", "1", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).await.unwrap();
    let output = within(10, "it ends", child.wait_with_output()).await.unwrap();
    (output.status.code(), output.stdout)
}

#[tokio::test]
async fn a_server_starts_when_its_gateway_says_so_and_never_without_it() {
    assert_eq!(started(b"").await, (Some(4), Vec::new()), "its gateway was killed before");
    assert_eq!(started(b"\n").await, (Some(0), Vec::new()));
    // What follows belongs to the server, to the last byte.
    assert_eq!(started(b"\n{}\nrest").await, (Some(0), b"{}\nrest".to_vec()));
}

/// The watcher of a gateway: it reads from a pipe of which the gateway has the other end.
fn watcher(gateway: u32) -> Option<i32> {
    let link = |path: PathBuf| fs::read_link(path).ok();
    let files = fs::read_dir(format!("/proc/{gateway}/fd")).unwrap();
    let ends: Vec<PathBuf> = files.filter_map(|file| link(file.unwrap().path())).collect();
    let is_its =
        |pid: &i32| link(format!("/proc/{pid}/fd/0").into()).is_some_and(|end| ends.contains(&end));
    processes("--detached").into_iter().find(is_its)
}

#[tokio::test]
async fn another_watcher_takes_the_place_of_a_killed_one_and_ends_what_both_were_told_of() {
    let gateway = Gateway::serve(&[Entry::scripted("a", SURVIVORS)]).await;
    let one = Legacy::connect(&gateway, "/mcp/a").await;
    one.works("echo").await;
    until(5, "it has started", async || processes(gateway.tag()).len() == 2).await;
    until(5, "it is watched", async || watcher(gateway.pid()).is_some()).await;
    let first = watcher(gateway.pid()).unwrap();
    kill(first);
    until(5, "nobody watches", async || watcher(gateway.pid()).is_none()).await;

    let two = Legacy::connect(&gateway, "/mcp/a").await;
    two.works("echo").await;
    until(5, "both have started", async || processes(gateway.tag()).len() == 4).await;
    until(5, "it is watched again", async || watcher(gateway.pid()).is_some()).await;
    kill(gateway.pid().cast_signed());
    until(5, "the leftovers are gone", async || processes(gateway.tag()).is_empty()).await;
}

#[tokio::test]
async fn a_process_that_left_its_group_stays() {
    let entry = Entry::scripted("a", &["--tag", "$TAG", "--setsid"]).with("keep_warm = \"0s\"");
    let gateway = Gateway::serve(&[entry]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    assert_eq!(text(&client.call("fork", json!({})).await), "forked");
    let leads =
        |pid: &i32| getpgid(Pid::from_raw(*pid)).is_ok_and(|it| it.as_raw_nonzero().get() == *pid);
    let are_apart = || {
        let running = processes(gateway.tag());
        running.len() == 2 && running.iter().all(leads)
    };
    until(5, "both have started, and each leads a group", async || are_apart()).await;
    leave(&client).await;
    until(8, "the server is gone", async || processes(gateway.tag()).len() == 1).await;
    for pid in processes(gateway.tag()) {
        kill(pid);
    }
    until(5, "ended by the test", async || processes(gateway.tag()).is_empty()).await;
    gateway.stop().await;
}
