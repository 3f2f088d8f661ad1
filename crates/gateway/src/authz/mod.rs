//! Who calls, and whether they may: `identity` finds out who a client is, `external` asks the
//! operator's authorizer about a call.
//!
//! A check has three outcomes, never two: allowed, denied, or nobody can say now. A denial is final
//! and is told in the authorizer's own words. An outage is no denial: the client may try again, and
//! until then nothing is allowed.

pub(crate) mod external;
pub(crate) mod identity;
mod origin;
mod refusal;

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use seawall::{Env, Invalid};
use sha2::{Digest, Sha256};

pub(crate) use origin::{CallOrigin, Principal};
pub(crate) use refusal::{AuthzRefusal, HttpRefusal};

use crate::config::{ALL_HEADERS, Config, ExtAuthzConfig, PassedHeader, ServerAuthz};
use crate::runtime::http_client::SharedHttpClient;
use crate::runtime::lifecycle::Lifecycle;
use external::question::CheckQuestion;
use external::{Allowance, ExternalAuthorizer};
use identity::Identity;

/// Who may use the servers of a gateway.
#[derive(Default)]
pub(crate) struct AccessControl {
    /// How clients are recognized; `None`: everybody who reaches the gateway may call.
    pub identity: Option<Arc<Identity>>,
    servers: HashMap<String, AccessRules>,
    /// The headers of clients that an authorizer or a server gets to see.
    wanted_headers: Vec<HeaderName>,
    is_all_open: bool,
}

/// Who may use one server.
#[derive(Clone, Default)]
struct AccessRules {
    external: Option<Arc<ExternalAuthorizer>>,
    scopes: Vec<String>,
    pass_headers: Vec<PassedHeader>,
}

impl AccessRules {
    fn are_plain(&self) -> bool {
        self.external.is_none() && self.pass_headers.is_empty()
    }
}

impl AccessControl {
    /// The rules of a configuration. What `before` knows of the same issuers and authorizers goes
    /// on: their keys, connections and breakers.
    pub(crate) fn new(
        config: &Config,
        before: Option<&Self>,
        http: &SharedHttpClient,
        env: &Env,
    ) -> Result<Self, Invalid> {
        let authorizer = |settings: &ExtAuthzConfig| {
            let rules = before.iter().flat_map(|before| before.servers.values());
            let mut known = rules.filter_map(|rules| rules.external.as_ref());
            match known.find(|known| known.settings == *settings) {
                Some(known) => Ok(known.without_decisions()),
                None => ExternalAuthorizer::new(settings, http, env),
            }
        };
        let shared = config.ext_authz.as_ref().map(authorizer).transpose()?;
        let mut servers = HashMap::new();
        for server in &config.servers {
            let external = match &server.access.authz {
                ServerAuthz::Inherited => shared.clone(),
                ServerAuthz::Off => None,
                ServerAuthz::Own(settings) => Some(authorizer(settings)?),
            };
            let scopes = server.access.scopes.clone();
            let pass_headers = server.access.pass_headers.clone();
            servers.insert(server.name.clone(), AccessRules { external, scopes, pass_headers });
        }
        let mut wanted_headers: Vec<HeaderName> = servers
            .values()
            .flat_map(|rules| {
                let external = rules.external.iter().flat_map(|own| own.settings.headers.clone());
                external.chain(rules.pass_headers.iter().map(|rule| rule.from.clone()))
            })
            .collect();
        wanted_headers.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        wanted_headers.dedup();
        let known = before.and_then(|before| before.identity.as_deref());
        let identity =
            config.identity.as_ref().map(|settings| Arc::new(Identity::new(settings, known, http)));
        let is_all_open = identity.is_none() && servers.values().all(AccessRules::are_plain);
        Ok(Self { identity, servers, wanted_headers, is_all_open })
    }

    /// Fetches the keys of issuers from now on, and no longer those that only `before` knows.
    pub(crate) fn start(&self, before: Option<&Self>, lifecycle: &Lifecycle) {
        if let Some(identity) = &self.identity {
            identity.start(lifecycle);
        }
        if let Some(before) = before.and_then(|before| before.identity.as_ref()) {
            before.stop_all_but(self.identity.as_deref());
        }
    }

    /// The headers of a request that an authorizer or a server gets to see.
    pub(crate) fn seen_headers(&self, headers: &HeaderMap) -> HeaderMap {
        if self.wanted_headers.iter().any(|name| name == ALL_HEADERS) {
            return headers.clone();
        }
        let mut seen = HeaderMap::new();
        for name in &self.wanted_headers {
            for value in headers.get_all(name) {
                seen.append(name.clone(), value.clone());
            }
        }
        seen
    }

    /// Whether everybody who reaches the gateway may use every server, and none gets anything of
    /// them: then no call has to be looked at.
    pub(crate) fn is_all_open(&self) -> bool {
        self.is_all_open
    }

    /// Whether everybody who reaches the gateway may use the server, and it gets nothing of them.
    pub(crate) fn is_open(&self, server: &str) -> bool {
        self.is_all_open
            || self.identity.is_none()
                && self.servers.get(server).is_none_or(AccessRules::are_plain)
    }

    /// The external authorizer of a server.
    pub(crate) fn external(&self, server: &str) -> Option<&Arc<ExternalAuthorizer>> {
        self.servers.get(server)?.external.as_ref()
    }

    /// The scopes that a token needs for a server.
    pub(crate) fn scopes(&self, server: &str) -> &[String] {
        self.servers.get(server).map_or(&[], |rules| &rules.scopes)
    }

    /// A caller as a queued write keeps it: with the claims that the server's authorizer sees, and
    /// no others.
    pub(crate) fn kept(&self, server: &str, principal: &Principal) -> Principal {
        let settings = self.external(server).map(|external| &external.settings);
        let is_seen = |claim: &String| {
            settings.is_some_and(|settings| {
                settings.claims.values().any(|claims| claims.contains(claim))
            })
        };
        let mut kept = principal.clone();
        kept.claims.retain(|claim, _| is_seen(claim));
        kept
    }

    /// Decides whether a call may reach a server. First whoever calls must be somebody who may use
    /// the server at all; then the server's authorizer decides.
    pub(crate) async fn check(
        &self,
        question: &CheckQuestion<'_>,
    ) -> Result<Allowance, AuthzRefusal> {
        let Some(rules) = self.servers.get(question.server) else {
            return Ok(Allowance::default());
        };
        if let Some(principal) = &question.origin.principal {
            principal.may_use(question.server)?;
            principal.has_scopes(&rules.scopes)?;
        } else if self.identity.is_some() && !question.origin.is_local {
            return Err(AuthzRefusal::denied(401, "the caller is not known"));
        }
        let mut allowed = match &rules.external {
            Some(external) => external.check(question).await?,
            None => Allowance::default(),
        };
        for (name, value) in self.passed(question.server, question.origin).headers {
            allowed.pass(name, value);
        }
        Ok(allowed)
    }

    /// The headers of a client that a server gets by its own rules.
    pub(crate) fn passed(&self, server: &str, origin: &CallOrigin) -> Allowance {
        let mut passed = Allowance::default();
        for rule in self.servers.get(server).into_iter().flat_map(|rules| &rules.pass_headers) {
            if let Some(value) = rule.value(origin.headers.get(&rule.from)) {
                passed.pass(rule.to.clone(), value);
            }
        }
        passed
    }
}

/// A name for what `parts` say, which nobody can find other parts for: clients choose some of them.
fn digest(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        // The length separates the parts.
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
