//! The client of a gateway's admin API: sends a request, reads the answer, and words each failure
//! with its remedy.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client as Pool, Error};
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use serde_json::Value;

use super::address::AdminAddress;
use crate::admin::errors::{AdminRefusal, WRONG_TOKEN};
use crate::runtime::http_client::{self, HttpClient};

/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest answer, in bytes.
const LARGEST: usize = 64 << 20;

/// Why a request has no useful answer. Each text says what to do next.
#[derive(Debug)]
pub(crate) enum RemoteError {
    /// No gateway answers, or another program, or a gateway that cannot do it now.
    Unreachable(String),
    /// The token is missing or wrong.
    Auth(String),
    /// The request is wrong.
    Refused(StatusCode, String),
}

/// The client of one gateway.
#[derive(Debug)]
pub(crate) struct AdminClient {
    place: AdminAddress,
    wire: AdminTls,
}

/// Plain or TLS. Certificates are read only for TLS: a machine may have none.
#[derive(Debug)]
enum AdminTls {
    Plain(Pool<HttpConnector, Full<Bytes>>),
    Tls(HttpClient),
}

impl AdminTls {
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        match self {
            Self::Plain(pool) => pool.request(request).await,
            Self::Tls(pool) => pool.request(request).await,
        }
    }
}

impl AdminClient {
    /// A client of the gateway at `place`.
    pub(crate) fn new(place: AdminAddress) -> Result<Self, RemoteError> {
        let wire = if place.url.starts_with("https:") {
            AdminTls::Tls(
                http_client::SharedHttpClient::default()
                    .get()
                    .map_err(|failure| RemoteError::Unreachable(failure.to_string()))?,
            )
        } else {
            let mut tcp = HttpConnector::new();
            tcp.set_connect_timeout(Some(Duration::from_secs(5)));
            AdminTls::Plain(Pool::builder(TokioExecutor::new()).build(tcp))
        };
        Ok(Self { place, wire })
    }

    /// The gateway's address, as a person writes it.
    pub(crate) fn address(&self) -> &str {
        self.place.url.strip_prefix("http://").unwrap_or(&self.place.url)
    }

    /// Reads the resource at a path.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, RemoteError> {
        self.ask(Method::GET, path, "").await
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: &str,
    ) -> Result<Value, RemoteError> {
        let asked = async {
            let (status, response) = self.send(method, path, body).await?;
            let whole = Limited::new(response, LARGEST).collect().await;
            let bytes = whole.map_err(|error| self.unreachable(&error.to_string()))?.to_bytes();
            self.judged(status, serde_json::from_slice(&bytes).ok())
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => answer,
            Err(_) => {
                Err(RemoteError::Unreachable(format!("{} does not answer in time", self.address())))
            }
        }
    }

    /// Opens an event stream.
    pub(crate) async fn stream(&self, path: &str) -> Result<Incoming, RemoteError> {
        let head = tokio::time::timeout(PATIENCE, self.send(Method::GET, path, "")).await;
        let late =
            |_| RemoteError::Unreachable(format!("{} does not answer in time", self.address()));
        let (status, body) = head.map_err(late)??;
        if status == StatusCode::OK {
            return Ok(body);
        }
        let bytes = Limited::new(body, LARGEST)
            .collect()
            .await
            .map_err(|_| self.somebody_else(status))?
            .to_bytes();
        self.judged(status, serde_json::from_slice(&bytes).ok())?;
        Err(self.somebody_else(status))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: &str,
    ) -> Result<(StatusCode, Incoming), RemoteError> {
        let mut request =
            Request::builder().method(method).uri(format!("{}{path}", self.place.url));
        if let Some(token) = &self.place.token {
            request = request.header("authorization", format!("Bearer {}", token.expose()));
        }
        let request = request.body(Full::from(body.to_owned()));
        let request = request
            .map_err(|error| RemoteError::Refused(StatusCode::BAD_REQUEST, error.to_string()))?;
        let response = self.wire.send(request).await.map_err(|error| match error.is_connect() {
            true => RemoteError::Unreachable(format!(
                "no gateway answers at {}: is `seawall serve` running, and does its configuration have [admin]?",
                self.address()
            )),
            false => self.unreachable(&error.to_string()),
        })?;
        let (head, body) = response.into_parts();
        Ok((head.status, body))
    }

    /// The outcome of an answer with this status; `answer` is `None` if the body is no JSON.
    fn judged(&self, status: StatusCode, answer: Option<Value>) -> Result<Value, RemoteError> {
        let (address, answer) = (self.address(), answer.ok_or_else(|| self.somebody_else(status))?);
        let why = answer["error"].as_str();
        // A gateway that is not ready answers with a server error and a `status`, which is no
        // failure here.
        if status.is_success()
            || (status.is_server_error() && why.is_none() && answer["status"].is_string())
        {
            return Ok(answer);
        }
        let why = why.ok_or_else(|| self.somebody_else(status))?;
        Err(match status {
            StatusCode::UNAUTHORIZED => RemoteError::Auth(format!(
                "{address} wants its admin token: set SEAWALL_ADMIN_TOKEN, or give --config with the file that has it"
            )),
            StatusCode::FORBIDDEN => {
                self.barred(AdminRefusal::deserialize(&answer["refused"]).ok(), why)
            }
            _ if status.is_server_error() => RemoteError::Unreachable(format!(
                "{address} cannot do it now ({status}): {why}; its log may say more"
            )),
            _ => RemoteError::Refused(status, why.to_owned()),
        })
    }

    /// Why the gateway refuses the request, and the remedy.
    fn barred(&self, what: Option<AdminRefusal>, why: &str) -> RemoteError {
        let address = self.address();
        let not_so = |text| RemoteError::Refused(StatusCode::FORBIDDEN, text);
        match what {
            Some(AdminRefusal::Host) => not_so(format!(
                "{address} does not go by this name: add it to allowed_hosts in the gateway's configuration, or give --admin with a name it goes by"
            )),
            Some(AdminRefusal::Origin) => not_so(format!(
                "{address} does not take the Origin that something on the way adds: go around it, or add it to allowed_origins in the gateway's configuration"
            )),
            Some(AdminRefusal::NoToken) => RemoteError::Auth(format!(
                "{address} has no admin token, so nothing can be changed there; set token under [admin] in its configuration"
            )),
            None if why == WRONG_TOKEN => {
                RemoteError::Auth(format!("{address} does not take this token: {why}"))
            }
            None => RemoteError::Auth(format!("{address} refuses this: {why}")),
        }
    }

    fn unreachable(&self, why: &str) -> RemoteError {
        RemoteError::Unreachable(format!("the connection to {} was lost: {why}", self.address()))
    }

    fn somebody_else(&self, status: StatusCode) -> RemoteError {
        let address = self.address();
        RemoteError::Unreachable(match status.is_server_error() {
            true => format!(
                "{address} says {status}, and not in the words of a gateway: if a proxy stands before it, is `seawall serve` running behind?"
            ),
            false => format!(
                "what answers at {address} is no admin API of Seawall; [admin] listens on a port of its own, 7333 if nothing else is said"
            ),
        })
    }
}

/// A name, percent-encoded for a path or a query.
pub(crate) fn encoded(name: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_in_a_path_without_meaning_anything_there() {
        assert_eq!(encoded("gh__get_issue"), "gh__get_issue");
        assert_eq!(encoded("a/b?c d%é"), "a%2Fb%3Fc%20d%25%C3%A9");
    }
}
