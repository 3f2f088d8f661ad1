//! Decides which public keys an issuer has now: fetched in the background, with the last good set
//! kept through an outage.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use jsonwebtoken::jwk::{Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use quick_cache::sync::Cache;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::IdentityRefusal;
use crate::config::JwksSource;
use crate::runtime::http_client::SharedHttpClient;
use crate::runtime::log;

/// How often the keys are fetched again.
const REFRESH: Duration = Duration::from_secs(300);
/// How soon they are fetched again after a failure, and how often a token with an unknown key may
/// cause it: anybody can write such a token.
pub(super) const AGAIN: Duration = Duration::from_secs(5);
/// How long one fetch may take.
const LIMIT: Duration = Duration::from_secs(5);
/// The largest set of keys, in bytes and in number.
const LARGEST: usize = 1024 * 1024;
const MOST: usize = 256;

/// One key of a set.
struct IssuerKey {
    id: Option<String>,
    algorithm: Option<KeyAlgorithm>,
    key: DecodingKey,
}

/// The keys of one issuer.
pub(super) struct IssuerKeys {
    issuer: String,
    source: JwksSource,
    http: SharedHttpClient,
    known: RwLock<Option<Arc<Vec<IssuerKey>>>>,
    generation: AtomicU64,
    /// When the keys were last fetched; held while they are.
    fetched: Mutex<Option<Instant>>,
    /// Names of keys that the issuer does not have: it took them back, or they were asked for
    /// right before a fetch.
    absent: Cache<String, ()>,
}

impl IssuerKeys {
    /// The keys of an issuer; none is fetched yet.
    pub(super) fn new(issuer: &str, source: JwksSource, http: SharedHttpClient) -> Self {
        Self {
            issuer: issuer.to_owned(),
            source,
            http,
            known: RwLock::default(),
            generation: AtomicU64::new(0),
            fetched: Mutex::default(),
            absent: Cache::new(MOST),
        }
    }

