//! The text of each problem, as a person reads it.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::{Config, Secret};
use crate::gateway::Gateway;
use crate::protocol::Reject;
use crate::store::catalog_cache::CatalogCache;

fn server(config: Config) -> (Arc<Server>, Transport) {
    let gateway = Gateway::new(&config, CatalogCache::default(), None).unwrap();
    (Arc::clone(&gateway.now().servers[0]), config.servers[0].transport.clone())
}

/// A command with a variable, whose value may be one of the gateway's own words.
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

fn said(
    (server, transport): &(Arc<Server>, Transport),
    missed: &ProbeFailed,
    seen: &Observations,
) -> String {
    let ServerTrouble { problem, text, next, .. } = of(server, transport, missed, seen);
    format!("{problem}: {text}\n    {next}")
}

fn seen(exit: Option<&str>, noise: u64) -> Observations {
    let mut seen = Observations::default();
    (seen.last_exit, seen.noise) = (exit.map(str::to_owned), noise);
    seen
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn status(status: u16, said: &str) -> UpstreamFailure {
    UpstreamFailure::Status { status, text: text(said), retry_after: None }
}

fn silent() -> UpstreamFailure {
    UpstreamFailure::Silent(Duration::from_secs(60))
}

#[tokio::test]
async fn the_catalogue_of_troubles_with_commands() {
    let ended = || UpstreamFailure::Lost(text("its process ended (exit status: 7)"));
    let mut catalogue = String::new();
    for (failure, exit, noise) in [
        (UpstreamFailure::Impossible(text("there is no program \"x\"")), None, 0),
        (
            UpstreamFailure::Unreachable(text(
                "cannot start \"x\": Permission denied (os error 13)",
            )),
            None,
            0,
        ),
        (ended(), Some("exit status: 7"), 0),
        (ended(), Some("exit status: 7"), 1),
        (UpstreamFailure::Lost(text("it closed its output")), None, 0),
        (UpstreamFailure::Lost(text("it closed its output")), None, 2),
        (silent(), None, 0),
        (silent(), None, 3),
        (UpstreamFailure::Broken(Reject::Depth), None, 0),
        (UpstreamFailure::Handshake(text("it has no version in common")), None, 0),
        (
            UpstreamFailure::Struck { incident: 1, failure: Box::new(ended()) },
            Some("signal: 9 (SIGKILL)"),
            0,
        ),
    ] {
        let said = said(&command("unheard-of"), &ProbeFailed::Failed(failure), &seen(exit, noise));
        let _ = writeln!(catalogue, "stdio, {said}");
    }
    let closed = ProbeFailed::Refused(-32001, text("Unauthorized: no token"));
    let _ = writeln!(catalogue, "stdio, {}", said(&command("unheard-of"), &closed, &seen(None, 0)));
    let refused = ProbeFailed::Refused(-32603, text("the disk is full"));
    let _ =
        writeln!(catalogue, "stdio, {}", said(&command("unheard-of"), &refused, &seen(None, 0)));
    insta::assert_snapshot!(catalogue);
}

#[tokio::test]
async fn the_catalogue_of_troubles_with_addresses() {
    let unreachable = |why: &str| UpstreamFailure::Unreachable(text(why));
    let connect = |why: &str| unreachable(&format!("client error (Connect): {why}"));
    let lost = |why: &str| UpstreamFailure::Lost(format!("client error (SendRequest): {why}"));
    let plain_to_tls = "as SSE it answered with HTTP status 400: Client sent an HTTP request to an \
                        HTTPS server.";
    let corrupt = "received corrupt message of type InvalidContentType";
    let closed = "connection closed before message completed";
    let mut catalogue = String::new();
    for (url, failure) in [
        ("http://x/mcp", connect("tcp connect error: Connection refused")),
        ("http://x/mcp", connect("dns error: no such name")),
        ("http://x/mcp", unreachable("no connection within 10 s")),
        ("https://x/mcp", connect("invalid peer certificate: Expired")),
        ("https://x/mcp", connect(corrupt)),
        ("wss://x/mcp", unreachable(&format!("IO error: {corrupt}"))),
        ("https://x/mcp", connect("tls handshake eof")),
        ("http://x/mcp", lost("invalid HTTP version parsed")),
        (
            "ws://x/mcp",
            unreachable("WebSocket protocol error: httparse error: invalid HTTP version"),
        ),
        ("http://x/mcp", UpstreamFailure::Handshake(text(plain_to_tls))),
        ("http://x/mcp", status(400, "400 The plain HTTP request was sent to HTTPS port")),
        ("http://x/mcp", lost(closed)),
        ("https://x/mcp", lost(closed)),
        ("http://x/mcp", silent()),
        ("http://x/mcp", status(404, "")),
        ("http://x/mcp", status(503, "later")),
        ("http://x/mcp", status(401, "who are you")),
        ("http://x/mcp", status(403, "")),
        ("http://x/mcp", UpstreamFailure::Broken(Reject::Depth)),
    ] {
        let said = said(&remote(url), &ProbeFailed::Failed(failure), &seen(None, 0));
        let _ = writeln!(catalogue, "{url}, {said}");
    }
    insta::assert_snapshot!(catalogue);
}

#[tokio::test]
async fn secrets_are_hidden_in_what_others_said_and_not_in_our_own_words() {
    let lost = || ProbeFailed::Failed(UpstreamFailure::Lost("it closed its output".to_owned()));
    for word in ["process", "before it answered", "stdout", "messages"] {
        let said = said(&command(word), &lost(), &seen(Some("exit status: 7"), 2));
        assert!(
            said.contains("its process ended (exit status: 7) before it answered, and 2 lines"),
            "{word}: {said}"
        );
        assert!(said.contains("on its stdout are no messages"), "{word}: {said}");
    }
    let secret = command("hunter2hunter2");
    for missed in [
        ProbeFailed::Refused(-1, "bad hunter2hunter2".to_owned()),
        ProbeFailed::Failed(UpstreamFailure::Handshake("bad hunter2hunter2".to_owned())),
        ProbeFailed::Failed(UpstreamFailure::Status {
            status: 401,
            text: "bad hunter2hunter2".to_owned(),
            retry_after: None,
        }),
    ] {
        let said = said(&secret, &missed, &Observations::default());
        assert!(said.contains("bad ***") && !said.contains("hunter"), "{said}");
    }
    let refusing = command("credentials");
    let missed = ProbeFailed::Failed(UpstreamFailure::Status {
        status: 401,
        text: "no".to_owned(),
        retry_after: None,
    });
    let said = said(&refusing, &missed, &Observations::default());
    assert!(said.contains("it wants other credentials: HTTP 401"), "{said}");
}
