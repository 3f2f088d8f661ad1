//! Explains why a server cannot be used, and what to do about it.

use seawall::{Cause, Classifier, FailureSignals};

use super::scheme;
use crate::config::{Problem, Transport};
use crate::upstream::probe::ProbeFailed;
use crate::upstream::status::Observations;
use crate::upstream::{Server, UpstreamFailure};

/// The last lines of stderr that are shown.
const LINES: usize = 8;

/// A server's problem.
pub(super) struct ServerTrouble {
    /// The problem in one word, for programs.
    pub(super) problem: &'static str,
    /// The problem in a sentence.
    pub(super) text: String,
    /// The remedy.
    pub(super) next: String,
    /// The cause, as the library classifies it.
    pub(super) cause: Cause,
    /// The exit of the server's process.
    pub(super) exit: Option<String>,
    /// The last lines of stderr.
    pub(super) stderr: Vec<String>,
}

/// The problem behind a failed probe.
pub(super) fn of(
    server: &Server,
    transport: &Transport,
    missed: &ProbeFailed,
    seen: &Observations,
) -> ServerTrouble {
    if let Transport::Incomplete { lacking } = transport {
        return trouble(server, incomplete(lacking), Cause::AuthExpired, seen);
    }
    let cause = cause(transport, missed);
    // Secrets are removed from the texts of servers and the system only: the gateway's own words
    // hold none, and a secret that is a common word must not garble them.
    let missed = &match missed {
        ProbeFailed::Failed(failure) => ProbeFailed::Failed(discreet(server, failure)),
        ProbeFailed::Refused(code, text) => ProbeFailed::Refused(*code, server.hidden(text)),
    };
    let words = match missed {
        _ if matches!(cause, Cause::AuthExpired | Cause::Denied) => {
            closed(transport, cause, &signals(missed).message)
        }
        ProbeFailed::Failed(failure) => failed(transport, failure, seen),
        ProbeFailed::Refused(code, text) => {
            let text = format!("it refused to list its tools: {text} ({code})");
            ("protocol", text, "Look at the server's own log.".to_owned())
        }
    };
    trouble(server, words, cause, seen)
}

/// The library's cause. A child that cannot be started is no matter of credentials, even if the
/// system says "permission denied".
fn cause(transport: &Transport, missed: &ProbeFailed) -> Cause {
    let is_child = matches!(transport, Transport::Stdio { .. });
    match missed {
        ProbeFailed::Failed(UpstreamFailure::Unreachable(_) | UpstreamFailure::Impossible(_))
            if is_child =>
        {
            Cause::Network
        }
        _ => Classifier::new().classify_load(&signals(missed)).cause,
    }
}

/// The server answers, but is itself a gateway that serves one of its servers from its cache.
pub(super) fn behind(
    server: &Server,
    name: &str,
    reason: &str,
    seen: &Observations,
) -> ServerTrouble {
    let text = format!("behind it, {name} is not there: {}", server.hidden(reason));
    let next = "Mend it where that gateway runs: `seawall check` there says more.".to_owned();
    trouble(server, ("behind", text, next), Cause::Network, seen)
}

fn trouble(
    server: &Server,
    (problem, text, next): TroubleText,
    cause: Cause,
    seen: &Observations,
) -> ServerTrouble {
    let stderr = last_words(seen).iter().map(|line| server.hidden(line)).collect();
    ServerTrouble { problem, text, next, cause, exit: seen.last_exit.clone(), stderr }
}

fn signals(missed: &ProbeFailed) -> FailureSignals {
    match missed {
        ProbeFailed::Failed(failure) => failure.signals(),
        ProbeFailed::Refused(code, text) => FailureSignals::rpc(*code, text.as_str()),
    }
}

/// The same failure, without secrets in the texts of others.
fn discreet(server: &Server, failure: &UpstreamFailure) -> UpstreamFailure {
    let hidden = |text: &String| server.hidden(text);
    match failure {
        UpstreamFailure::Unreachable(why) => UpstreamFailure::Unreachable(hidden(why)),
        UpstreamFailure::Impossible(why) => UpstreamFailure::Impossible(hidden(why)),
        UpstreamFailure::Lost(why) => UpstreamFailure::Lost(hidden(why)),
        UpstreamFailure::Handshake(why) => UpstreamFailure::Handshake(hidden(why)),
        UpstreamFailure::Status { status, text, retry_after } => UpstreamFailure::Status {
            status: *status,
            text: hidden(text),
            retry_after: retry_after.clone(),
        },
        UpstreamFailure::Away { reason, retry_in } => {
            UpstreamFailure::Away { reason: hidden(reason), retry_in: *retry_in }
        }
        UpstreamFailure::Struck { failure, .. } => discreet(server, failure),
        other => other.clone(),
    }
}

/// The last lines of stderr, each once: the process may have been started more than once.
fn last_words(seen: &Observations) -> Vec<&str> {
    let mut lines: Vec<&str> = Vec::new();
    for line in seen.stderr.iter().rev() {
        if lines.len() < LINES && !lines.contains(&line.as_str()) {
            lines.push(line);
        }
    }
    lines.reverse();
    lines
}

