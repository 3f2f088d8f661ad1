//! A span while it runs: what is known when it begins, and how it ends. One that is dropped was
//! given up.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::context::TraceContext;
use super::peer::Peer;
use super::queue::SpanQueue;

/// The longest name of a tool, prompt or resource, in bytes: clients can invent long ones.
const LONGEST_NAME: usize = 256;

/// The methods of the protocol; a client can invent others.
const METHODS: [&str; 20] = [
    "initialize",
    "server/discover",
    "ping",
    "tools/list",
    "tools/call",
    "prompts/list",
    "prompts/get",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/list",
    "tasks/update",
    "tasks/result",
    "tasks/cancel",
];

/// A method of the protocol, which a label may name.
pub(super) fn known(method: &str) -> Option<&'static str> {
    METHODS.into_iter().find(|known| *known == method)
}

/// Whether a span is the call of a client, or a request to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SpanRole {
    /// A client's call, as the gateway answers it.
    Server,
    /// A request to a server, one for each attempt.
    Client,
}

/// A span that has ended.
#[derive(Clone, Debug)]
pub(crate) struct EndedSpan {
    pub role: SpanRole,
    pub context: TraceContext,
    /// The span above this one.
    pub parent: Option<[u8; 8]>,
    /// The span of the HTTP request, where another one is the parent.
    pub link: Option<TraceContext>,
    pub method: Cow<'static, str>,
    /// The tool, prompt or resource.
    pub target: Box<str>,
    /// Whether a server listed the tool: then its name is fit for a metric.
    pub is_listed: bool,
    /// The id of the client's request, as JSON.
    pub request: Option<Box<str>>,
    pub peer: Arc<Peer>,
    /// The revision of the protocol.
    pub version: Option<Arc<str>>,
    /// Which request to a server this is, counted over the call.
    pub attempt: u32,
    /// Nanoseconds since 1970.
    pub began: u64,
    pub took: Duration,
    pub outcome: SpanOutcome,
}

/// How a span ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanOutcome {
    /// `error.type`; `None` where nothing went wrong.
    pub error: Option<Cow<'static, str>>,
    /// The code of a JSON-RPC error.
    pub code: Option<i64>,
    /// What answered in the server's place.
    pub served: Option<Box<str>>,
}

impl SpanOutcome {
    /// An end with this error.
    pub(crate) fn error(error: impl Into<Cow<'static, str>>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }
}

/// A span that runs.
pub(crate) struct OpenSpan {
    span: Option<EndedSpan>,
    since: Instant,
    /// When it counts as timed out if it is given up.
    deadline: Option<Instant>,
    queue: Arc<SpanQueue>,
}

impl OpenSpan {
    pub(super) fn new(
        role: SpanRole,
        (method, target): (&str, &str),
        context: TraceContext,
        peer: &Arc<Peer>,
        queue: Arc<SpanQueue>,
    ) -> Self {
        let span = EndedSpan {
            role,
            context,
            parent: None,
            link: None,
            method: known(method).map_or_else(|| cut(method).to_owned().into(), Cow::Borrowed),
            target: cut(target).into(),
            is_listed: false,
            request: None,
            peer: Arc::clone(peer),
            version: None,
            attempt: 0,
            began: now(),
            took: Duration::ZERO,
            outcome: SpanOutcome::default(),
        };
        Self { span: Some(span), since: Instant::now(), deadline: None, queue }
    }

    /// Changes what is known of the span.
    pub(crate) fn set(&mut self, set: impl FnOnce(&mut EndedSpan)) {
        if let Some(span) = &mut self.span {
            set(span);
        }
    }

    /// Ends the span.
    pub(crate) fn end(mut self, outcome: SpanOutcome) {
        self.finish(|_| outcome);
    }

    fn finish(&mut self, outcome: impl FnOnce(&Self) -> SpanOutcome) {
        if let Some(mut span) = self.span.take() {
            span.outcome = outcome(self);
            span.took = self.since.elapsed();
            self.queue.push(span);
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        self.finish(|open| {
            let is_over = open.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            SpanOutcome::error(if is_over { "timeout" } else { "cancelled" })
        });
    }
}

/// The trace of a call on its way: what its requests to servers are a part of.
pub(crate) struct CallTrace {
    /// The span that a request is sent by; its context goes with the request.
    pub context: TraceContext,
    /// Whether nothing is above the first request: then that one is the first of the trace.
    is_root: bool,
    requests: AtomicU32,
    version: OnceLock<Arc<str>>,
    queue: Arc<SpanQueue>,
}

impl CallTrace {
    /// A trace below the span of a call.
    pub(super) fn new(context: TraceContext, queue: Arc<SpanQueue>) -> Self {
        let requests = AtomicU32::new(0);
        Self { context, is_root: false, requests, version: OnceLock::new(), queue }
    }

    /// A trace that the next request begins.
    pub(super) fn root(context: TraceContext, queue: Arc<SpanQueue>) -> Self {
        Self { is_root: true, ..Self::new(context, queue) }
    }

    /// Begins the span of a request to a server; with the trace that the request carries.
    pub(crate) fn request(
        &self,
        (method, target): (&str, &str),
        peer: &Arc<Peer>,
        deadline: Option<Instant>,
    ) -> (OpenSpan, Arc<Self>) {
        let number = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let begins = self.is_root && number == 1;
        let context = match begins {
            true => self.context.clone(),
            false => TraceContext::child_of(Some(&self.context), 0.0),
        };
        let below = Self::new(context.clone(), Arc::clone(&self.queue));
        let queue = Arc::clone(&self.queue);
        let mut open = OpenSpan::new(SpanRole::Client, (method, target), context, peer, queue);
        open.deadline = deadline;
        open.set(|span| {
            span.parent = (!begins).then_some(self.context.span);
            span.attempt = number;
        });
        (open, Arc::new(below))
    }

    /// Notes the revision that the server speaks.
    pub(crate) fn note_version(&self, version: &str) {
        let _once = self.version.set(version.into());
    }

    /// The revision that the server speaks, once it is known.
    pub(crate) fn version(&self) -> Option<Arc<str>> {
        self.version.get().cloned()
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=LONGEST_NAME.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Nanoseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever reads a trace is told when it was; nothing is decided by it"
)]
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
