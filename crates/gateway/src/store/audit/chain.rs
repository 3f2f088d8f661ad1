//! Decides how lines of the audit log hang together: each holds its own hash and that of the line
//! before it, so that none can be changed, moved or taken out unseen, the last one included.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The key of the first line of a file: without it, lines before it were cut off.
pub(super) const FIRST: &str = "first";

/// What stands before the hash at the end of a line.
const HASH: &str = ",\"hash\":\"";

/// The hash of a text.
pub(super) fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A line that was read.
#[derive(Debug, PartialEq)]
pub(super) enum ReadLine {
    /// A line as it was written.
    Whole(Map<String, Value>),
    /// The beginning of a line: its process was killed while it wrote.
    CutOff,
    /// A line whose own hash is another.
    Changed,
    /// No line of an audit log.
    Foreign,
}

impl ReadLine {
    /// Reads a line, without its line break.
    pub(super) fn of(line: &str) -> Self {
        let is_begun = line.starts_with("{\"n\":") || "{\"n\":".starts_with(line);
        match serde_json::from_str(line) {
            Ok(Value::Object(read)) if read.contains_key("n") && read.contains_key("prev") => {
                let whole = own_hash(line).is_some_and(|(text, own)| hash(&text) == own);
                if whole { Self::Whole(read) } else { Self::Changed }
            }
            Err(error) if error.is_eof() && is_begun && !line.is_empty() => Self::CutOff,
            _ => Self::Foreign,
        }
    }
}

/// The text that a line's hash is of, and that hash.
fn own_hash(line: &str) -> Option<(String, &str)> {
    let (text, own) = line.strip_suffix("\"}")?.rsplit_once(HASH)?;
    Some((format!("{text}}}"), own))
}

/// The end of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChainEnd {
    /// The number of the last line.
    pub number: u64,
    /// The hash of the last line; empty before the first.
    pub hash: String,
}

impl ChainEnd {
    /// The next line of the chain, with its number, the hash of the line before it, and its own.
    pub(super) fn next(&mut self, said: Map<String, Value>, is_first: bool) -> String {
        let mut line = Map::new();
        line.insert("n".to_owned(), json!(self.number + 1));
        if is_first {
            line.insert(FIRST.to_owned(), json!(true));
        }
        line.extend(said);
        line.insert("prev".to_owned(), json!(self.hash));
        let text = Value::Object(line).to_string();
        *self = Self { number: self.number + 1, hash: hash(&text) };
        let open = text.strip_suffix('}').unwrap_or(&text);
        format!("{open}{HASH}{}\"}}", self.hash)
    }

    /// The end of the chain after a line that was read. A line that was cut off has no hash of its
    /// own and counts with all its bytes.
    pub(super) fn after(&self, line: &str) -> Self {
        match own_hash(line) {
            Some((_, own)) => {
                let read = serde_json::from_str::<Value>(line).ok();
                let number = read.and_then(|line| line["n"].as_u64());
                Self { number: number.unwrap_or(self.number), hash: own.to_owned() }
            }
            None => Self { number: self.number, hash: hash(line) },
        }
    }
}
