//! Decides which servers' tools an agent gets at startup: all that can be loaded, with an honest
//! report about the rest.
//!
//! Servers load concurrently and independently: a slow or broken server delays no other, and a
//! panic affects its own server only. A healthy server costs one attempt and no backoff. The report
//! separates servers that will be retried, servers that need attention, and servers that denied
//! access.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream, StreamExt};

use crate::attempt::retry::{RetryLoop, try_until};
use crate::classify::{Classifier, Describe};
use crate::env::Env;
use crate::model::effect::Effect;
use crate::model::failure::{Cause, Disposition, Failure};
use crate::model::invalid::{self, Invalid};
use crate::model::note::Flag;
use crate::model::policy::backoff::Backoff;
use crate::model::policy::retry::{MOST_ATTEMPTS, RetryPolicy};
use crate::model::sanitize::{one_line, without_credentials};
use crate::model::signals::FailureSignals;
use crate::model::style::DeniedText;
use crate::report::event::Event;
use crate::time::deadline::{Deadline, within};

/// How servers are loaded.
///
/// ```
/// # use seawall::{LoadOptions, load_tools};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), seawall::Invalid> {
/// let options = LoadOptions { attempts: 2, ..LoadOptions::default() };
/// let connect = |_| async { Err::<Vec<&str>, _>("503 Service Unavailable".into()) };
/// let report = load_tools(["jira"], &connect, &options).await?;
/// assert_eq!(report.failed_servers(), ["jira"]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Attempts for each server, up to 100; 0 means 1.
    pub attempts: u32,
    /// The backoff between attempts.
    pub backoff: Backoff,
    /// The timeout of one attempt; not longer than `timeout`.
    pub attempt_timeout: Duration,
    /// The deadline of each server over all its attempts.
    pub timeout: Duration,
    /// The timeout of the single probe that follows an opaque error.
    pub probe_timeout: Duration,
    /// The rules that classify errors.
    pub classifier: Classifier,
    /// The environment.
    pub env: Env,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            attempts: 3,
            backoff: Backoff::LOAD,
            attempt_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(95),
            probe_timeout: Duration::from_secs(5),
            classifier: Classifier::new(),
            env: Env::new(),
        }
    }
}

impl LoadOptions {
    /// Validates the options.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::at_most("attempts", self.attempts, MOST_ATTEMPTS)?;
        self.backoff.validate().map_err(|error| error.within("backoff"))?;
        invalid::positive("attempt_timeout", self.attempt_timeout)?;
        invalid::positive("timeout", self.timeout)?;
        invalid::within_whole("attempt_timeout", self.attempt_timeout, ("timeout", self.timeout))?;
        invalid::positive("probe_timeout", self.probe_timeout)
    }
}

/// Connects to a server and lists its tools. Any `Fn(String) -> Future` is one.
pub trait ConnectServer<T> {
    /// Connects and returns the server's tools.
    fn connect(&self, server: &str) -> impl Future<Output = Result<Vec<T>, FailureSignals>>;

    /// Probes the server once more after an opaque error; `None` if the probe reveals nothing.
    fn probe(&self, server: &str) -> impl Future<Output = Option<FailureSignals>> {
        let _ = server;
        async { None }
    }
}

impl<T, C, F> ConnectServer<T> for C
where
    C: Fn(String) -> F,
    F: Future<Output = Result<Vec<T>, FailureSignals>>,
{
    fn connect(&self, server: &str) -> impl Future<Output = Result<Vec<T>, FailureSignals>> {
        self(server.to_owned())
    }
}

/// The result of loading one server.
#[derive(Clone, Debug)]
pub struct ServerOutcome<T> {
    /// The server.
    pub server_id: String,
    /// Its tools, or why there are none.
    pub result: Result<Vec<T>, Failure>,
    /// How many attempts the load took.
    pub attempts: u32,
}

impl<T> ServerOutcome<T> {
    /// `available`, `transient`, `permanent` or `denied`.
    pub fn status(&self) -> &'static str {
        match &self.result {
            Ok(_) => "available",
            Err(failure) => match failure.disposition {
                Disposition::Transient => "transient",
                Disposition::Permanent => "permanent",
                Disposition::Denied => "denied",
            },
        }
    }

    /// Tells event listeners how the load ended; for callers that load in steps with [`load_step`].
    pub fn announce(&self, env: &Env) {
        env.events.emit(|| Event::ServerLoaded {
            server: self.server_id.clone(),
            failed: self.result.as_ref().err().map(|failure| failure.disposition),
            attempts: self.attempts,
            tools: self.result.as_ref().map_or(0, Vec::len),
        });
    }

    /// Why the load failed.
    pub fn error(&self) -> Option<String> {
        let line = self.result.as_ref().err().map(|failure| one_line(&failure.message))?;
        Some(if line.is_empty() { "no reason given".to_owned() } else { line })
    }
}

