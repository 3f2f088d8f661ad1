//! Decides which number in a text is an HTTP status: a number with a sign of it, never an id, a
//! port or a line number.

/// Words right before a number that make it a status, regardless of the next word.
const SIGNS: &[&str] = &[
    "http",
    "https",
    "status",
    "statuscode",
    "status_code",
    "http_status",
    "http_code",
    "error_code",
    "errorcode",
    "response_code",
];
/// Words right before a number that make it a status, unless the number counts the next word:
/// `Error: 500 rows are locked`.
const WEAK_SIGNS: &[&str] = &["error", "response"];
/// Speakers that say a status without its name, as over HTTP/2: `GitHub API: 503`.
const SPEAKERS: &[&str] = &["api"];
/// Words after a number that it cannot count.
const NOT_COUNTED: &[&str] = &[
    "error", "response", "status", "client", "server", "from", "for", "on", "at", "while", "when",
    "during", "no",
];
/// The names of statuses, longer names first.
const REASONS: &[(u16, &[&str])] = &[
    (400, &["bad request"]),
    (401, &["unauthorized"]),
    (402, &["payment required"]),
    (403, &["forbidden"]),
    (404, &["not found"]),
    (405, &["method not allowed"]),
    (406, &["not acceptable"]),
    (408, &["request timeout"]),
    (409, &["conflict"]),
    (410, &["gone"]),
    (412, &["precondition failed"]),
    (413, &["payload too large", "content too large", "request entity too large"]),
    (415, &["unsupported media type"]),
    (422, &["unprocessable entity", "unprocessable content", "validation failed", "invalid"]),
    (423, &["locked"]),
    (425, &["too early"]),
    (428, &["precondition required"]),
    (
        429,
        &[
            "too many requests",
            "rate limit exceeded",
            "rate limit reached",
            "rate limited",
            "rate limit",
        ],
    ),
    (500, &["internal server error", "internal error"]),
    (501, &["not implemented"]),
    (502, &["bad gateway"]),
    (503, &["service unavailable", "service temporarily unavailable"]),
    (504, &["gateway timeout", "gateway time-out"]),
    (529, &["overloaded"]),
];
/// Characters that may stand around a status.
const AROUND: &[char] = &[
    '(', ')', '[', ']', '<', '>', '"', '\'', '`', '*', ':', ',', ';', '.', '!', '?', '-', '–', '—',
];
/// Words that begin a request for a pause.
const ASKS: &[&str] = &["please", "retry", "retry-after", "retry_after", "try", "wait"];
/// Words that continue such a request, beside numbers.
const PAUSE: &[&str] = &[
    "again",
    "later",
    "and",
    "in",
    "after",
    "before",
    "for",
    "s",
    "ms",
    "sec",
    "second",
    "seconds",
    "milliseconds",
    "minute",
    "minutes",
];

/// The first status in a prepared text. Each line is a text of its own.
pub(super) fn find(text: &str) -> Option<u16> {
    // The members of a JSON object are separate words.
    let text = text.replace(['{', '}'], " ").replace(",\"", ", \"");
    text.lines().find_map(|part| {
        let words: Vec<&str> = part.split(' ').filter(|word| !word.is_empty()).collect();
        let first = words.iter().take_while(|word| is_label(clean(word))).count();
        (0..words.len()).find_map(|at| status_at(&words, at, at == first))
    })
}

/// Whether a word only announces a status: `status`, `error`, `http/1.1`.
pub(super) fn is_label(word: &str) -> bool {
    is_sign(word) || WEAK_SIGNS.contains(&word) || word == "code"
}

/// Whether a text consists of its status: labels, the number, its name, and a request for a pause.
pub(super) fn is_all(text: &str) -> bool {
    let text = text.to_lowercase();
    let words = text
        .split(|c: char| !c.is_alphanumeric() && !"-_/.".contains(c))
        .map(|word| word.trim_matches('.'));
    let words: Vec<&str> = words.filter(|word| word.contains(char::is_alphanumeric)).collect();
    // Without a number from 400 to 599 there is no status.
    let Some((at, status)) =
        words.iter().enumerate().find_map(|(at, word)| Some((at, number(word)?)))
    else {
        return false;
    };
    let rest = without_name(&words[at + 1..], status);
    let asks = |word: &&str| ASKS.contains(word);
    let is_pause = rest.iter().all(|word| asks(word) || PAUSE.contains(word) || is_span(word));
    without_name(&words[..at], status).is_empty() && rest.first().is_none_or(asks) && is_pause
}

/// The words without the labels and the status name at their beginning.
fn without_name<'a, 'b>(words: &'a [&'b str], status: u16) -> &'a [&'b str] {
    let is_label = |word: &&&str| is_label(word) || ["client", "server"].contains(*word);
    let words = &words[words.iter().take_while(is_label).count()..];
    let words = &words[named(words, status)..];
    &words[words.iter().take_while(is_label).count()..]
}

