//! Decides how a configuration is shown in agentgateway's shape, for what reads its `/config`.
//!
//! CAIPE's sidecar takes this answer, changes the routes and writes it back as the file: what says
//! who may call must survive that. What the shape has no words for stands under `seawall`, which
//! is refused in a file: so a restriction is never lost. Nothing secret is shown: no header's
//! value, no argument, no variable's value.

use http::Uri;
use serde_json::{Map, Value, json};

use super::expression;
use crate::config::duration::spelled;
use crate::config::place;
use crate::config::{
    Config, ExtAuthzConfig, IdentityConfig, JwksSource, JwtConfig, SecretTexts, ServerAuthz,
    ServerConfig, Transport,
};

/// Where rules stand that only Seawall has.
const OWN: &str = "seawall";

/// The whole configuration.
pub(crate) fn shape(config: &Config) -> Value {
    let routes: Vec<Value> = config.servers.iter().map(|server| route(server, config)).collect();
    let mut listener = json!({"protocol": "HTTP", "routes": routes});
    let identity = config.identity.as_ref();
    let jwt = identity.and_then(jwt_auth).map(|jwt| ("jwtAuth".to_owned(), jwt));
    let own = identity.and_then(own_rules).map(|own| (OWN.to_owned(), own));
    let policies: Map<String, Value> = jwt.into_iter().chain(own).collect();
    if !policies.is_empty() {
        listener["policies"] = Value::Object(policies);
    }
    let mut shape = json!({"binds": [{"port": config.listen.port(), "listeners": [listener]}]});
    if let Some(admin) = &config.admin {
        shape["config"] = json!({"adminAddr": admin.listen.to_string()});
    }
    shape
}

fn jwt_auth(identity: &IdentityConfig) -> Option<Value> {
    let mut issuers: Vec<Value> = identity.jwt.iter().map(issuer).collect();
    let mut shown = match issuers.len() {
        0 => return None,
        1 => issuers.remove(0),
        _ => json!({"providers": issuers}),
    };
    shown["mode"] = json!("strict");
    Some(shown)
}

/// What restricts callers and has no words in agentgateway's shape.
fn own_rules(identity: &IdentityConfig) -> Option<Value> {
    let limited = identity.jwt.iter().filter(|jwt| jwt.servers.is_some());
    let limited: Vec<&str> = limited.map(|jwt| jwt.issuer.as_str()).collect();
    let only_keys = identity.jwt.is_empty();
    let is_more = only_keys || !identity.scopes.is_empty() || !limited.is_empty();
    let keys = identity.api_keys.len();
    is_more.then(
        || json!({"apiKeys": keys, "scopes": identity.scopes, "issuersOfSomeServers": limited}),
    )
}

fn issuer(jwt: &JwtConfig) -> Value {
    let jwks = match &jwt.jwks {
        JwksSource::Url(url) => json!({"url": without_query(url)}),
        JwksSource::File(path) => json!({"file": path}),
    };
    json!({"issuer": jwt.issuer, "audiences": jwt.audiences, "jwks": jwks})
}

/// Public keys have a public address; only its query might hold something else.
fn without_query(url: &Uri) -> String {
    let text = url.to_string();
    text.split('?').next().unwrap_or_default().to_owned()
}

fn route(server: &ServerConfig, config: &Config) -> Value {
    let mut policies = Map::new();
    let authz = match &server.access.authz {
        ServerAuthz::Inherited => config.ext_authz.as_ref(),
        ServerAuthz::Off => None,
        ServerAuthz::Own(own) => Some(own.as_ref()),
    };
    policies.extend(authz.map(|authz| ("extAuthz".to_owned(), ext_authz(authz))));
    let context = authz.map(|authz| authz.context_extensions.len()).unwrap_or_default();
    if context > 0 || !server.access.scopes.is_empty() {
        let own = json!({"scopes": server.access.scopes, "contextExtensions": context});
        policies.insert(OWN.to_owned(), own);
    }
    let rules = server.access.pass_headers.iter();
    let set: Map<String, Value> = rules
        .filter_map(|rule| Some((rule.to.to_string(), json!(expression::of_header(rule)?))))
        .collect();
    if !set.is_empty() {
        policies.insert("transformations".to_owned(), json!({"request": {"set": set}}));
    }
    let mut route = json!({
        "matches": [{"path": {"pathPrefix": format!("/mcp/{}", server.name)}}],
        "backends": [{"mcp": {"targets": [target(server)]}}],
    });
    if !policies.is_empty() {
        route["policies"] = Value::Object(policies);
    }
    route
}

fn ext_authz(authz: &ExtAuthzConfig) -> Value {
    let host = authz.service.authority().map(ToString::to_string).unwrap_or_default();
    let headers: Vec<&str> = authz.headers.iter().map(|name| name.as_str()).collect();
    let protocol = if authz.is_http {
        json!({"http": {}})
    } else {
        let claims = authz.claims.iter();
        let metadata: Map<String, Value> = claims
            .map(|(name, claims)| (name.clone(), json!(expression::of_claims(claims))))
            .collect();
        json!({"grpc": {"metadata": metadata}})
    };
    json!({
        "host": host,
        "failureMode": {"denyWithStatus": authz.on_unavailable},
        "policies": {"http": {"requestTimeout": spelled(authz.timeout)}},
        "includeRequestHeaders": headers,
        "includeRequestBody": {
            "maxRequestBytes": authz.max_body,
            "allowPartialMessage": false,
            "packAsBytes": true,
        },
        "protocol": protocol,
    })
}

fn target(server: &ServerConfig) -> Value {
    let host = |url: &Uri| json!({"host": SecretTexts::of(server).hide(&place::shown(url))});
    let mut target = json!({"name": server.name});
    match &server.transport {
        // agentgateway knows no WebSocket; the scheme tells.
        Transport::Http { url, .. } | Transport::Ws { url, .. } => target["mcp"] = host(url),
        Transport::Sse { url, .. } => target["sse"] = host(url),
        Transport::Stdio { command, .. } => target["stdio"] = json!({"cmd": command}),
        Transport::Incomplete { .. } => return target,
    }
    if let Some(variable) = &server.access.token_variable {
        target["policies"] = json!({"backendAuth": {"key": format!("${variable}")}});
    }
    target
}
