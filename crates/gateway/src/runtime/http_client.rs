//! The HTTP client of the whole gateway: pooled connections, rustls, no redirects, no headers of
//! the downstream client.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// The client's type: hyper with rustls.
pub type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The client that all servers and authorizers share, built when the first of them needs it:
/// reading the system's certificates takes time, and a machine without certificates can still run
/// commands.
#[derive(Clone, Debug, Default)]
pub struct SharedHttpClient(Arc<OnceLock<Result<HttpClient, String>>>);

impl SharedHttpClient {
    /// The client, or the reason why it could not be built.
    pub fn get(&self) -> Result<HttpClient, String> {
        let made = self.0.get_or_init(|| client().map_err(|error| error.to_string()));
        made.clone().map_err(|error| format!("no certificates of this system can be read: {error}"))
    }
}

fn client() -> std::io::Result<HttpClient> {
    let mut tcp = HttpConnector::new();
    // The connector below TLS also gets https URLs.
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(Duration::from_secs(10)));
    tcp.set_keepalive(Some(Duration::from_secs(60)));
    let https = HttpsConnectorBuilder::new()
        .with_native_roots()?
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(128)
        .build(https))
}