/// Loads all servers concurrently and yields each result as soon as it is known. With invalid
/// options no server is contacted.
pub fn load_each<'a, T: 'a>(
    servers: impl IntoIterator<Item = impl Into<String>>,
    connect: &'a impl ConnectServer<T>,
    options: &'a LoadOptions,
) -> Result<impl Stream<Item = ServerOutcome<T>> + 'a, Invalid> {
    options.validate()?;
    let loads = servers.into_iter().map(|server| load_one(server.into(), connect, options));
    Ok(loads.collect::<FuturesUnordered<_>>())
}

/// Loads all servers concurrently and waits for every one of them. With invalid options no server
/// is contacted.
pub async fn load_tools<T>(
    servers: impl IntoIterator<Item = impl Into<String>>,
    connect: &impl ConnectServer<T>,
    options: &LoadOptions,
) -> Result<LoadReport<T>, Invalid> {
    let order: Vec<String> = servers.into_iter().map(Into::into).collect();
    let place: HashMap<&str, usize> =
        order.iter().enumerate().map(|(place, server)| (server.as_str(), place)).collect();
    let mut outcomes: Vec<ServerOutcome<T>> =
        load_each(order.iter().cloned(), connect, options)?.collect().await;
    outcomes.sort_by_key(|outcome| place.get(outcome.server_id.as_str()).copied());
    Ok(LoadReport { outcomes })
}

/// Runs one step of loading a server, such as its handshake: retried like a load, but not
/// announced. A step that fails ends the load, a step that succeeds does not: only the last step
/// knows the result to announce.
pub async fn load_step<T>(
    server: &str,
    connect: &impl ConnectServer<T>,
    options: &LoadOptions,
) -> Result<ServerOutcome<T>, Invalid> {
    options.validate()?;
    let (result, attempts) = try_to_load(server, connect, options).await;
    Ok(ServerOutcome { server_id: server.to_owned(), result, attempts })
}

async fn load_one<T>(
    server: String,
    connect: &impl ConnectServer<T>,
    options: &LoadOptions,
) -> ServerOutcome<T> {
    let (result, attempts) = try_to_load(&server, connect, options).await;
    let outcome = ServerOutcome { server_id: server, result, attempts };
    outcome.announce(&options.env);
    outcome
}

/// The server's tools or why there are none, and how many attempts that took.
async fn try_to_load<T>(
    server: &str,
    connect: &impl ConnectServer<T>,
    options: &LoadOptions,
) -> (Result<Vec<T>, Failure>, u32) {
    let env = &options.env;
    let policy = RetryPolicy::new(options.attempts.max(1), options.backoff);
    let deadline = Deadline::after(env.clock.now(), options.timeout);
    let rules = RetryLoop {
        policy: &policy,
        effect: Effect::ReadOnly,
        deadline,
        budget: None,
        env,
        names: (server, ""),
    };
    let probed = Flag::default();
    let attempt = |_| {
        let probed = &probed;
        async move {
            let limit = options.attempt_timeout.min(deadline.remaining(&env.clock));
            let connecting = async {
                let signals = match within(limit, connect.connect(server)).await {
                    Ok(Ok(tools)) => return Ok(tools),
                    Ok(Err(signals)) => signals,
                    Err(elapsed) => elapsed.signals(),
                };
                let plainer = probe(server, &signals, connect, options, deadline, probed).await;
                Err(options.classifier.classify_load(plainer.as_ref().unwrap_or(&signals)))
            };
            let result = apart(connecting).await.unwrap_or_else(|words| Err(panicked(&words)));
            result.map_err(|failure| Box::new((failure, ())))
        }
    };
    match try_until(&rules, attempt, |_| false).await {
        Ok(loaded) => (Ok(loaded.value), loaded.attempts),
        Err(gave_up) => (Err(gave_up.failure), gave_up.attempts),
    }
}

/// Runs `work`; a panic ends only this work and returns the panic's message.
async fn apart<R>(work: impl Future<Output = R>) -> Result<R, String> {
    let mut work = pin!(work);
    // A future that panicked is never polled again, so no code sees its half-changed state.
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or(panic.downcast_ref::<&str>().copied());
            Poll::Ready(Err(words.unwrap_or("no reason given").to_owned()))
        }
    })
    .await
}

/// A panic is a bug in the code that connects, so a retry does not help.
fn panicked(words: &str) -> Failure {
    let disposition = Disposition::Permanent;
    let words = one_line(&without_credentials(words));
    Failure {
        disposition,
        ..Failure::local(Cause::Misbehaved, None, format!("connecting panicked: {words}"))
    }
}

