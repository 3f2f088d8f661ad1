//! Decides which requests a listener accepts: for an own host name, and from an own page or from no
//! page at all.
//!
//! A foreign web page can make a browser send requests to loopback under a foreign name (DNS
//! rebinding); the browser's `Host` and `Origin` headers reveal it.

use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Uri};

/// The host names and origins that a listener accepts besides loopback.
#[derive(Clone, Debug, Default)]
pub(crate) struct OriginGuard {
    /// Further host names, with or without port, in lower case.
    pub hosts: Vec<String>,
    /// Further origins, in lower case.
    pub origins: Vec<String>,
    /// Whether every host name is accepted: where clients show a token, a foreign page that gets
    /// through has none, and a gateway off loopback is known under many names.
    pub is_any_host: bool,
    /// Whether the listener serves pages: they may send requests to where they came from.
    pub has_pages: bool,
}

/// The foreign part of a request, with the text of its refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignRequest {
    /// The host name it was sent to.
    Host(&'static str),
    /// The origin of the page it comes from.
    Origin(&'static str),
}

impl ForeignRequest {
    /// The text of the refusal.
    pub(crate) fn why(self) -> &'static str {
        let (Self::Host(why) | Self::Origin(why)) = self;
        why
    }
}

impl OriginGuard {
    /// Refuses a request with a foreign host or origin.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), ForeignRequest> {
        let hosts: Vec<_> =
            headers.get_all(HOST).iter().map(|host| host.to_str().unwrap_or_default()).collect();
        if hosts.len() > 1 {
            return Err(ForeignRequest::Host("several Host headers"));
        }
        // The request line, or the pseudo-header of HTTP/2, may name a host too; each of them must
        // be ours, whichever one other software goes by.
        let mut said =
            hosts.into_iter().chain(uri.authority().map(|authority| authority.as_str())).peekable();
        if said.peek().is_none() {
            return Err(ForeignRequest::Host("no Host header"));
        }
        let host = said.peek().map(|host| host.to_ascii_lowercase()).unwrap_or_default();
        if !self.is_any_host && !said.all(|host| self.is_our_host(host)) {
            return Err(ForeignRequest::Host(
                "this Host is not served here; add it to allowed_hosts if it is yours",
            ));
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => Ok(()),
            (Some(_), Some(_)) => Err(ForeignRequest::Origin("several Origin headers")),
            (Some(origin), None)
                if origin.to_str().is_ok_and(|origin| self.is_our_origin(origin, &host)) =>
            {
                Ok(())
            }
            _ => Err(ForeignRequest::Origin(
                "this Origin is not welcome here; add it to allowed_origins if it is yours",
            )),
        }
    }

    fn is_our_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.hosts.contains(&host)
            || name(&host)
                .is_some_and(|name| is_loopback(name) || self.hosts.iter().any(|ours| ours == name))
    }

    /// `host` is the one that the request was sent to, and that is ours.
    fn is_our_origin(&self, origin: &str, host: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        self.origins.contains(&origin)
            || rest.and_then(name).is_some_and(is_loopback)
            || (self.has_pages && rest == Some(host))
    }
}

/// The name in `name:port`; `None` if the text has any other form.
fn name(host: &str) -> Option<&str> {
    let (name, rest) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest),
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port = rest.strip_prefix(':');
    let is_port = port.is_none_or(|port| {
        port.parse::<u16>().is_ok() && port.bytes().all(|byte| byte.is_ascii_digit())
    });
    (is_port && (rest.is_empty() || port.is_some())).then_some(name)
}

fn is_loopback(name: &str) -> bool {
    name == "localhost" || name == "127.0.0.1" || name == "::1"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &[&str], origin: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in host {
            headers.append(HOST, host.parse().unwrap());
        }
        for origin in origin {
            headers.append(ORIGIN, origin.parse().unwrap());
        }
        let guard = OriginGuard {
            hosts: vec!["mcp.example".into()],
            origins: vec!["https://app.example".into()],
            is_any_host: false,
            has_pages: false,
        };
        guard.check(&Uri::from_static("/mcp"), &headers).is_ok()
    }

    #[test]
    fn the_matrix_of_hosts_and_origins() {
        let hosts: [(&[&str], bool); 16] = [
            (&[], false),
            (&["localhost:7332"], true),
            (&["127.0.0.1:7332"], true),
            (&["[::1]:7332"], true),
            (&["LOCALHOST"], true),
            (&["mcp.example:80"], true),
            (&["evil.example:7332"], false),
            (&["localhost.evil.example"], false),
            (&["localhost."], false),
            (&["localhost@evil.example"], false),
            (&["user@localhost"], false),
            (&["127.0.0.1.evil.example"], false),
            (&["localhost:7332x"], false),
            (&["localhost:+80"], false),
            (&["[::1]evil"], false),
            (&["localhost", "evil.example"], false),
        ];
        let origins: [(&[&str], bool); 12] = [
            (&[], true),
            (&["http://localhost:3000"], true),
            (&["http://127.0.0.1"], true),
            (&["http://[::1]:80"], true),
            (&["https://app.example"], true),
            (&["https://evil.example"], false),
            (&["null"], false),
            (&["http://localhost.evil.example"], false),
            (&["http://localhost@evil.example"], false),
            (&["http://localhost/"], false),
            (&["file://localhost"], false),
            (&["http://localhost", "http://localhost"], false),
        ];
        for (host, host_is_ours) in hosts {
            for (origin, origin_is_ours) in origins {
                assert_eq!(
                    verdict(host, origin),
                    host_is_ours && origin_is_ours,
                    "{host:?} {origin:?}"
                );
            }
        }
    }

    #[test]
    fn a_page_of_the_listener_may_ask_where_it_came_from_and_nowhere_else() {
        let guard = |has_pages, is_any_host| OriginGuard {
            has_pages,
            is_any_host,
            ..OriginGuard::default()
        };
        let verdict = |guard: &OriginGuard, origin: &str| {
            let pairs = [(HOST, "10.0.0.5:7333"), (ORIGIN, origin)];
            let headers = pairs.map(|(name, value)| (name, value.parse().unwrap()));
            guard.check(&Uri::from_static("/"), &headers.into_iter().collect()).is_ok()
        };
        let own = "http://10.0.0.5:7333";
        assert!(verdict(&guard(true, true), own));
        assert!(!verdict(&guard(false, true), own), "a listener without pages");
        assert!(!verdict(&guard(true, false), own), "a host that is not ours: a rebound name");
        for foreign in ["http://10.0.0.5:7334", "http://10.0.0.5", "http://evil.example", "null"] {
            assert!(!verdict(&guard(true, true), foreign), "{foreign}");
        }
    }
}