/// Whether a word is a time: `30`, `1.5s`, `500ms`.
fn is_span(word: &str) -> bool {
    let number = word.trim_end_matches("ms").trim_end_matches('s');
    !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn is_sign(word: &str) -> bool {
    SIGNS.contains(&word) || word.starts_with("http/")
}

fn number(word: &str) -> Option<u16> {
    word.parse().ok().filter(|status| word.len() == 3 && (400..600).contains(status))
}

fn clean(word: &str) -> &str {
    word.trim_matches(|c: char| !c.is_alphanumeric() && c != '_')
}

/// How many leading words are a name of the status.
fn named(words: &[&str], status: u16) -> usize {
    let names =
        REASONS.iter().find(|(known, _)| *known == status).map_or(&[][..], |(_, names)| names);
    let begins = |name: &&&str| {
        let mut words = words.iter().map(|word| clean(word));
        name.split(' ').all(|part| words.next() == Some(part))
    };
    names.iter().find(begins).map_or(0, |name| name.split(' ').count())
}

/// The status at this place, if there is a sign of one. A number that `leads` has only labels
/// before it.
fn status_at(words: &[&str], at: usize, leads: bool) -> Option<u16> {
    let word = words[at].trim_matches(AROUND);
    // `code=503` and `status:503` carry their label.
    let (label, digits) = match word.rsplit_once([':', '=']) {
        Some((label, digits)) => (Some(label), digits),
        None => (None, word),
    };
    let status = number(digits)?;
    let mut before = label.into_iter().chain(words[..at].iter().rev().copied());
    let (last, earlier) = (before.next().unwrap_or_default(), before.next().unwrap_or_default());
    let is_sure = match clean(last) {
        // `exit status 500` is a process's exit status.
        "status" => clean(earlier) != "exit",
        "code" => is_sign(clean(earlier)),
        word => is_sign(word),
    };
    let is_likely = match clean(last) {
        // A bare `code` counts at the start of a clause or behind a weak sign, so a zip code and an
        // exit code do not.
        "code" => {
            let opens = !last.starts_with(char::is_alphanumeric)
                || !earlier.ends_with(char::is_alphanumeric);
            opens || WEAK_SIGNS.contains(&clean(earlier))
        }
        word if SPEAKERS.contains(&word) => last.ends_with(':'),
        word => WEAK_SIGNS.contains(&word) || (leads && label.is_none()),
    };
    let rest = &words[at + 1..];
    let counts_nothing = words[at].ends_with(AROUND)
        || rest
            .first()
            .is_none_or(|next| NOT_COUNTED.contains(&clean(next)) || clean(next).is_empty());
    (is_sure || named(rest, status) > 0 || (is_likely && counts_nothing)).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::super::Prepared;
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
            ("GitHub API: 503", Some(503)),
            ("GitHub API: 503 ", Some(503)),
            ("GitHub API: 500 items could not be moved", None),
            ("the API 503", None),
            ("HTTP 403 Forbidden from http://gw/mcp", Some(403)),
            ("HTTP/1.1 502 Bad Gateway", Some(502)),
            ("Server error '503 Service Unavailable' for url", Some(503)),
            ("request failed (status: 504)", Some(504)),
            ("request failed with status code 500", Some(500)),
            ("code=503", Some(503)),
            ("Unexpected server response: 503", Some(503)),
            ("SSE error: Non-200 status code (503)", Some(503)),
            ("503 Server Error: Service Unavailable for url", Some(503)),
            ("503 (Service Unavailable)", Some(503)),
            ("Error: 429 while adding labels", Some(429)),
            ("googleapi: Error 503: backendError", Some(503)),
            ("failed (code 503)", Some(503)),
            ("429, message='Too Many Requests'", Some(429)),
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
    fn an_id_is_no_status() {
        for text in [
            "no such job: 503",
            "Unknown invoice: 429",
            "commit not found: 502",
            "Customer does not exist: 504",
            "Cannot find room 'x': 503",
            "User alice has no invoice (503)",
            "Invoice [429]: not found",
            "Query returned 500",
            "expected 200, got 500 rows",
            "chapter 3, 503: missing",
            "Bad zip code: 503",
            "country code 502 is unknown",
            "error code 500 is not defined",
            "exit code 429",
            "exit status 500",
            "Process (503) was killed",
            "Error: 500 items could not be moved",
            "500 items could not be moved",
            "status code: ok, rows: 503",
            "Could not parse '2024-05-03: 503'",
            "room 503: not free",
        ] {
            assert_eq!(status(text), None, "{text}");
        }
    }

    #[test]
    fn a_text_consists_of_its_status_or_says_more() {
        for text in [
            "429",
            "429 rate limit exceeded",
            "HTTP 429 Too Many Requests",
            "HTTP/1.1 429 Too Many Requests",
            "Error: 429",
            "status code 429",
            "Too Many Requests (429).",
            "429 Client Error: Too Many Requests",
            "429 Too Many Requests. Please retry after 30 seconds",
            "429 Too Many Requests, Retry-After: 1.5s",
            "404 not found",
        ] {
            assert!(is_all(text), "{text}");
        }
        for text in [
            "Issue #12 created; labels failed: 429 Too Many Requests",
            "429 Too Many Requests: issue #12 was created, adding its labels was throttled",
            "Error: 429 while adding labels; issue #12 was created",
            "404 Not Found: label 'x' (issue #12 was created)",
            "429 Too Many Requests (#12)",
            "429 Too Many Requests after 3",
            "429 Too Many Requests from https://api.example.com/issues/12/labels",
            "429 Too Many Requests, retry the labels later",
            "429 erstellt",
            "429 Bad Gateway",
            "GitHub API: 429 Too Many Requests",
            "no status",
            "",
        ] {
            assert!(!is_all(text), "{text}");
        }
    }
}