/// Probes the server once more after an opaque error. Once per load: a second probe reveals no
/// more.
async fn probe<T>(
    server: &str,
    signals: &FailureSignals,
    connect: &impl ConnectServer<T>,
    options: &LoadOptions,
    deadline: Deadline,
    probed: &Flag,
) -> Option<FailureSignals> {
    if !options.classifier.is_opaque(signals) || probed.is_set() {
        return None;
    }
    probed.set();
    let limit = options.probe_timeout.min(deadline.remaining(&options.env.clock));
    within(limit, connect.probe(server)).await.ok().flatten()
}

/// The results of all servers, in the order in which they were given.
#[derive(Clone, Debug)]
pub struct LoadReport<T> {
    /// One result for each server.
    pub outcomes: Vec<ServerOutcome<T>>,
}

/// The lines about servers whose tools are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// Lines for the model's instructions.
    pub prompt: Vec<String>,
    /// Lines for the user, one for each server.
    pub streamed: Vec<String>,
}

impl<T> LoadReport<T> {
    /// The tools of all servers that loaded.
    pub fn all_tools(&self) -> Vec<&T> {
        self.outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok()).flatten().collect()
    }

    /// The servers that did not load.
    pub fn failed_servers(&self) -> Vec<&str> {
        self.failed().map(|outcome| outcome.server_id.as_str()).collect()
    }

    /// Why each failed server did not load.
    pub fn failed_errors(&self) -> HashMap<&str, String> {
        self.failed()
            .map(|outcome| (outcome.server_id.as_str(), outcome.error().unwrap_or_default()))
            .collect()
    }

    /// Whether each failed server is starting, broken or denied access. Empty if all loaded.
    pub fn failed_status(&self) -> HashMap<&str, &'static str> {
        self.failed().map(|outcome| (outcome.server_id.as_str(), outcome.status())).collect()
    }

    /// The exact lines about servers that did not load; none if all loaded.
    pub fn warnings(&self) -> Warnings {
        self.warnings_with(DeniedText::Diagnostic)
    }

    /// As [`Self::warnings`], with a choice of the lines about servers that denied access.
    pub fn warnings_with(&self, denied: DeniedText) -> Warnings {
        let joined = |status, line: fn(&ServerOutcome<T>) -> String, by: &str| {
            let lines: Vec<String> =
                self.failed().filter(|outcome| outcome.status() == status).map(line).collect();
            (!lines.is_empty()).then(|| lines.join(by))
        };
        let with_error = |outcome: &ServerOutcome<T>| {
            format!("{}: {}", outcome.server_id, outcome.error().unwrap_or_default())
        };
        let starting = joined("transient", |outcome| outcome.server_id.clone(), ", ").map(|ids| {
            format!(
                "**MCP servers still starting up (will retry; tools may appear shortly):** {ids}"
            )
        });
        let broken = joined("permanent", with_error, "; ").map(|ids| {
            format!(
                "**MCP servers that failed to load (tools unavailable — needs attention):** {ids}"
            )
        });
        let closed = joined("denied", with_error, "; ").map(|ids| match denied {
            DeniedText::Diagnostic => format!("**MCP servers that denied access:** {ids}"),
            DeniedText::Legacy => {
                format!("**MCP servers that failed to load (tools from these servers are unavailable):**  {ids}")
            }
        });
        Warnings {
            prompt: [starting, broken, closed].into_iter().flatten().collect(),
            streamed: self.failed().map(|outcome| streamed(outcome, denied)).collect(),
        }
    }

    fn failed(&self) -> impl Iterator<Item = &ServerOutcome<T>> {
        self.outcomes.iter().filter(|outcome| outcome.result.is_err())
    }
}

fn streamed<T>(outcome: &ServerOutcome<T>, denied: DeniedText) -> String {
    let (id, error) = (&outcome.server_id, outcome.error().unwrap_or_default());
    let reason = error.trim_end_matches('.');
    match outcome.status() {
        "transient" => {
            format!("MCP server '{id}' is starting up and not ready yet — it will be retried.")
        }
        "denied" if denied == DeniedText::Legacy => legacy_denied_text(id),
        "denied" => format!("MCP server '{id}' denied access: {reason}."),
        _ => format!(
            "MCP server '{id}' is unavailable: {reason}. Tools from this server will not work."
        ),
    }
}

/// The sentence about a server that denied access from before denials had lines of their own, for
/// clients that match on it.
pub fn legacy_denied_text(server: &str) -> String {
    format!("MCP server '{server}' is unavailable. Tools from this server will not work.")
}
