//! Decides which number in a text is an HTTP status: one that the words around it call so, never an id, a port or a line.

/// Words before a number that make it a status whatever follows.
const ANNOUNCES: &[&str] = &[
    "http",
    "https",
    "status",
    "code",
    "statuscode",
    "status_code",
    "http_status",
    "http_code",
    "error_code",
    "errorcode",
    "response_code",
];
/// Words before a number that leave the question to what follows.
const ALLOWS: &[&str] =
    &["error", "got", "returned", "response", "api", "server", "upstream", "received", "with", "a", "failed"];
/// Words before a number that make it something else whatever follows.
const COUNTS: &[&str] = &[
    "id", "ids", "number", "num", "no", "nr", "issue", "row", "page", "port", "line", "column", "col", "item", "pr",
    "user", "order", "ticket", "record", "key", "index", "position", "offset", "limit", "count", "size", "total",
    "length", "timeout", "max", "min", "value", "version", "pid",
];
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
/// What may stand around a number that is a status.
const AROUND: &[char] =
    &['(', ')', '[', ']', '<', '>', '"', '\'', '`', '*', ':', ',', ';', '.', '!', '?', '-', '–', '—'];

/// The first status in a prepared text, and whether the text consists of it: nothing but labels stands before it.
pub(super) fn find(text: &str) -> Option<(u16, bool)> {
    // The members of a JSON object are words of their own.
    let text = text.replace(['{', '}'], " ").replace(",\"", ", \"");
    let words: Vec<&str> = text.split([' ', '\n']).collect();
    let (at, status) = (0..words.len()).find_map(|at| Some((at, status_at(&words, at)?)))?;
    let leads = words[..at].iter().all(|word| is_label(word.trim_matches(|c: char| !c.is_alphanumeric())));
    Some((status, leads))
}

/// `status`, `error`, `http/1.1`: a word that says that a status follows, and nothing else.
pub(super) fn is_label(word: &str) -> bool {
    ANNOUNCES.contains(&word) || word == "error" || word.starts_with("http/")
}

fn status_at(words: &[&str], at: usize) -> Option<u16> {
    let word = words[at];
    let digits = word.trim_matches(AROUND);
    // `http/1.1` goes before a status, `code=503` and `status:503` carry one.
    let (label, number) = match digits.rsplit_once([':', '=']) {
        Some((label, number)) => (Some(label), number),
        None => (None, digits),
    };
    let status: u16 = number.parse().ok().filter(|n| number.len() == 3 && (400..600).contains(n))?;
    let clean = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_').to_owned();
    let before = label.map(clean).or_else(|| at.checked_sub(1).map(|i| clean(words[i]))).unwrap_or_default();
    if ANNOUNCES.contains(&before.as_str()) || before.starts_with("http/") {
        return Some(status);
    }
    let is_allowed = ALLOWS.contains(&before.as_str());
    let is_count = before.rsplit(['_', '-']).next().is_some_and(|last| COUNTS.contains(&last));
    if is_count || (label.is_some() && !is_allowed) {
        return None;
    }
    let opens = at == 0
        || is_allowed
        || word.starts_with(['(', '[', '\'', '"'])
        || words[at - 1].is_empty()
        || words[at - 1].ends_with([':', ',', ';', '-', '–', '—', '(']);
    let ends = word.ends_with([':', ',', ';', '.', ')', ']', '\'', '"']);
    let explained = words.get(at + 1).is_none_or(|next| next.is_empty() || REASONS.contains(&clean(next).as_str()));
    (opens && (ends || explained)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::super::Prepared;

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
            ("TypeError at /app/src/index.js:503", None),
            ("no row for id=503", None),
            ("user_id: 429 not found", None),
            ("Invalid id: 503", None),
            ("invalid value for timeout: 500", None),
            ("Issue (503) not found", None),
            ("Issue: #503", None),
            ("used: 503%", None),
            ("Error:503", Some(503)),
            ("GET /issues: 503 Service Unavailable", Some(503)),
            (r#"API error: {"error":{"code":503,"message":"overloaded"}}"#, Some(503)),
            (r#"{"id":503,"name":"x","statusCode":429}"#, Some(429)),
            (r#"{"issue_number":503,"found":false}"#, None),
        ] {
            assert_eq!(status(text), expected, "{text}");
        }
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
}
