//! Decides which parts of arguments and of servers' texts may be shown: no secrets, and only a
//! bounded length.

#[cfg(feature = "pipeline")]
mod arguments;

#[cfg(feature = "pipeline")]
pub use arguments::sanitize;

const REDACTED: &str = "[REDACTED]";
/// Longer quotations are cut to this many characters.
const LONGEST_QUOTE: usize = 300;
/// At most this many bytes of a text are cleaned. The rest is not even read.
const MOST: usize = 8 * 1024;
/// Names of secrets are not longer than this many characters.
const LONGEST_NAME: usize = 200;

/// Whether a character is invisible and steers the terminal or viewer that shows it: control
/// characters, and characters that turn the direction of a text, which make one line look like
/// another.
pub fn is_unseen(letter: char) -> bool {
    let turns = matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    letter.is_control() || turns
}

/// A server's text as one short line: a server cannot add lines to a text that a model reads.
pub(crate) fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || is_unseen(c))
        .filter(|word| !word.is_empty())
        .collect();
    cut(&words.join(" "), LONGEST_QUOTE)
}

/// A server's text ready to be quoted: one short line without credentials and double quotation
/// marks.
pub fn quote(text: &str) -> String {
    one_line(&without_credentials(text)).replace('"', "'")
}

/// Parts of names whose values are secrets.
const TELLING: &[&str] = &[
    "token",
    "secret",
    "password",
    "authorization",
    "apikey",
    "cookie",
    "passwd",
    "passphrase",
    "credential",
    "accesskey",
    "privatekey",
    "bearer",
    "jwt",
];
/// Whole names whose values are secrets.
const WHOLLY: &[&str] = &["auth", "pwd", "sig", "signature"];

fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_lowercase().replace(['-', '_'], "");
    TELLING.iter().any(|word| name.contains(word)) || WHOLLY.contains(&name.as_str())
}

/// Whether a word is an option such as `--token`, whose following word is a secret.
fn is_option(word: &str) -> bool {
    word.starts_with('-') && !word.contains(['=', ' ']) && is_secret(word)
}

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The beginning of a text, of at most `most` bytes, cut at a character boundary.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or_default()]
}

/// The text without credentials: none in URLs, none behind the name of a secret, none behind an
/// authorization scheme. Of a long text only the beginning is cleaned: its sender decides how long
/// it is, but not how long the cleaning works on it.
pub(crate) fn without_credentials(text: &str) -> String {
    let mut clean = String::with_capacity(text.len().min(MOST));
    let mut next = NextWord::Plain;
    for word in text.split_inclusive(char::is_whitespace) {
        if clean.len() > MOST {
            break;
        }
        let bare = word.trim_end();
        // Two blanks in a row give an empty word: the announced secret is still to come.
        if !bare.is_empty() {
            let shown = next.shown(bare);
            clean.push_str(&shown.0);
            next = shown.1;
        }
        clean.push_str(&word[bare.len()..]);
    }
    clean.truncate(beginning(&clean, MOST).len());
    clean
}

/// How a word announces the word that follows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NextWord {
    Plain,
    /// A secret, if a sign stands before it: `password = …`.
    Named,
    /// The same, or a scheme and then a secret: `"Authorization" : "Bearer …"`.
    NamedScheme,
    Secret,
    SchemeOrSecret,
}

/// Schemes that may stand between `Authorization:` and the secret.
const SCHEMES: &[&str] = &["bearer", "basic", "token", "digest", "negotiate"];
/// Signs between a name and its value.
const SIGNS: [char; 2] = [':', '='];
const QUOTES: [char; 2] = ['"', '\''];

