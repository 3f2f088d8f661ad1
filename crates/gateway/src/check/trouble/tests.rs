//! What is said of each trouble, as a person reads it.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::{Config, Secret};
use crate::gateway::Gateway;
use crate::protocol::Reject;
use crate::store::catalog_cache::Memory;

fn server(config: Config) -> (Arc<Server>, Transport) {
    let gateway = Gateway::new(&config, Memory::default(), None).unwrap();
    (Arc::clone(&gateway.servers[0]), config.servers[0].transport.clone())
}

/// A command with a variable, whose value may be a word of ours.
fn command(value: &str) -> (Arc<Server>, Transport) {
    let mut config = Config::for_command(None, vec!["x".to_owned()]).unwrap();
    if let Transport::Stdio { env, .. } = &mut config.servers[0].transport {
        env.push(("X".to_owned(), Secret::new(value)));
    }
    server(config)
}

fn remote(url: &str) -> (Arc<Server>, Transport) {
    server(Config::for_url(None, url).unwrap())
}

fn said((server, transport): &(Arc<Server>, Transport), missed: &Missed, seen: &Seen) -> String {
    let Trouble { problem, text, next, .. } = of(server, transport, missed, seen);
    format!("{problem}: {text}\n    {next}")
}

fn seen(exit: Option<&str>, noise: u64) -> Seen {
    let mut seen = Seen::default();
    (seen.last_exit, seen.noise) = (exit.map(str::to_owned), noise);
    seen
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn status(status: u16, said: &str) -> Failure {
    Failure::Status { status, text: text(said), retry_after: None }
}

fn silent() -> Failure {
    Failure::Silent(Duration::from_secs(60))
}

#[tokio::test]
async fn the_catalogue_of_troubles_with_commands() {
    let ended = || Failure::Lost(text("its process ended (exit status: 7)"));
    let mut catalogue = String::new();
    for (failure, exit, noise) in [
        (Failure::Impossible(text("there is no program \"x\"")), None, 0),
        (Failure::Unreachable(text("cannot start \"x\": Permission denied (os error 13)")), None, 0),
        (ended(), Some("exit status: 7"), 0),
        (ended(), Some("exit status: 7"), 1),
        (Failure::Lost(text("it closed its output")), None, 0),
        (Failure::Lost(text("it closed its output")), None, 2),
        (silent(), None, 0),
        (silent(), None, 3),
        (Failure::Broken(Reject::Depth), None, 0),
        (Failure::Handshake(text("it has no version in common")), None, 0),
        (Failure::Struck { incident: 1, failure: Box::new(ended()) }, Some("signal: 9 (SIGKILL)"), 0),
    ] {
        let said = said(&command("unheard-of"), &Missed::Failed(failure), &seen(exit, noise));
        let _ = writeln!(catalogue, "stdio, {said}");
    }
    let closed = Missed::Refused(-32001, text("Unauthorized: no token"));
    let _ = writeln!(catalogue, "stdio, {}", said(&command("unheard-of"), &closed, &seen(None, 0)));
    let refused = Missed::Refused(-32603, text("the disk is full"));
    let _ = writeln!(catalogue, "stdio, {}", said(&command("unheard-of"), &refused, &seen(None, 0)));
    insta::assert_snapshot!(catalogue);
}

#[tokio::test]
async fn the_catalogue_of_troubles_with_addresses() {
    let mut catalogue = String::new();
    for (url, failure) in [
        ("http://x/mcp", Failure::Unreachable(text("client error (Connect): tcp connect error: Connection refused"))),
        ("http://x/mcp", Failure::Unreachable(text("client error (Connect): dns error: no such name"))),
        ("http://x/mcp", Failure::Unreachable(text("no connection within 10 s"))),
        ("https://x/mcp", Failure::Unreachable(text("client error (Connect): invalid peer certificate: Expired"))),
        (
            "https://x/mcp",
            Failure::Unreachable(text("client error (Connect): received corrupt message of type InvalidContentType")),
        ),
        ("wss://x/mcp", Failure::Unreachable(text("IO error: received corrupt message of type InvalidContentType"))),
        ("https://x/mcp", Failure::Unreachable(text("client error (Connect): tls handshake eof"))),
        ("http://x/mcp", Failure::Lost(text("client error (SendRequest): invalid HTTP version parsed"))),
        ("ws://x/mcp", Failure::Unreachable(text("WebSocket protocol error: httparse error: invalid HTTP version"))),
        (
            "http://x/mcp",
            Failure::Handshake(text(
                "as SSE it answered with HTTP status 400: Client sent an HTTP request to an HTTPS server.",
            )),
        ),
        ("http://x/mcp", status(400, "400 The plain HTTP request was sent to HTTPS port")),
        ("http://x/mcp", Failure::Lost(text("client error (SendRequest): connection closed before message completed"))),
        (
            "https://x/mcp",
            Failure::Lost(text("client error (SendRequest): connection closed before message completed")),
        ),
        ("http://x/mcp", silent()),
        ("http://x/mcp", status(404, "")),
        ("http://x/mcp", status(503, "later")),
        ("http://x/mcp", status(401, "who are you")),
        ("http://x/mcp", status(403, "")),
        ("http://x/mcp", Failure::Broken(Reject::Depth)),
    ] {
        let said = said(&remote(url), &Missed::Failed(failure), &seen(None, 0));
        let _ = writeln!(catalogue, "{url}, {said}");
    }
    insta::assert_snapshot!(catalogue);
}

#[tokio::test]
async fn secrets_are_hidden_in_what_others_said_and_not_in_our_own_words() {
    let lost = || Missed::Failed(Failure::Lost("it closed its output".to_owned()));
    for word in ["process", "before it answered", "stdout", "messages"] {
        let said = said(&command(word), &lost(), &seen(Some("exit status: 7"), 2));
        assert!(said.contains("its process ended (exit status: 7) before it answered, and 2 lines"), "{word}: {said}");
        assert!(said.contains("on its stdout are no messages"), "{word}: {said}");
    }
    let secret = command("hunter2hunter2");
    for missed in [
        Missed::Refused(-1, "bad hunter2hunter2".to_owned()),
        Missed::Failed(Failure::Handshake("bad hunter2hunter2".to_owned())),
        Missed::Failed(Failure::Status { status: 401, text: "bad hunter2hunter2".to_owned(), retry_after: None }),
    ] {
        let said = said(&secret, &missed, &Seen::default());
        assert!(said.contains("bad ***") && !said.contains("hunter"), "{said}");
    }
    let refusing = command("credentials");
    let missed = Missed::Failed(Failure::Status { status: 401, text: "no".to_owned(), retry_after: None });
    let said = said(&refusing, &missed, &Seen::default());
    assert!(said.contains("it wants other credentials: HTTP 401"), "{said}");
}
