//! Decides how a result too large for its client is cut: head and tail are passed on, the whole
//! text is kept as a resource.
//!
//! Whole texts are kept for a while, under a random name that only their client learns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::caller::Caller;
use crate::protocol::edit::{self, JsonObject};
use crate::protocol::{Message, MessageKind, content, limits};
use crate::runtime::random::secret;
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Reply, answered};

/// The scheme of the gateway's own resources.
pub(crate) const SCHEME: &str = "seawall://";
/// Resources with the state of a queued write.
pub(crate) const QUEUE: &str = "queue";
/// Resources with a result that was too large to be passed on whole.
pub(crate) const RESULT: &str = "result";

/// The URI of a resource of the gateway.
pub(crate) fn address(what: &str, id: &str) -> String {
    format!("{SCHEME}{what}/{id}")
}

/// The content of a resource.
pub(crate) struct ReadableResult {
    /// The MIME type.
    pub mime: &'static str,
    /// The text.
    pub text: String,
    /// The URI of the next piece, if there is one.
    pub next: Option<String>,
    /// Whose answer it is.
    pub source: ResultSource,
}

impl ReadableResult {
    /// A description in JSON.
    pub(crate) fn json(source: ResultSource, value: &Value) -> Self {
        Self { mime: "application/json", text: value.to_string(), next: None, source }
    }
}

/// The results that clients can read.
#[derive(Default)]
pub(crate) struct ResultStore {
    kept: Mutex<VecDeque<KeptResult>>,
}

/// Whose answer a result is.
#[derive(Clone, Debug)]
pub(crate) struct ResultSource {
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
}

struct KeptResult {
    name: String,
    client: Arc<str>,
    source: ResultSource,
    text: Arc<str>,
    at: Instant,
}

impl ResultStore {
    /// The answer as it is, or an excerpt of at most `limit` bytes of text.
    pub(crate) fn fit(
        &self,
        caller: &Caller,
        server: &str,
        call: &GatewayCall,
        answer: Message,
        limit: usize,
    ) -> Reply {
        if answer.kind() != MessageKind::Result || answer.raw().len() <= limit {
            return Ok(answer);
        }
        let mut result = JsonObject::of(answer.body_json());
        let text = text(&answer, result.get("structuredContent"));
        let is_cut = text.len() > limit;
        let is_all_text = content::blocks(&answer).all(|block| content::text(block).is_some());
        if !is_cut && is_all_text && result.get("structuredContent").is_none() {
            // Only the JSON encoding is larger than the limit, not the text.
            return Ok(answer);
        }
        let mut served = json!({"by": "excerpt", "bytes": text.len()});
        let blocks = if is_cut {
            let name = secret();
            let address = address(RESULT, &name);
            served["resource"] = json!(address);
            let (head, tail) = (start(&text, limit * 2 / 3), end(&text, limit / 3));
            let blocks =
                [&*cut_note(&text, head, tail, &address), head, tail].map(content::text_block);
            let (client, at) = (caller.identity(&call.request), Instant::now());
            let tool = call.request.field_text("name").unwrap_or_default().into_owned();
            let source = ResultSource { server: server.to_owned(), tool };
            self.keep(KeptResult { name, client, source, text: text.as_str().into(), at });
            blocks.to_vec()
        } else {
            let note = format!(
                "The result has {} bytes, more than is passed on here: what is text follows whole, the rest is left out.",
                answer.raw().len()
            );
            vec![content::text_block(&note), content::text_block(&text)]
        };
        result
            .set("content", edit::array(blocks.iter().map(Vec::as_slice)))
            .remove("structuredContent");
        result.change("_meta", |meta| {
            meta.set("seawall/served", served.to_string());
        });
        answered(&result.json())
    }

    fn keep(&self, result: KeptResult) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(result);
        let mut bytes: usize = kept.iter().map(|result| result.text.len()).sum();
        while kept.len() > limits::RESULTS || bytes > limits::RESULT_BYTES {
            bytes -= kept.pop_front().map_or(bytes, |oldest| oldest.text.len());
        }
    }

    /// A piece of a result, for its client only: from the start with `<name>`, from a byte on with
    /// `<name>?from=<byte>`.
    pub(crate) fn read(&self, client: &Arc<str>, id: &str) -> Option<ReadableResult> {
        let (name, from) = id.split_once("?from=").unwrap_or((id, "0"));
        let (text, source) = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|result| result.at.elapsed() < limits::RESULT_KEPT);
            let is_it = |result: &&KeptResult| result.name == name && result.client == *client;
            let found = kept.iter().find(is_it)?;
            (Arc::clone(&found.text), found.source.clone())
        };
        // Out of bounds is refused; a byte inside a character is moved to the boundary before it.
        let from = from.parse().ok().filter(|from| *from <= text.len())?;
        let rest = &text[start(&text, from).len()..];
        let piece = start(rest, limits::RESULT_PIECE);
        let next = text.len() - rest.len() + piece.len();
        let next = (next < text.len()).then(|| format!("{}?from={next}", address(RESULT, name)));
        Some(ReadableResult { mime: "text/plain", text: piece.to_owned(), next, source })
    }
}

/// The note before a cut text, with the URI of the whole.
fn cut_note(text: &str, head: &str, tail: &str, address: &str) -> String {
    let pieces = match text.len() > limits::RESULT_PIECE {
        true => format!(", in pieces: {address}?from={} is the second", limits::RESULT_PIECE),
        false => String::new(),
    };
    format!(
        "The result has {} bytes of text, more than is passed on here: its first {} and last {} follow. The whole text is the resource {address}{pieces}.",
        text.len(),
        head.len(),
        tail.len()
    )
}

/// All texts of a result, and its structured content if that is longer than the texts; of other
/// blocks only their size.
fn text(answer: &Message, structured: Option<&[u8]>) -> String {
    let text = |block| match content::text(block) {
        Some(text) => text.into_owned(),
        None => format!("(something of {} bytes that is no text)", block.len()),
    };
    let texts = content::blocks(answer).map(text).collect::<Vec<_>>().join("\n");
    match structured {
        Some(json) if json.len() > texts.len() => {
            format!("{texts}\n{}", String::from_utf8_lossy(json))
        }
        _ => texts,
    }
}

/// The longest start of a text within `bytes` bytes, cut between characters.
fn start(text: &str, bytes: usize) -> &str {
    let cut = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..cut]
}

/// The longest end of a text within `bytes` bytes, cut between characters.
fn end(text: &str, bytes: usize) -> &str {
    let cut = (text.len().saturating_sub(bytes)..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    &text[cut..]
}
