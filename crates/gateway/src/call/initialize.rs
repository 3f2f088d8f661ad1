//! The handshake: the server's own where there is one, one for all where there are several.

use std::sync::Arc;

use futures_util::future::join_all;
use seawall::ServerOutcome;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::call::dispatch::exchange;
use crate::catalog::cached_lists;
use crate::client::caller::Caller;
use crate::client::missing;
use crate::client::session::Session;
use crate::protocol::build::{self, Error};
use crate::protocol::edit::{Object, quoted};
use crate::protocol::names::{Era, LEGACY};
use crate::protocol::server_info::Hello;
use crate::protocol::{Kind, limits, scan};
use crate::route::Route;
use crate::translate::pool::{self, own_info};
use crate::translate::to_legacy::discovered;
use crate::upstream::call::Call;
use crate::upstream::handshake::Opening;
use crate::upstream::reply::{Refusal, Reply, answered, with_body};
use crate::upstream::startup::Listing;
use crate::upstream::{Failure, Link, Server};

/// `initialize` of a legacy client: opens a conversation with every server of the route.
pub async fn initialize(route: &Arc<Route>, caller: &Caller, call: &Call) -> Reply {
    let Caller::Legacy(session, _) = caller else {
        return Err(Error::new(build::METHOD_NOT_FOUND, "initialize is not part of this protocol revision").into());
    };
    let asked = call.request.field_text("protocolVersion").unwrap_or_default().into_owned();
    if !session.take_initialize(call.request.body_json()) && session.is_greeted() {
        return Err(Error::new(build::INVALID_REQUEST, "this session is initialized already").into());
    }
    let met = join_all(route.set.servers.iter().map(|server| meet(route, session, server))).await;
    let is_refused = route.single().is_some() && matches!(met.as_slice(), [Met { refused: Some(_), .. }]);
    if !is_refused {
        session.greet();
    }
    for (server, _) in route.set.servers.iter().zip(&met).filter(|(_, met)| met.missing.is_some()) {
        session.lacks(server);
    }
    if let (Some(server), [met]) = (route.single(), met.as_slice()) {
        let lines = instructions(route, std::slice::from_ref(met), &[]);
        return match (&met.hello, &met.refused) {
            (_, Some(failure)) => Err(Refusal::Failed(server.name.clone(), failure.clone())),
            (Some(hello), _) if hello.era == Era::Legacy => answered(&with_lines(&hello.result, lines)),
            (Some(hello), _) => answered(&with_lines(&initialized(Some(hello), &agreed(&asked)), lines)),
            (None, None) => answered(&expected(server, &agreed(&asked), met)),
        };
    }
    let known: Vec<(String, Hello)> = named(route, &met);
    let mut result = Object::default();
    result.set("protocolVersion", quoted(&agreed(&asked)));
    result.set("capabilities", capabilities(&known, &met).to_string());
    result.set("serverInfo", own_info());
    if let Some(text) = instructions(route, &met, &known) {
        result.set("instructions", quoted(&text));
    }
    answered(&result.json())
}

/// What came of meeting a server.
#[derive(Default)]
struct Met {
    /// What it says of itself, now or last.
    hello: Option<Hello>,
    /// Why its tools are missing, if they are.
    missing: Option<ServerOutcome<()>>,
    /// It cannot be greeted, and trying again makes no sense.
    refused: Option<Failure>,
    /// Why it could not be greeted yet.
    why: Option<Failure>,
}

impl Met {
    /// A server that is there, or was.
    fn there(hello: Hello) -> Self {
        Self { hello: Some(hello), ..Self::default() }
    }

    /// A server that could not be greeted.
    fn without(server: &Server, failure: Failure) -> Self {
        let missing = Some(server.missing(&failure));
        let refused = failure.is_final().then(|| failure.clone());
        Self { hello: None, missing, refused, why: Some(failure) }
    }
}

