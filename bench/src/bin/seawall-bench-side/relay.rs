//! The floor: hyper in, hyper-util's client out, bytes handed on as they come, nothing read.

use std::error::Error;

use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::{accept, listen};

/// Relays everything to the server at `to`.
pub(crate) async fn serve(to: Uri) -> Result<(), Box<dyn Error + Send + Sync>> {
    let authority = to.authority().ok_or("the URL has no host")?.clone();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(128).build(connector);
    let listener = listen().await?;
    loop {
        let tcp = accept(&listener).await?;
        let (client, authority) = (client.clone(), authority.clone());
        let service = service_fn(move |request| relay(client.clone(), authority.clone(), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(tcp), service));
    }
}

async fn relay(
    client: Client<HttpConnector, Incoming>,
    authority: Authority,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>, Box<dyn Error + Send + Sync>> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority);
    *request.uri_mut() = Uri::from_parts(parts)?;
    request.headers_mut().remove(HOST);
    Ok(client.request(request).await?)
}
