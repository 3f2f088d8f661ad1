//! Decides whether bytes are a request, a notification, a result or an error, and finds the parts
//! of a message that the gateway's decisions need.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use super::scan::{self, Reject, ScannedMember, Span};
use super::{Id, limits};

/// The four kinds of JSON-RPC messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// Expects an answer.
    Request,
    /// Expects no answer.
    Notification,
    /// Answers a request with a result.
    Result,
    /// Answers a request with an error.
    Error,
}

/// The members of an envelope that have a meaning in JSON-RPC.
const PARTS: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];

/// One JSON-RPC message: its bytes as they came, and the spans found in them.
#[derive(Clone, Debug)]
pub struct Message {
    raw: Bytes,
    /// Shared by all copies: a call copies its request for each thing that it hands it to.
    parts: Arc<MessageParts>,
}

/// What was found in the bytes of a message.
#[derive(Debug)]
struct MessageParts {
    kind: MessageKind,
    id: Option<(Id, Span)>,
    method: Option<MethodName>,
    /// The span of `params`, `result` or `error`.
    body: Option<Span>,
    fields: Vec<ScannedMember>,
    /// The members of the `_meta` in `params` or `result`.
    meta: Vec<ScannedMember>,
}

impl Message {
    /// Parses one message, or says why the bytes are not a message. Every message that the gateway
    /// reads comes through here.
    ///
    /// A small message is copied out of its buffer: a slice of a few bytes would keep the whole
    /// buffer in memory.
    pub fn parse(raw: Bytes) -> Result<Self, Reject> {
        let raw = if raw.len() <= limits::COPIED { Bytes::copy_from_slice(&raw) } else { raw };
        let (envelope, inner) = scan::object(&raw)?;
        scan::unique(&raw, &envelope)?;
        let mut found = [None; PARTS.len()];
        for field in &envelope {
            if let Some(place) = PARTS.iter().position(|name| field.is(&raw, name)) {
                found[place] = Some(field.value);
            }
        }
        let [version, id, name, params, result, error] = found;
        if version.and_then(|span| scan::text(span.of(&raw))).as_deref() != Some("2.0") {
            return Err(Reject::Shape("\"jsonrpc\" is not \"2.0\""));
        }
        let null_id = id.is_some_and(|span| span.of(&raw) == b"null");
        let id = match id {
            Some(span) if !null_id => Some((Id::new(raw.slice(span.start..span.end))?, span)),
            _ => None,
        };
        let (kind, body) = match (name, result, error) {
            (Some(_), None, None) if null_id => return Err(Reject::Id),
            (Some(_), None, None) if id.is_some() => (MessageKind::Request, params),
            (Some(_), None, None) => (MessageKind::Notification, params),
            (None, Some(_), None) if id.is_none() => return Err(Reject::Id),
            (None, Some(_), None) => (MessageKind::Result, result),
            (None, None, Some(_)) => (MessageKind::Error, error),
            (None, None, None) => {
                return Err(Reject::Shape("it has no method, no result and no error"));
            }
            _ => return Err(Reject::Shape("it is a request and an answer at once")),
        };
        let method = name.map(|span| method(&raw, span)).transpose()?;
        // `inner` has the members of every object in the envelope; only those within the body are
        // the body's. It is `None` if they were too many: then the body is scanned on its own.
        let fields = match (inner, body) {
            (Some(mut inner), Some(body)) => {
                inner.retain(|field| body.start < field.key.start && field.key.end < body.end);
                inner
            }
            (None, Some(body)) => scan::try_members(&raw, body)?,
            (_, None) => Vec::new(),
        };
        let meta = fields.iter().find(|field| field.is(&raw, "_meta")).map(|field| field.value);
        let meta = if method.is_some() {
            params_are_sound(&raw, body, &fields, meta)?
        } else {
            meta.map(|span| scan::members(&raw, span)).unwrap_or_default()
        };
        Ok(Self { parts: Arc::new(MessageParts { kind, id, method, body, fields, meta }), raw })
    }

