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
use crate::dispatch::{Caller, Refusal, Reply};
use crate::wire::build::{self, Error};
use crate::wire::edit::{self, Object};
use crate::wire::names::Era;
use crate::wire::{Kind, Message, limits, scan};

/// Before the name of a result.
const ADDRESS: &str = "seawall://result/";

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
        let address = format!("{ADDRESS}{name}");
        let note = format!(
            "The result has {} bytes of text, more than is passed on here: its first {} and last {} follow. The whole text is the resource {address}, in pieces.",
            text.len(),
            head.len(),
            tail.len()
        );
        let blocks =
            [note.as_str(), head, tail].map(|text| json!({"type": "text", "text": text}).to_string().into_bytes());
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

    /// A piece of a result, for the client whose it is.
    pub fn read(&self, caller: &Caller, call: &Call) -> Reply {
        let uri = call.request.field_text("uri").unwrap_or_default().into_owned();
        let (name, from) = uri
            .strip_prefix(ADDRESS)
            .unwrap_or_default()
            .split_once("?from=")
            .unwrap_or((&uri[ADDRESS.len().min(uri.len())..], "0"));
        let client = caller.identity(&call.request).0;
        let found = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.retain(|result| result.at.elapsed() < limits::RESULT_KEPT);
            kept.iter()
                .find(|result| result.name == name && result.client == client)
                .map(|result| Arc::clone(&result.text))
        };
        let unknown = || {
            Refusal::Wrong(Error::new(
                build::INVALID_PARAMS,
                format!("{uri} is not kept, or no longer; call the tool again"),
            ))
        };
        let text = found.ok_or_else(unknown)?;
        let rest = from.parse().ok().and_then(|from: usize| text.get(from..)).ok_or_else(unknown)?;
        let piece = start(rest, limits::RESULT_PIECE);
        let next = text.len() - rest.len() + piece.len();
        let mut result = json!({"contents": [{"uri": uri, "mimeType": "text/plain", "text": piece}]});
        if next < text.len() {
            result["_meta"] = json!({"seawall/next": format!("{ADDRESS}{name}?from={next}")});
        }
        if caller.era() == Era::Modern {
            result["resultType"] = "complete".into();
            result["ttlMs"] = 0.into();
            result["cacheScope"] = "private".into();
        }
        answered(result.to_string().as_bytes())
    }
}

/// Whether a request asks for a result that is kept here.
pub fn is_about(request: &Message) -> bool {
    request.method() == "resources/read" && request.field_text("uri").is_some_and(|uri| uri.starts_with(ADDRESS))
}

/// All texts of a result; what is no text is only counted by its size.
fn text(answer: &Message) -> String {
    let raw = answer.raw();
    let blocks = answer.field("content").map(|list| scan::elements(raw, list)).unwrap_or_default();
    let texts: Vec<String> = blocks
        .iter()
        .map(|block| {
            let text = scan::members(raw, *block).into_iter().find(|field| field.is(raw, "text"));
            let text = text.and_then(|field| scan::text(field.value.of(raw))).map(|text| text.into_owned());
            text.unwrap_or_else(|| format!("(something of {} bytes that is no text)", block.end - block.start))
        })
        .collect();
    texts.join("\n")
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
