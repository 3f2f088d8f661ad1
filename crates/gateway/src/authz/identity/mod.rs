//! Decides who a client is, from the credential of its request: a token of a known issuer, or an
//! API key.
//!
//! A credential that is wrong is told from keys that cannot be had: the first is the client's
//! fault, the second an outage.

mod challenge;
mod issuer;
mod keys;

use std::sync::Arc;

use futures_util::future::join_all;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use quick_cache::sync::Cache;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::origin::Principal;
use super::refusal::AuthzRefusal;
use crate::config::{ApiKeyConfig, IdentityConfig, JwtConfig};
use crate::runtime::http_client::SharedHttpClient;
use crate::runtime::lifecycle::Lifecycle;
pub(crate) use challenge::METADATA;
use issuer::Issuer;

/// Verified tokens that are remembered until they expire; the least used give way.
const REMEMBERED: usize = 4_096;
/// The header of API keys, beside `Authorization: Bearer`.
const API_KEY: &str = "x-api-key";

/// How the clients of a gateway are recognized.
pub(crate) struct Identity {
    issuers: Vec<Arc<Issuer>>,
    api_keys: Vec<ApiKeyConfig>,
    resource: Option<String>,
    scopes: Vec<String>,
    verified: Cache<[u8; 32], VerifiedToken>,
}

/// A token that was verified, and until when it is one.
#[derive(Clone)]
struct VerifiedToken {
    principal: Arc<Principal>,
    /// When it expires, in seconds since 1970.
    expires: u64,
    /// The key set that it was verified with: another set may lack its key.
    generation: u64,
}

/// Why a client is not recognized.
#[derive(Debug)]
pub(crate) enum IdentityRefusal {
    /// It sent no credential.
    Missing,
    /// Its credential is not accepted, for this reason.
    Wrong(String),
    /// The issuer's keys cannot be had now.
    Unavailable(String),
}

/// A client's credential, as it sent it.
enum Credential<'a> {
    Bearer(&'a str),
    ApiKey(&'a str),
}

impl Identity {
    /// The identities of a configuration; an issuer that was known before keeps its keys.
    pub(crate) fn new(
        settings: &IdentityConfig,
        before: Option<&Self>,
        http: &SharedHttpClient,
    ) -> Self {
        let known = |settings: &JwtConfig| {
            before.and_then(|before| before.issuers.iter().find(|it| it.settings == *settings))
        };
        let issuer = |settings: &JwtConfig| match known(settings) {
            Some(known) => Arc::clone(known),
            None => Arc::new(Issuer::new(settings, http)),
        };
        Self {
            issuers: settings.jwt.iter().map(issuer).collect(),
            api_keys: settings.api_keys.clone(),
            resource: settings.resource.clone(),
            scopes: settings.scopes.clone(),
            verified: Cache::new(REMEMBERED),
        }
    }

    /// Fetches the issuers' keys from now on, until the gateway ends or the issuer is dropped.
    pub(crate) fn start(&self, lifecycle: &Lifecycle) {
        for issuer in self.issuers.iter().filter(|issuer| issuer.starts()) {
            let (issuer, ended) = (Arc::clone(issuer), lifecycle.ended.clone());
            lifecycle.spawn(async move {
                tokio::select! {
                    () = issuer.keys.refresh_for_ever() => {}
                    () = issuer.dropped.cancelled() => {}
                    () = ended.cancelled() => {}
                }
            });
        }
    }

    /// Fetches no more keys of issuers that `next` does not have.
    pub(crate) fn stop_all_but(&self, next: Option<&Self>) {
        let goes_on = |issuer: &&Arc<Issuer>| {
            next.is_some_and(|next| next.issuers.iter().any(|it| Arc::ptr_eq(it, issuer)))
        };
        for issuer in self.issuers.iter().filter(|issuer| !goes_on(issuer)) {
            issuer.dropped.cancel();
        }
    }

    /// Fetches the keys of every issuer once: its name, and why they cannot be had, if so.
    pub(crate) async fn try_keys(&self) -> Vec<(String, Result<(), String>)> {
        let fetches = self
            .issuers
            .iter()
            .map(|issuer| async { (issuer.url().to_owned(), issuer.keys.refresh().await) });
        join_all(fetches).await
    }

    /// Who sends a request to an endpoint.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Arc<Principal>, IdentityRefusal> {
        match credential(headers)? {
            Credential::ApiKey(key) => self
                .api_key(key)
                .ok_or_else(|| IdentityRefusal::Wrong("unknown API key".to_owned())),
            Credential::Bearer(token) => match self.api_key(token) {
                Some(principal) => Ok(principal),
                None => self.token(token, &self.resource_of(path)).await,
            },
        }
    }

    fn api_key(&self, key: &str) -> Option<Arc<Principal>> {
        // Digests are compared, so the time it takes tells nothing about a key.
        let digest: [u8; 32] = Sha256::digest(key).into();
        let known = self.api_keys.iter().find(|known| known.sha256 == digest)?;
        let claims = Map::from_iter([("sub".to_owned(), Value::from(known.name.as_str()))]);
        Some(Arc::new(Principal {
            provider: "api key".to_owned(),
            subject: known.name.clone(),
            claims,
            scopes: None,
            servers: known.servers.clone(),
        }))
    }

    async fn token(&self, token: &str, resource: &str) -> Result<Arc<Principal>, IdentityRefusal> {
        let issuer = Issuer::of(&self.issuers, token)?;
        let name = Sha256::new().chain_update(resource).chain_update([0]).chain_update(token);
        let name: [u8; 32] = name.finalize().into();
        let now = jsonwebtoken::get_current_timestamp();
        if let Some(known) = self.verified.get(&name)
            && known.expires > now
            && known.generation == issuer.keys.generation()
        {
            return Ok(known.principal);
        }
        let (principal, expires, generation) = issuer.verify(token, resource).await?;
        let principal = Arc::new(principal);
        let known = VerifiedToken { principal: Arc::clone(&principal), expires, generation };
        self.verified.insert(name, known);
        Ok(principal)
    }

    /// A caller as the configuration knows it now; `None` if its key or its issuer was taken out.
    pub(crate) fn known_now(&self, kept: Principal) -> Option<Principal> {
        let servers = match kept.scopes {
            None => &self.api_keys.iter().find(|key| key.name == kept.subject)?.servers,
            Some(_) => self.issuers.iter().find(|issuer| issuer.url() == kept.provider)?.servers(),
        };
        Some(Principal { servers: servers.clone(), ..kept })
    }

    /// The scopes that a token needs everywhere.
    pub(crate) fn scopes(&self) -> &[String] {
        &self.scopes
    }

    /// The resource URI of an endpoint; empty if no public address is configured.
    fn resource_of(&self, path: &str) -> String {
        let base = self.resource.as_deref();
        base.map(|base| format!("{base}{}", path.trim_end_matches('/'))).unwrap_or_default()
    }
}

