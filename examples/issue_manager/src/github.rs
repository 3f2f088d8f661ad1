//! Decides how GitHub is asked, and what is known when it does not answer well: here an HTTP failure
//! becomes [`FailureSignals`]. What those mean is decided by the library.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use seawall::{FailureSignals, Sent, TransportFailure};
use seawall_gateway::http_client::{HttpClient, SharedHttpClient};
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

/// The most that is read of an answer. A page of a hundred issues with long texts has a tenth.
const ANSWER: usize = 16 << 20;

/// GitHub's REST API.
pub(crate) struct GitHub {
    http: HttpClient,
    base: Url,
    token: Option<HeaderValue>,
}

/// One request to the API.
pub(crate) struct Asked<'a> {
    pub(crate) method: Method,
    /// The path below the base, segment by segment, so that no argument can lead to another path.
    pub(crate) path: &'a [&'a str],
    /// An object whose fields are the query.
    pub(crate) query: Value,
    pub(crate) body: Option<Value>,
}

impl GitHub {
    pub(crate) fn new(base: Url, token: Option<HeaderValue>) -> Result<Self, String> {
        Ok(Self { http: SharedHttpClient::default().get()?, base, token })
    }

    /// Sends a request. Everything the library needs to know about a failure is gathered here.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        asked: Asked<'_>,
    ) -> Result<T, FailureSignals> {
        let request = self.request(asked)?;
        let response = self.http.request(request).await.map_err(|error| {
            let signals = FailureSignals::from_error(&error);
            // Whether GitHub acted is unknown unless the connection was never made.
            if error.is_connect() { signals.with_sent(Sent::Never) } else { signals }
        })?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER).collect().await;
        if !head.status.is_success() {
            let body = body.map(|body| body.to_bytes()).unwrap_or_default();
            return Err(refused(&Response::from_parts(head, body)));
        }
        let body = body.map_err(|error| FailureSignals::from_error(&*error))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| {
            FailureSignals::transport(TransportFailure::Garbage, format!("GitHub API: {error}"))
        })
    }

    fn request(&self, asked: Asked<'_>) -> Result<Request<Full<Bytes>>, FailureSignals> {
        let url = self.url(asked.path, &asked.query);
        let mut request = Request::builder()
            .method(asked.method)
            .uri(url.as_str())
            .header(ACCEPT, "application/vnd.github+json")
            .header("x-github-api-version", "2022-11-28")
            .header(USER_AGENT, concat!("seawall-issue-manager/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let body = asked.body.map(|body| body.to_string());
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request.body(Full::from(body.unwrap_or_default())).map_err(|error| {
            FailureSignals::text(format!("no request can be made of {url}: {error}"))
                .with_sent(Sent::Never)
        })
    }

    fn url(&self, path: &[&str], query: &Value) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        for (name, value) in query.as_object().into_iter().flatten() {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            url.query_pairs_mut().append_pair(name, &text);
        }
        url
    }
}

/// GitHub answered with another status than success.
fn refused(response: &Response<Bytes>) -> FailureSignals {
    let status = response.status();
    let pause = pause(response.headers(), wall_clock());
    FailureSignals::http(status.as_u16(), format!("GitHub API: {status}"))
        .with_body(String::from_utf8_lossy(response.body()))
        .with_retry_after(pause.as_deref(), wall_clock())
}

/// How long GitHub wants to be left alone: `Retry-After`, or the time at which a used up quota is
/// filled again.
fn pause(headers: &HeaderMap, now: SystemTime) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(asked) = text(RETRY_AFTER.as_str()) {
        return Some(asked.to_owned());
    }
    let full_at: u64 = text("x-ratelimit-reset")
        .filter(|_| text("x-ratelimit-remaining") == Some("0"))?
        .parse()
        .ok()?;
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Some(full_at.saturating_sub(now).max(1).to_string())
}

#[expect(clippy::disallowed_methods, reason = "GitHub names times of day in its headers")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops")]

    use std::time::Duration;

    use super::*;
    use serde_json::json;

    #[test]
    fn an_argument_leads_to_no_other_path_and_a_base_keeps_its_own() {
        let github = GitHub::new("https://git.example/api/v3/".parse().unwrap(), None).unwrap();
        let url = github.url(&["repos", "a/../b", "..", "issues"], &json!({"q": "a b&c", "n": 3}));
        assert_eq!(
            url.as_str(),
            "https://git.example/api/v3/repos/a%2F..%2Fb/issues?n=3&q=a+b%26c"
        );
    }

    #[test]
    fn a_used_up_quota_is_waited_for() {
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let headers = |all: &[(&'static str, &'static str)]| {
            all.iter()
                .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                .collect()
        };
        let empty = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1060")];
        assert_eq!(pause(&headers(&empty), now).as_deref(), Some("60"));
        let left = [("x-ratelimit-remaining", "9"), ("x-ratelimit-reset", "1060")];
        assert_eq!(pause(&headers(&left), now), None);
        assert_eq!(pause(&headers(&[("retry-after", "7")]), now).as_deref(), Some("7"));
    }
}
