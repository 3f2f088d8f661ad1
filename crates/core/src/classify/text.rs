//! Decides which phrases and statuses an error text contains, without being fooled by addresses,
//! ids and names in it.
//!
//! URLs, host names and paths are removed first, for phrases also names in quotes. Phrases match
//! whole words; a phrase that ends in `*` allows more letters.

use std::borrow::Cow;

use super::status;
use crate::model::sanitize::beginning;

/// How many bytes of a text are read: error texts say the cause at the beginning.
pub(super) const READ: usize = 8 * 1024;

/// A text made ready for matching: lower case, no addresses, single spaces.
#[derive(Clone, Debug)]
pub struct Prepared {
    text: String,
    /// The same text without names in quotes.
    words: String,
}

impl Prepared {
    /// Prepares the parts of a text; a phrase never matches across two parts.
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut prepared = String::new();
        let mut marks = String::new();
        for part in parts {
            for word in beginning(part, READ).split_whitespace() {
                if is_unavailable(word) {
                    marks = format!("{UNAVAILABLE}\n");
                }
                let kept = without_address(word);
                if kept.is_empty() {
                    continue;
                }
                if !prepared.is_empty() && !prepared.ends_with('\n') {
                    prepared.push(' ');
                }
                prepared.push_str(&kept.to_lowercase());
            }
            prepared.push('\n');
        }
        Self { words: without_names(&prepared) + &marks, text: prepared }
    }

    /// Whether the text contains `phrase` as whole words. A phrase without a word is never found.
    pub fn says(&self, phrase: &str) -> bool {
        if is_blank(phrase) {
            return false;
        }
        self.after(phrase).next().is_some()
    }

    /// Whether the text contains `first` and, right after it or after a colon, one of `second`.
    pub fn says_of(&self, first: &str, second: &[impl AsRef<str>]) -> bool {
        if is_blank(first) {
            return false;
        }
        let mut after = self.after(first).peekable();
        let count = if after.peek().is_some() { second.len() } else { 0 };
        let second: Vec<String> =
            second[..count].iter().map(|second| second.as_ref().to_lowercase()).collect();
        after.any(|rest| {
            let then = rest.trim_start_matches([' ', ':', '=']);
            let begins = |second: &String| {
                then.strip_prefix(&**second).is_some_and(|rest| !rest.starts_with(is_name_char))
            };
            then.len() < rest.len() && second.iter().any(begins)
        })
    }

    /// The rest of the text after each place where it contains `phrase` as whole words.
    fn after<'a>(&'a self, phrase: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let open_ended = phrase.ends_with('*');
        let phrase = phrase.trim_end_matches('*').to_lowercase();
        let mut from = 0;
        std::iter::from_fn(move || {
            loop {
                let start = from + self.words[from..].find(&phrase)?;
                from = start + phrase.len();
                // The cheap check of the character before comes first, so the letters after a
                // phrase are read only once.
                if self.words[..start].ends_with(is_name_char) {
                    continue;
                }
                let rest = &self.words[from..];
                let rest =
                    if open_ended { rest.trim_start_matches(char::is_alphabetic) } else { rest };
                if !rest.starts_with(is_name_char) {
                    return Some(rest);
                }
            }
        })
    }

    /// The first number in the text that is plainly an HTTP status.
    pub fn status(&self) -> Option<u16> {
        status::find(&self.text)
    }
}

/// The phrase that stands for gRPC's code `UNAVAILABLE` in the prepared text.
const UNAVAILABLE: &str = "code = unavailable";

/// Whether a word is gRPC's code: `UNAVAILABLE:`, `StatusCode.UNAVAILABLE`. In capitals it is the
/// code, in lower case it can be a room.
fn is_unavailable(word: &str) -> bool {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
    bare.rsplit('.').next() == Some("UNAVAILABLE")
}

/// Whether a phrase contains no word.
pub(super) fn is_blank(phrase: &str) -> bool {
    phrase.trim_matches(['*', ' ']).is_empty()
}

/// Whether a character can be part of a name: `timeout_report`, `timeout-svc` and `non-timeout` are
/// names, not timeouts.
fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

/// A longer piece in quotes is no name.
const LONGEST_NAME: usize = 300;