/// What a server says: now if it is there, as it said last if it is not, and if it never said anything, soon.
async fn meet(route: &Route, session: &Arc<Session>, server: &Arc<Server>) -> Met {
    let keeper = match session.keeper(server) {
        Ok(keeper) => keeper,
        Err(failure) => return Met::without(server, failure),
    };
    keeper.begin();
    let (key, asked) = (session.key(server), session.opening.get().map(Opening::version).unwrap_or_default());
    if let Some(hello) = route.memory.hello(&key).filter(|_| keeper.now().is_none()) {
        session.promise(server, hello.result.clone());
        return Met::there(hello);
    }
    let of_any = route.memory.hello_of_any(&key).map(|hello| in_version(hello, &agreed(&asked)));
    // A server that has been away for as long as a handshake may take keeps nobody waiting: its tools are told when it is there.
    let wait = server.startup.patience(if of_any.is_some() { limits::GREETING_WAIT } else { limits::HANDSHAKE_WAIT });
    let met = listed(route, server, &key, Era::Legacy, keeper.link(wait)).await;
    match of_any.filter(|_| met.hello.is_none() && met.refused.is_none()) {
        None => met,
        Some(hello) => {
            session.promise(server, hello.result.clone());
            Met::there(hello)
        }
    }
}

/// Meets a server whose conversation is `opened`: greeted and listed within the time that a handshake may take.
async fn listed(
    route: &Route,
    server: &Server,
    key: &str,
    era: Era,
    opened: impl Future<Output = Result<Arc<Link>, Failure>>,
) -> Met {
    let limit = Instant::now() + limits::HANDSHAKE_WAIT;
    let link = match unless_given_up(server, opened).await {
        Ok(link) => link,
        Err(failure) => return Met::without(server, failure),
    };
    let Some(hello) = link.hello().cloned() else {
        return Met::without(server, Failure::Handshake("it said nothing".to_owned()));
    };
    let listing = tokio::time::timeout_at(limit, link.listed()).await.unwrap_or(Listing::UnderWay);
    let has_tools = matches!(listing, Listing::Done | Listing::Unasked);
    // What it listed last stands in: nothing is missing.
    if has_tools || cached_lists::known(&route.memory, key, era, "tools/list").is_some() {
        return Met::there(hello);
    }
    let starting = Failure::Starting(server.reconnect.wait());
    Met { missing: Some(server.missing(&starting)), ..Met::there(hello) }
}

/// A conversation, if it comes to one: what trying again at once cannot help keeps nobody waiting.
async fn unless_given_up(
    server: &Server,
    link: impl Future<Output = Result<Arc<Link>, Failure>>,
) -> Result<Arc<Link>, Failure> {
    tokio::select! {
        biased;
        link = link => link,
        () = server.startup.gave_up() => Err(Failure::Starting(server.reconnect.wait())),
    }
}

/// What a server said to a client of another revision, as one of this revision reads it.
fn in_version(hello: Hello, version: &str) -> Hello {
    if hello.era == Era::Modern {
        return hello;
    }
    let mut result = Object::of(&hello.result);
    result.set("protocolVersion", quoted(version));
    let result = result.json().into();
    Hello { result, version: version.to_owned(), ..hello }
}

/// What a server says of itself, and the lines about it.
fn with_lines(hello: &[u8], lines: Option<String>) -> Vec<u8> {
    let Some(lines) = lines else { return hello.to_vec() };
    let mut result = Object::of(hello);
    let own = result.get("instructions").and_then(scan::text).map(|own| format!("{own}\n\n"));
    result.set("instructions", quoted(&format!("{}{lines}", own.unwrap_or_default())));
    // When its tools can be listed, the client is told.
    result.change("capabilities", |all| {
        all.change("tools", |tools| {
            tools.set("listChanged", "true");
        });
    });
    result.json()
}

/// What a client is told of a server that never said anything yet: it may be able to do everything.
fn expected(server: &Server, version: &str, met: &Met) -> Vec<u8> {
    let mut result = Object::default();
    result.set("protocolVersion", quoted(version));
    let mut all = missing::capabilities();
    all.insert("completions".to_owned(), json!({}));
    result.set("capabilities", Value::Object(all).to_string());
    result.set("serverInfo", json!({"name": server.name, "version": "0"}).to_string());
    let is_transient = met.missing.as_ref().is_some_and(|outcome| outcome.status() == "transient");
    let mut lines = missing::warnings(met.missing.clone().into_iter().collect(), server.startup.denied_text()).prompt;
    if let Some(why) = met.why.as_ref().filter(|_| is_transient) {
        lines.push(format!("The server {why}."));
    }
    result.set("instructions", quoted(&lines.join("\n\n")));
    result.json()
}

