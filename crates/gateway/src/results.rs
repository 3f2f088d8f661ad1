//! Results that are too large for their client: the beginning and the end are passed on, the rest can be read.
//!
//! Whole texts are kept for a while, under a name that only their client learns.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tokio::time::Instant;

use crate::bridge::park::secret;
use crate::bridge::to_modern::answered;
use crate::call::Call;
use crate::dispatch::{Caller, Reply};
use crate::resources::{Found, RESULT, address};
use crate::wire::edit::{self, Object};
use crate::wire::{Kind, Message, content, limits};

/// The results that can be read.
#[derive(Default)]
pub struct Results {
    kept: Mutex<VecDeque<Kept>>,
}

struct Kept {
    name: String,
    client: Arc<str>,
    text: Arc<str>,
    at: Instant,
}

impl Results {
    /// The answer as it is, or what fits of it if it is larger than `limit`.
    pub fn fit(&self, caller: &Caller, call: &Call, answer: Message, limit: usize) -> Reply {
        if answer.kind() != Kind::Result || answer.raw().len() <= limit {
            return Ok(answer);
        }
        let text = text(&answer);
        let (head, tail) = (start(&text, limit * 2 / 3), end(&text, limit / 3));
        let name = secret();
        let address = address(RESULT, &name);
        let note = format!(
            "The result has {} bytes of text, more than is passed on here: its first {} and last {} follow. The whole text is the resource {address}, in pieces.",
            text.len(),
            head.len(),
            tail.len()
        );
        let blocks = [note.as_str(), head, tail].map(content::text_block);
        let mut result = Object::of(answer.body_json());
        result.set("content", edit::array(blocks.iter().map(Vec::as_slice))).remove("structuredContent");
        result.change("_meta", |meta| {
            let served = json!({"by": "excerpt", "bytes": text.len(), "resource": address});
            meta.set("seawall/served", served.to_string());
        });
        self.keep(Kept {
            name,
            client: caller.identity(&call.request).0,
            text: text.as_str().into(),
            at: Instant::now(),
        });
        answered(&result.json())
    }

    fn keep(&self, result: Kept) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(result);
        let mut bytes: usize = kept.iter().map(|result| result.text.len()).sum();
        while kept.len() > limits::RESULTS || bytes > limits::RESULT_BYTES {
            bytes -= kept.pop_front().map_or(bytes, |oldest| oldest.text.len());
        }
    }

    /// A piece of a result, for the client whose it is: `<name>`, or from a byte on, `<name>?from=<byte>`.
    pub fn read(&self, client: &Arc<str>, id: &str) -> Option<Found> {
        let (name, from) = id.split_once("?from=").unwrap_or((id, "0"));
        let text = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|result| result.at.elapsed() < limits::RESULT_KEPT);
            let is_it = |result: &&Kept| result.name == name && result.client == *client;
            Arc::clone(&kept.iter().find(is_it)?.text)
        };
        let rest = text.get(from.parse().ok()?..)?;
        let piece = start(rest, limits::RESULT_PIECE);
        let next = text.len() - rest.len() + piece.len();
        let next = (next < text.len()).then(|| format!("{}?from={next}", address(RESULT, name)));
        Some(Found { mime: "text/plain", text: piece.to_owned(), next })
    }
}

/// All texts of a result; what is no text is only counted by its size.
fn text(answer: &Message) -> String {
    let text = |block| match content::text(block) {
        Some(text) => text.into_owned(),
        None => format!("(something of {} bytes that is no text)", block.len()),
    };
    content::blocks(answer).map(text).collect::<Vec<_>>().join("\n")
}

/// The beginning of a text, within so many bytes.
fn start(text: &str, bytes: usize) -> &str {
    let cut = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..cut]
}

/// The end of a text, within so many bytes.
fn end(text: &str, bytes: usize) -> &str {
    let cut =
        (text.len().saturating_sub(bytes)..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[cut..]
}
