//! Decides what of a server's words nobody reads: what the configuration gave it in secret.

use std::fmt;

use super::{Secret, Transport};

/// A shorter value is a setting, not a secret.
const SHORTEST: usize = 6;

/// What a server may not be quoted with.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The longest first: one may be the beginning of another, and the rest of that must not be left.
    words: Vec<String>,
}

impl Secrets {
    /// The secrets of whoever is reached so.
    pub fn of(transport: &Transport) -> Self {
        let values: Vec<&Secret> = match transport {
            Transport::Stdio { env, .. } => env.iter().map(|(_, value)| value).collect(),
            Transport::Http { headers, .. } | Transport::Sse { headers, .. } | Transport::Ws { headers, .. } => {
                headers.iter().map(|(_, value)| value).collect()
            }
            Transport::Incomplete { .. } => Vec::new(),
        };
        // Of `Bearer <token>` the token alone is secret too.
        let words = values.iter().flat_map(|value| [value.expose(), value.expose().rsplit(' ').next().unwrap_or("")]);
        let mut words: Vec<String> = words.filter(|word| word.len() >= SHORTEST).map(str::to_owned).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        Self { words }
    }

    /// The text without them.
    pub fn hide(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