impl NextWord {
    /// The visible part of this word, and how it announces the next word.
    fn shown(self, word: &str) -> (String, NextWord) {
        let hidden = || (REDACTED.to_owned(), announced(word));
        let value = word.trim_start_matches(SIGNS).trim_start_matches('>');
        match self {
            NextWord::Secret => hidden(),
            NextWord::SchemeOrSecret if is_scheme(word.trim_matches(QUOTES)) => {
                (word.to_owned(), NextWord::Secret)
            }
            NextWord::SchemeOrSecret => hidden(),
            NextWord::Named if word.starts_with(SIGNS) && value.is_empty() => {
                (word.to_owned(), NextWord::Secret)
            }
            NextWord::NamedScheme if word.starts_with(SIGNS) && value.is_empty() => {
                (word.to_owned(), NextWord::SchemeOrSecret)
            }
            NextWord::NamedScheme
                if word.starts_with(SIGNS) && is_scheme(value.trim_matches(QUOTES)) =>
            {
                (word.to_owned(), NextWord::Secret)
            }
            NextWord::Named | NextWord::NamedScheme if word.starts_with(SIGNS) => {
                (format!("{}{REDACTED}", &word[..word.len() - value.len()]), NextWord::Plain)
            }
            NextWord::Plain | NextWord::Named | NextWord::NamedScheme => {
                (without_secrets(&without_userinfo(word)), announced(word))
            }
        }
    }
}

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// How a word announces the next one. `Bearer`, `X-API-Key:`, `"password": `, `--token`: the next
/// word is a secret. `password`: the next word is a secret if a sign follows.
fn announced(word: &str) -> NextWord {
    // No name is longer, so the ending of a long word is enough.
    let ending =
        word.char_indices().rev().nth(LONGEST_NAME).map_or(word, |(start, _)| &word[start..]);
    let lower = ending.to_lowercase();
    let name = lower.trim_end_matches([':', '=', '"', '\'']);
    let has_sign = ending.ends_with(SIGNS);
    let is_authorization = name.ends_with("authorization");
    if has_sign && is_secret(name) {
        if is_authorization { NextWord::SchemeOrSecret } else { NextWord::Secret }
    } else if ["bearer", "basic"].iter().any(|scheme| lower.ends_with(scheme)) || is_option(ending)
    {
        NextWord::Secret
    } else if is_secret(name) {
        if is_authorization { NextWord::NamedScheme } else { NextWord::Named }
    } else {
        NextWord::Plain
    }
}

/// The word with every value behind the name of a secret replaced: `key=…`, `"token":"…"`,
/// `?api_key=…&`.
fn without_secrets(word: &str) -> String {
    let mut clean = String::with_capacity(word.len().min(MOST));
    let mut rest = word;
    while let Some(at) = rest.find(['=', ':']) {
        if clean.len() > MOST {
            return clean;
        }
        let (name, value) = (&rest[..at], &rest[at + 1..]);
        let key = name
            .rsplit(['?', '&', ',', ';', '{', '(', '"', '\''])
            .find(|part| !part.is_empty())
            .unwrap_or_default();
        clean.push_str(&rest[..=at]);
        rest = value;
        // The end of a value is searched only behind the name of a secret, so no byte is read twice
        // and the work stays linear.
        if is_secret(key) || key.eq_ignore_ascii_case("key") {
            let inside = value.trim_start_matches(['"', '\'']);
            let length =
                inside.find(['&', ',', ';', '"', '\'', '}', ')', ']']).unwrap_or(inside.len());
            if length > 0 && !inside.starts_with(REDACTED) {
                clean.push_str(&value[..value.len() - inside.len()]);
                clean.push_str(REDACTED);
                rest = &inside[length..];
            }
        }
    }
    clean + rest
}

/// The word without user names and passwords in any of its URLs.
fn without_userinfo(word: &str) -> String {
    let mut clean = String::with_capacity(word.len().min(MOST));
    let mut rest = word;
    while let Some(at) = rest.find("://") {
        if clean.len() > MOST {
            return clean;
        }
        let (scheme, after) = rest.split_at(at + 3);
        // A comma and an apostrophe are legal in a password, so they do not end the search.
        let end = after.find(['/', '?', '#', '"', '`', '<', '>']).unwrap_or(after.len());
        // The last `@` counts: a password may contain one.
        let host = after[..end].rfind('@').map_or(0, |at| at + 1);
        clean.push_str(scheme);
        rest = &after[host..];
    }
    clean + rest
}

