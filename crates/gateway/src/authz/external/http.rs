//! Envoy's ext_authz over HTTP: the authorizer gets the request's head and body, and answers with
//! its status.

use std::collections::BTreeMap;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::Value;

use super::question::{MCP_METADATA, OwnedQuestion};
use super::{Allowance, NoVerdict, Verdict};
use crate::authz::refusal::AuthzRefusal;
use crate::config::ExtAuthzConfig;
use crate::runtime::http_client::SharedHttpClient;

/// The most that is read of an answer.
const ANSWER: usize = 64 * 1024;
/// Names what the authorizer is asked about, beside the body.
const METADATA: &str = "x-seawall-metadata";
/// The header in which an authorizer names the tools that it allows.
const TOOLS: &str = "x-seawall-tools";
/// Envoy's header with the names of headers to remove.
const REMOVE: &str = "x-envoy-auth-headers-to-remove";
/// Headers of an answer that are about the answer, not about the call.
const ABOUT_ITSELF: [&str; 10] = [
    "content-length",
    "content-type",
    "date",
    "server",
    "connection",
    "transfer-encoding",
    "keep-alive",
    "vary",
    TOOLS,
    REMOVE,
];

/// One authorizer over HTTP.
pub(super) struct HttpAuthorizer {
    client: SharedHttpClient,
    service: Uri,
    context_extensions: BTreeMap<String, String>,
}

impl HttpAuthorizer {
    /// Connects with the first question.
    pub(super) fn new(settings: &ExtAuthzConfig, client: &SharedHttpClient) -> Self {
        Self {
            client: client.clone(),
            service: settings.service.clone(),
            context_extensions: settings.context_extensions.clone(),
        }
    }

    /// Asks once. The caller bounds the time.
    pub(super) async fn ask(&self, question: &OwnedQuestion) -> Result<Verdict, NoVerdict> {
        let client = self.client.get().map_err(NoVerdict)?;
        let request = self
            .written(question)
            .ok_or_else(|| NoVerdict("the question cannot be written".to_owned()))?;
        let answer = client.request(request).await;
        let answer = answer.map_err(|error| {
            let reason = if error.is_connect() { "cannot be reached" } else { "broke off" };
            NoVerdict(format!("it {reason}"))
        })?;
        read(answer).await
    }

    fn written(&self, question: &OwnedQuestion) -> Option<Request<Full<Bytes>>> {
        let prefix = self.service.path().trim_end_matches('/');
        let url = Uri::builder()
            .scheme(self.service.scheme()?.clone())
            .authority(self.service.authority()?.clone())
            .path_and_query(format!("{prefix}{}", question.path))
            .build()
            .ok()?;
        let mut request = Request::new(Full::new(question.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = url;
        let headers = request.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let mut set = |name: &str, value: &str| {
            let (name, value) =
                (HeaderName::try_from(name).ok()?, HeaderValue::from_str(value).ok()?);
            headers.insert(name, value)
        };
        set("x-forwarded-host", &question.host);
        for (name, value) in &question.headers {
            set(name, value);
        }
        for (name, value) in &self.context_extensions {
            set(name, value);
        }
        let mut metadata: serde_json::Map<String, Value> =
            question.metadata.iter().cloned().collect();
        // The body holds the params, and a header should be short.
        let mcp = metadata.get_mut(MCP_METADATA).and_then(Value::as_object_mut);
        mcp.into_iter().for_each(|mcp| _ = mcp.remove("params"));
        // Escaped, since a header is ASCII and metadata may hold any text.
        set(METADATA, &ascii(&Value::Object(metadata).to_string()));
        Some(request)
    }
}

/// JSON with every character beyond ASCII escaped.
fn ascii(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_ascii() {
            true => escaped.push(c),
            false => c
                .encode_utf16(&mut [0; 2])
                .iter()
                .for_each(|unit| escaped.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    escaped
}

/// 2xx allows; 5xx, 408 and 429 are no decision; everything else denies, as in Envoy.
async fn read(answer: Response<Incoming>) -> Result<Verdict, NoVerdict> {
    let (parts, body) = answer.into_parts();
    let status = parts.status;
    if status.is_success() {
        return Ok(Ok(allowed(&parts.headers)));
    }
    if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
        return Err(NoVerdict(format!("it answered with HTTP status {}", status.as_u16())));
    }
    let text = Limited::new(body, ANSWER).collect().await.map(|body| body.to_bytes());
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let words = if text.trim().is_empty() { "denied by the authorizer".to_owned() } else { text };
    let mut refusal = AuthzRefusal::denied(status.as_u16(), words);
    if let AuthzRefusal::Denied { headers, .. } = &mut refusal {
        headers.extend(about_the_call(&parts.headers));
    }
    Ok(Err(refusal))
}

fn allowed(headers: &HeaderMap) -> Allowance {
    let listed = |name: &str| -> Option<Vec<String>> {
        let text = headers.get(name)?.to_str().ok()?;
        Some(
            text.split(',')
                .map(|part| part.trim().to_owned())
                .filter(|part| !part.is_empty())
                .collect(),
        )
    };
    let removed = listed(REMOVE).unwrap_or_default();
    Allowance {
        headers: about_the_call(headers).collect(),
        passed: 0,
        removed: removed.iter().filter_map(|name| HeaderName::try_from(name).ok()).collect(),
        tools: listed(TOOLS),
        metadata: None,
    }
}

fn about_the_call(
    headers: &HeaderMap,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<'_> {
    let own = headers.iter().filter(|(name, _)| !ABOUT_ITSELF.contains(&name.as_str()));
    own.map(|(name, value)| (name.clone(), value.clone()))
}
