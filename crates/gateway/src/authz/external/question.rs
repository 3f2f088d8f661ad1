//! What an authorizer is asked: the resolved call, as Envoy's own filters would describe it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::ListChecks;
use crate::authz::digest;
use crate::authz::origin::CallOrigin;
use crate::config::{ALL_HEADERS, ExtAuthzConfig};
use crate::protocol::Message;
use crate::protocol::edit::JsonObject;

/// The metadata namespace of Envoy's MCP filter.
pub(crate) const MCP_METADATA: &str = "envoy.filters.http.mcp";

/// Headers that are about the client's own message and connection.
const ABOUT_THE_MESSAGE: [&str; 12] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "x-forwarded-host",
    "x-seawall-metadata",
];

/// One question: may this caller make this call of this server?
#[derive(Clone)]
pub(crate) struct CheckQuestion<'a> {
    /// The server that would get the call.
    pub server: &'a str,
    /// The method of the request.
    pub method: Cow<'a, str>,
    /// The tool, prompt or resource that the request names.
    pub name: Option<Cow<'a, str>>,
    /// The request's id, as JSON.
    id: Value,
    /// The params of the request, as JSON.
    params: Cow<'a, [u8]>,
    /// The request as the server would get it.
    pub body: Bytes,
    /// Where the call comes from.
    pub origin: &'a CallOrigin,
    /// The list whose checks this is one of.
    pub(super) list: Option<&'a ListChecks>,
}

/// A question that lives as long as its check.
pub(super) struct OwnedQuestion {
    /// The path of the server's own endpoint.
    pub path: String,
    /// The `Host` of the client's request.
    pub host: String,
    /// The headers of the client that the authorizer may see.
    pub headers: BTreeMap<String, String>,
    /// The request as the server would get it.
    pub body: Bytes,
    /// Dynamic metadata by its namespace.
    pub metadata: Vec<(String, Value)>,
    /// The caller's name, if it is known.
    pub principal: String,
    /// The server that would get the call.
    pub server: String,
}

impl<'a> CheckQuestion<'a> {
    /// The question about a request to a server.
    pub(crate) fn new(server: &'a str, request: &'a Message, origin: &'a CallOrigin) -> Self {
        let name = match request.method() {
            "tools/call" | "prompts/get" => request.field_text("name"),
            method if method.starts_with("resources/") => request.field_text("uri"),
            method if method.starts_with("tasks/") => request.field_text("taskId"),
            _ => None,
        };
        let id = request.id().and_then(|id| serde_json::from_slice(id.json()).ok());
        Self {
            server,
            method: if request.method().is_empty() { "response" } else { request.method() }.into(),
            name,
            id: id.unwrap_or_default(),
            params: request.body_json().into(),
            body: request.raw().clone(),
            origin,
            list: None,
        }
    }

    /// The question as one of those that are asked for a list.
    pub(crate) fn of_list(self, list: Option<&'a ListChecks>) -> Self {
        Self { list, ..self }
    }

    /// The question whether the caller may call a tool at all, whatever its arguments.
    pub(crate) fn about_tool(&self, name: &str) -> CheckQuestion<'a> {
        self.about("tools/call", json!({"name": name}), name)
    }

    /// The question which of `names` the caller may call.
    pub(super) fn about_tools(&self, names: &[String]) -> CheckQuestion<'a> {
        self.about("tools/list", json!({"tools": names}), &names.join(","))
    }

    fn about(&self, method: &str, params: Value, name: &str) -> CheckQuestion<'a> {
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": method, "params": params});
        CheckQuestion {
            server: self.server,
            method: method.to_owned().into(),
            name: Some(name.to_owned().into()),
            id: 0.into(),
            params: params.to_string().into_bytes().into(),
            body: body.to_string().into(),
            origin: self.origin,
            list: self.list,
        }
    }

    /// The tool, or else the method, for events and metrics.
    pub(crate) fn subject(&self) -> &str {
        match (&*self.method, &self.name) {
            ("tools/call", Some(name)) => name,
            (method, _) => method,
        }
    }

    /// Names everything that the verdict may depend on but the request's id: identical checks in
    /// flight are one.
    pub(super) fn key(&self, settings: &ExtAuthzConfig) -> String {
        let mut body = JsonObject::of(&self.body);
        body.remove("id");
        self.hashed(settings, &body.json())
    }

    /// Names caller, server and tool: an allowance is remembered for these. What names no tool,
    /// prompt or resource is remembered with all its params.
    pub(super) fn scope(&self, settings: &ExtAuthzConfig) -> String {
        match &self.name {
            Some(name) => self.hashed(settings, name.as_bytes()),
            None => self.hashed(settings, &self.params),
        }
    }

    fn hashed(&self, settings: &ExtAuthzConfig, what: &[u8]) -> String {
        let origin = self.origin;
        let headers = origin.headers.iter();
        let headers: Vec<u8> = headers
            .flat_map(|(name, value)| {
                [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"].concat()
            })
            .collect();
        // Two tokens of one caller may have different claims.
        let claims: Vec<u8> = self
            .claims(settings)
            .flat_map(|(name, claims)| format!("{name}:{}\n", Value::Object(claims)).into_bytes())
            .collect();
        digest(&[
            origin.caller.as_bytes(),
            origin.host.as_bytes(),
            &headers,
            &claims,
            self.server.as_bytes(),
            self.method.as_bytes(),
            what,
        ])
    }

    /// The claims of the caller that the authorizer sees, under the operator's names.
    fn claims(
        &self,
        settings: &ExtAuthzConfig,
    ) -> impl Iterator<Item = (String, Map<String, Value>)> {
        let claims = self.origin.principal.as_ref().map(|principal| &principal.claims);
        settings.claims.iter().map(move |(name, wanted)| {
            let of = |name: &String| Some((name.clone(), claims?.get(name)?.clone()));
            (name.clone(), wanted.iter().filter_map(of).collect())
        })
    }

    /// The question as a check keeps it, with what the operator lets the authorizer see.
    pub(super) fn owned(&self, settings: &ExtAuthzConfig) -> OwnedQuestion {
        let origin = self.origin;
        let header = |name: &http::HeaderName| {
            // The request to the authorizer is another one, with a length and a host of its own.
            if ABOUT_THE_MESSAGE.contains(&name.as_str()) {
                return None;
            }
            let values: Vec<&str> = origin
                .headers
                .get_all(name)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .collect();
            (!values.is_empty()).then(|| (name.as_str().to_owned(), values.join(",")))
        };
        let params: Value = serde_json::from_slice(&self.params).unwrap_or_default();
        let mcp = json!({"method": self.method, "id": self.id, "params": params});
        let own = self.claims(settings).map(|(name, claims)| (name, claims.into()));
        OwnedQuestion {
            path: format!("/mcp/{}", self.server),
            host: origin.host.clone(),
            headers: match settings.headers.iter().any(|name| name == ALL_HEADERS) {
                true => origin.headers.keys().filter_map(header).collect(),
                false => settings.headers.iter().filter_map(header).collect(),
            },
            body: self.body.clone(),
            metadata: std::iter::once((MCP_METADATA.to_owned(), mcp)).chain(own).collect(),
            principal: origin
                .principal
                .as_ref()
                .map(|principal| format!("{}/{}", principal.provider, principal.subject))
                .unwrap_or_default(),
            server: self.server.to_owned(),
        }
    }
}
