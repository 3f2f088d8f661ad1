//! What keeps a server from being used, in words, and what to do about it.

use seawall::{Cause, Classifier, Signals};

use crate::ops::config::Transport;
use crate::upstream::look::Missed;
use crate::upstream::status::Seen;
use crate::upstream::{Failure, Server};

/// The last lines of stderr that are shown.
const LINES: usize = 8;

/// What is wrong with a server.
pub(super) struct Trouble {
    /// In one word, for programs.
    pub(super) problem: &'static str,
    /// What happened.
    pub(super) text: String,
    /// What to do.
    pub(super) next: String,
    /// What it means to the library.
    pub(super) cause: Cause,
    /// How its process ended.
    pub(super) exit: Option<String>,
    /// What it said last.
    pub(super) stderr: Vec<String>,
}

/// What a failed look means.
pub(super) fn of(server: &Server, transport: &Transport, missed: &Missed, seen: &Seen) -> Trouble {
    let signals = match missed {
        Missed::Failed(failure) => failure.signals(),
        Missed::Refused(code, text) => Signals::rpc(*code, text.as_str()),
    };
    let cause = Classifier::new().classify_load(&signals).cause;
    let (problem, text, next) = match missed {
        _ if matches!(cause, Cause::AuthExpired | Cause::Denied) => closed(transport, cause, &signals.message),
        Missed::Failed(failure) => failed(transport, failure, seen),
        Missed::Refused(code, text) => {
            let text = format!("it refused to list its tools: {text} ({code})");
            ("protocol", text, "Look at the server's own log.".to_owned())
        }
    };
    let stderr = last_words(seen).iter().map(|line| server.hidden(line)).collect();
    Trouble { problem, text: server.hidden(&text), next, cause, exit: seen.last_exit.clone(), stderr }
}

/// The end of what it said. It may have been started more than once: what it said again is told once.
fn last_words(seen: &Seen) -> Vec<&str> {
    let mut lines: Vec<&str> = Vec::new();
    for line in seen.stderr.iter().rev() {
        if lines.len() < LINES && !lines.contains(&line.as_str()) {
            lines.push(line);
        }
    }
    lines.reverse();
    lines
}

type Words = (&'static str, String, String);

fn closed(transport: &Transport, cause: Cause, said: &str) -> Words {
    let has_key = match transport {
        Transport::Stdio { .. } => false,
        Transport::Http { headers, .. } | Transport::Sse { headers, .. } | Transport::Ws { headers, .. } => {
            headers.iter().any(|(name, _)| *name == http::header::AUTHORIZATION)
        }
    };
    let next = match (cause, has_key) {
        (Cause::Denied, _) => "Ask whoever runs it for access, or use other credentials.",
        (_, true) => "It does not take the Authorization that is configured: renew the token.",
        (_, false) => "Give it a token: headers = { Authorization = \"Bearer ${env:TOKEN}\" }.",
    };
    let problem = if cause == Cause::Denied { "denied" } else { "auth" };
    (problem, format!("it wants other credentials: {said}"), next.to_owned())
}

fn failed(transport: &Transport, failure: &Failure, seen: &Seen) -> Words {
    let is_child = matches!(transport, Transport::Stdio { .. });
    let by_hand = "Run the command by hand and see what it says.";
    match failure {
        Failure::Struck { failure, .. } => failed(transport, failure, seen),
        Failure::Impossible(why) if is_child => {
            let next = "Install it, or write its full path; programs are looked for in the PATH of `seawall`.";
            ("missing_program", why.clone(), next.to_owned())
        }
        Failure::Unreachable(why) if is_child => ("cannot_start", why.clone(), by_hand.to_owned()),
        Failure::Unreachable(why) => unreachable(why),
        Failure::Silent(_) | Failure::Lost(_) if seen.noise > 0 => {
            let text = format!("it {}, and {} lines on its stdout are no messages", plain(failure, seen), seen.noise);
            ("malformed", text, "Is it an MCP server? It must write messages to stdout, its log to stderr.".to_owned())
        }
        Failure::Silent(_) if is_child => {
            let next = "Run the command by hand: does it still install something, or wait for something?";
            ("timeout", plain(failure, seen), next.to_owned())
        }
        Failure::Silent(_) => ("timeout", plain(failure, seen), "Is it an MCP server, and is it busy?".to_owned()),
        Failure::Lost(_) if is_child => ("ended", plain(failure, seen), by_hand.to_owned()),
        Failure::Lost(_) => ("lost", plain(failure, seen), "Look at the server's own log.".to_owned()),
        Failure::Broken(_) => {
            ("malformed", plain(failure, seen), "Is it an MCP server, and is its type right?".to_owned())
        }
        Failure::Status { status: 400 | 404 | 405 | 406 | 415, .. } | Failure::Handshake(_) if !is_child => {
            let next = "Is the path of its url right? Many servers are at /mcp or /sse.";
            ("protocol", plain(failure, seen), next.to_owned())
        }
        Failure::Handshake(_) => ("protocol", plain(failure, seen), "Is it an MCP server?".to_owned()),
        Failure::Status { .. } => ("http", plain(failure, seen), "Look at the server's own log.".to_owned()),
        _ => ("unreachable", plain(failure, seen), "Look at the server's own log.".to_owned()),
    }
}

/// A failure in words; how a process ended is told once.
fn plain(failure: &Failure, seen: &Seen) -> String {
    match (failure, &seen.last_exit) {
        (Failure::Lost(_), Some(exit)) => format!("its process ended ({exit}) before it answered"),
        _ => failure.to_string(),
    }
}

fn unreachable(why: &str) -> Words {
    let (problem, next) = if why.contains("dns error") {
        ("dns", "Is the host in its url right, and is there a network?")
    } else if why.contains("certificate") {
        ("tls", "Its certificate is not trusted here: is the host right, is the certificate valid?")
    } else if why.contains("deadline has elapsed") || why.starts_with("no connection within") {
        ("timeout", "Is the host in its url right, and does a firewall stand between?")
    } else {
        ("refused", "Is it running, and is the port in its url right?")
    };
    (problem, format!("it could not be reached: {why}"), next.to_owned())
}