    /// Counts the sets of keys: a new number, new keys.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Fetches the keys now and then.
    pub(super) async fn refresh_for_ever(&self) {
        loop {
            let pause = match self.refresh().await {
                Ok(()) => REFRESH,
                Err(_) => AGAIN,
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// The keys that may have signed a token, and their generation. Keys that are not known are
    /// fetched, for the issuer may have new ones.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<(Vec<DecodingKey>, u64), IdentityRefusal> {
        let generation = self.generation();
        let before = self.fitting(id, algorithm);
        if let Some(keys) = before.as_ref().filter(|keys| !keys.is_empty()) {
            return Ok((keys.clone(), generation));
        }
        let fetched = self.refresh_soon().await;
        let generation = self.generation();
        let name = id.unwrap_or_default();
        match (self.fitting(id, algorithm), fetched) {
            (Some(keys), _) if !keys.is_empty() => return Ok((keys, generation)),
            (Some(_), Ok(())) => self.absent.insert(name.to_owned(), ()),
            // The issuer may have this key by now: that is unknown, and no fault of the client.
            (Some(_), Err(reason)) if self.absent.get(name).is_none() => {
                return Err(IdentityRefusal::Unavailable(reason));
            }
            (Some(_), Err(_)) => {}
            (None, Err(reason)) => return Err(IdentityRefusal::Unavailable(reason)),
            (None, Ok(())) => {
                let reason = "the token's issuer has no keys yet".to_owned();
                return Err(IdentityRefusal::Unavailable(reason));
            }
        }
        Err(IdentityRefusal::Wrong(
            "it is signed with a key that its issuer does not have".to_owned(),
        ))
    }

    fn fitting(&self, id: Option<&str>, algorithm: Algorithm) -> Option<Vec<DecodingKey>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        let fits = |key: &&IssuerKey| {
            let is_named = id.is_none_or(|id| key.id.as_deref().is_none_or(|own| own == id));
            let is_stated =
                key.algorithm.is_none_or(|own| format!("{own:?}") == format!("{algorithm:?}"));
            is_named && is_stated && key.key.family() == algorithm.family()
        };
        Some(known.iter().filter(fits).map(|key| key.key.clone()).collect())
    }

    /// Fetches the keys, unless they were fetched a moment ago.
    pub(super) async fn refresh_soon(&self) -> Result<(), String> {
        let mut fetched = self.fetched.lock().await;
        if fetched.is_some_and(|at| at.elapsed() < AGAIN) {
            let next = AGAIN.as_secs();
            return Err(format!(
                "the token's key is not known yet; the keys of its issuer are fetched again within {next} s"
            ));
        }
        *fetched = Some(Instant::now());
        self.fetch().await
    }

    /// Fetches the keys now.
    pub(super) async fn refresh(&self) -> Result<(), String> {
        let mut fetched = self.fetched.lock().await;
        *fetched = Some(Instant::now());
        self.fetch().await
    }

    async fn fetch(&self) -> Result<(), String> {
        let read = tokio::time::timeout(LIMIT, self.read()).await;
        let keys = read.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())));
        match keys.and_then(|bytes| parsed(&bytes)) {
            Ok(keys) => {
                let keys = Arc::new(keys);
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                if let Some(before) = known.replace(Arc::clone(&keys)) {
                    self.note_taken_back(&before, &keys);
                }
                drop(known);
                self.generation.fetch_add(1, Ordering::AcqRel);
                Ok(())
            }
            Err(reason) => {
                let has_keys = self.generation() > 0;
                let then = if has_keys {
                    "the last known ones are used"
                } else {
                    "no token can be verified"
                };
                log::warn(&format!("the keys of {} cannot be had: {reason}; {then}", self.issuer));
                Err(format!("the keys of the token's issuer cannot be had: {reason}"))
            }
        }
    }

    /// Notes the names of keys that the issuer has no longer.
    fn note_taken_back(&self, before: &[IssuerKey], now: &[IssuerKey]) {
        let is_there = |id: &str| now.iter().any(|key| key.id.as_deref() == Some(id));
        let names = before.iter().filter_map(|key| key.id.as_deref());
        for name in names.filter(|name| !is_there(name)) {
            self.absent.insert(name.to_owned(), ());
        }
    }

    async fn read(&self) -> Result<Bytes, String> {
        let url = match &self.source {
            JwksSource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
                let bytes = read.map_err(|error| error.to_string())?;
                return bytes.map(Bytes::from).map_err(|error| error.to_string());
            }
            JwksSource::Url(url) => url,
        };
        let request = Request::get(url.clone()).header("accept", "application/json");
        let request = request.body(Full::default()).map_err(|error| error.to_string())?;
        let answer = self.http.get()?.request(request).await;
        let answer = answer.map_err(|error| match error.is_connect() {
            true => "cannot connect".to_owned(),
            false => "the connection broke".to_owned(),
        })?;
        if answer.status() != StatusCode::OK {
            return Err(format!("HTTP status {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), LARGEST).collect().await;
        body.map(|body| body.to_bytes())
            .map_err(|_| "the answer broke off or is too large".to_owned())
    }
}

/// The usable keys of a set. Keys of kinds that nobody here knows are skipped; a set in which no
/// key is usable is no set.
fn parsed(bytes: &[u8]) -> Result<Vec<IssuerKey>, String> {
    let set: Value = serde_json::from_slice(bytes).map_err(|_| "it is not JSON".to_owned())?;
    let list = set.get("keys").and_then(Value::as_array).ok_or("it has no keys")?;
    let usable = |value: &Value| {
        let jwk: Jwk = serde_json::from_value(value.clone()).ok()?;
        let is_for_signing =
            jwk.common.public_key_use.as_ref().is_none_or(|used| *used == PublicKeyUse::Signature);
        let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| is_for_signing)?;
        Some(IssuerKey { id: jwk.common.key_id, algorithm: jwk.common.key_algorithm, key })
    };
    let keys: Vec<_> = list.iter().take(MOST).filter_map(usable).collect();
    // An issuer that takes back all its keys says so with an empty list.
    let is_taken_back = list.is_empty();
    if keys.is_empty() && !is_taken_back {
        Err("it has no usable key".to_owned())
    } else {
        Ok(keys)
    }
}
