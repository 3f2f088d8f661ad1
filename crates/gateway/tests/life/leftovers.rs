//! What servers start and leave behind: gone with them, and if the gateway itself was killed, with
//! the next one.
//!
//! `seawall_portable` takes Linux for any other Unix, where the process group of a server is what
//! ends with it.

use serde_json::json;
use tokio::process::Command;

use crate::kit::process::{SEAWALL, processes};
use crate::kit::{Entry, Gateway, Legacy, Stdio, text, until};
use crate::{kill, leave};

/// A server whose children mind nothing, and leave its process group where they are found even so.
const RUNAWAYS: &[&str] = &[
    "--tag",
    "$TAG",
    "--forks",
    "3",
    "--ignore-term",
    #[cfg(not(seawall_portable))]
    "--setsid",
];

/// A server that starts such children when it is asked to.
const AWAY: &[&str] = &[
    "--tag",
    "$TAG",
    "--ignore-term",
    #[cfg(not(seawall_portable))]
    "--setsid",
];

/// Runaways of a server that, like them, nothing but SIGKILL ends.
fn survivors() -> Vec<&'static str> {
    [RUNAWAYS, &["--outlive", "--ignore-eof"]].concat()
}

#[tokio::test]
async fn what_a_server_started_in_sessions_of_its_own_goes_with_its_client() {
    let gateway =
        Gateway::serve(&[Entry::scripted("a", RUNAWAYS).with("keep_warm = \"0s\"")]).await;
    let (one, two) =
        (Legacy::connect(&gateway, "/mcp/a").await, Legacy::connect(&gateway, "/mcp/a").await);
    until(5, "all have started", async || processes(gateway.tag()).len() == 8).await;
    leave(&one).await;
    until(8, "those of one client are gone", async || processes(gateway.tag()).len() == 4).await;
    two.works("echo").await;
    gateway.stop().await;
}

#[tokio::test]
async fn what_a_dead_server_started_goes_when_another_takes_its_place() {
    let mut client = Stdio::ready(AWAY).await;
    assert_eq!(text(&client.call(1, "fork", json!({})).await), "forked");
    client.call(2, "exit", json!({})).await;
    client.works().await;
    // The word stands in the gateway's own command line too.
    until(8, "one server is left", async || processes(client.tag()).len() == 2).await;
    client.stop().await;
}

#[tokio::test]
async fn leftovers_of_a_killed_gateway_are_ended_by_the_next_and_those_of_the_living_are_not() {
    let living = Gateway::serve(&[Entry::scripted("a", RUNAWAYS)]).await;
    let client = Legacy::connect(&living, "/mcp/a").await;
    until(5, "all have started", async || processes(living.tag()).len() == 4).await;
    let before = processes(living.tag());

    let killed = Gateway::serve(&[Entry::scripted("a", &survivors())]).await;
    let lost = Legacy::connect(&killed, "/mcp/a").await;
    lost.works("echo").await;
    until(5, "all have started", async || processes(killed.tag()).len() == 4).await;
    kill(killed.pid().cast_signed());

    let next = Gateway::serve(&[Entry::scripted("a", &["--tag", "$TAG"])]).await;
    until(5, "the leftovers are gone", async || processes(killed.tag()).is_empty()).await;
    assert_eq!(processes(living.tag()), before);
    client.works("echo").await;
    next.stop().await;
    living.stop().await;
}

#[tokio::test]
async fn leftovers_of_a_killed_gateway_are_gone_within_five_seconds_though_no_other_starts() {
    for face in ["serve", "run"] {
        let tag = if face == "serve" {
            let gateway = Gateway::serve(&[Entry::scripted("a", &survivors())]).await;
            let client = Legacy::connect(&gateway, "/mcp/a").await;
            client.works("echo").await;
            until(5, "all have started", async || processes(gateway.tag()).len() == 4).await;
            kill(gateway.pid().cast_signed());
            gateway.tag().to_owned()
        } else {
            let mut client = Stdio::ready(&survivors()).await;
            client.works().await;
            until(5, "all have started", async || processes(client.tag()).len() == 5).await;
            kill(client.pid().cast_signed());
            client.tag().to_owned()
        };
        until(5, "the leftovers are gone", async || processes(&tag).is_empty()).await;
    }
}

#[cfg(not(seawall_portable))]
#[tokio::test]
async fn a_server_may_be_configured_to_leave_what_it_started_alone() {
    let entry =
        Entry::scripted("a", RUNAWAYS).with("env = { SEAWALL_GATEWAY = \"\" }\nkeep_warm = \"0s\"");
    let gateway = Gateway::serve(&[entry]).await;
    let client = Legacy::connect(&gateway, "/mcp/a").await;
    until(5, "all have started", async || processes(gateway.tag()).len() == 4).await;
    leave(&client).await;
    until(8, "the server is gone", async || processes(gateway.tag()).len() == 3).await;
    for pid in processes(gateway.tag()) {
        kill(pid);
    }
    until(5, "ended by the test", async || processes(gateway.tag()).is_empty()).await;
    gateway.stop().await;
}

#[tokio::test]
async fn a_gateway_ends_with_its_killed_launcher_though_its_client_holds_the_pipe_open() {
    // A shell in the place of npm's launcher; the client's pid is the shell's.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#""$0" --launcher $$ "$@"; exit $?"#, SEAWALL]);
    let client = Stdio::started(shell, RUNAWAYS).greeted().await;
    until(5, "all have started", async || processes(client.tag()).len() == 6).await;
    kill(client.pid().cast_signed());
    until(8, "all are gone", async || processes(client.tag()).is_empty()).await;
    assert!(client.input.is_some());
}
