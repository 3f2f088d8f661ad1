//! What an Envoy ext_authz check says, decoded, and a check that a test makes itself.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::envoy::service::auth::v3::attribute_context::{HttpRequest, Request};
use envoy_types::pb::envoy::service::auth::v3::{AttributeContext, CheckRequest};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value as Any};
use serde_json::{Map, Value, json};

/// What an authorizer was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Check {
    /// The id of the request, as its sender knows it.
    pub id: String,
    /// The HTTP method.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The host that the client named.
    pub host: String,
    /// `http` or `https`.
    pub scheme: String,
    /// `HTTP/1.1`, `HTTP/2`.
    pub protocol: String,
    /// How many bytes the body has; -1: not known.
    pub size: i64,
    /// The headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body as text.
    pub body: String,
    /// The body as bytes.
    pub raw_body: Vec<u8>,
    /// What the operator configured for the route.
    pub context_extensions: BTreeMap<String, String>,
    /// The dynamic metadata: an object with a member for each name.
    pub filter_metadata: Value,
    /// Who calls, as the sender knows it.
    pub principal: String,
    /// The metadata of the gRPC call itself, such as `grpc-timeout`.
    pub grpc: BTreeMap<String, String>,
}

impl Check {
    /// Reads a check off the wire.
    pub(super) fn read(request: tonic::Request<CheckRequest>) -> Self {
        let grpc = request.metadata().clone().into_headers();
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into();
        let grpc = grpc.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        let attributes = request.into_inner().attributes.unwrap_or_default();
        let http = attributes.request.and_then(|request| request.http).unwrap_or_default();
        let metadata = attributes.metadata_context.unwrap_or_default().filter_metadata;
        let metadata: Map<String, Value> =
            metadata.into_iter().map(|(name, value)| (name, json_of_struct(&value))).collect();
        Self {
            id: http.id,
            method: http.method,
            path: http.path,
            host: http.host,
            scheme: http.scheme,
            protocol: http.protocol,
            size: http.size,
            headers: http.headers.into_iter().map(|(k, v)| (k.to_lowercase(), v)).collect(),
            body: http.body,
            raw_body: http.raw_body,
            context_extensions: attributes.context_extensions.into_iter().collect(),
            filter_metadata: Value::Object(metadata),
            principal: attributes.source.unwrap_or_default().principal,
            grpc,
        }
    }

    /// The body, whichever way it came, as JSON; null: it is none.
    pub fn json(&self) -> Value {
        let body = if self.raw_body.is_empty() { self.body.as_bytes() } else { &self.raw_body };
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// The server and the tool of a `tools/call`: the server is named by the path, `/mcp/<server>`.
    pub fn call(&self) -> Option<(String, String)> {
        let body = self.json();
        let tool = body["params"]["name"].as_str().filter(|name| !name.is_empty());
        (body["method"] == "tools/call").then_some(())?;
        Some((self.server()?.to_owned(), tool?.to_owned()))
    }

    /// The server that the path names.
    pub fn server(&self) -> Option<&str> {
        let path = self.path.split('?').next().unwrap_or_default();
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        (parts.next()? == "mcp").then_some(())?;
        parts.next()
    }

    /// A header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// A check as a gateway would send it, for tests of the authorizers themselves: the body is sent as
/// `raw_body`, the members of `metadata` are those of `filter_metadata`.
pub fn check_request(
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
    metadata: &Value,
) -> CheckRequest {
    let raw_body = body.to_string().into_bytes();
    let http = HttpRequest {
        method: "POST".to_owned(),
        path: path.to_owned(),
        headers: headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        size: i64::try_from(raw_body.len()).unwrap_or(-1),
        raw_body,
        ..HttpRequest::default()
    };
    let members = metadata.as_object().into_iter().flatten();
    let filter_metadata =
        members.map(|(name, value)| (name.clone(), struct_of_json(value))).collect();
    CheckRequest {
        attributes: Some(AttributeContext {
            request: Some(Request { time: None, http: Some(http) }),
            metadata_context: Some(Metadata { filter_metadata, ..Metadata::default() }),
            ..AttributeContext::default()
        }),
    }
}

/// A protobuf struct as JSON.
pub fn json_of_struct(value: &Struct) -> Value {
    value
        .fields
        .iter()
        .map(|(name, value)| (name.clone(), json_of(value)))
        .collect::<Map<_, _>>()
        .into()
}

fn json_of(value: &Any) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => json!(number),
        Some(Kind::StringValue(text)) => json!(text),
        Some(Kind::BoolValue(is)) => json!(is),
        Some(Kind::StructValue(value)) => json_of_struct(value),
        Some(Kind::ListValue(list)) => list.values.iter().map(json_of).collect(),
    }
}

/// A JSON object as a protobuf struct; what is no object is an empty one.
pub fn struct_of_json(value: &Value) -> Struct {
    let members = value.as_object().into_iter().flatten();
    Struct { fields: members.map(|(name, value)| (name.clone(), any_of(value))).collect() }
}

fn any_of(value: &Value) -> Any {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(is) => Kind::BoolValue(*is),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(list) => {
            Kind::ListValue(ListValue { values: list.iter().map(any_of).collect() })
        }
        Value::Object(_) => Kind::StructValue(struct_of_json(value)),
    };
    Any { kind: Some(kind) }
}
