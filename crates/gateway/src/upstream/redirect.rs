//! Decides which redirects are followed: those of a handshake to another path of the same origin.
//!
//! Frameworks redirect `/mcp` to `/mcp/`, and the clients that people use follow. Another origin
//! would get the operator's headers, credentials among them, so it is named and not followed; nor
//! is a redirect of a request in an open conversation.

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;

use super::{UpstreamFailure, endpoint, response};
use crate::runtime::http_client::HttpClient;

/// How many redirects in a row are followed.
const MOST: usize = 3;

/// Sends a request to wherever its server redirects it within its origin; returns the address that
/// answered too.
pub(super) async fn send(
    client: &HttpClient,
    mut request: Request<Full<Bytes>>,
) -> Result<(Response<Incoming>, Uri), UpstreamFailure> {
    for _ in 0..MOST {
        let mut next = request.clone();
        let response = response::send(client, request).await?;
        let url = next.uri();
        let Some(there) = target(&response, next.method(), url) else {
            return Ok((response, url.clone()));
        };
        *next.uri_mut() = there;
        request = next;
    }
    let url = request.uri().clone();
    Ok((response::send(client, request).await?, url))
}

/// The address of the same origin that a response redirects to. A POST stays one only with these
/// two statuses.
fn target(response: &Response<Incoming>, method: &Method, url: &Uri) -> Option<Uri> {
    let is_followed = match response.status().as_u16() {
        307 | 308 => true,
        301..=303 => method == Method::GET,
        _ => false,
    };
    let location = response.headers().get(LOCATION).filter(|_| is_followed)?;
    endpoint::of(url, location.as_bytes()).ok()
}

/// Where a response redirects to, for people.
pub(super) fn named(status: u16, headers: &HeaderMap) -> Option<String> {
    let location = headers.get(LOCATION).filter(|_| (300..400).contains(&status))?;
    Some(format!("it redirects to {}", location.to_str().ok()?))
}
