//! Decides when spans and metrics are exported. A collector that is away costs spans, never time:
//! they are dropped and counted, and the log says so once a minute.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::describe::{described, text};
use super::histogram::Histograms;
use super::queue::{BATCH, MOST, SpanQueue};
use super::send::{OtlpSender, Signal};
use super::span::EndedSpan;
use super::wire::{
    KeyValue, MetricsExport, Resource, ResourceMetrics, ResourceSpans, Scope, ScopeMetrics,
    ScopeSpans, TraceExport,
};
use crate::config::telemetry::{Conventions, TelemetryConfig};
use crate::runtime::http_client::SharedHttpClient;
use crate::runtime::log;

/// How often the log says that a collector takes none of a kind.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Exports the spans and metrics of a gateway.
pub(super) struct Exporter {
    settings: TelemetryConfig,
    queue: Arc<SpanQueue>,
    sender: Arc<OtlpSender>,
    waiting: Vec<EndedSpan>,
    histograms: Histograms,
    failing_traces: Option<FailingCollector>,
    failing_metrics: Option<FailingCollector>,
}

/// A kind of signal that the collector did not take of late.
struct FailingCollector {
    /// When the log last said so.
    told: Instant,
    lost: usize,
}

impl Exporter {
    pub(super) fn new(
        settings: &TelemetryConfig,
        queue: Arc<SpanQueue>,
        http: &SharedHttpClient,
    ) -> Result<Self, String> {
        Ok(Self {
            settings: settings.clone(),
            queue,
            sender: Arc::new(OtlpSender::new(settings, http)?),
            waiting: Vec::new(),
            histograms: Histograms::new(),
            failing_traces: None,
            failing_metrics: None,
        })
    }

    /// Exports until `ended`, and then once more what waits.
    pub(super) async fn run(mut self, ended: CancellationToken) {
        let every = |time: Duration| {
            let mut ticks = interval_at(Instant::now() + time, time);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let queue = Arc::clone(&self.queue);
        let mut spans = every(self.settings.interval);
        let mut metrics = every(self.settings.metrics_interval);
        loop {
            let has_metrics = tokio::select! {
                biased;
                () = ended.cancelled() => true,
                _ = metrics.tick() => true,
                _ = spans.tick() => false,
                () = queue.full() => false,
            };
            self.take();
            self.export_spans().await;
            if has_metrics && self.settings.conventions == Conventions::Mcp {
                self.export_metrics().await;
            }
            if ended.is_cancelled() {
                return;
            }
        }
    }

    /// Takes what has ended: counts all of it, and keeps what is exported.
    fn take(&mut self) {
        let mut lost = 0;
        for span in self.queue.take() {
            self.histograms.count(&span);
            if !span.context.is_sampled {
                continue;
            }
            match self.waiting.len() < MOST {
                true => self.waiting.push(span),
                false => lost += 1,
            }
        }
        self.queue.note_dropped(lost);
    }

    async fn export_spans(&mut self) {
        while !self.waiting.is_empty() {
            let batch: Vec<EndedSpan> =
                self.waiting.drain(..self.waiting.len().min(BATCH)).collect();
            let conventions = self.settings.conventions;
            let spans = batch.iter().map(|span| described(span, conventions)).collect();
            let scope_spans = vec![ScopeSpans { scope: Some(scope()), spans }];
            let resource = Some(self.resource());
            let resource_spans = vec![ResourceSpans { resource, scope_spans }];
            let sent = self.send(Signal::Traces, TraceExport { resource_spans }).await;
            let rejected = match sent {
                Ok(rejected) => rejected.min(batch.len()),
                Err(_) => batch.len(),
            };
            self.queue.note_exported(batch.len() - rejected);
            self.queue.note_dropped(rejected);
            self.tell(Signal::Traces, sent.err(), rejected);
        }
    }

    async fn export_metrics(&mut self) {
        let metrics = self.histograms.metrics();
        if metrics.is_empty() {
            return;
        }
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope()), metrics }];
        let resource = Some(self.resource());
        let resource_metrics = vec![ResourceMetrics { resource, scope_metrics }];
        let sent = self.send(Signal::Metrics, MetricsExport { resource_metrics }).await;
        self.tell(Signal::Metrics, sent.err(), 0);
    }

    /// Sends one export; meanwhile goes on to take what ends.
    async fn send<T: prost::Message + 'static>(
        &mut self,
        signal: Signal,
        export: T,
    ) -> Result<usize, String> {
        let (sender, queue) = (Arc::clone(&self.sender), Arc::clone(&self.queue));
        let mut sending = std::pin::pin!(sender.send(signal, export));
        loop {
            tokio::select! {
                sent = sending.as_mut() => return sent,
                () = queue.full() => self.take(),
            }
        }
    }

    /// Says in the log that the collector does not take a kind of signal, and that it does again.
    fn tell(&mut self, signal: Signal, failed: Option<String>, lost: usize) {
        let (state, what) = match signal {
            Signal::Traces => (&mut self.failing_traces, "spans"),
            Signal::Metrics => (&mut self.failing_metrics, "metrics"),
        };
        let Some(why) = failed else {
            if state.take().is_some() {
                log::line(&format!("the OpenTelemetry collector takes {what} again"));
            }
            return;
        };
        let lost = lost + state.as_ref().map_or(0, |failing| failing.lost);
        match state {
            Some(failing) if failing.told.elapsed() < TELL_EVERY => failing.lost = lost,
            failing => {
                *failing = Some(FailingCollector { told: Instant::now(), lost: 0 });
                let dropped = match signal {
                    Signal::Traces => format!("; {lost} were dropped"),
                    Signal::Metrics => String::new(),
                };
                log::warn(&format!(
                    "the OpenTelemetry collector takes no {what}: {why}{dropped}; calls go on"
                ));
            }
        }
    }

    fn resource(&self) -> Resource {
        let own = [
            text("service.name", &self.settings.service_name),
            text("service.version", env!("CARGO_PKG_VERSION")),
        ];
        let more = self.settings.resource.iter().map(|(key, value)| text(key, value));
        let attributes: Vec<KeyValue> = own.into_iter().chain(more).collect();
        Resource { attributes }
    }
}

fn scope() -> Scope {
    Scope { name: "seawall".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}