fn named(route: &Route, met: &[Met]) -> Vec<(String, Hello)> {
    let pairs = route.set.servers.iter().zip(met);
    pairs.filter_map(|(server, met)| Some((server.name.clone(), met.hello.clone()?))).collect()
}

/// The client's revision if it is known, else the newest.
fn agreed(asked: &str) -> String {
    LEGACY.iter().find(|known| **known == asked).unwrap_or(&LEGACY[0]).to_string()
}

/// What `initialize` says about a modern server.
fn initialized(hello: Option<&Hello>, version: &str) -> Vec<u8> {
    let field = |name| hello.and_then(|hello| hello.field(name));
    let info =
        field("_meta").and_then(|meta| Object::of(&meta).get(crate::protocol::names::SERVER_INFO).map(<[u8]>::to_vec));
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
    let met = join_all(route.set.servers.iter().map(|server| meet_modern(route, server, call))).await;
    let hellos = named(route, &met);
    let mut merged = Object::default();
    merged.set("capabilities", capabilities(&hellos, &met).to_string());
    merged.set("serverInfo", own_info());
    if let Some(text) = instructions(route, &met, &hellos) {
        merged.set("instructions", quoted(&text));
    }
    let hello = Hello { era: Era::Legacy, version: String::new(), result: merged.json().into() };
    answered(&discovered(Some(&hello)))
}

/// `server/discover` of one server: its own answer, and a line about its tools if they cannot be had.
pub async fn discover_one(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &Call) -> Reply {
    let answer = exchange(route, caller, server, call).await?;
    let met = meet_modern(route, server, call).await;
    match instructions(route, &[met], &[]).filter(|_| answer.kind() == Kind::Result) {
        Some(lines) => with_body(&answer, &with_lines(answer.body_json(), Some(lines))),
        None => Ok(answer),
    }
}

/// What a server says to a client without a session.
async fn meet_modern(route: &Route, server: &Arc<Server>, call: &Call) -> Met {
    let Some(pool) = route.pool(server) else {
        return Met::without(server, Failure::Unreachable("it is not on this route".to_owned()));
    };
    let key = pool::opening(call).key(server);
    let of_any = route.memory.hello(&key).or_else(|| route.memory.hello_of_any(&key));
    let wait = server.startup.patience(if of_any.is_some() { limits::GREETING_WAIT } else { limits::HANDSHAKE_WAIT });
    let met = listed(route, server, &key, Era::Modern, pool.link(server, call, wait)).await;
    match of_any.filter(|_| met.hello.is_none() && met.refused.is_none()) {
        None => met,
        Some(hello) => Met::there(hello),
    }
}

/// All that any server can do, and what one may be able to do whose tools are missing: its lists change when it is there.
fn capabilities(hellos: &[(String, Hello)], met: &[Met]) -> Value {
    let is_missing = |met: &Met| met.missing.is_some();
    let mut merged = if met.iter().any(is_missing) { missing::capabilities() } else { Map::new() };
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
fn instructions(route: &Route, met: &[Met], hellos: &[(String, Hello)]) -> Option<String> {
    let mut lines = Vec::new();
    for (name, hello) in hellos {
        let own = hello.field("instructions").and_then(|json| serde_json::from_slice::<String>(&json).ok());
        lines.extend(own.map(|text| format!("{name}: {text}")));
    }
    let outcomes = met.iter().filter_map(|met| met.missing.clone()).collect();
    let denied = route.set.servers.first().map(|server| server.startup.denied_text()).unwrap_or_default();
    lines.extend(missing::warnings(outcomes, denied).prompt);
    (!lines.is_empty()).then(|| lines.join("\n\n"))
}
