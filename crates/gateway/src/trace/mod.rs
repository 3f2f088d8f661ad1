//! Spans for an OpenTelemetry collector: one for each call of a client, and one for each request
//! that is sent to a server for it. Off unless `[telemetry]` is configured; then nothing is built.
//!
//! `context` is the trace context as W3C writes it, `carry` puts it into a message, `span` is a
//! span while it runs, `describe` decides what it says. Ended spans wait in a `queue`; `export`
//! takes them from there, counts them in `histogram`, writes them (`encode`, `wire`) and sends them
//! (`send`).

pub(crate) mod carry;
pub(crate) mod context;
mod describe;
mod encode;
mod export;
mod histogram;
pub(crate) mod peer;
mod queue;
mod send;
pub(crate) mod span;
mod wire;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderMap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::telemetry::TelemetryConfig;
use crate::protocol::Message;
use crate::runtime::http_client::SharedHttpClient;
use context::TraceContext;
use export::Exporter;
use peer::Peer;
pub(crate) use queue::ExportCounts;
use queue::SpanQueue;
use span::{CallTrace, OpenSpan, SpanRole};

/// How long the end of the program waits for the last export.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// The spans of a gateway; off until it is opened.
#[derive(Default)]
pub(crate) struct Tracer {
    open: OnceLock<OpenTracer>,
}

struct OpenTracer {
    queue: Arc<SpanQueue>,
    sampling: f64,
    ended: CancellationToken,
    task: TaskTracker,
}

impl Tracer {
    /// Exports spans and metrics from now on.
    pub(crate) fn open(
        &self,
        settings: &TelemetryConfig,
        http: &SharedHttpClient,
    ) -> Result<(), String> {
        let (queue, ended, task) =
            (Arc::<SpanQueue>::default(), CancellationToken::new(), TaskTracker::new());
        let exporter = Exporter::new(settings, Arc::clone(&queue), http)?;
        task.spawn(exporter.run(ended.clone()));
        task.close();
        let sampling = settings.sampling;
        let _once = self.open.set(OpenTracer { queue, sampling, ended, task });
        Ok(())
    }

    /// The span of a client's call; `None` while nothing is traced.
    pub(crate) fn call(
        &self,
        request: &Message,
        name: &str,
        http: Option<&TraceContext>,
        peer: &Arc<Peer>,
    ) -> Option<(OpenSpan, Arc<CallTrace>)> {
        let open = self.open.get()?;
        let own = carry::context(request);
        let (parent, link) = match (&own, http) {
            (Some(own), http) => (Some(own), http),
            (None, http) => (http, None),
        };
        let context = TraceContext::child_of(parent, open.sampling);
        let trace = CallTrace::new(context.clone(), Arc::clone(&open.queue));
        let mut span = OpenSpan::new(
            SpanRole::Server,
            (request.method(), name),
            context,
            peer,
            Arc::clone(&open.queue),
        );
        span.set(|span| {
            span.parent = parent.map(|parent| parent.span);
            span.link = link.cloned();
            span.request = request.id().map(|id| String::from_utf8_lossy(id.json()).into());
        });
        Some((span, Arc::new(trace)))
    }

    /// The trace of something that the gateway does of its own accord: the delivery of a queued
    /// write.
    pub(crate) fn of_its_own(&self) -> Option<Arc<CallTrace>> {
        let open = self.open.get()?;
        let context = TraceContext::child_of(None, open.sampling);
        Some(Arc::new(CallTrace::root(context, Arc::clone(&open.queue))))
    }

    /// The context in the headers of an HTTP request; `None` while nothing is traced.
    pub(crate) fn of_headers(&self, headers: &HeaderMap) -> Option<TraceContext> {
        self.open.get()?;
        let state = headers.get(context::STATE).and_then(|state| state.to_str().ok());
        TraceContext::parse(headers.get(context::PARENT)?.as_bytes(), state)
    }

    /// How many spans were exported and dropped so far; `None` while nothing is traced.
    pub(crate) fn counts(&self) -> Option<ExportCounts> {
        self.open.get().map(|open| open.queue.counts())
    }

    /// Exports what waits, at most for `LAST_EXPORT`.
    pub(crate) async fn close(&self) {
        if let Some(open) = self.open.get() {
            open.ended.cancel();
            let _in_time = tokio::time::timeout(LAST_EXPORT, open.task.wait()).await;
        }
    }
}