impl IdentityRefusal {
    /// How the client is told: 401 with a challenge, or 503 where only the keys are missing.
    pub(crate) fn refusal(&self, identity: &Identity, path: &str, host: &str) -> AuthzRefusal {
        let words = match self {
            Self::Unavailable(reason) => {
                return AuthzRefusal::unavailable(503, reason.clone(), keys::AGAIN);
            }
            Self::Missing => "a token is needed: send Authorization: Bearer <token>".to_owned(),
            Self::Wrong(reason) => format!("the token is not accepted: {reason}"),
        };
        let mut denied = AuthzRefusal::denied(401, words);
        let challenge = HeaderValue::from_str(&identity.challenge(self, path, host));
        if let (AuthzRefusal::Denied { headers, .. }, Ok(challenge)) = (&mut denied, challenge) {
            headers.insert(http::header::WWW_AUTHENTICATE, challenge);
        }
        denied
    }
}

/// The one credential of a request. Of two, different readers might believe different ones.
fn credential(headers: &HeaderMap) -> Result<Credential<'_>, IdentityRefusal> {
    let wrong = |text: &str| IdentityRefusal::Wrong(text.to_owned());
    let all: Vec<_> =
        headers.get_all(AUTHORIZATION).iter().chain(headers.get_all(API_KEY)).collect();
    let value = match all.as_slice() {
        [] => return Err(IdentityRefusal::Missing),
        [value] if value.is_empty() => return Err(wrong("it is empty")),
        [value] => value.to_str().map_err(|_| wrong("it is not plain text"))?,
        _ => return Err(wrong("the request carries more than one credential")),
    };
    if headers.contains_key(API_KEY) {
        return Ok(Credential::ApiKey(value.trim()));
    }
    match value.split_once(' ') {
        Some((scheme, token))
            if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() =>
        {
            Ok(Credential::Bearer(token.trim()))
        }
        _ => Err(wrong("Authorization must be: Bearer <token>")),
    }
}
