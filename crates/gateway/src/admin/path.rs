//! Names in the path and query of a URL, percent-decoded.

use http::{StatusCode, Uri};

use super::respond::{self, AdminResponse};

/// The query of a URL.
#[derive(Debug)]
pub(super) struct QueryString(Vec<(String, String)>);

impl QueryString {
    /// Reads the query; a name outside `allowed` is an error and not ignored.
    pub(super) fn read(uri: &Uri, allowed: &[&str]) -> Result<Self, Box<AdminResponse>> {
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decoded(name)?, decoded(value)?))
                .filter(|(name, _)| allowed.contains(&name.as_str()))
        };
        let read: Option<Vec<_>> = pairs.map(pair).collect();
        let wrong = || format!("what stands behind ? must be {}", allowed.join("=…, ") + "=…");
        read.map(Self).ok_or_else(|| Box::new(respond::error(StatusCode::BAD_REQUEST, &wrong())))
    }

    /// The last value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a name as a whole number.
    pub(super) fn number(&self, name: &str, default: usize) -> Result<usize, Box<AdminResponse>> {
        let wrong = |_| {
            Box::new(respond::error(
                StatusCode::BAD_REQUEST,
                &format!("{name} must be a whole number"),
            ))
        };
        self.get(name).map_or(Ok(default), |value| value.parse().map_err(wrong))
    }
}

/// The decoded name between `before` and `after`, if the path has both and a valid name between
/// them.
pub(super) fn between(path: &str, before: &str, after: &str) -> Option<String> {
    let inner = path.strip_prefix(before)?.strip_suffix(after)?;
    decoded(inner).filter(|name| !name.is_empty())
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digit = |byte: Option<u8>| {
                char::from(byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
            };
            bytes.push(digit(rest.next())? * 16 + digit(rest.next())?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_meant() {
        let name = |path: &str| between(path, "/b/", "/reset");
        assert_eq!(name("/b/get_issue/reset").as_deref(), Some("get_issue"));
        assert_eq!(name("/b/a%2Fb%20c%25+%C3%A9/reset").as_deref(), Some("a/b c%+é"));
        assert_eq!(name("/b/a/b/reset").as_deref(), Some("a/b"));
        for wrong in [
            "/b//reset",
            "/b/reset",
            "/b/a",
            "/b/%/reset",
            "/b/%4/reset",
            "/b/%zz/reset",
            "/b/%ff/reset",
        ] {
            assert_eq!(name(wrong), None, "{wrong}");
        }
    }
}
