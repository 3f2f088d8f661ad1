//! Counts how long calls and requests to servers took, in the histograms of OpenTelemetry's
//! conventions for MCP. They count every span, exported or not.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::describe::{common, kept, text};
use super::peer::Peer;
use super::span::{EndedSpan, SpanRole, known, now};
use super::wire::{HistogramPoint, KeyValue, Metric, WireHistogram};
use crate::config::telemetry::Conventions;

/// The upper bounds of the buckets, in seconds, as the conventions want them.
const BOUNDS: [f64; 14] =
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// Series of one gateway. Further ones are counted without their tool, and then not at all: what
/// tells them apart comes from servers.
const MOST: usize = 4096;

const UNKNOWN: &str = "unknown";

/// What tells series apart.
#[derive(Clone, PartialEq, Eq)]
struct SeriesKey {
    role: SpanRole,
    method: &'static str,
    tool: Option<Box<str>>,
    error: Option<Cow<'static, str>>,
    code: Option<i64>,
    peer: Arc<Peer>,
}

/// The parts that differ most between the series of a gateway are enough.
impl Hash for SeriesKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.role, &self.tool, &self.peer.server).hash(state);
    }
}

struct Series {
    attributes: Vec<KeyValue>,
    /// The last one counts what took longer than the last bound.
    within: [u64; BOUNDS.len() + 1],
    sum: Duration,
}

/// All histograms of a gateway.
pub(super) struct Histograms {
    since: u64,
    series: HashMap<SeriesKey, Series>,
}

impl Histograms {
    pub(super) fn new() -> Self {
        Self { since: now(), series: HashMap::new() }
    }

    /// Counts a span.
    pub(super) fn count(&mut self, span: &EndedSpan) {
        let method = known(&span.method).unwrap_or(UNKNOWN);
        let tool = match &*span.method {
            "tools/call" if span.is_listed => Some(span.target.clone()),
            "tools/call" => Some(UNKNOWN.into()),
            _ => None,
        };
        let key = SeriesKey {
            role: span.role,
            method,
            tool,
            error: span.outcome.error.clone(),
            code: span.outcome.code,
            peer: Arc::clone(&span.peer),
        };
        if let Some(series) = self.series.get_mut(&key) {
            return series.add(span.took);
        }
        let tool = key.tool.clone();
        let key = match self.series.len() {
            room if room < MOST => key,
            _ => SeriesKey { tool: None, ..key },
        };
        let is_full = self.series.len() >= 2 * MOST;
        if is_full && !self.series.contains_key(&key) {
            return;
        }
        let labelled = EndedSpan { method: key.method.into(), ..span.clone() };
        let series = self.series.entry(key).or_insert_with_key(|key| {
            let mut attributes = Vec::new();
            common(&labelled, Conventions::Mcp, &mut |key, value| {
                attributes.push(kept(key, value))
            });
            let tool = tool.filter(|_| key.tool.is_some());
            attributes.extend(tool.map(|tool| text("gen_ai.tool.name", &tool)));
            Series { attributes, within: Default::default(), sum: Duration::ZERO }
        });
        series.add(span.took);
    }

    /// The histograms as a collector gets them.
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let time = now();
        let of = |role: SpanRole, name: &str, description: &str| {
            let series = self.series.iter().filter(|(key, _)| key.role == role);
            let points = series.map(|(_, series)| series.point(self.since, time)).collect();
            let histogram = WireHistogram { data_points: points, aggregation_temporality: 2 };
            Metric {
                name: name.to_owned(),
                description: description.to_owned(),
                unit: "s".to_owned(),
                histogram: Some(histogram),
            }
        };
        let metrics = [
            of(
                SpanRole::Server,
                "mcp.server.operation.duration",
                "How long calls of clients took, with all attempts.",
            ),
            of(
                SpanRole::Client,
                "mcp.client.operation.duration",
                "How long requests to servers took.",
            ),
        ];
        let has_points =
            |metric: &Metric| metric.histogram.iter().any(|of| !of.data_points.is_empty());
        metrics.into_iter().filter(has_points).collect()
    }
}

impl Series {
    fn add(&mut self, took: Duration) {
        let place = BOUNDS.partition_point(|bound| took.as_secs_f64() > *bound);
        if let Some(within) = self.within.get_mut(place) {
            *within += 1;
        }
        self.sum += took;
    }

    fn point(&self, since: u64, time: u64) -> HistogramPoint {
        HistogramPoint {
            start_time_unix_nano: since,
            time_unix_nano: time,
            count: self.within.iter().sum(),
            sum: Some(self.sum.as_secs_f64()),
            bucket_counts: self.within.to_vec(),
            explicit_bounds: BOUNDS.to_vec(),
            attributes: self.attributes.clone(),
        }
    }
}
