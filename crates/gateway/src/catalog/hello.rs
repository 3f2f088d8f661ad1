//! The handshake: the server's own where there is one, one for all where there are several.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::missing;
use crate::bridge::pool::own_info;
use crate::bridge::to_legacy::discovered;
use crate::bridge::to_modern::{self, answered};
use crate::call::Call;
use crate::dispatch::{Caller, Refusal, Reply};
use crate::gateway::Route;
use crate::session::Session;
use crate::upstream::handshake::Opening;
use crate::upstream::{Failure, Hello, Link, Server};
use crate::wire::build::{self, Error};
use crate::wire::edit::{Object, quoted};
use crate::wire::limits;
use crate::wire::names::{Era, LEGACY};

/// `initialize` of a legacy client: opens a conversation with every server of the route.
pub async fn initialize(route: &Arc<Route>, caller: &Caller, call: &Call) -> Reply {
    let Caller::Legacy(session, _) = caller else {
        return Err(Error::new(build::METHOD_NOT_FOUND, "initialize is not part of this protocol revision").into());
    };
    let params = bytes::Bytes::copy_from_slice(call.request.body_json());
    let asked = call.request.field_text("protocolVersion").unwrap_or_default().into_owned();
    let opening = Opening { prefer: Era::Legacy, meta: to_modern::meta(&params), initialize: params };
    if session.opening.set(opening).is_err() && session.is_greeted() {
        return Err(Error::new(build::INVALID_REQUEST, "this session is initialized already").into());
    }
    let hellos = join_all(route.servers.iter().map(|server| greeted(route, session, server))).await;
    let is_refused = route.single().is_some() && matches!(hellos.as_slice(), [Err(failure)] if failure.is_final());
    if !is_refused {
        session.greet();
    }
    if let (Some(server), [result]) = (route.single(), hellos.as_slice()) {
        return match result {
            Ok(hello) if hello.era == Era::Legacy => answered(&hello.result),
            Ok(hello) => answered(&initialized(Some(hello), &agreed(&asked))),
            Err(failure) if !failure.is_final() => {
                session.lacks(server);
                answered(&expected(server, &agreed(&asked), failure))
            }
            Err(failure) => Err(Refusal::Failed(server.name.clone(), failure.clone())),
        };
    }
    for (server, _) in route.servers.iter().zip(&hellos).filter(|(_, hello)| hello.is_err()) {
        session.lacks(server);
    }
    let known: Vec<(String, Hello)> = named(route, &hellos);
    let mut result = Object::default();
    result.set("protocolVersion", quoted(&agreed(&asked)));
    result.set("capabilities", capabilities(&known, hellos.len()).to_string());
    result.set("serverInfo", own_info());
    if let Some(text) = instructions(route, &hellos, &known) {
        result.set("instructions", quoted(&text));
    }
    answered(&result.json())
}

/// What a server says: now if it is there, as it said last if it is not, and if it never said anything, soon.
async fn greeted(route: &Route, session: &Arc<Session>, server: &Arc<Server>) -> Result<Hello, Failure> {
    let keeper = session.keeper(server)?;
    keeper.begin();
    if let Some(hello) = route.memory.hello(&session.key(server)).filter(|_| keeper.now().is_none()) {
        session.promise(server, hello.result.clone());
        return Ok(hello);
    }
    let link = unless_given_up(server, keeper.link(limits::HANDSHAKE_WAIT)).await?;
    link.hello().cloned().ok_or_else(|| Failure::Handshake("it said nothing".to_owned()))
}

/// A conversation, if it comes to one: what trying again at once cannot help keeps nobody waiting.
async fn unless_given_up(
    server: &Server,
    link: impl Future<Output = Result<Arc<Link>, Failure>>,
) -> Result<Arc<Link>, Failure> {
    tokio::select! {
        biased;
        link = link => link,
        () = server.load.gave_up() => Err(Failure::Starting { reason: None, retry_in: server.reconnect.wait() }),
    }
}

/// What a client is told of a server that never said anything yet: it may be able to do everything.
fn expected(server: &Server, version: &str, failure: &Failure) -> Vec<u8> {
    let mut result = Object::default();
    result.set("protocolVersion", quoted(version));
    let mut all = missing::capabilities();
    all.insert("completions".to_owned(), json!({}));
    result.set("capabilities", Value::Object(all).to_string());
    result.set("serverInfo", json!({"name": server.name, "version": "0"}).to_string());
    let outcome = server.missing(failure);
    let is_transient = outcome.status() == "transient";
    let mut lines = missing::warnings(vec![outcome]).prompt;
    if is_transient {
        lines.push(format!("The server {failure}."));
    }
    result.set("instructions", quoted(&lines.join("\n\n")));
    result.json()
}

fn named(route: &Route, hellos: &[Result<Hello, Failure>]) -> Vec<(String, Hello)> {
    let pairs = route.servers.iter().zip(hellos);
    pairs.filter_map(|(server, hello)| Some((server.name.clone(), hello.as_ref().ok()?.clone()))).collect()
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
    let greeted = join_all(route.servers.iter().map(|server| async {
        let Some(pool) = route.pool(server) else {
            return Err(Failure::Unreachable("it is not on this route".to_owned()));
        };
        let link = unless_given_up(server, pool.link(server, call, limits::HANDSHAKE_WAIT)).await?;
        link.hello().cloned().ok_or_else(|| Failure::Handshake("it said nothing".to_owned()))
    }))
    .await;
    let hellos = named(route, &greeted);
    let mut merged = Object::default();
    merged.set("capabilities", capabilities(&hellos, greeted.len()).to_string());
    merged.set("serverInfo", own_info());
    if let Some(text) = instructions(route, &greeted, &hellos) {
        merged.set("instructions", quoted(&text));
    }
    let hello = Hello { era: Era::Legacy, version: String::new(), result: merged.json().into() };
    answered(&discovered(Some(&hello)))
}

/// All that any server can do, and what one of all `servers` may be able to do that has not said so yet.
fn capabilities(hellos: &[(String, Hello)], servers: usize) -> Value {
    let mut merged = if hellos.len() < servers { missing::capabilities() } else { Map::new() };
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
fn instructions(route: &Route, greeted: &[Result<Hello, Failure>], hellos: &[(String, Hello)]) -> Option<String> {
    let mut lines = Vec::new();
    for (name, hello) in hellos {
        let own = hello.field("instructions").and_then(|json| serde_json::from_slice::<String>(&json).ok());
        lines.extend(own.map(|text| format!("{name}: {text}")));
    }
    let outcome = |(server, hello): (&Arc<Server>, &Result<Hello, Failure>)| match hello {
        Ok(_) => missing::there(server),
        Err(failure) => server.missing(failure),
    };
    lines.extend(missing::warnings(route.servers.iter().zip(greeted).map(outcome).collect()).prompt);
    (!lines.is_empty()).then(|| lines.join("\n\n"))
}
