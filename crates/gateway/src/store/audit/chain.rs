//! Decides how lines of the audit log hang together: each holds the hash of the line before it, so
//! that none can be changed, moved or taken out unseen.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The hash of a line, without its line break.
pub(super) fn hash(line: &str) -> String {
    Sha256::digest(line.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
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
    /// The next line of the chain, with its number and the hash of the line before it.
    pub(super) fn next(&mut self, said: Map<String, Value>) -> String {
        let mut line = Map::new();
        line.insert("n".to_owned(), json!(self.number + 1));
        line.extend(said);
        line.insert("prev".to_owned(), json!(self.hash));
        let line = Value::Object(line).to_string();
        *self = Self { number: self.number + 1, hash: hash(&line) };
        line
    }

    /// The end of the chain after a line that was read; the line may be cut off.
    pub(super) fn after(&self, line: &str) -> Self {
        let number = serde_json::from_str::<Value>(line).ok().and_then(|line| line["n"].as_u64());
        Self { number: number.unwrap_or(self.number), hash: hash(line) }
    }
}
