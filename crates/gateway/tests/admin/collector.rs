//! An OpenTelemetry collector made of the official messages: OTLP over gRPC and over HTTP.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server as metrics_server;
use opentelemetry_proto::tonic::collector::trace::v1 as traces;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server as trace_server;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as AnyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message;
use tokio::net::TcpListener;
use tonic::codegen::Service;

use super::kit::until;

/// A span as it arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenSpan {
    pub(crate) name: String,
    /// 2 is SERVER, 3 is CLIENT.
    pub(crate) kind: i32,
    /// Trace and span, as in a `traceparent`.
    pub(crate) context: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) links: Vec<String>,
    pub(crate) is_error: bool,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) resource: BTreeMap<String, String>,
}

impl SeenSpan {
    pub(crate) fn of(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

/// A point of a histogram: its metric, labels, count and bounds.
pub(crate) type SeenPoint = (String, BTreeMap<String, String>, u64, Vec<f64>);

#[derive(Default)]
struct Arrived {
    spans: Vec<SeenSpan>,
    points: Vec<SeenPoint>,
    headers: Vec<HeaderMap>,
}

/// The collector.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    pub(crate) url: String,
    arrived: Arc<Mutex<Arrived>>,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self { url, arrived: Arc::default() };
        let own = collector.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let own = own.clone();
                let serve = service_fn(move |request| own.clone().answer(request));
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _gone = builder.serve_connection(TokioIo::new(tcp), serve).await;
                });
            }
        });
        collector
    }

    async fn answer(
        self,
        request: Request<Incoming>,
    ) -> Result<Response<tonic::body::Body>, Infallible> {
        self.arrived.lock().unwrap().headers.push(request.headers().clone());
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/v1/traces" => {
                assert_eq!(request.headers()["content-type"], "application/x-protobuf");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                self.take(traces::ExportTraceServiceRequest::decode(body).unwrap());
                Ok(Response::new(tonic::body::Body::new(Full::new(Bytes::new()))))
            }
            "/v1/metrics" => {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                self.measure(metrics::ExportMetricsServiceRequest::decode(body).unwrap());
                Ok(Response::new(tonic::body::Body::new(Full::new(Bytes::new()))))
            }
            _ if path.contains("TraceService") => {
                trace_server::TraceServiceServer::new(self).call(request).await
            }
            _ => metrics_server::MetricsServiceServer::new(self).call(request).await,
        }
    }

    fn take(&self, export: traces::ExportTraceServiceRequest) {
        let mut arrived = self.arrived.lock().unwrap();
        for of in export.resource_spans {
            let resource = attributes(&of.resource.unwrap().attributes);
            for span in of.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                let (trace, id) = (hex(&span.trace_id), hex(&span.span_id));
                assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
                arrived.spans.push(SeenSpan {
                    name: span.name,
                    kind: span.kind,
                    context: format!("00-{trace}-{id}-01"),
                    trace,
                    id,
                    parent: hex(&span.parent_span_id),
                    links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
                    is_error: span.status.is_some_and(|status| status.code == 2),
                    attributes: attributes(&span.attributes),
                    resource: resource.clone(),
                });
            }
        }
    }

    fn measure(&self, export: metrics::ExportMetricsServiceRequest) {
        let mut arrived = self.arrived.lock().unwrap();
        let scopes = export.resource_metrics.into_iter().flat_map(|of| of.scope_metrics);
        for metric in scopes.flat_map(|scope| scope.metrics) {
            let Some(Data::Histogram(histogram)) = metric.data else { panic!("{metric:?}") };
            assert_eq!((histogram.aggregation_temporality, metric.unit.as_str()), (2, "s"));
            for point in histogram.data_points {
                assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
                let labels = attributes(&point.attributes);
                let seen = (metric.name.clone(), labels, point.count, point.explicit_bounds);
                arrived.points.push(seen);
            }
        }
    }

    pub(crate) fn spans(&self) -> Vec<SeenSpan> {
        self.arrived.lock().unwrap().spans.clone()
    }

    pub(crate) fn points(&self) -> Vec<SeenPoint> {
        self.arrived.lock().unwrap().points.clone()
    }

    /// The headers of every export.
    pub(crate) fn headers(&self) -> Vec<HeaderMap> {
        self.arrived.lock().unwrap().headers.clone()
    }

    /// The spans of this name, once so many have come.
    pub(crate) async fn named(&self, name: &str, count: usize) -> Vec<SeenSpan> {
        let found = || -> Vec<SeenSpan> {
            self.spans().into_iter().filter(|span| span.name == name).collect()
        };
        until(&format!("{count} spans {name}"), async || found().len() >= count).await;
        found()
    }
}

#[tonic::async_trait]
impl trace_server::TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<traces::ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<traces::ExportTraceServiceResponse>, tonic::Status> {
        self.take(request.into_inner());
        Ok(tonic::Response::new(traces::ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl metrics_server::MetricsService for Collector {
    async fn export(
        &self,
        request: tonic::Request<metrics::ExportMetricsServiceRequest>,
    ) -> Result<tonic::Response<metrics::ExportMetricsServiceResponse>, tonic::Status> {
        self.measure(request.into_inner());
        Ok(tonic::Response::new(metrics::ExportMetricsServiceResponse::default()))
    }
}

fn attributes(all: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |pair: &KeyValue| match pair.value.clone().unwrap().value.unwrap() {
        AnyValue::StringValue(text) => text,
        AnyValue::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    all.iter().map(|pair| (pair.key.clone(), text(pair))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