/// The text without names in quotes. A piece in quotes right after a word (``field `timeout` ``),
/// or at the beginning of a sentence, is a name. After a colon, a bracket or the like it is quoted
/// speech, and stays.
fn without_names(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut done = 0;
    for (open, quote) in text.match_indices(['"', '\'', '`']) {
        let begins = open == 0 || text[..open].ends_with('\n');
        let names = text[..open]
            .strip_suffix(' ')
            .is_some_and(|before| before.ends_with(char::is_alphanumeric));
        if open < done || !(begins || names) {
            continue;
        }
        let end = closing(&text[open + 1..], quote).map(|inside| open + 1 + inside + 1);
        if let Some(end) = end.filter(|end| names || text[*end..].starts_with(' ')) {
            kept.push_str(&text[done..open]);
            done = end;
        }
    }
    kept + &text[done..]
}

/// The end of a piece in quotes: the apostrophe of `it's` does not end one.
fn closing(inside: &str, quote: &str) -> Option<usize> {
    let near = inside.char_indices().nth(LONGEST_NAME).map_or(inside, |(end, _)| &inside[..end]);
    near.match_indices(quote)
        .map(|(at, _)| at)
        .find(|at| !inside[at + 1..].starts_with(char::is_alphanumeric))
}

/// The word without any address in it. The characters before and after an address are kept.
fn without_address(word: &str) -> Cow<'_, str> {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '[' && c != ']');
    if word.contains("://") {
        return Cow::Owned(without_urls(word));
    }
    if is_host(bare) {
        return Cow::Owned(word.replacen(bare, "", 1));
    }
    without_path(word).map_or(Cow::Borrowed(word), Cow::Owned)
}

/// The characters around a path such as `/etc/timeout`, `~/x`, `src/timeout.rs:503`; `None` if the
/// word is no path.
fn without_path(word: &str) -> Option<String> {
    const AROUND: [char; 12] = ['"', '\'', '`', '(', ')', '[', ']', '<', '>', ':', ',', ';'];
    let opened = word.trim_start_matches(AROUND);
    let path = opened.trim_end_matches(AROUND);
    let is_file = |name: &str| {
        name.rsplit_once('.').is_some_and(|(_, kind)| kind.starts_with(char::is_alphabetic))
    };
    let is_path = ["/", "./", "../", "~/"].iter().any(|start| path.starts_with(start))
        || path.rsplit_once('/').is_some_and(|(_, name)| is_file(name));
    is_path.then(|| word.replacen(path, "", 1))
}

/// Cuts every URL from its scheme to the character that ends it.
fn without_urls(word: &str) -> String {
    let mut kept = String::new();
    let mut rest = word;
    while let Some(at) = rest.find("://") {
        let scheme = rest[..at]
            .rfind(|c: char| !c.is_ascii_alphanumeric() && !"+.-".contains(c))
            .map_or(0, |before| before + rest[before..].chars().next().map_or(0, char::len_utf8));
        kept.push_str(&rest[..scheme]);
        let after = &rest[at + 3..];
        let end = after
            .find(['"', '\'', ',', ')', '>', ']', '}', ';'])
            .unwrap_or_else(|| after.trim_end_matches([':', '.']).len());
        rest = &after[end..];
    }
    kept + rest
}

/// Whether a word is a host: a dotted name, or a name with a port number, such as
/// `api.example.com`, `10.0.0.1:502`, `localhost:8080/mcp`.
fn is_host(word: &str) -> bool {
    let authority = word.split('/').next().unwrap_or(word);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    let labels: Vec<&str> = host.split('.').collect();
    let named = labels.iter().all(|label| is_label(label)) && !is_number(host);
    match port {
        Some(port) => named && is_number(port) && !status::is_label(&host.to_lowercase()),
        None => {
            labels.len() > 1
                && named
                && labels.last().is_some_and(|last| is_top_level(last, &labels))
        }
    }
}

