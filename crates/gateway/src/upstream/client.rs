//! The one HTTP client: pooled connections, rustls, no redirects, nothing of the downstream client forwarded.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// The client that all servers share.
pub type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Makes it. Called once, at the start.
pub fn client() -> std::io::Result<HttpClient> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(Duration::from_secs(10)));
    tcp.set_keepalive(Some(Duration::from_secs(60)));
    let https =
        HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_all_versions().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(30))
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(128)
        .build(https))
}
