//! Which arguments a modern HTTP server wants repeated in headers: learned from its list of tools.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use http::{HeaderName, HeaderValue};

use crate::wire::{Message, Span, header, limits, scan};

/// The path to an argument, and the header it goes into.
type Wanted = (Vec<String>, HeaderName);

/// What each tool wants, once a list of tools was seen.
#[derive(Debug, Default)]
pub struct Mirror {
    tools: Mutex<Option<HashMap<String, Vec<Wanted>>>>,
}

impl Mirror {
    /// Whether a list was seen.
    pub fn knows(&self) -> bool {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Learns from the answer to `tools/list`.
    pub fn learn(&self, answer: &Message) {
        let Some(list) = answer.field("tools") else { return };
        let raw = answer.raw();
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let tools = tools.get_or_insert_default();
        for tool in scan::elements(raw, list).into_iter().take(limits::LISTED) {
            let find = |name| scan::members(raw, tool).into_iter().find(|field| field.is(raw, name));
            let Some(name) =
                find("name").and_then(|field| scan::text(field.value.of(raw)).map(|name| name.into_owned()))
            else {
                continue;
            };
            let mut wanted = Vec::new();
            if let Some(schema) =
                find("inputSchema").filter(|field| memchr::memmem::find(field.value.of(raw), b"x-mcp-header").is_some())
            {
                collect(raw, schema.value, &mut Vec::new(), &mut wanted);
            }
            if wanted.is_empty() {
                tools.remove(&name);
            } else if tools.len() < limits::LISTED {
                tools.insert(name, wanted);
            }
        }
    }

    /// The headers for a call of a tool.
    pub fn headers(&self, request: &Message) -> Vec<(HeaderName, HeaderValue)> {
        let tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = request
            .field_text("name")
            .filter(|_| request.method() == "tools/call")
            .and_then(|name| tools.as_ref().and_then(|tools| tools.get(name.as_ref())));
        let Some((wanted, arguments)) = wanted.zip(request.field("arguments")) else { return Vec::new() };
        wanted
            .iter()
            .filter_map(|(path, name)| Some((name.clone(), argument(request.raw(), arguments, path)?)))
            .collect()
    }
}

/// Finds `x-mcp-header` in the properties of a schema, nested objects included.
fn collect(raw: &[u8], schema: Span, path: &mut Vec<String>, wanted: &mut Vec<Wanted>) {
    let find = |object, name| scan::members(raw, object).into_iter().find(|field| field.is(raw, name));
    if path.len() > 8 {
        return;
    }
    let Some(properties) = find(schema, "properties") else { return };
    for property in scan::members(raw, properties.value) {
        let Some(name) = scan::text(property.key.of(raw)) else { continue };
        path.push(name.into_owned());
        if let Some(header) = find(property.value, "x-mcp-header").and_then(|field| scan::text(field.value.of(raw)))
            && let Ok(header) = HeaderName::try_from(format!("{}{header}", header::PARAM_PREFIX))
        {
            wanted.push((path.clone(), header));
        }
        collect(raw, property.value, path, wanted);
        path.pop();
    }
}

/// The argument at a path, as a header: strings, numbers and booleans only.
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