/// Longer endings of host names; other long words behind a dot are code, as in `socket.timeout`.
const LONG_ENDINGS: &[&str] = &[
    // Endings for private networks.
    "internal",
    "intranet",
    "localdomain",
    "localhost",
    "example",
    "invalid",
    // Endings that many register.
    "academy",
    "business",
    "capital",
    "community",
    "company",
    "computer",
    "consulting",
    "digital",
    "education",
    "engineering",
    "enterprises",
    "finance",
    "foundation",
    "graphics",
    "healthcare",
    "holdings",
    "hosting",
    "industries",
    "international",
    "management",
    "marketing",
    "network",
    "partners",
    "photography",
    "productions",
    "properties",
    "security",
    "services",
    "software",
    "solutions",
    "support",
    "systems",
    "technology",
    "university",
    "ventures",
    "website",
];
/// Endings that are also written in capitals.
const IN_CAPITALS: &[&str] = &["com", "corp", "home", "lan", "local", "net", "org"];
/// Words that begin a sentence whose leading blank is missing: `timed out.please`.
const BEGINS_A_SENTENCE: &[&str] = &[
    "and", "but", "check", "it", "no", "please", "retry", "see", "so", "the", "then", "there",
    "this", "try", "wait", "we", "will", "you", "your",
];

/// Tells `example.com` and `10.0.0.1` from `1.5` and `httpx.ReadTimeout`.
fn is_top_level(last: &str, labels: &[&str]) -> bool {
    let is_address = labels.len() == 4 && labels.iter().all(|label| label.parse::<u8>().is_ok());
    let is_short = (2..=6).contains(&last.len()) && last.chars().all(|c| c.is_ascii_lowercase());
    let is_name = is_short && !BEGINS_A_SENTENCE.contains(&last);
    let lower = last.to_ascii_lowercase();
    let is_known = LONG_ENDINGS.contains(&lower.as_str()) || IN_CAPITALS.contains(&lower.as_str());
    is_address || is_name || is_known || lower.starts_with("xn--")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Option<u16> {
        Prepared::new([text]).status()
    }

    #[test]
    fn phrases_match_words_not_parts_of_names() {
        let says = |text: &str, phrase: &str| Prepared::new([text]).says(phrase);

        assert!(says("Request TIMED  out", "timed out"));
        assert!(says("httpx.ReadTimeout", "readtimeout"));
        assert!(says("read timeout", "timeout*"));
        assert!(says("TimeoutError: x", "timeout*"));
        assert!(says("rate limited", "rate limit*"));
        assert!(!says("tool timeout_report failed", "timeout"));
        assert!(!says("timeout-svc said no", "timeout"));
        assert!(!says("mytimeout", "timeout*"));
        assert!(!says("timed", "timed out"));
    }

    #[test]
    fn addresses_are_removed_and_the_rest_stays() {
        for text in [
            "403 from http://timeout-svc/x",
            "403 from https://timeout:1/",
            "403 from (timeout.example.com)",
            "403 from timeout.sslip.io:8080/mcp",
            "403 from timeout:8080",
            "403 from timeout.internal",
            "403 from (timeout.example)",
            "403 from timeout.technology",
            "403 from timeout.xn--p1ai",
            "403 from timeout.LOCAL here",
            "403 from TIMEOUT.Example.COM",
            "403 from /srv/timeout/x",
            "403 from '/etc/timeout',",
            "403 from conf.d/timeout.yaml",
        ] {
            assert!(!Prepared::new([text]).says("timeout*"), "{text}");
            assert_eq!(status(text), Some(403), "{text}");
        }
        let prepared =
            Prepared::new(["Cannot connect to http://x: getaddrinfo failed, took 1.5 s"]);
        assert_eq!(prepared.text, "cannot connect to : getaddrinfo failed, took 1.5 s\n");
    }

    #[test]
    fn only_the_address_is_cut_from_a_compact_text() {
        let body = r#"{"message":"Authorization service unavailable","docs":"https://timeout.example/x","n":1}"#;
        let prepared = Prepared::new([body]);

        assert!(
            prepared.says("authorization service unavailable") && !prepared.says("timeout*"),
            "{prepared:?}"
        );
        assert!(prepared.text.contains(r#""docs":"","n":1}"#), "{prepared:?}");
    }

    #[test]
    fn a_phrase_does_not_match_across_message_and_body() {
        assert!(!Prepared::new(["service", "unavailable"]).says("service unavailable"));
    }

    #[test]
    fn odd_texts_do_not_panic() {
        for text in
            ["é://ü", "://", "…:503", "\u{0}", "ß.ße", "[::1]:80", "'", "🦀503🦀", "a:b:c:503"]
        {
            let prepared = Prepared::new([text]);
            prepared.status();
            prepared.says("timeout*");
        }
    }
}