    /// The memory that the message takes, including the allocator's overhead and its entry in a
    /// table.
    pub(crate) fn weight(&self) -> usize {
        const AROUND: usize = 128;
        let fields = self.parts.fields.capacity() + self.parts.meta.capacity();
        let parts = fields * size_of::<ScannedMember>() + size_of::<MessageParts>();
        self.raw.len() + parts + size_of::<Self>() + AROUND
    }

    /// The bytes of the message.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The bytes of the message, without its id, which shares their buffer: the caller may become
    /// their only holder.
    pub(crate) fn into_raw(self) -> Bytes {
        self.raw
    }

    /// The kind of the message.
    pub fn kind(&self) -> MessageKind {
        self.parts.kind
    }

    /// The id. A notification has none, and an error may have none.
    pub fn id(&self) -> Option<&Id> {
        self.parts.id.as_ref().map(|(id, _)| id)
    }

    /// The span of the id.
    pub(crate) fn id_span(&self) -> Option<Span> {
        self.parts.id.as_ref().map(|(_, span)| *span)
    }

    /// The method; empty for answers.
    pub fn method(&self) -> &str {
        self.parts.method.as_deref().unwrap_or_default()
    }

    /// The span of `params`, `result` or `error`.
    pub fn body(&self) -> Option<Span> {
        self.parts.body
    }

    /// The JSON text of `params`, `result` or `error`.
    pub(crate) fn body_json(&self) -> &[u8] {
        self.body().map(|span| span.of(&self.raw)).unwrap_or_default()
    }

    /// The span of a member of `params`, `result` or `error`.
    pub fn field(&self, name: &str) -> Option<Span> {
        self.parts.fields.iter().find(|field| field.is(&self.raw, name)).map(|field| field.value)
    }

    /// The JSON text of a member of `params`, `result` or `error`.
    pub(crate) fn field_json(&self, name: &str) -> Option<&[u8]> {
        self.field(name).map(|span| span.of(&self.raw))
    }

    /// The string value of a member of `params`, `result` or `error`.
    pub(crate) fn field_text(&self, name: &str) -> Option<Cow<'_, str>> {
        self.field_json(name).and_then(scan::text)
    }

    /// The span of `name` in the `_meta` of `params` or `result`.
    pub fn meta(&self, name: &str) -> Option<Span> {
        self.parts.meta.iter().find(|field| field.is(&self.raw, name)).map(|field| field.value)
    }

    /// The JSON text of `name` in that `_meta`.
    pub(crate) fn meta_json(&self, name: &str) -> Option<&[u8]> {
        self.meta(name).map(|span| span.of(&self.raw))
    }

    /// The bytes of a span, sharing the message's buffer.
    pub fn slice(&self, span: Span) -> Bytes {
        self.raw.slice(span.start..span.end)
    }
}

/// A method as plain text; some encoders escape the slash.
type MethodName = Cow<'static, str>;

/// The methods of most messages, which need no copy.
const USUAL: [&str; 4] =
    ["tools/call", "notifications/progress", "tools/list", "notifications/message"];

fn method(raw: &Bytes, span: Span) -> Result<MethodName, Reject> {
    let Some(text) = scan::text(span.of(raw)) else {
        return Err(Reject::Shape("\"method\" is not a string"));
    };
    let usual = USUAL.into_iter().find(|usual| **usual == *text);
    Ok(usual.map_or_else(|| Cow::Owned(text.into_owned()), Cow::Borrowed))
}

/// Refuses repeated keys in `params` and in its `_meta`, because policy reads both; returns the
/// members of `_meta`.
fn params_are_sound(
    raw: &Bytes,
    params: Option<Span>,
    fields: &[ScannedMember],
    meta: Option<Span>,
) -> Result<Vec<ScannedMember>, Reject> {
    if let Some(first) = params.and_then(|span| span.of(raw).first())
        && !matches!(first, b'{' | b'[')
    {
        return Err(Reject::Shape("\"params\" is not an object"));
    }
    scan::unique(raw, fields)?;
    let meta = meta.map(|span| scan::try_members(raw, span)).transpose()?.unwrap_or_default();
    scan::unique(raw, &meta)?;
    Ok(meta)
}
