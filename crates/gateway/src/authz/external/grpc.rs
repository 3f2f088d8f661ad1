//! Envoy's ext_authz over gRPC: how a question is written, and how the answer is read.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use ::http::{HeaderMap, HeaderName, HeaderValue};
use envoy_types::pb::envoy::config::core::v3::{HeaderValueOption, Metadata};
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Peer, Request};
use envoy_types::pb::envoy::service::auth::v3::authorization_client::AuthorizationClient;
use envoy_types::pb::envoy::service::auth::v3::check_response::HttpResponse;
use envoy_types::pb::envoy::service::auth::v3::{
    AttributeContext, CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Timestamp, Value as PbValue};
use serde_json::{Map, Value};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

use super::question::OwnedQuestion;
use super::{Allowance, NoVerdict, Verdict};
use crate::authz::refusal::AuthzRefusal;
use crate::config::ExtAuthzConfig;

/// The key of dynamic metadata under which an authorizer names the tools that it allows.
const TOOLS: &str = "tools";

/// One authorizer over gRPC.
pub(super) struct GrpcAuthorizer {
    client: Result<AuthorizationClient<Channel>, String>,
    context_extensions: HashMap<String, String>,
}

impl GrpcAuthorizer {
    /// Connects with the first question, and again when the connection is lost.
    pub(super) fn new(settings: &ExtAuthzConfig) -> Self {
        let client = channel(settings).map(AuthorizationClient::new);
        let context_extensions = settings.context_extensions.clone().into_iter().collect();
        Self { client, context_extensions }
    }

