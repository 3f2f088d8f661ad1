//! Decides how an export reaches a collector: OTLP over gRPC, or over HTTP in protobuf.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full, Limited};
use prost::Message;
use tonic::Code;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic_prost::ProstCodec;

use super::wire::ExportAnswer;
use crate::config::telemetry::{OtlpProtocol, TelemetryConfig};
use crate::runtime::http_client::{HttpClient, SharedHttpClient};

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
/// The largest answer that is read.
const ANSWER: usize = 64 * 1024;

/// One kind of signal.
#[derive(Clone, Copy, Debug)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

/// The way to a collector.
pub(super) struct OtlpSender {
    traces: CollectorAddress,
    metrics: CollectorAddress,
    headers: HeaderMap,
    timeout: Duration,
}

enum CollectorAddress {
    Grpc(Channel),
    Http(Box<HttpClient>, Uri),
}

impl OtlpSender {
    /// Connects with the first export, and again when the connection is lost.
    pub(super) fn new(settings: &TelemetryConfig, http: &SharedHttpClient) -> Result<Self, String> {
        let to = |uri: &Uri| match settings.protocol {
            OtlpProtocol::Grpc => channel(uri, settings.timeout).map(CollectorAddress::Grpc),
            OtlpProtocol::Http => Ok(CollectorAddress::Http(Box::new(http.get()?), uri.clone())),
        };
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let value = HeaderValue::from_str(value.expose()).map(|mut value| {
                value.set_sensitive(true);
                value
            });
            headers.extend(value.ok().map(|value| (name.clone(), value)));
        }
        let (traces, metrics) = (to(&settings.traces)?, to(&settings.metrics)?);
        Ok(Self { traces, metrics, headers, timeout: settings.timeout })
    }

    /// Sends one export; returns how many of its items the collector did not take.
    pub(super) async fn send<T: Message + 'static>(
        &self,
        signal: Signal,
        export: T,
    ) -> Result<usize, String> {
        let to = match signal {
            Signal::Traces => &self.traces,
            Signal::Metrics => &self.metrics,
        };
        let sent = async {
            match to {
                CollectorAddress::Grpc(channel) => self.over_grpc(channel, signal, export).await,
                CollectorAddress::Http(client, uri) => self.over_http(client, uri, &export).await,
            }
        };
        let sent = tokio::time::timeout(self.timeout, sent).await;
        let answer = sent.unwrap_or_else(|_| Err("it did not answer in time".to_owned()))?;
        let rejected = answer.partial_success.unwrap_or_default().rejected;
        Ok(usize::try_from(rejected).unwrap_or_default())
    }

    async fn over_grpc<T: Message + 'static>(
        &self,
        channel: &Channel,
        signal: Signal,
        export: T,
    ) -> Result<ExportAnswer, String> {
        let path = PathAndQuery::from_static(match signal {
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Metrics => "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
        });
        let mut client = Grpc::new(channel.clone());
        client.ready().await.map_err(|_| "it cannot be reached".to_owned())?;
        let mut request = tonic::Request::new(export);
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        request.set_timeout(self.timeout);
        let codec = ProstCodec::<T, ExportAnswer>::default();
        match client.unary(request, path, codec).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(match status.code() {
                Code::Unavailable => "it cannot be reached".to_owned(),
                Code::DeadlineExceeded | Code::Cancelled => "it did not answer in time".to_owned(),
                code => format!("it refused: {code:?}"),
            }),
        }
    }

    async fn over_http(
        &self,
        client: &HttpClient,
        uri: &Uri,
        export: &impl Message,
    ) -> Result<ExportAnswer, String> {
        let mut request = Request::new(Full::new(export.encode_to_vec().into()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri.clone();
        request.headers_mut().clone_from(&self.headers);
        request.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
        let response = client.request(request).await;
        let response = response.map_err(|_| "it cannot be reached".to_owned())?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER).collect().await;
        let body = body.map_err(|_| "its answer cannot be read".to_owned())?.to_bytes();
        if !status.is_success() {
            return Err(format!("it refused: HTTP {}", status.as_u16()));
        }
        // What was taken was taken, whatever the answer says of it.
        Ok(ExportAnswer::decode(body).unwrap_or_default())
    }
}

fn channel(uri: &Uri, timeout: Duration) -> Result<Channel, String> {
    let endpoint = Endpoint::from(uri.clone())
        .connect_timeout(timeout.min(Duration::from_secs(5)))
        .tcp_nodelay(true);
    let endpoint = match uri.scheme_str() {
        Some("https") => endpoint
            .tls_config(ClientTlsConfig::new().with_native_roots())
            .map_err(|error| format!("the TLS settings for the collector are wrong: {error}"))?,
        _ => endpoint,
    };
    Ok(endpoint.connect_lazy())
}
