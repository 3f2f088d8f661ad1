//! Decides how a URL is shown to people and models: its location, without parts that may be secret.

use http::Uri;

/// The length from which a part of a path may be a key.
const KEY: usize = 20;

/// Scheme, host, port and path: no user, no query, and no part of the path that looks like a key.
pub(crate) fn shown(url: &Uri) -> String {
    let (scheme, host) = (url.scheme_str().unwrap_or_default(), url.host().unwrap_or_default());
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    let path: Vec<String> = url.path().split('/').map(without_key).collect();
    format!("{scheme}://{host}{port}{}", path.join("/"))
}

/// A part of the path, with a possible secret replaced.
fn without_key(part: &str) -> String {
    match part.split_once('=') {
        Some((name, _)) => format!("{name}=***"),
        None if is_key(part) => "***".to_owned(),
        None => part.to_owned(),
    }
}

/// The parts of a URL that [`shown`] hides; they must not appear where its server is quoted either.
pub(crate) fn secrets(url: &Uri) -> Vec<&str> {
    let user = url
        .authority()
        .and_then(|authority| authority.as_str().rsplit_once('@'))
        .map(|(user, _)| user);
    let user = user
        .into_iter()
        .flat_map(|user| user.split_once(':').map_or([user, ""], |(name, word)| [name, word]));
    let query = url.query().into_iter().flat_map(|query| query.split('&'));
    let values = query.filter_map(value);
    let parts = url.path().split('/');
    let parts = parts.filter_map(|part| value(part).or_else(|| is_key(part).then_some(part)));
    user.chain(values).chain(parts).collect()
}

/// The value behind the `=` of a pair.
fn value(pair: &str) -> Option<&str> {
    pair.split_once('=').map(|(_, value)| value)
}

/// Whether a part of a path looks like a key: some services put the key into the URL.
fn is_key(part: &str) -> bool {
    let has = |is: fn(&char) -> bool| part.chars().any(|letter| is(&letter));
    part.len() >= KEY && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_shown_and_no_secret_is() {
        for (url, text) in [
            (
                "https://user:pass@gw.example:4000/mcp/jira?token=t",
                "https://gw.example:4000/mcp/jira",
            ),
            ("http://[::1]:81/mcp/github", "http://[::1]:81/mcp/github"),
            ("https://mcp.example/s/a1b2c3d4e5f6a7b8c9d0e1f2/mcp", "https://mcp.example/s/***/mcp"),
            (
                "ws://gw.example/a-long-name-without-numbers",
                "ws://gw.example/a-long-name-without-numbers",
            ),
            (
                "https://mcp.example/apikey=secret/mcp;key=other",
                "https://mcp.example/apikey=***/mcp;key=***",
            ),
        ] {
            assert_eq!(shown(&url.parse().unwrap()), text);
        }
    }

    #[test]
    fn what_is_not_shown_is_known() {
        let url = "https://user:pass@gw.example/s/a1b2c3d4e5f6a7b8c9d0e1f2/apikey=secret/mcp?token=t1&x=y=z&flag"
            .parse()
            .unwrap();
        assert_eq!(
            secrets(&url),
            ["user", "pass", "t1", "y=z", "a1b2c3d4e5f6a7b8c9d0e1f2", "secret"]
        );
    }
}
