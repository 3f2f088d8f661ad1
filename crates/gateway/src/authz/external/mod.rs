//! Asks the operator's authorizer whether a call may be made, and never takes silence for a yes.
//!
//! A check may be retried within its own time, since the authorizer changes nothing. Identical
//! checks in flight are one. After several checks that came to nothing, a breaker answers in the
//! authorizer's place: no, and when it is asked again.

mod decisions;
mod grpc;
mod http;
mod list_checks;
pub(crate) mod question;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue};
use futures_util::stream::{self, StreamExt};
use seawall::{Backoff, Blame, Breaker, BreakerPolicy, Cooldown, Env, Event, Invalid, Jitter, Rng};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::digest;
use super::refusal::AuthzRefusal;
use crate::config::{ExtAuthzConfig, ListFilter};
use crate::runtime::http_client::SharedHttpClient;
use crate::runtime::log;
use decisions::Decisions;
pub(crate) use list_checks::ListChecks;
use question::{CheckQuestion, OwnedQuestion};

/// Waves of checks that came to nothing in a row, until the breaker opens.
const FAILURES: u32 = 3;
/// How long the breaker stays open; twice as long after each probe in vain.
const COOLDOWN: Cooldown = Cooldown::growing(Duration::from_secs(1), Duration::from_secs(10));
/// Checks under way at a time, over all clients; more wait, within their own time.
const UNDER_WAY: usize = 256;
/// The pauses between the attempts of one check.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(50),
    max: Duration::from_secs(1),
    jitter: Jitter::Additive(0.2),
    clamp: true,
};

/// Headers of the request to a server that nobody else sets or removes: it would not arrive.
const OURS: [&str; 10] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "accept",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
];

/// The outcome of one check.
pub(crate) type Verdict = Result<Allowance, AuthzRefusal>;

/// What an allowed call carries on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowance {
    /// Headers that a server over HTTP gets with the call.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// How many of them, at the end, are the client's own, passed on by a rule of the server.
    pub passed: usize,
    /// Headers that a server over HTTP must not get with the call.
    pub removed: Vec<HeaderName>,
    /// Of the tools that were asked about, those that the caller may use.
    pub tools: Option<Vec<String>>,
    /// What the authorizer noted about the call, for the log of events.
    pub metadata: Option<serde_json::Value>,
}

impl Allowance {
    /// Sets and removes the headers of a request to the server.
    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        for name in self.removed.iter().filter(|name| !OURS.contains(&name.as_str())) {
            headers.remove(name);
        }
        for (name, value) in &self.headers {
            if !OURS.contains(&name.as_str()) {
                headers.insert(name.clone(), value.clone());
            }
        }
    }

    /// Names the account in which the call is made, if it has headers of its own.
    pub(crate) fn account(&self) -> Option<Arc<str>> {
        named(&self.headers)
    }

    /// The same by the headers of the client alone: an authorizer may set others for each call,
    /// such as a fresh token, and a repeat is still the same caller's.
    pub(crate) fn clients_account(&self) -> Option<Arc<str>> {
        named(&self.headers[self.headers.len().saturating_sub(self.passed)..])
    }

    /// Adds a header, unless the authorizer sets or removes it.
    pub(crate) fn pass(&mut self, name: HeaderName, value: HeaderValue) {
        let is_set = self.headers.iter().any(|(known, _)| *known == name);
        if !is_set && !self.removed.contains(&name) {
            self.headers.push((name, value));
            self.passed += 1;
        }
    }
}

/// A name for headers, if there are any.
fn named(headers: &[(HeaderName, HeaderValue)]) -> Option<Arc<str>> {
    if headers.is_empty() {
        return None;
    }
    let parts =
        headers.iter().flat_map(|(name, value)| [name.as_str().as_bytes(), value.as_bytes()]);
    Some(digest(&parts.collect::<Vec<_>>()).into())
}

/// Why one attempt of a check came to nothing.
pub(super) struct NoVerdict(pub String);

/// How an authorizer is reached.
enum AuthorizerTransport {
    Grpc(grpc::GrpcAuthorizer),
    Http(http::HttpAuthorizer),
}

