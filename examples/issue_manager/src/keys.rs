//! Decides who may speak HTTP: whoever sends one of the keys as `X-API-Key`, and each key so often
//! within a minute.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use seawall::{Clock, Invalid, Rate, RateLimiter, whole_seconds};
use serde_json::json;

/// Who makes a request: the place of his key in the list, for the key itself is a secret.
#[derive(Clone)]
pub(crate) struct Client(pub(crate) Arc<str>);

/// The keys, each with its rate.
pub(crate) struct Keys {
    known: Vec<(String, Client, RateLimiter)>,
    /// Whoever guesses keys has one rate together.
    strangers: RateLimiter,
}

impl Keys {
    pub(crate) fn new(keys: &[String], per_minute: u32, clock: &Clock) -> Result<Self, Invalid> {
        let rate = Rate { count: per_minute, per: Duration::from_secs(60), burst: per_minute };
        let known = keys.iter().enumerate().map(|(place, key)| {
            let client = Client(format!("key {}", place + 1).into());
            Ok((key.clone(), client, RateLimiter::new(rate, clock)?))
        });
        Ok(Self {
            known: known.collect::<Result<_, Invalid>>()?,
            strangers: RateLimiter::new(rate, clock)?,
        })
    }

    fn check(&self, headers: &HeaderMap) -> Result<Client, Refusal> {
        let Some(given) = headers.get("x-api-key") else {
            self.strangers.check().map_err(Refusal::TooMany)?;
            return Err(Refusal::Missing);
        };
        let mut found = None;
        for known in &self.known {
            // Every key is compared, and all of it, so that the time tells nothing.
            if is_same(known.0.as_bytes(), given.as_bytes()) {
                found = Some(known);
            }
        }
        let Some((_, client, rate)) = found else {
            self.strangers.check().map_err(Refusal::TooMany)?;
            return Err(Refusal::Unknown);
        };
        rate.check().map_err(Refusal::TooMany)?;
        Ok(client.clone())
    }
}

/// The layer before every route that is not public.
pub(crate) async fn admit(
    State(keys): State<Arc<Keys>>,
    mut request: Request,
    next: Next,
) -> Response {
    match keys.check(request.headers()) {
        Ok(client) => {
            request.extensions_mut().insert(client);
            next.run(request).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    let different = one.iter().zip(other).fold(0, |seen, (one, other)| seen | (one ^ other));
    one.len() == other.len() && different == 0
}

/// Why a request is not served.
enum Refusal {
    Missing,
    Unknown,
    TooMany(Duration),
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Missing => refused(StatusCode::UNAUTHORIZED, "Missing X-API-Key header"),
            Self::Unknown => refused(StatusCode::FORBIDDEN, "Invalid API key"),
            Self::TooMany(wait) => {
                let mut response = refused(StatusCode::TOO_MANY_REQUESTS, "Too many requests");
                response.headers_mut().insert(RETRY_AFTER, whole_seconds(wait).into());
                response
            }
        }
    }
}

pub(crate) fn refused(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({"error": error}))).into_response()
}