#[cfg(all(test, feature = "pipeline"))]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn secrets_are_redacted_at_any_depth_and_the_rest_is_kept() {
        let shown = sanitize(&json!({
            "token": "x", "q": "y", "n": 1, "X-API-Key": "k", "api_key": ["a"], "apikey": "b", "Authorization": "c",
            "user": {"password": "p", "clientSecret": "s", "name": "n", "set-cookie": "d"},
            "headers": [{"name": "X-Api-Key", "value": "h"}, {"name": "Accept", "value": "*/*"}],
            "db": {"passwd": "e", "private_key": "f", "awsAccessKeyId": "g", "credentials": {"user": "u"}},
            "auth": {"bearer": "i"}, "argv": ["--token", "j", "--verbose", "k"], "author": "l",
        }));

        assert_eq!(
            shown,
            json!({
                "token": "[REDACTED]", "q": "y", "n": 1, "X-API-Key": "[REDACTED]", "api_key": "[REDACTED]", "apikey": "[REDACTED]",
                "Authorization": "[REDACTED]",
                "user": {"password": "[REDACTED]", "clientSecret": "[REDACTED]", "name": "n", "set-cookie": "[REDACTED]"},
                "headers": [{"name": "X-Api-Key", "value": "[REDACTED]"}, {"name": "Accept", "value": "*/*"}],
                "db": {"passwd": "[REDACTED]", "private_key": "[REDACTED]", "awsAccessKeyId": "[REDACTED]", "credentials": "[REDACTED]"},
                "auth": "[REDACTED]", "argv": ["--token", "[REDACTED]", "--verbose", "k"], "author": "l",
            })
        );
    }

    #[test]
    fn credentials_leave_urls_and_texts() {
        let shown = |text: &str| sanitize(&json!(text)).as_str().unwrap().to_owned();

        assert_eq!(shown("see https://me:pw@host/x?y=1 now"), "see https://host/x?y=1 now");
        assert_eq!(shown("https://host/@user"), "https://host/@user");
        assert_eq!(
            shown("Authorization: Bearer abc.def rest"),
            "Authorization: Bearer [REDACTED] rest"
        );
        assert_eq!(
            shown("GET https://h/search?key=AIza&q=x failed"),
            "GET https://h/search?key=[REDACTED]&q=x failed"
        );
        assert_eq!(
            shown("postgres://h1/x,postgres://c:pw@h2/y"),
            "postgres://h1/x,postgres://h2/y"
        );
        assert_eq!(
            shown(r#"{"api_key":"sk-1","token":"ghp","n":1}"#),
            r#"{"api_key":"[REDACTED]","token":"[REDACTED]","n":1}"#
        );
        assert_eq!(
            shown("password=hunter2 X-API-Key: abc done"),
            "password=[REDACTED] X-API-Key: [REDACTED] done"
        );
        assert_eq!(shown("at 12:30 key question: none"), "at 12:30 key question: none");
        assert_eq!(shown("Authorization: Token abc bad"), "Authorization: Token [REDACTED] bad");
        assert_eq!(shown("authorization: abc bad"), "authorization: [REDACTED] bad");
        assert_eq!(shown("ran x --api-key abc --n 1"), "ran x --api-key [REDACTED] --n 1");
        assert_eq!(shown("https://h/blob?sig=abc&n=1"), "https://h/blob?sig=[REDACTED]&n=1");
        assert_eq!(shown("ftp://u:p,w@h/x 'http://u:p'w@h'"), "ftp://h/x 'http://h'");
        assert_eq!(shown("amqp://h1,http://u:p@h2/"), "amqp://h1,http://h2/");
        assert_eq!(shown("password = hunter2 failed"), "password = [REDACTED] failed");
        assert_eq!(shown("PASSWORD => hunter2 :token abc"), "PASSWORD => [REDACTED] :token abc");
        assert_eq!(shown(r#"{"password" : "hunter2"}"#), r#"{"password" : [REDACTED]"#);
        assert_eq!(
            shown(r#"{"password" :"hunter2", "n": 1}"#),
            r#"{"password" :[REDACTED] "n": 1}"#
        );
        assert_eq!(
            shown(r#""Authorization" : "Bearer abc.def""#),
            r#""Authorization" : "Bearer [REDACTED]"#
        );
        assert_eq!(shown("Authorization :Bearer abc.def x"), "Authorization :Bearer [REDACTED] x");
        assert_eq!(shown("bearer  \t abc.def rejected"), "bearer  \t [REDACTED] rejected");
        assert_eq!(
            shown("the password is wrong: no token here"),
            "the password is wrong: no token here"
        );
        let once = shown("GET https://h/x?token=abc failed");
        assert_eq!(shown(&once), once, "what is hidden stays as it is");
    }

    #[test]
    fn long_texts_and_deep_values_are_cut() {
        assert_eq!(sanitize(&json!("é".repeat(2000))).as_str().unwrap().chars().count(), 1001);

        let deep = (0..100).fold(json!("x"), |inner, _| json!([inner]));
        assert!(sanitize(&deep).to_string().contains("TOO DEEP"));
    }

    #[test]
    fn a_quotation_is_one_short_line() {
        assert_eq!(quote("a\n\"b\"\u{7}\tc"), "a 'b' c");
        assert_eq!(quote("safe\u{202e}evil\u{2066}x\u{200e}\u{61c}é"), "safe evil x é");
        assert_eq!(quote(&"x".repeat(500)).chars().count(), 301);
    }
}
