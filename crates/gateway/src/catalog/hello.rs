//! The handshake: the server's own where there is one, one for all where there are several.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use crate::bridge::pool::own_info;
use crate::bridge::to_legacy::discovered;
use crate::bridge::to_modern::{self, answered};
use crate::call::Call;
use crate::dispatch::{Caller, Refusal, Reply};
use crate::gateway::Route;
use crate::upstream::handshake::Opening;
use crate::upstream::{Failure, Hello};
use crate::wire::build::{self, Error};
use crate::wire::edit::{Object, quoted};
use crate::wire::names::{Era, LEGACY};

/// `initialize` of a legacy client: opens a conversation with every server of the route.
pub async fn initialize(route: &Arc<Route>, caller: &Caller, call: &Call) -> Reply {
    let Caller::Legacy(session, _) = caller else {
        return Err(Error::new(build::METHOD_NOT_FOUND, "initialize is not part of this protocol revision").into());
    };
    let params = bytes::Bytes::copy_from_slice(call.request.body_json());
    let asked = call.request.field_text("protocolVersion").unwrap_or_default().into_owned();
    let opening = Opening { prefer: Era::Legacy, meta: to_modern::meta(&params), initialize: params };
    if session.opening.set(opening).is_err() && session.links().await.iter().any(|link| link.is_alive()) {
        return Err(Error::new(build::INVALID_REQUEST, "this session is initialized already").into());
    }
    let links = join_all(route.servers.iter().map(|server| session.link(server))).await;
    if let (Some(server), [result]) = (route.single(), links.as_slice()) {
        let link = result.as_ref().map_err(|failure| Refusal::Failed(server.name.clone(), failure.clone()))?;
        return match link.hello() {
            Some(hello) if hello.era == Era::Legacy => answered(&hello.result),
            hello => answered(&initialized(hello, &agreed(&asked))),
        };
    }
    let hellos: Vec<(String, Hello)> = named(route, &links);
    let mut result = Object::default();
    result.set("protocolVersion", quoted(&agreed(&asked)));
    result.set("capabilities", capabilities(&hellos).to_string());
    result.set("serverInfo", own_info());
    if let Some(text) = instructions(route, &links, &hellos) {
        result.set("instructions", quoted(&text));
    }
    answered(&result.json())
}

fn named(route: &Route, links: &[Result<Arc<crate::upstream::Link>, Failure>]) -> Vec<(String, Hello)> {
    let pairs = route.servers.iter().zip(links);
    pairs.filter_map(|(server, link)| Some((server.name.clone(), link.as_ref().ok()?.hello()?.clone()))).collect()
}

/// The client's revision if it is known, else the newest.
fn agreed(asked: &str) -> String {
    LEGACY.iter().find(|known| **known == asked).unwrap_or(&LEGACY[0]).to_string()
}

/// What `initialize` says about a modern server.
fn initialized(hello: Option<&Hello>, version: &str) -> Vec<u8> {
    let field = |name| hello.and_then(|hello| hello.field(name));
    let info =
        field("_meta").and_then(|meta| Object::of(&meta).get(crate::wire::names::SERVER_INFO).map(<[u8]>::to_vec));
    let mut capabilities: Value =
        field("capabilities").and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_else(|| json!({}));
    // A modern server logs whenever it is asked to; a legacy client must be told that it may ask.
    if let Some(capabilities) = capabilities.as_object_mut() {
        capabilities.entry("logging").or_insert_with(|| json!({}));
    }
    let mut result = Object::default();
    result.set("protocolVersion", quoted(version));
    result.set("capabilities", capabilities.to_string());
    result.set("serverInfo", info.unwrap_or_else(own_info));
    if let Some(instructions) = field("instructions") {
        result.set("instructions", instructions);
    }
    result.json()
}

/// `server/discover` on an endpoint with several servers.
pub async fn discover(route: &Arc<Route>, _caller: &Caller, call: &Call) -> Reply {
    let links = join_all(route.servers.iter().map(|server| async {
        match route.pool(server) {
            Some(pool) => pool.link(server, call).await,
            None => Err(Failure::Unreachable("it is not on this route".to_owned())),
        }
    }))
    .await;
    let hellos = named(route, &links);
    let mut merged = Object::default();
    merged.set("capabilities", capabilities(&hellos).to_string());
    merged.set("serverInfo", own_info());
    if let Some(text) = instructions(route, &links, &hellos) {
        merged.set("instructions", quoted(&text));
    }
    let hello = Hello { era: Era::Legacy, version: String::new(), result: merged.json().into() };
    answered(&discovered(Some(&hello)))
}

/// All that any server can do. What only makes sense with one server is left out.
fn capabilities(hellos: &[(String, Hello)]) -> Value {
    let mut merged = Map::new();
    for (_, hello) in hellos {
        let own: Option<Map<String, Value>> =
            hello.field("capabilities").and_then(|json| serde_json::from_slice(&json).ok());
        for (name, value) in own.unwrap_or_default() {
            let entry = merged.entry(name).or_insert_with(|| json!({}));
            if let (Some(entry), Some(value)) = (entry.as_object_mut(), value.as_object()) {
                for (key, value) in value {
                    let known = entry.entry(key.clone()).or_insert_with(|| value.clone());
                    if value == &json!(true) {
                        *known = json!(true);
                    }
                }
            }
        }
    }
    Value::Object(merged)
}

/// Every server's own words under its name, and who is missing.
fn instructions(
    route: &Route,
    links: &[Result<Arc<crate::upstream::Link>, Failure>],
    hellos: &[(String, Hello)],
) -> Option<String> {
    let mut lines = Vec::new();
    for (name, hello) in hellos {
        let own = hello.field("instructions").and_then(|json| serde_json::from_slice::<String>(&json).ok());
        lines.extend(own.map(|text| format!("{name}: {text}")));
    }
    for (server, link) in route.servers.iter().zip(links) {
        if let Err(failure) = link {
            lines.push(format!("The tools of {} are not available: its server {failure}.", server.name));
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n\n"))
}
