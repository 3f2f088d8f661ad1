//! Decides how a client learns where to get a token: the challenge in `WWW-Authenticate`, and the
//! metadata of RFC 9728.

use serde_json::{Value, json};

use super::{Identity, IdentityRefusal};

/// The path of the metadata; an endpoint's own path follows.
pub(crate) const METADATA: &str = "/.well-known/oauth-protected-resource";

impl Identity {
    /// The challenge for a client without an accepted credential.
    pub(super) fn challenge(&self, refusal: &IdentityRefusal, path: &str, host: &str) -> String {
        let mut parts = Vec::new();
        if let IdentityRefusal::Wrong(reason) = refusal {
            parts.push("error=\"invalid_token\"".to_owned());
            parts.push(format!("error_description=\"{}\"", quotable(reason)));
        }
        // API keys are handed out by the operator: there is nothing to discover.
        if !self.issuers.is_empty() {
            let (base, path) = (self.base(host), path.trim_end_matches('/'));
            parts.push(format!(
                "resource_metadata=\"{}{METADATA}{}\"",
                quotable(&base),
                quotable(path)
            ));
        }
        if !self.scopes.is_empty() {
            parts.push(format!("scope=\"{}\"", quotable(&self.scopes.join(" "))));
        }
        match parts.is_empty() {
            true => "Bearer realm=\"seawall\"".to_owned(),
            false => format!("Bearer {}", parts.join(", ")),
        }
    }

    /// The metadata of the endpoint at `path`; `scopes` are those of its server.
    pub(crate) fn metadata(&self, path: &str, host: &str, scopes: &[String]) -> Value {
        let issuers: Vec<&str> = self.issuers.iter().map(|issuer| issuer.url()).collect();
        let mut supported = self.scopes.clone();
        supported.extend(scopes.iter().filter(|scope| !self.scopes.contains(scope)).cloned());
        let mut metadata = json!({
            "resource": format!("{}{}", self.base(host), path.trim_end_matches('/')),
            "authorization_servers": issuers,
            "bearer_methods_supported": ["header"],
        });
        if !supported.is_empty() {
            metadata["scopes_supported"] = json!(supported);
        }
        metadata
    }

    /// The public address of the gateway: the configured one, or the one that the client used.
    fn base(&self, host: &str) -> String {
        self.resource.clone().unwrap_or_else(|| format!("http://{host}"))
    }
}

/// A text that may stand between quotes in a header.
fn quotable(text: &str) -> String {
    let is_plain = |c: &char| (' '..='~').contains(c) && *c != '"' && *c != '\\';
    text.chars().filter(is_plain).collect()
}
