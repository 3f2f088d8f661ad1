//! Decides what an error text says, without being fooled by addresses, ids and names in it.
//!
//! URLs and host names are removed first. Phrases match whole words; a phrase that ends in `*` allows
//! more letters. A number is a status only where the words around it say so.

use std::borrow::Cow;

/// A text made ready for matching: lower case, no addresses, single spaces.
#[derive(Clone, Debug)]
pub struct Prepared(String);

impl Prepared {
    /// Prepares the parts of a text; a phrase never matches across two parts.
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut prepared = String::new();
        for part in parts {
            for word in part.split_whitespace() {
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
        Self(prepared)
    }

    /// Whether the text contains `phrase` as whole words.
    pub fn says(&self, phrase: &str) -> bool {
        let (phrase, open_ended) = match phrase.strip_suffix('*') {
            Some(stem) => (stem, true),
            None => (phrase, false),
        };
        let phrase = phrase.to_lowercase();
        self.0.match_indices(&phrase).any(|(start, found)| {
            let before = self.0[..start].chars().next_back();
            let rest = &self.0[start + found.len()..];
            let rest = if open_ended { rest.trim_start_matches(char::is_alphabetic) } else { rest };
            !before.is_some_and(is_name_char) && !rest.starts_with(continues_name)
        })
    }

    /// The first number in the text that is plainly an HTTP status.
    pub fn status(&self) -> Option<u16> {
        self.find_status().map(|(status, _)| status)
    }

    /// Whether the text is about its status and nothing else before it: `429 Too Many Requests`,
    /// `Error: HTTP 429`; not `issue created, labels failed: 429`.
    pub(crate) fn leads_with_status(&self) -> bool {
        self.find_status().is_some_and(|(_, leads)| leads)
    }

    fn find_status(&self) -> Option<(u16, bool)> {
        let words: Vec<&str> = self.0.split([' ', '\n']).collect();
        let (at, status) = (0..words.len()).find_map(|at| Some((at, status_at(&words, at)?)))?;
        let is_label = |word: &&str| {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            ANNOUNCES.contains(&word) || word == "error" || word.starts_with("http/")
        };
        Some((status, words[..at].iter().all(is_label)))
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `timeout_report` and `timeout-svc` are names, not timeouts.
fn continues_name(c: char) -> bool {
    is_name_char(c) || c == '-'
}

/// The word without any address in it. What stands before and after an address is kept.
fn without_address(word: &str) -> Cow<'_, str> {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '[' && c != ']');
    if word.contains("://") {
        return Cow::Owned(without_urls(word));
    }
    if is_host(bare) {
        return Cow::Owned(word.replacen(bare, "", 1));
    }
    Cow::Borrowed(word)
}

/// Cuts every URL from its scheme to whatever ends it.
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

/// `api.example.com`, `10.0.0.1:502`, `localhost:8080/mcp`: a dotted name or a port number after a name.
fn is_host(word: &str) -> bool {
    let authority = word.split('/').next().unwrap_or(word);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let is_label =
        |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let labels: Vec<&str> = host.split('.').collect();
    let named = labels.iter().all(|label| is_label(label)) && !is_number(host);
    match port {
        Some(port) => named && is_number(port),
        None => labels.len() > 1 && named && labels.last().is_some_and(|last| is_top_level(last, &labels)),
    }
}

/// Tells `example.com` and `10.0.0.1` from `1.5` and `httpx.ReadTimeout`.
fn is_top_level(last: &str, labels: &[&str]) -> bool {
    let is_address = labels.len() == 4 && labels.iter().all(|label| label.parse::<u8>().is_ok());
    let is_name = (2..=6).contains(&last.len()) && last.chars().all(|c| c.is_ascii_lowercase());
    is_address || is_name
}

/// Words before a number that make it a status whatever follows.
const ANNOUNCES: &[&str] = &["http", "https", "status", "code", "statuscode", "status_code"];
/// Words before a number that leave the question to what follows.
const ALLOWS: &[&str] =
    &["error", "got", "returned", "response", "api", "server", "upstream", "received", "with", "a", "failed"];
/// Words after a number that belong to a status.
const REASONS: &[&str] = &[
    "too",
    "rate",
    "service",
    "bad",
    "gateway",
    "internal",
    "unavailable",
    "timeout",
    "server",
    "error",
    "invalid",
    "unprocessable",
    "unauthorized",
    "forbidden",
    "not",
    "conflict",
    "request",
    "method",
    "gone",
    "payload",
    "temporarily",
    "from",
    "response",
    "status",
    "no",
    "precondition",
    "validation",
    "payment",
    "http",
    "client",
];

fn status_at(words: &[&str], at: usize) -> Option<u16> {
    let word = words[at];
    let digits = word.trim_matches(|c: char| !c.is_alphanumeric());
    // `http/1.1` goes before a status, `code=503` and `status:503` carry one.
    let (label, number) = match digits.rsplit_once([':', '=']) {
        Some((label, number)) => (Some(label.trim_matches(|c: char| !c.is_alphanumeric())), number),
        None => (None, digits),
    };
    let status: u16 = number.parse().ok().filter(|n| number.len() == 3 && (400..600).contains(n))?;
    let clean = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_').to_owned();
    let before = label.map(clean).or_else(|| at.checked_sub(1).map(|i| clean(words[i])));
    let announced = before.as_deref().is_some_and(|word| ANNOUNCES.contains(&word) || word.starts_with("http/"));
    if announced {
        return Some(status);
    }
    let opens = at == 0
        || label.is_some()
        || word.starts_with(['(', '[', '\'', '"'])
        || words[at - 1].is_empty()
        || words[at - 1].ends_with([':', ',', ';', '-', '–', '—', '('])
        || before.as_deref().is_some_and(|word| ALLOWS.contains(&word));
    let ends = word.ends_with([':', ',', ';', '.', ')', ']', '\'', '"']);
    let explained = words.get(at + 1).is_none_or(|next| next.is_empty() || REASONS.contains(&clean(next).as_str()));
    (opens && (ends || explained)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Option<u16> {
        Prepared::new([text]).status()
    }

    #[test]
    fn numbers_are_statuses_only_where_the_text_says_so() {
        for (text, expected) in [
            ("503", Some(503)),
            ("429 rate limit exceeded", Some(429)),
            ("422 invalid", Some(422)),
            ("GitHub API: 503 Service Unavailable", Some(503)),
            ("HTTP 403 Forbidden from http://gw/mcp", Some(403)),
            ("HTTP/1.1 502 Bad Gateway", Some(502)),
            ("Server error '503 Service Unavailable' for url", Some(503)),
            ("request failed (status: 504)", Some(504)),
            ("request failed with status code 500", Some(500)),
            ("code=503", Some(503)),
            ("got 503 from upstream", Some(503)),
            ("row 4290 not found in table 503_archive", None),
            ("issue 503 not found", None),
            ("issue #503 not found", None),
            ("took 429 ms", None),
            ("listening on port 502", None),
            ("page 404", None),
            ("found 500 items", None),
            ("connect to 10.0.0.1:502 failed", None),
            ("0.503", None),
            ("200 OK", None),
            ("", None),
        ] {
            assert_eq!(status(text), expected, "{text}");
        }
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
        ] {
            assert!(!Prepared::new([text]).says("timeout*"), "{text}");
            assert_eq!(status(text), Some(403), "{text}");
        }
        let prepared = Prepared::new(["Cannot connect to http://x: getaddrinfo failed, took 1.5 s"]);
        assert_eq!(prepared.0, "cannot connect to : getaddrinfo failed, took 1.5 s\n");
    }

    #[test]
    fn only_the_address_is_cut_from_a_compact_text() {
        let body = r#"{"message":"Authorization service unavailable","docs":"https://timeout.example/x","n":1}"#;
        let prepared = Prepared::new([body]);

        assert!(prepared.says("authorization service unavailable") && !prepared.says("timeout*"), "{prepared:?}");
        assert!(prepared.0.contains(r#""docs":"","n":1}"#), "{prepared:?}");
    }

    #[test]
    fn a_text_leads_with_its_status_or_mentions_it() {
        for text in ["429 rate limit exceeded", "HTTP 429 Too Many Requests", "Error: 429", "status code 429"] {
            assert!(Prepared::new([text]).leads_with_status(), "{text}");
        }
        for text in [
            "Issue #12 created; labels failed: 429 Too Many Requests",
            "GitHub API: 429 Too Many Requests",
            "no status",
        ] {
            assert!(!Prepared::new([text]).leads_with_status(), "{text}");
        }
    }

    #[test]
    fn a_phrase_does_not_match_across_message_and_body() {
        assert!(!Prepared::new(["service", "unavailable"]).says("service unavailable"));
    }

    #[test]
    fn odd_texts_do_not_panic() {
        for text in ["é://ü", "://", "…:503", "\u{0}", "ß.ße", "[::1]:80", "'", "🦀503🦀", "a:b:c:503"] {
            let prepared = Prepared::new([text]);
            prepared.status();
            prepared.says("timeout*");
        }
    }
}
