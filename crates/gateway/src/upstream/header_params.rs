//! Learns from a server's tool list which arguments its tools want repeated in headers.
//!
//! A modern server on HTTP checks these headers itself; for a server that cannot see headers the
//! gateway checks them. For a client that cannot set headers the gateway sets them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderName, HeaderValue};

use super::Connection;
use super::connection::CallHeaders;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::JsonObject;
use crate::protocol::names::Era;
use crate::protocol::{Id, Message, Span, header, limits, scan};
use crate::upstream::call::{GatewayCall, NoClient};

/// The path to an argument, and its header.
type HeaderParam = (Vec<String>, HeaderName);

/// The header params of each tool; `None` until a tool list was read.
#[derive(Debug, Default)]
pub struct HeaderParams {
    tools: Mutex<Option<HashMap<String, Vec<HeaderParam>>>>,
}

impl HeaderParams {
    fn knows(&self) -> bool {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The tool list has changed and must be read again.
    pub fn forget(&self) {
        *self.tools.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the call with its tool's headers set or checked; lists the tools first if no list
    /// was read.
    pub async fn settle(
        &self,
        connection: &Arc<Connection>,
        call: &GatewayCall,
        server_checks: bool,
    ) -> Result<GatewayCall, RpcError> {
        // Either the server checks and the client sent none (set them), or the client sent them to
        // a server that cannot check (check them). In the other two cases the call passes
        // unchanged.
        let is_needed =
            call.request.method() == "tools/call" && server_checks == call.mirrored.is_none();
        if is_needed && !self.knows() {
            // Boxed: a list is read once for all calls.
            Box::pin(self.read_list(connection, call)).await;
        }
        let mut call = call.clone();
        if is_needed {
            let expected = self.headers(&call.request);
            match &call.mirrored {
                None => call.mirrored = Some(expected),
                Some(said) => self.check(&call.request, &expected, said)?,
            }
        }
        Ok(call)
    }

    async fn read_list(&self, connection: &Arc<Connection>, call: &GatewayCall) {
        let mut params = JsonObject::default();
        if let (Era::Modern, Some(meta)) = (connection.era(), call.request.field_json("_meta")) {
            params.set("_meta", meta);
        }
        for _ in 0..limits::PAGES {
            let Ok(request) =
                Message::parse(build::request(&Id::number(0), "tools/list", &params.json()))
            else {
                return;
            };
            let list = GatewayCall::new(request, Arc::new(NoClient));
            let Ok(answer) = connection.request(&list).await else { return };
            self.learn(&answer);
            match answer.field_json("nextCursor") {
                Some(cursor) => params.set("cursor", cursor),
                None => return,
            };
        }
    }

    /// Each header of the client must agree with the argument in the body.
    fn check(
        &self,
        request: &Message,
        expected: &CallHeaders,
        said: &CallHeaders,
    ) -> Result<(), RpcError> {
        for name in self.names(request) {
            let find = |headers: &CallHeaders| {
                headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
            };
            let decoded =
                |value: Option<HeaderValue>| value.map(|value| header::decode(value.as_bytes()));
            let (body, header) = (decoded(find(expected)), decoded(find(said)));
            if body != header || header == Some(None) {
                let text = format!("the header {name} does not say what the argument says");
                return Err(RpcError::new(build::HEADER_MISMATCH, text));
            }
        }
        Ok(())
    }

    fn names(&self, request: &Message) -> Vec<HeaderName> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let name = request.field_text("name").unwrap_or_default();
        let wanted = tools.as_ref().and_then(|tools| tools.get(name.as_ref()));
        wanted
            .map(|wanted| wanted.iter().map(|(_, name)| name.clone()).collect())
            .unwrap_or_default()
    }

    /// Learns from the answer to `tools/list`.
    fn learn(&self, answer: &Message) {
        let Some(list) = answer.field("tools") else { return };
        let raw = answer.raw();
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let tools = tools.get_or_insert_default();
        for tool in scan::elements(raw, list).into_iter().take(limits::LISTED) {
            let find =
                |name| scan::members(raw, tool).into_iter().find(|field| field.is(raw, name));
            let Some(name) = find("name")
                .and_then(|field| scan::text(field.value.of(raw)).map(|name| name.into_owned()))
            else {
                continue;
            };
            let mut wanted = Vec::new();
            if let Some(schema) = find("inputSchema").filter(|field| {
                memchr::memmem::find(field.value.of(raw), b"x-mcp-header").is_some()
            }) {
                collect(raw, schema.value, &mut Vec::new(), &mut wanted);
            }
            if wanted.is_empty() {
                tools.remove(&name);
            } else if tools.len() < limits::LISTED {
                tools.insert(name, wanted);
            }
        }
    }

    /// The headers for a tool call.
    fn headers(&self, request: &Message) -> Vec<(HeaderName, HeaderValue)> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = request
            .field_text("name")
            .filter(|_| request.method() == "tools/call")
            .and_then(|name| tools.as_ref().and_then(|tools| tools.get(name.as_ref())));
        let Some((wanted, arguments)) = wanted.zip(request.field("arguments")) else {
            return Vec::new();
        };
        wanted
            .iter()
            .filter_map(|(path, name)| {
                Some((name.clone(), argument(request.raw(), arguments, path)?))
            })
            .collect()
    }
}

/// Finds `x-mcp-header` in the properties of a schema, nested objects included.
fn collect(raw: &[u8], schema: Span, path: &mut Vec<String>, wanted: &mut Vec<HeaderParam>) {
    let find =
        |object, name| scan::members(raw, object).into_iter().find(|field| field.is(raw, name));
    // The schema is the server's: the depth bounds the recursion.
    if path.len() > 8 {
        return;
    }
    let Some(properties) = find(schema, "properties") else { return };
    for property in scan::members(raw, properties.value) {
        let Some(name) = scan::text(property.key.of(raw)) else { continue };
        path.push(name.into_owned());
        if let Some(header) =
            find(property.value, "x-mcp-header").and_then(|field| scan::text(field.value.of(raw)))
            && let Ok(header) = HeaderName::try_from(format!("{}{header}", header::PARAM_PREFIX))
        {
            wanted.push((path.clone(), header));
        }
        collect(raw, property.value, path, wanted);
        path.pop();
    }
}

/// The argument at a path as a header value: strings, numbers and booleans only.
fn argument(raw: &[u8], arguments: Span, path: &[String]) -> Option<HeaderValue> {
    let mut at = arguments;
    for name in path {
        at = scan::members(raw, at).into_iter().find(|field| field.is(raw, name))?.value;
    }
    let json = at.of(raw);
    match json.first()? {
        b'{' | b'[' | b'n' => None,
        b'"' => scan::text(json).map(|text| header::encode(&text)),
        _ => std::str::from_utf8(json).ok().map(header::encode),
    }
}
