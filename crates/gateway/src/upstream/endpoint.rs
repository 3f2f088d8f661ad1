//! Resolves the POST address that a legacy event stream names: it must have the stream's own
//! origin.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

use super::UpstreamFailure;

/// Resolves the reference `said` against `url`. Only the same origin is allowed: the operator's
/// headers, credentials among them, are sent to this address.
pub(super) fn of(url: &Uri, said: &[u8]) -> Result<Uri, UpstreamFailure> {
    let refuse =
        |why: &str| UpstreamFailure::Handshake(format!("the address it names for messages {why}"));
    let said = std::str::from_utf8(said).map_err(|_| refuse("is not UTF-8"))?.trim();
    let said = said.split('#').next().unwrap_or_default();
    let scheme = url.scheme_str().unwrap_or_default();
    let path = if let Some(rest) = said.strip_prefix("//") {
        of_same_origin(url, &format!("{scheme}://{rest}"))
    } else if has_scheme(said) {
        of_same_origin(url, said)
    } else {
        Some(seen_from(url.path(), said))
    };
    let path = path.ok_or_else(|| refuse("is not of its own origin"))?;
    let path =
        PathAndQuery::try_from(without_dots(&path)).map_err(|_| refuse("is not a valid URL"))?;
    let mut parts = url.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|_| refuse("is not a valid URL"))
}

/// Whether a reference begins with a scheme: its first `:`, `/` or `?` is a colon.
fn has_scheme(said: &str) -> bool {
    said.find([':', '/', '?']).is_some_and(|end| said[end..].starts_with(':'))
}

/// Path and query of an absolute URL, if its origin is that of `url`.
fn of_same_origin(url: &Uri, said: &str) -> Option<String> {
    let said: Uri = said.parse().ok()?;
    let is_same = origin(url).is_some() && origin(&said) == origin(url);
    is_same.then(|| said.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string))
}

/// Scheme, host and port; `None` for a URL with a user part, which no server has a reason to send.
fn origin(url: &Uri) -> Option<(&Scheme, String, u16)> {
    let scheme = url.scheme()?;
    let authority: &Authority =
        url.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let port = match authority.port_u16() {
        Some(port) => port,
        // Something follows the host that is no valid port, such as a lone colon.
        None if authority.as_str().len() > authority.host().len() => return None,
        None if *scheme == Scheme::HTTPS => 443,
        None => 80,
    };
    Some((scheme, authority.host().to_ascii_lowercase(), port))
}

/// Resolves a reference without an origin against a path.
fn seen_from(path: &str, said: &str) -> String {
    match said.chars().next() {
        Some('/') => said.to_owned(),
        Some('?') | None => format!("{path}{said}"),
        Some(_) => format!("{}/{said}", path.rsplit_once('/').map_or("", |(folder, _)| folder)),
    }
}

/// Removes the segments `.` and `..` from a path.
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let mut steps: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for step in path.split('/').skip(1) {
        ends_open = matches!(step, "." | "..");
        match step {
            "." => {}
            // At the root nothing is left to remove: the path cannot leave the origin.
            ".." => _ = steps.pop(),
            step => steps.push(step),
        }
    }
    let end = if ends_open && !steps.is_empty() { "/" } else { "" };
    format!("/{}{end}{query}", steps.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(url: &str, said: &str) -> Option<String> {
        of(&url.parse().unwrap(), said.as_bytes()).ok().map(|address| address.to_string())
    }

    #[test]
    fn an_address_is_seen_from_where_the_stream_is() {
        for (said, address) in [
            ("/messages?id=1", "http://a.example:81/messages?id=1"),
            ("messages?id=1", "http://a.example:81/x/messages?id=1"),
            ("?id=1", "http://a.example:81/x/sse?id=1"),
            ("../m/./n", "http://a.example:81/m/n"),
            ("../../..", "http://a.example:81/"),
            (".", "http://a.example:81/x/"),
            (" /m#part ", "http://a.example:81/m"),
            ("/m?to=http://b.example/", "http://a.example:81/m?to=http://b.example/"),
            ("m?to=c:d", "http://a.example:81/x/m?to=c:d"),
            ("http://a.example:81/m", "http://a.example:81/m"),
            ("HTTP://A.EXAMPLE:81/m", "http://a.example:81/m"),
            ("//a.example:81/m?id", "http://a.example:81/m?id"),
            ("http://a.example:81", "http://a.example:81/"),
        ] {
            assert_eq!(
                named("http://a.example:81/x/sse?key=1", said).as_deref(),
                Some(address),
                "{said}"
            );
        }
        assert_eq!(
            named("https://a.example/sse", "https://a.example:443/m").as_deref(),
            Some("https://a.example/m")
        );
        assert_eq!(
            named("http://[::1]:81/sse", "http://[::1]:81/m").as_deref(),
            Some("http://[::1]:81/m")
        );
    }

    #[test]
    fn an_address_of_another_origin_is_refused() {
        for said in [
            "http://b.example/m",
            "https://a.example/m",
            "http://a.example:81/m",
            "http://a.example:/m",
            "//b.example/m",
            "http://a.example@b.example/m",
            "http://user@a.example/m",
            "http://a.example.b.example/m",
            "ftp://a.example/m",
            "javascript:alert(1)",
            "http:m",
            "http:\\\\b.example/m",
            "/m n",
            "/m\nHost: b.example",
        ] {
            assert_eq!(named("http://a.example/sse", said), None, "{said}");
        }
        assert!(of(&"http://a.example/sse".parse().unwrap(), b"/\xff").is_err());
    }
}
