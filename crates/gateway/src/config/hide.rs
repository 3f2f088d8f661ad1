//! Decides which texts are removed when a server is quoted: the secrets that its configuration
//! holds.

use std::fmt;

use http::Uri;

use super::{Config, Secret, ServerConfig, Transport};
use crate::config::place;

/// A shorter value is a setting, not a secret.
const SHORTEST: usize = 6;
/// The most texts that are remembered over changes of the configuration.
const MOST: usize = 4096;

/// Texts that must not appear where a server is quoted.
#[derive(Clone, Default)]
pub struct SecretTexts {
    /// The longest first: a secret may be the start of a longer one, whose rest would otherwise
    /// stay visible.
    words: Vec<String>,
}

impl SecretTexts {
    /// The secrets of a server: its variables and headers, values from variables and files in its
    /// URL or arguments, and the hidden parts of its URL.
    pub fn of(server: &ServerConfig) -> Self {
        let (values, url): (Vec<&Secret>, Option<&Uri>) = match &server.transport {
            Transport::Stdio { env, .. } => (env.iter().map(|(_, value)| value).collect(), None),
            Transport::Http { url, headers, .. }
            | Transport::Sse { url, headers }
            | Transport::Ws { url, headers } => {
                (headers.iter().map(|(_, value)| value).collect(), Some(url))
            }
            Transport::Incomplete { .. } => (Vec::new(), None),
        };
        let values = values.into_iter().chain(&server.filled).map(Secret::expose);
        // In `Bearer <token>` the token alone is a secret too.
        let words = values.flat_map(|value| [value, value.rsplit(' ').next().unwrap_or("")]);
        let words = words.chain(url.map(place::secrets).unwrap_or_default());
        let mut words: Vec<String> =
            words.filter(|word| word.len() >= SHORTEST).map(str::to_owned).collect();
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        Self { words }
    }

    /// The secrets of a whole configuration.
    pub(crate) fn of_all(config: &Config) -> Self {
        let servers = config.servers.iter().map(Self::of);
        let token = config.admin.iter().filter_map(|admin| admin.token.as_ref());
        let telemetry = config.telemetry.iter().flat_map(|telemetry| &telemetry.headers);
        let redis = config.redis.iter().flat_map(|redis| [&redis.url, &redis.key]);
        let own = token.chain(telemetry.map(|(_, value)| value)).chain(redis).map(Secret::expose);
        let own = own.filter(|word| word.len() >= SHORTEST).map(str::to_owned).collect();
        servers.fold(Self { words: own }, Self::and)
    }

    /// These and others, up to `MOST`: the latest stay.
    pub(crate) fn and(self, others: Self) -> Self {
        let mut words = others.words;
        words.extend(self.words.into_iter().take(MOST.saturating_sub(words.len())));
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        words.dedup();
        Self { words }
    }

    /// The text with every secret replaced.
    pub(crate) fn hide(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

impl fmt::Debug for SecretTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