/// One authorizer.
pub(crate) struct ExternalAuthorizer {
    /// Its settings.
    pub settings: ExtAuthzConfig,
    client: Arc<AuthorizerClient>,
    decisions: Decisions,
}

struct AuthorizerClient {
    transport: AuthorizerTransport,
    timeout: Duration,
    on_unavailable: u16,
    breaker: Breaker,
    /// Counts waves of failed checks. Checks that were under way at the same time fail as one: a
    /// client that loads fifteen servers at once has seen one outage, not fifteen.
    wave: AtomicU64,
    under_way: Semaphore,
    rng: Rng,
    env: Env,
}

impl ExternalAuthorizer {
    /// An authorizer as it is configured; connects with the first check.
    pub(crate) fn new(
        settings: &ExtAuthzConfig,
        http: &SharedHttpClient,
        env: &Env,
    ) -> Result<Arc<Self>, Invalid> {
        let transport = match settings.is_http {
            true => AuthorizerTransport::Http(http::HttpAuthorizer::new(settings, http)),
            false => AuthorizerTransport::Grpc(grpc::GrpcAuthorizer::new(settings)),
        };
        let host = settings.service.authority().map_or("", |authority| authority.as_str());
        let name = format!("authorizer {host}");
        let policy =
            BreakerPolicy { cooldown: COOLDOWN, ..BreakerPolicy::new(FAILURES, COOLDOWN.base) };
        let breaker = Breaker::new(name, policy, env)?;
        let client = AuthorizerClient {
            transport,
            timeout: settings.timeout,
            on_unavailable: settings.on_unavailable,
            breaker,
            wave: AtomicU64::new(1),
            under_way: Semaphore::new(UNDER_WAY),
            rng: Rng::new(),
            env: env.clone(),
        };
        Ok(Arc::new(Self {
            settings: settings.clone(),
            client: Arc::new(client),
            decisions: Decisions::new(settings.cache),
        }))
    }

    /// The same authorizer after the configuration was read again: its connection and its breaker
    /// stay, what it allowed before is not remembered.
    pub(super) fn without_decisions(&self) -> Arc<Self> {
        Arc::new(Self {
            settings: self.settings.clone(),
            client: Arc::clone(&self.client),
            decisions: Decisions::new(self.settings.cache),
        })
    }

    /// Whether tool lists show only the tools that their reader may call.
    pub(crate) fn filters_lists(&self) -> bool {
        self.settings.filter_lists != ListFilter::Off
    }

    /// Decides one call.
    pub(crate) async fn check(&self, question: &CheckQuestion<'_>) -> Verdict {
        let bytes = question.body.len();
        if bytes > self.settings.max_body {
            return Err(AuthzRefusal::TooLarge { bytes, limit: self.settings.max_body });
        }
        let began = Instant::now();
        let verdict = match self.decisions.known(question, &self.settings) {
            Some(allowed) => Ok(allowed),
            None => {
                let place = match question.list {
                    Some(list) => list.place(self).await,
                    None => None,
                };
                let (client, owned) = (Arc::clone(&self.client), question.owned(&self.settings));
                let asked = move || async move {
                    // The check may outlive the list, and keeps its place until then.
                    let _place = place;
                    client.decide(owned).await
                };
                self.decisions.decide(question, &self.settings, asked).await
            }
        };
        self.client.tell(question, &verdict, began.elapsed());
        verdict
    }

