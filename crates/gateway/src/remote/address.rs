//! Finds the address and token of a gateway's admin API: from the command line, else from the
//! gateway's own configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use http::Uri;

use crate::config;
use crate::config::Secret;

/// The default address of the admin API.
const DEFAULT: &str = "127.0.0.1:7333";
/// The environment variable that holds the token.
const TOKEN: &str = "SEAWALL_ADMIN_TOKEN";

/// The admin API of a gateway.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AdminAddress {
    /// `http://127.0.0.1:7333`, without a path.
    pub url: String,
    /// The token to send.
    pub token: Option<Secret>,
}

impl AdminAddress {
    /// Finds the address and the token. `admin` is an address, `file` a configuration.
    pub(crate) fn find(
        admin: Option<&str>,
        file: Option<&Path>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let from_env = || env(TOKEN).filter(|token| !token.is_empty()).map(Secret::new);
        if let Some(admin) = admin {
            return Ok(Self { url: address(admin)?, token: from_env() });
        }
        let Some(path) = config::find(file, env) else {
            return Ok(Self { url: address(DEFAULT)?, token: from_env() });
        };
        let loaded = config::load(&path, env);
        let config = loaded.map_err(|problems| {
            format!("{problems}\nwithout a configuration: give --admin ADDRESS, and the token in {TOKEN}")
        })?;
        let Some(admin) = config.admin else {
            return Err(format!(
                "{} has no [admin] section, so its gateway lets no operator in; add one, or give --admin ADDRESS",
                path.display()
            ));
        };
        if admin.listen.port() == 0 {
            return Err(format!(
                "{} lets the system choose the port of [admin]; give --admin ADDRESS, as the gateway's log tells it",
                path.display()
            ));
        }
        Ok(Self { url: format!("http://{}", reachable(admin.listen)), token: admin.token })
    }
}

/// The address as a URL without a path; `http` if no scheme is given.
fn address(text: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "{text:?} is no address of a gateway; one looks like {DEFAULT} or https://gateway.example"
        )
    };
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = text.trim_end_matches('/').parse().map_err(|_| wrong())?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    match uri.authority().filter(|authority| is_web && !authority.as_str().contains('@')) {
        Some(authority) if matches!(uri.path(), "" | "/") && uri.query().is_none() => {
            Ok(format!("{}://{authority}", uri.scheme_str().unwrap_or("http")))
        }
        _ => Err(wrong()),
    }
}

/// The address to connect to; loopback for a gateway that listens on all interfaces.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_meant() {
        for (given, url) in [
            ("127.0.0.1:7333", "http://127.0.0.1:7333"),
            ("http://[::1]:7333/", "http://[::1]:7333"),
            ("https://gateway.example", "https://gateway.example"),
        ] {
            assert_eq!(address(given).as_deref(), Ok(url));
        }
        for wrong in [
            "",
            "ftp://x",
            "http://",
            "http://x/resilience",
            "http://me:secret@x",
            "http://x?y",
            "a b",
        ] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_configuration_says_where_and_with_what() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("seawall.toml");
        let env = |name: &str| (name == TOKEN).then(|| "from-env".to_owned());
        let find = |text: &str| {
            std::fs::write(&file, format!("{text}\n[servers.a]\ncommand = \"a\"\n")).unwrap();
            AdminAddress::find(None, Some(&file), &env)
        };
        let place = find("[admin]\nlisten = \"0.0.0.0:9\"\ntoken = \"${env:SEAWALL_ADMIN_TOKEN}\"")
            .unwrap();
        assert_eq!(
            (place.url.as_str(), place.token.unwrap().expose()),
            ("http://127.0.0.1:9", "from-env")
        );
        assert_eq!(
            find("[admin]\n").unwrap(),
            AdminAddress { url: "http://127.0.0.1:7333".to_owned(), token: None }
        );
        assert!(find("").unwrap_err().contains("has no [admin] section"));
        assert!(find("[admin]\nlisten = \"127.0.0.1:0\"").unwrap_err().contains("--admin"));
        let unset = |listen: &str| {
            find(&format!("[admin]\nlisten = {listen:?}\ntoken = \"${{env:NOT_SET}}\""))
        };
        assert_eq!(unset("127.0.0.1:7").unwrap().token, None, "who only looks needs none there");
        assert!(unset("0.0.0.0:7").unwrap_err().contains("--admin"));
        let given = AdminAddress::find(Some("127.0.0.1:1"), None, &env).unwrap();
        assert_eq!(
            (given.url.as_str(), given.token.unwrap().expose()),
            ("http://127.0.0.1:1", "from-env")
        );
    }
}