    /// Asks once, within `left`.
    pub(super) async fn ask(
        &self,
        question: &OwnedQuestion,
        left: Duration,
    ) -> Result<Verdict, NoVerdict> {
        let mut client = self.client.clone().map_err(NoVerdict)?;
        let mut request = tonic::Request::new(self.written(question));
        // The authorizer learns how long the answer is of use.
        request.set_timeout(left);
        match client.check(request).await {
            Ok(answer) => read(answer.into_inner()),
            Err(status) => Err(NoVerdict(failed(&status))),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the authorizer is told the time of day")]
    fn written(&self, question: &OwnedQuestion) -> CheckRequest {
        let mut headers: HashMap<String, String> = question.headers.clone().into_iter().collect();
        for (name, value) in
            [(":method", "POST"), (":path", &*question.path), (":authority", &*question.host)]
        {
            headers.insert(name.to_owned(), value.to_owned());
        }
        headers.insert("content-type".to_owned(), "application/json".to_owned());
        let http = HttpRequest {
            method: "POST".to_owned(),
            path: question.path.clone(),
            host: question.host.clone(),
            scheme: "http".to_owned(),
            protocol: "HTTP/1.1".to_owned(),
            size: i64::try_from(question.body.len()).unwrap_or(i64::MAX),
            raw_body: question.body.to_vec(),
            headers,
            ..HttpRequest::default()
        };
        let metadata = question.metadata.iter().map(|(name, value)| (name.clone(), pb(value)));
        let peer = |principal: &str, service: &str| Peer {
            principal: principal.to_owned(),
            service: service.to_owned(),
            ..Peer::default()
        };
        CheckRequest {
            attributes: Some(AttributeContext {
                source: Some(peer(&question.principal, "")),
                destination: Some(peer("", &question.server)),
                request: Some(Request {
                    time: Some(timestamp(SystemTime::now())),
                    http: Some(http),
                }),
                context_extensions: self.context_extensions.clone(),
                metadata_context: Some(Metadata {
                    filter_metadata: metadata.collect(),
                    ..Metadata::default()
                }),
                ..AttributeContext::default()
            }),
        }
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or_default(),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or_default(),
    }
}

fn channel(settings: &ExtAuthzConfig) -> Result<Channel, String> {
    let endpoint = Endpoint::from(settings.service.clone())
        .connect_timeout(settings.timeout.min(Duration::from_secs(5)))
        .tcp_nodelay(true)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(5));
    let endpoint = match settings.service.scheme_str() {
        Some("https") => endpoint
            .tls_config(ClientTlsConfig::new().with_native_roots())
            .map_err(|error| format!("its TLS settings are wrong: {error}"))?,
        _ => endpoint,
    };
    Ok(endpoint.connect_lazy())
}

/// A status of the call itself is never a decision, not even PERMISSION_DENIED: whoever sends it is
/// between us and the authorizer.
fn failed(status: &Status) -> String {
    match (status.code(), status.message()) {
        (Code::DeadlineExceeded | Code::Cancelled, _) => "it did not answer in time".to_owned(),
        (Code::Unavailable, text)
            if text.contains("error trying to connect") || text.is_empty() =>
        {
            "it cannot be reached".to_owned()
        }
        (code, "") => format!("it failed ({code:?})"),
        (code, text) => format!("it failed ({code:?}: {text})"),
    }
}

/// The verdict of an answer: `status.code` 0 allows; 14 (unavailable), 4 (deadline), 13 (internal)
/// and the like are no decision; everything else denies.
#[expect(deprecated, reason = "authorizers made for older Envoys set the older field")]
fn read(mut answer: CheckResponse) -> Result<Verdict, NoVerdict> {
    let status = answer.status.unwrap_or_default();
    let metadata = answer.dynamic_metadata.or_else(|| match &mut answer.http_response {
        // Where it stood before Envoy 1.17.
        Some(HttpResponse::OkResponse(ok)) => ok.dynamic_metadata.take(),
        _ => None,
    });
    let metadata = metadata.map(|fields| json(fields.fields));
    let says_no = matches!(answer.http_response, Some(HttpResponse::DeniedResponse(_)));
    let code = match status.code {
        // An answer that says both is no allowance.
        0 if says_no => Code::PermissionDenied,
        code @ 0..=16 => Code::from_i32(code),
        // A number that no code has is no code to wait out.
        _ => Code::PermissionDenied,
    };
    match code {
        Code::Ok => Ok(Ok(allowed(answer.http_response, metadata))),
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Internal
        | Code::Unknown
        | Code::ResourceExhausted
        | Code::Aborted
        | Code::Cancelled => {
            let words = match answer.http_response {
                Some(HttpResponse::DeniedResponse(denied)) if !denied.body.is_empty() => {
                    denied.body
                }
                _ if !status.message.is_empty() => status.message,
                _ => format!("it failed (code {})", status.code),
            };
            Err(NoVerdict(words))
        }
        code => Ok(Err(denied(code, status.message, answer.http_response))),
    }
}

fn allowed(response: Option<HttpResponse>, metadata: Option<Map<String, Value>>) -> Allowance {
    let Some(HttpResponse::OkResponse(OkHttpResponse { headers, headers_to_remove, .. })) =
        response
    else {
        return Allowance {
            tools: tools(&metadata),
            metadata: metadata.map(Value::Object),
            ..Allowance::default()
        };
    };
    let removed = headers_to_remove.iter().filter_map(|name| HeaderName::try_from(name).ok());
    Allowance {
        headers: headers.into_iter().filter_map(header).collect(),
        passed: 0,
        removed: removed.collect(),
        tools: tools(&metadata),
        metadata: metadata.map(Value::Object),
    }
}

fn tools(metadata: &Option<Map<String, Value>>) -> Option<Vec<String>> {
    let list = metadata.as_ref()?.get(TOOLS)?.as_array()?;
    Some(list.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

fn denied(code: Code, message: String, response: Option<HttpResponse>) -> AuthzRefusal {
    let of_code = if code == Code::Unauthenticated { 401 } else { 403 };
    let Some(HttpResponse::DeniedResponse(DeniedHttpResponse { status, headers, body })) = response
    else {
        return AuthzRefusal::denied(of_code, words(message));
    };
    let stated = status.and_then(|status| u16::try_from(status.code).ok());
    let body = if body.trim().is_empty() { words(message) } else { body };
    let mut refusal =
        AuthzRefusal::denied(stated.filter(|code| *code > 0).unwrap_or(of_code), body);
    if let AuthzRefusal::Denied { headers: own, .. } = &mut refusal {
        own.extend(headers.into_iter().filter_map(header).collect::<HeaderMap>());
    }
    refusal
}

fn words(message: String) -> String {
    if message.trim().is_empty() { "denied by the authorizer".to_owned() } else { message }
}

fn header(option: HeaderValueOption) -> Option<(HeaderName, HeaderValue)> {
    let header = option.header?;
    let name = HeaderName::try_from(header.key).ok()?;
    let bytes =
        if header.raw_value.is_empty() { header.value.into_bytes() } else { header.raw_value };
    Some((name, HeaderValue::from_bytes(&bytes).ok()?))
}

/// JSON as protobuf's struct; what is no object has no fields.
fn pb(value: &Value) -> Struct {
    let fields = value.as_object().into_iter().flatten();
    Struct { fields: fields.map(|(name, value)| (name.clone(), pb_value(value))).collect() }
}

fn pb_value(value: &Value) -> PbValue {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(flag) => Kind::BoolValue(*flag),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(pb_value).collect() })
        }
        Value::Object(_) => Kind::StructValue(pb(value)),
    };
    PbValue { kind: Some(kind) }
}

fn json(fields: impl IntoIterator<Item = (String, PbValue)>) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name, json_value(value))).collect()
}

fn json_value(value: PbValue) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(flag)) => flag.into(),
        Some(Kind::NumberValue(number)) => number.into(),
        Some(Kind::StringValue(text)) => text.into(),
        Some(Kind::ListValue(list)) => list.values.into_iter().map(json_value).collect(),
        Some(Kind::StructValue(inner)) => json(inner.fields).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_allows_and_denies_is_a_denial() {
        let says_both = CheckResponse {
            http_response: Some(HttpResponse::DeniedResponse(DeniedHttpResponse::default())),
            ..CheckResponse::default()
        };
        assert!(matches!(read(says_both), Ok(Err(_))));
        // As for Envoy, an answer that says nothing allows.
        assert!(matches!(read(CheckResponse::default()), Ok(Ok(_))));
    }
}