    /// Of `names`, the tools that the caller may call; in their order.
    pub(crate) async fn allowed_tools(
        &self,
        question: &CheckQuestion<'_>,
        names: Vec<String>,
    ) -> Result<Vec<String>, AuthzRefusal> {
        match self.settings.filter_lists {
            ListFilter::Off => Ok(names),
            ListFilter::Once => {
                let allowed = self.check(&question.about_tools(&names)).await?.tools;
                let allowed = allowed.unwrap_or_else(|| {
                    log::warn(&format!(
                        "the authorizer {} allowed a tool list without naming tools: none is listed",
                        self.settings.service
                    ));
                    Vec::new()
                });
                Ok(names.into_iter().filter(|name| allowed.contains(name)).collect())
            }
            ListFilter::Each => {
                let checks = names.into_iter().map(|name| async move {
                    let verdict = self.check(&question.about_tool(&name)).await;
                    (name, verdict)
                });
                let mut allowed = Vec::new();
                let mut checks = stream::iter(checks).buffered(self.settings.concurrency);
                while let Some((name, verdict)) = checks.next().await {
                    match verdict {
                        Ok(_) => allowed.push(name),
                        Err(AuthzRefusal::Denied { .. } | AuthzRefusal::TooLarge { .. }) => {}
                        // A list without the tools that nobody could decide about would look like a
                        // denial.
                        Err(outage @ AuthzRefusal::Unavailable { .. }) => return Err(outage),
                    }
                }
                Ok(allowed)
            }
        }
    }
}

impl AuthorizerClient {
    /// Asks until there is a verdict or the time is over.
    async fn decide(&self, question: OwnedQuestion) -> Verdict {
        let unavailable =
            |reason: String, after| AuthzRefusal::unavailable(self.on_unavailable, reason, after);
        let permit = match self.breaker.admit_for(self.timeout) {
            Ok(permit) => permit,
            Err(refusal) => {
                let reason = "it failed repeatedly and is not asked now".to_owned();
                return Err(unavailable(reason, refusal.retry_after));
            }
        };
        let wave = self.wave.load(Ordering::Acquire);
        let ends = Instant::now() + self.timeout;
        let mut last = None;
        let mut attempt = 0;
        let tried = async {
            let _place = self.under_way.acquire().await;
            loop {
                let left = ends.saturating_duration_since(Instant::now());
                match self.ask(&question, left).await {
                    Ok(verdict) => return verdict,
                    Err(NoVerdict(reason)) => last = Some(reason),
                }
                attempt += 1;
                tokio::time::sleep(BACKOFF.delay(attempt, &self.rng)).await;
            }
        };
        match tokio::time::timeout_at(ends, tried).await {
            Ok(verdict) => {
                permit.well();
                verdict
            }
            Err(_) => {
                permit.blame_incident(Blame::Server, Some(wave));
                let _one_of_the_wave_wins =
                    self.wave.compare_exchange(wave, wave + 1, Ordering::AcqRel, Ordering::Acquire);
                let reason = last.unwrap_or_else(|| {
                    format!("it did not answer within {}", spelled(self.timeout))
                });
                let after = match self.breaker.peek() {
                    Ok(()) => Duration::from_secs(1),
                    Err(refusal) => refusal.retry_after,
                };
                Err(unavailable(reason, after))
            }
        }
    }

    async fn ask(&self, question: &OwnedQuestion, left: Duration) -> Result<Verdict, NoVerdict> {
        match &self.transport {
            AuthorizerTransport::Grpc(grpc) => grpc.ask(question, left).await,
            AuthorizerTransport::Http(http) => http.ask(question).await,
        }
    }

    fn tell(&self, question: &CheckQuestion<'_>, verdict: &Verdict, elapsed: Duration) {
        self.env.events.emit(|| {
            let (server, tool) = (question.server.to_owned(), question.subject().to_owned());
            match verdict {
                Ok(allowed) => {
                    let note = allowed.metadata.as_ref().map(ToString::to_string);
                    let note = note.unwrap_or_default();
                    Event::CallAllowed { server, tool, elapsed, note }
                }
                Err(refusal @ AuthzRefusal::Unavailable { retry_after, .. }) => {
                    let retry_after = *retry_after;
                    let reason = refusal.reason();
                    Event::AuthorizerUnavailable { server, tool, elapsed, reason, retry_after }
                }
                Err(refusal) => {
                    Event::CallDenied { server, tool, elapsed, reason: refusal.reason() }
                }
            }
        });
    }
}

fn spelled(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{} s", time.as_secs()),
        _ => format!("{} ms", time.as_millis()),
    }
}
