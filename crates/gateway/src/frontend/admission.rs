//! Decides which requests over HTTP are let in: those of clients that are known, where identity is
//! configured, and that may use the endpoint.

use std::sync::Arc;

use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};

use super::respond::{self, Body};
use crate::authz::identity::METADATA;
use crate::authz::{AccessControl, AuthzRefusal, CallOrigin, HttpRefusal, Principal};
use crate::catalog::names;
use crate::gateway::Gateway;
use crate::protocol::{Id, Message, hash};
use crate::route::Route;
use crate::trace::Tracer;

/// The origin of a request, or the response that refuses it.
pub(super) async fn admit(
    access: &AccessControl,
    tracer: &Tracer,
    parts: &Parts,
) -> Result<Arc<CallOrigin>, Box<Response<Body>>> {
    let (headers, path) = (&parts.headers, parts.uri.path());
    let seen = access.seen_headers(headers);
    let mut origin = CallOrigin::remote(host(parts), client(headers), seen);
    origin.trace = tracer.of_headers(headers);
    if let Some(identity) = &access.identity {
        // Boxed: where everybody may call, no call carries it.
        let found = Box::pin(identity.identify(headers, path))
            .await
            .map_err(|refusal| told(&refusal.refusal(identity, path, &origin.host), None))?;
        origin.caller = found.key();
        origin.principal = Some(found);
    }
    Ok(Arc::new(origin))
}

/// Refuses a caller that may not use an endpoint at all, or whose token lacks a scope for the call:
/// the client learns over HTTP which one, and may get another token.
pub(super) fn may_use(
    access: &AccessControl,
    route: &Route,
    principal: Option<&Arc<Principal>>,
    message: Option<&Message>,
) -> Result<(), Box<Response<Body>>> {
    let Some((identity, principal)) = access.identity.as_ref().zip(principal) else {
        return Ok(());
    };
    let id = message.and_then(Message::id);
    let name = message
        .filter(|message| message.method() == "tools/call")
        .and_then(|message| message.field_text("name"));
    let server = match (route.single(), &name) {
        (Some(server), _) => Some(server.name.as_str()),
        (None, Some(name)) => {
            names::split(&route.set.servers, name).map(|(server, _)| server.name.as_str())
        }
        (None, None) => None,
    };
    let usable = match route.single() {
        Some(server) => principal.may_use(&server.name),
        None => Ok(()),
    };
    let needed = [identity.scopes(), server.map_or(&[], |server| access.scopes(server))].concat();
    usable.and_then(|()| principal.has_scopes(&needed)).map_err(|refusal| told(&refusal, id))
}

fn told(refusal: &AuthzRefusal, id: Option<&Id>) -> Box<Response<Body>> {
    let error = refusal.error("");
    Box::new(set(respond::error(StatusCode::OK, id, &error), &refusal.http()))
}

/// The metadata of a protected endpoint (RFC 9728), for clients that have no token yet.
pub(super) fn metadata(gateway: &Gateway, request: &Request<impl Sized>) -> Option<Response<Body>> {
    let (now, route) = (gateway.now(), gateway.all());
    let identity = route.access.identity.as_ref().filter(|_| request.method() == Method::GET)?;
    let path = request.uri().path().strip_prefix(METADATA)?;
    let path = if path.is_empty() || path == "/" { "/mcp" } else { path };
    // An endpoint that does not exist is described like one that does: strangers learn no names.
    let server = now.route(path).and_then(|endpoint| endpoint.single());
    let scopes = server.map_or(&[][..], |server| route.access.scopes(&server.name));
    let host = request.uri().authority().map(|authority| authority.as_str().to_owned());
    let host = host.unwrap_or_else(|| text(request.headers().get(HOST)));
    let metadata = identity.metadata(path, &host, scopes);
    Some(respond::json(StatusCode::OK, bytes::Bytes::from(metadata.to_string())))
}

/// The response with the status and headers of a refusal.
pub(super) fn set(mut response: Response<Body>, refusal: &HttpRefusal) -> Response<Body> {
    *response.status_mut() = refusal.status;
    for (name, value) in &refusal.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    response
}

/// A name derived from the client's secret; clients without one cannot be told apart.
fn client(headers: &HeaderMap) -> Arc<str> {
    headers
        .get(http::header::AUTHORIZATION)
        .map(|secret| hash::key(&[secret.as_bytes()]))
        .unwrap_or_default()
        .into()
}

fn host(parts: &Parts) -> String {
    let of_uri = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    of_uri.unwrap_or_else(|| text(parts.headers.get(HOST)))
}

fn text(value: Option<&http::HeaderValue>) -> String {
    value.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}
