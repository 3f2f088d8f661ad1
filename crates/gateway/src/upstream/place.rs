//! How an address is shown to people and models: where it leads, without what may be secret.

use http::Uri;

/// Letters of a part of a path from which on it may be a key.
const KEY: usize = 20;

/// Scheme, host, port and path: no user, no query, and nothing of the path that looks like a key.
pub fn shown(url: &Uri) -> String {
    let (scheme, host) = (url.scheme_str().unwrap_or_default(), url.host().unwrap_or_default());
    let port = url.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    let path: Vec<&str> = url.path().split('/').map(|part| if is_key(part) { "***" } else { part }).collect();
    format!("{scheme}://{host}{port}{}", path.join("/"))
}

/// Some services put the key into the address.
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
            ("https://user:pass@gw.example:4000/mcp/jira?token=t", "https://gw.example:4000/mcp/jira"),
            ("http://[::1]:81/mcp/github", "http://[::1]:81/mcp/github"),
            ("https://mcp.example/s/a1b2c3d4e5f6a7b8c9d0e1f2/mcp", "https://mcp.example/s/***/mcp"),
            ("ws://gw.example/a-long-name-without-numbers", "ws://gw.example/a-long-name-without-numbers"),
        ] {
            assert_eq!(shown(&url.parse().unwrap()), text);
        }
    }
}
