//! Where a call comes from: the caller as far as it is known, and what of the HTTP request an
//! authorizer may see.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::HeaderMap;
use jsonwebtoken::get_current_timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::digest;
use super::refusal::{AuthzRefusal, HttpRefusal};
use crate::trace::context::TraceContext;

/// A caller whose identity was verified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Principal {
    /// The issuer of the token, or the kind of the key, that says so.
    pub provider: String,
    /// The caller's name there: a token's `sub`, or the name of an API key.
    pub subject: String,
    /// The claims of the token.
    pub claims: Map<String, Value>,
    /// The scopes of the token; `None` for API keys, which have none and need none.
    pub scopes: Option<Vec<String>>,
    /// The servers that the caller may use; `None`: all.
    pub servers: Option<Vec<String>>,
}

impl Principal {
    /// The name of the caller for ledgers, caches and queues. A caller who renews the token keeps
    /// it; no other provider can issue it.
    pub(crate) fn key(&self) -> Arc<str> {
        digest(&[self.provider.as_bytes(), self.subject.as_bytes()]).into()
    }

    /// Whether the caller may use a server at all.
    pub(crate) fn may_use(&self, server: &str) -> Result<(), AuthzRefusal> {
        let is_named = |servers: &Vec<String>| servers.iter().any(|name| name == server);
        match self.servers.as_ref().is_none_or(is_named) {
            true => Ok(()),
            false => Err(AuthzRefusal::denied(
                403,
                format!("{} may not use the server {server}", self.subject),
            )),
        }
    }

    /// Whether the caller's token has all of `scopes`.
    pub(crate) fn has_scopes(&self, scopes: &[String]) -> Result<(), AuthzRefusal> {
        let Some(own) = &self.scopes else { return Ok(()) };
        let missing: Vec<&str> =
            scopes.iter().filter(|scope| !own.contains(scope)).map(String::as_str).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(AuthzRefusal::scopes(scopes, &missing)),
        }
    }
}

/// How far the clocks of an issuer and of the gateway may differ, in seconds.
pub(super) const LEEWAY: u64 = 30;

/// Where one call comes from.
#[derive(Debug, Default)]
pub(crate) struct CallOrigin {
    /// The caller, where identity is configured.
    pub principal: Option<Arc<Principal>>,
    /// The caller's name for caches: from its identity or its credential; empty without one.
    pub caller: Arc<str>,
    /// The headers of the request that an authorizer or a server may see.
    pub headers: HeaderMap,
    /// The `Host` of the request.
    pub host: String,
    /// Whether the client started this very process and talks to it over a pipe: it needs no
    /// identity.
    pub is_local: bool,
    /// The trace context in the headers of the request, while calls are traced.
    pub trace: Option<TraceContext>,
    /// How HTTP tells that the call was not allowed, once it was refused.
    refused: OnceLock<HttpRefusal>,
}

impl CallOrigin {
    /// The origin of a client on stdio.
    pub(crate) fn local() -> Self {
        Self { is_local: true, ..Self::default() }
    }

    /// The origin of a request over HTTP.
    pub(crate) fn remote(host: String, caller: Arc<str>, headers: HeaderMap) -> Self {
        Self { host, caller, headers, ..Self::default() }
    }

    /// The origin of a call that was kept for later: the caller is known, the request is gone.
    pub(crate) fn of_kept(principal: Option<Principal>, caller: &str) -> Self {
        Self {
            is_local: principal.is_none(),
            principal: principal.map(Arc::new),
            caller: caller.into(),
            ..Self::default()
        }
    }

    /// When the caller's token is accepted no more; `None` for a caller without one.
    pub(crate) fn expires(&self) -> Option<Instant> {
        let expires = self.principal.as_ref()?.claims.get("exp")?.as_f64()?;
        // A second more: a client that comes back with the same token must not be let in again.
        let seconds = expires + (LEEWAY + 1) as f64 - get_current_timestamp() as f64;
        Instant::now().checked_add(Duration::try_from_secs_f64(seconds.max(0.0)).ok()?)
    }

    /// Notes how HTTP is to tell a refusal.
    pub(crate) fn refuse(&self, refusal: HttpRefusal) {
        let _first_wins = self.refused.set(refusal);
    }

    /// How HTTP is to tell that the call was refused, if it was.
    pub(crate) fn refused(&self) -> Option<&HttpRefusal> {
        self.refused.get()
    }
}