type TroubleText = (&'static str, String, String);

/// The configuration refers to a variable that is not set: mostly a credential.
fn incomplete(lacking: &[Problem]) -> TroubleText {
    let told: Vec<String> = lacking.iter().map(ToString::to_string).collect();
    let next =
        "Set it where `seawall` is started; the other servers are used without it.".to_owned();
    ("incomplete", told.join("; "), next)
}

fn closed(transport: &Transport, cause: Cause, said: &str) -> TroubleText {
    let has_key = match transport {
        Transport::Stdio { .. } | Transport::Incomplete { .. } => false,
        Transport::Http { headers, .. }
        | Transport::Sse { headers, .. }
        | Transport::Ws { headers, .. } => {
            headers.iter().any(|(name, _)| *name == http::header::AUTHORIZATION)
        }
    };
    let is_child = matches!(transport, Transport::Stdio { .. });
    let next = match (cause, has_key) {
        (Cause::Denied, _) => "Ask whoever runs it for access, or use other credentials.",
        (_, true) => "It does not take the Authorization that is configured: renew the token.",
        (_, false) if is_child => {
            "Give it a token as it wants it, often so: env = { TOKEN = \"${env:TOKEN}\" }."
        }
        (_, false) => "Give it a token: headers = { Authorization = \"Bearer ${env:TOKEN}\" }.",
    };
    let problem = if cause == Cause::Denied { "denied" } else { "auth" };
    (problem, format!("it wants other credentials: {said}"), next.to_owned())
}

fn failed(transport: &Transport, failure: &UpstreamFailure, seen: &Observations) -> TroubleText {
    let is_child = matches!(transport, Transport::Stdio { .. });
    let by_hand = "Run the command by hand and see what it says.";
    let log = "Look at the server's own log.";
    // A process that ended before the handshake counts as ended, not as unreachable.
    let has_ended =
        is_child && seen.last_exit.is_some() && matches!(failure, UpstreamFailure::Unreachable(_));
    let ended = has_ended.then(|| UpstreamFailure::Lost(words_of(failure)));
    let failure = ended.as_ref().unwrap_or(failure);
    let text = plain(failure, seen);
    if let Some((text, next)) = scheme::mistaken(transport, &words_of(failure)) {
        return ("scheme", text, next);
    }
    let (problem, next) = match failure {
        UpstreamFailure::Impossible(_) if transport.missing_folder().is_some() => (
            "missing_folder",
            "Make it, or write another cwd; one that begins with no / is below the configuration's folder.",
        ),
        UpstreamFailure::Impossible(_) if is_child => (
            "missing_program",
            "Install it, or write its full path; programs are looked for in the PATH of `seawall`.",
        ),
        UpstreamFailure::Unreachable(why) if is_child => {
            return ("cannot_start", why.clone(), by_hand.to_owned());
        }
        UpstreamFailure::Unreachable(why) => unreachable(why),
        UpstreamFailure::Silent(_) | UpstreamFailure::Lost(_) if seen.noise > 0 => {
            let lines = match seen.noise {
                1 => "1 line on its stdout is no message".to_owned(),
                lines => format!("{lines} lines on its stdout are no messages"),
            };
            let next = "Is it an MCP server? It must write messages to stdout, its log to stderr.";
            return ("malformed", format!("{text}, and {lines}"), next.to_owned());
        }
        UpstreamFailure::Silent(_) if is_child => (
            "timeout",
            "Run the command by hand: does it still install something, or wait for something?",
        ),
        UpstreamFailure::Silent(_) => ("timeout", "Is it an MCP server, and is it busy?"),
        UpstreamFailure::Lost(_) if is_child => ("ended", by_hand),
        UpstreamFailure::Lost(_) => {
            let tls = scheme::with_tls(transport)
                .map(|scheme| format!(" If it speaks TLS, write {scheme}:// in its url."));
            return ("lost", text, format!("{log}{}", tls.unwrap_or_default()));
        }
        UpstreamFailure::Broken(_) => ("malformed", "Is it an MCP server, and is its type right?"),
        UpstreamFailure::Status { status: 400 | 404 | 405 | 406 | 415, .. }
        | UpstreamFailure::Handshake(_)
            if !is_child =>
        {
            ("protocol", "Is the path of its url right? Many servers are at /mcp or /sse.")
        }
        UpstreamFailure::Handshake(_) => ("protocol", "Is it an MCP server?"),
        UpstreamFailure::Status { status: 300..400, .. } => {
            ("http", "If you trust the address it redirects to, write that as its url.")
        }
        UpstreamFailure::Status { .. } => ("http", log),
        _ => ("unreachable", log),
    };
    (problem, text, next.to_owned())
}

/// The text of the server or the system in a failure.
fn words_of(failure: &UpstreamFailure) -> String {
    match failure {
        UpstreamFailure::Unreachable(why)
        | UpstreamFailure::Lost(why)
        | UpstreamFailure::Handshake(why) => why.clone(),
        UpstreamFailure::Status { text, .. } => text.clone(),
        _ => String::new(),
    }
}

/// A failure as a sentence; the exit of a process is told once.
fn plain(failure: &UpstreamFailure, seen: &Observations) -> String {
    match (failure, &seen.last_exit) {
        (UpstreamFailure::Lost(_), Some(exit)) => {
            format!("its process ended ({exit}) before it answered")
        }
        (UpstreamFailure::Lost(why), None) => format!("it was lost: {why}"),
        (UpstreamFailure::Impossible(why), _) => why.clone(),
        _ => format!("it {failure}"),
    }
}

fn unreachable(why: &str) -> (&'static str, &'static str) {
    if why.contains("dns error") {
        ("dns", "Is the host in its url right, and is there a network?")
    } else if why.contains("certificate") {
        ("tls", "Its certificate is not trusted here: is the host right, is the certificate valid?")
    } else if why.contains("deadline has elapsed") || why.starts_with("no connection within") {
        ("timeout", "Is the host in its url right, and does a firewall stand between?")
    } else {
        ("refused", "Is it running, and is the port in its url right?")
    }
}

#[cfg(test)]
mod tests;
