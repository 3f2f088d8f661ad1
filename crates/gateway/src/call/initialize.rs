//! Decides the handshake: the server's own on a route with one server, a merged one on a route with
//! several.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use seawall::ServerOutcome;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::authz::AuthzRefusal;
use crate::call::ask::ask;
use crate::call::authorize::authorize;
use crate::catalog::cached_lists;
use crate::client::caller::Caller;
use crate::client::missing;
use crate::client::session::Session;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::{Era, LEGACY};
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{MessageKind, limits, scan};
use crate::route::Route;
use crate::translate::pool::{self, own_info};
use crate::translate::to_legacy::discovered;
use crate::upstream::call::{GatewayCall, NoClient};
use crate::upstream::handshake::HandshakeParams;
use crate::upstream::reply::{Refusal, Reply, answered, with_body};
use crate::upstream::startup::ListingProgress;
use crate::upstream::{Connection, Server, UpstreamFailure};

/// The first and the longest pause between questions about a server that nobody could decide about.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Answers `initialize` of a legacy client and opens a connection to every server of the route.
pub(crate) async fn initialize(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    let Caller::Legacy(session, _) = caller else {
        return Err(RpcError::new(
            build::METHOD_NOT_FOUND,
            "initialize is not part of this protocol revision",
        )
        .into());
    };
    let asked = call.request.field_text("protocolVersion").unwrap_or_default().into_owned();
    if !session.take_initialize(call.request.body_json()) && session.is_greeted() {
        return Err(
            RpcError::new(build::INVALID_REQUEST, "this session is initialized already").into()
        );
    }
    session.headers.renew(&call.origin.headers);
    let met =
        join_all(route.set.servers.iter().map(|server| meet(route, session, server, call))).await;
    if let Some(refusal) = not_allowed(route, &met) {
        return Err(refusal);
    }
    for (server, met) in route.set.servers.iter().zip(&met) {
        if met.not_allowed.as_ref().is_some_and(|refusal| refusal.is_outage()) {
            tokio::spawn(appears_when_allowed(
                Arc::clone(route),
                Arc::downgrade(session),
                Arc::clone(server),
                call.clone(),
            ));
        }
    }
    let is_refused =
        route.single().is_some() && matches!(met.as_slice(), [Greeted { refused: Some(_), .. }]);
    if !is_refused {
        session.greet();
    }
    for (server, _) in route.set.servers.iter().zip(&met).filter(|(_, met)| met.missing.is_some()) {
        session.lacks(server);
    }
    if let (Some(server), [met]) = (route.single(), met.as_slice()) {
        let lines = instructions(route, std::slice::from_ref(met), &[]);
        return match (&met.info, &met.refused) {
            (_, Some(failure)) => Err(Refusal::Failed(server.name.clone(), failure.clone())),
            (Some(info), _) if info.era == Era::Legacy => {
                answered(&with_lines(&info.result, lines))
            }
            (Some(info), _) => {
                answered(&with_lines(&initialized(Some(info), &agreed(&asked)), lines))
            }
            (None, None) => answered(&expected(server, &agreed(&asked), met)),
        };
    }
    let known: Vec<(String, ServerInfo)> = named(route, &met);
    let mut result = JsonObject::default();
    result.set("protocolVersion", quoted(&agreed(&asked)));
    result.set("capabilities", capabilities(&known, &met).to_string());
    result.set("serverInfo", own_info());
    if let Some(text) = instructions(route, &met, &known) {
        result.set("instructions", quoted(&text));
    }
    answered(&result.json())
}

/// The result of a handshake with one server.
#[derive(Default)]
struct Greeted {
    /// The server's info, live or cached.
    info: Option<ServerInfo>,
    /// Why the server's tools are missing, if they are.
    missing: Option<ServerOutcome<()>>,
    /// The final failure of the handshake: trying again is pointless.
    refused: Option<UpstreamFailure>,
    /// Why the handshake has not succeeded yet.
    why: Option<UpstreamFailure>,
    /// Why the caller may not use the server.
    not_allowed: Option<Box<AuthzRefusal>>,
}

impl Greeted {
    /// A server with live or cached info.
    fn there(info: ServerInfo) -> Self {
        Self { info: Some(info), ..Self::default() }
    }

    /// A server whose handshake failed or is not done.
    fn without(server: &Server, failure: UpstreamFailure) -> Self {
        let missing = Some(server.missing(&failure));
        let refused = failure.is_final().then(|| failure.clone());
        Self { missing, refused, why: Some(failure), ..Self::default() }
    }
}

/// The refusal of a handshake: the only server may not be used, or of none of several anybody can
/// say whether it may. Otherwise those that may be used are served, and the client is told of the
/// others.
fn not_allowed(route: &Route, met: &[Greeted]) -> Option<Refusal> {
    let all: Option<Vec<_>> = met.iter().map(|met| met.not_allowed.clone()).collect();
    let name = route.single().map(|server| server.name.clone());
    let refusal = all?.into_iter().find(|refusal| name.is_some() || refusal.is_outage())?;
    Some(Refusal::NotAllowed(name.unwrap_or_default(), refusal))
}

/// Asks again about a server of which nobody could say whether the client may use it, for as long
/// as the client is there, and tells the client when its tools can be listed.
async fn appears_when_allowed(
    route: Arc<Route>,
    session: Weak<Session>,
    server: Arc<Server>,
    call: GatewayCall,
) {
    // The session's own sink would keep it alive.
    let call = GatewayCall { sink: Arc::new(NoClient), ..call };
    let mut pause = ASK_AGAIN.0;
    loop {
        let slept = route.lifecycle.draining.run_until_cancelled(tokio::time::sleep(pause)).await;
        if slept.is_none() || session.strong_count() == 0 {
            return;
        }
        match authorize(&route, &server, &call).await {
            Err(Refusal::NotAllowed(_, refusal)) if refusal.is_outage() => {
                pause = (pause * 2).min(ASK_AGAIN.1);
            }
            Ok(_) => break,
            Err(_) => return,
        }
    }
    if let Some(session) = session.upgrade() {
        session.general.notify(build::notification("notifications/tools/list_changed", None));
    }
}

/// Whether the caller may use a server; if not, the server is missing.
async fn may_meet(route: &Route, server: &Server, call: &GatewayCall) -> Result<(), Greeted> {
    if route.access.is_open(&server.name) {
        return Ok(());
    }
    authorize(route, server, call).await.map(drop).map_err(|refusal| match refusal {
        Refusal::NotAllowed(_, refusal) => Greeted {
            missing: Some(server.reported(refusal.failure())),
            not_allowed: Some(refusal),
            ..Greeted::default()
        },
        _ => Greeted::without(server, UpstreamFailure::NotAsked),
    })
}

/// The info of a server: live if it is connected, else cached; with neither, the handshake is
/// awaited for a short time.
async fn meet(
    route: &Route,
    session: &Arc<Session>,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Greeted {
    if let Err(refused) = may_meet(route, server, call).await {
        return refused;
    }
    let supervisor = match session.supervisor(server) {
        Ok(supervisor) => supervisor,
        Err(failure) => return Greeted::without(server, failure),
    };
    supervisor.begin();
    let (key, asked) = (
        session.key(server),
        session.handshake.get().map(HandshakeParams::version).unwrap_or_default(),
    );
    if let Some(info) = route.catalog_cache.info(&key).filter(|_| supervisor.now().is_none()) {
        // The client builds on the cached info, so the session notes it to compare with the live
        // one.
        session.promise(server, info.result.clone());
        return Greeted::there(info);
    }
    let of_any =
        route.catalog_cache.server_info_of_any(&key).map(|info| in_version(info, &agreed(&asked)));
    // A server that has been away for as long as a handshake may take delays no client; the client
    // is notified of its tools once the server is there.
    let wait = server.startup.patience(if of_any.is_some() {
        limits::GREETING_WAIT
    } else {
        limits::HANDSHAKE_WAIT
    });
    let met = listed(route, server, &key, Era::Legacy, supervisor.connection(wait)).await;
    match of_any.filter(|_| met.info.is_none() && met.refused.is_none()) {
        None => met,
        Some(info) => {
            session.promise(server, info.result.clone());
            Greeted::there(info)
        }
    }
}

/// Takes the handshake from a connection that `opened` resolves to; handshake and tool list must
/// arrive within `HANDSHAKE_WAIT`.
async fn listed(
    route: &Route,
    server: &Server,
    key: &str,
    era: Era,
    opened: impl Future<Output = Result<Arc<Connection>, UpstreamFailure>>,
) -> Greeted {
    let limit = Instant::now() + limits::HANDSHAKE_WAIT;
    let connection = match unless_given_up(server, opened).await {
        Ok(connection) => connection,
        Err(failure) => return Greeted::without(server, failure),
    };
    let Some(info) = connection.info().cloned() else {
        return Greeted::without(server, UpstreamFailure::Handshake("it said nothing".to_owned()));
    };
    let listing = tokio::time::timeout_at(limit, connection.listed())
        .await
        .unwrap_or(ListingProgress::UnderWay);
    let has_tools = matches!(listing, ListingProgress::Done | ListingProgress::Unasked);
    // The cached list stands in: no tools are missing.
    if has_tools || cached_lists::known(&route.catalog_cache, key, era, "tools/list").is_some() {
        return Greeted::there(info);
    }
    let starting = UpstreamFailure::Starting(server.reconnect.wait());
    Greeted { missing: Some(server.missing(&starting)), ..Greeted::there(info) }
}

/// Awaits a connection; stops waiting when startup has given up retrying at once.
async fn unless_given_up(
    server: &Server,
    connection: impl Future<Output = Result<Arc<Connection>, UpstreamFailure>>,
) -> Result<Arc<Connection>, UpstreamFailure> {
    tokio::select! {
        biased;
        connection = connection => connection,
        () = server.startup.gave_up() => Err(UpstreamFailure::Starting(server.reconnect.wait())),
    }
}

/// Rewrites info cached for a client of another revision to this client's revision.
fn in_version(info: ServerInfo, version: &str) -> ServerInfo {
    if info.era == Era::Modern {
        return info;
    }
    let mut result = JsonObject::of(&info.result);
    result.set("protocolVersion", quoted(version));
    let result = result.json().into();
    ServerInfo { result, version: version.to_owned(), ..info }
}

/// A server's info, with `lines` appended to its instructions.
fn with_lines(info: &[u8], lines: Option<String>) -> Vec<u8> {
    let Some(lines) = lines else { return info.to_vec() };
    let mut result = JsonObject::of(info);
    let own = result.get("instructions").and_then(scan::text).map(|own| format!("{own}\n\n"));
    result.set("instructions", quoted(&format!("{}{lines}", own.unwrap_or_default())));
    // The client must learn that the list changes: it is notified once the tools can be listed.
    result.change("capabilities", |all| {
        all.change("tools", |tools| {
            tools.set("listChanged", "true");
        });
    });
    result.json()
}

/// The info for a server that has never answered: it announces every capability, for the server may
/// have it.
fn expected(server: &Server, version: &str, met: &Greeted) -> Vec<u8> {
    let mut result = JsonObject::default();
    result.set("protocolVersion", quoted(version));
    let mut all = missing::capabilities();
    all.insert("completions".to_owned(), json!({}));
    result.set("capabilities", Value::Object(all).to_string());
    result.set("serverInfo", json!({"name": server.name, "version": "0"}).to_string());
    let is_transient = met.missing.as_ref().is_some_and(|outcome| outcome.status() == "transient");
    let mut lines =
        missing::warnings(met.missing.clone().into_iter().collect(), server.startup.denied_text())
            .prompt;
    if let Some(why) = met.why.as_ref().filter(|_| is_transient) {
        lines.push(format!("The server {why}."));
    }
    result.set("instructions", quoted(&lines.join("\n\n")));
    result.json()
}

fn named(route: &Route, met: &[Greeted]) -> Vec<(String, ServerInfo)> {
    let pairs = route.set.servers.iter().zip(met);
    pairs.filter_map(|(server, met)| Some((server.name.clone(), met.info.clone()?))).collect()
}

/// The client's revision if the gateway knows it, else the newest legacy one.
fn agreed(asked: &str) -> String {
    LEGACY.iter().find(|known| **known == asked).unwrap_or(&LEGACY[0]).to_string()
}

/// The `initialize` result for a modern server.
fn initialized(info: Option<&ServerInfo>, version: &str) -> Vec<u8> {
    let field = |name| info.and_then(|info| info.field(name));
    let info = field("_meta").and_then(|meta| {
        JsonObject::of(&meta).get(crate::protocol::names::SERVER_INFO).map(<[u8]>::to_vec)
    });
    let mut capabilities: Value = field("capabilities")
        .and_then(|json| serde_json::from_slice(&json).ok())
        .unwrap_or_else(|| json!({}));
    // A modern server logs on request of each call; a legacy client must be told that it may set a
    // level.
    if let Some(capabilities) = capabilities.as_object_mut() {
        capabilities.entry("logging").or_insert_with(|| json!({}));
    }
    let mut result = JsonObject::default();
    result.set("protocolVersion", quoted(version));
    result.set("capabilities", capabilities.to_string());
    result.set("serverInfo", info.unwrap_or_else(own_info));
    if let Some(instructions) = field("instructions") {
        result.set("instructions", instructions);
    }
    result.json()
}

/// Answers `server/discover` on a route with several servers.
pub(crate) async fn discover(route: &Arc<Route>, _caller: &Caller, call: &GatewayCall) -> Reply {
    let met =
        join_all(route.set.servers.iter().map(|server| meet_modern(route, server, call))).await;
    if let Some(refusal) = not_allowed(route, &met) {
        return Err(refusal);
    }
    let infos = named(route, &met);
    let mut merged = JsonObject::default();
    merged.set("capabilities", capabilities(&infos, &met).to_string());
    merged.set("serverInfo", own_info());
    if let Some(text) = instructions(route, &met, &infos) {
        merged.set("instructions", quoted(&text));
    }
    let info =
        ServerInfo { era: Era::Legacy, version: String::new(), result: merged.json().into() };
    answered(&discovered(Some(&info)))
}

/// Answers `server/discover` of one server: its own answer, with a line about its tools if they are
/// missing.
pub(crate) async fn discover_one(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Reply {
    let answer = ask(route, caller, server, call).await?;
    let met = meet_allowed(route, server, call).await;
    match instructions(route, &[met], &[]).filter(|_| answer.kind() == MessageKind::Result) {
        Some(lines) => with_body(&answer, &with_lines(answer.body_json(), Some(lines))),
        None => Ok(answer),
    }
}

/// The info of a server for a client without a session.
async fn meet_modern(route: &Route, server: &Arc<Server>, call: &GatewayCall) -> Greeted {
    if let Err(refused) = may_meet(route, server, call).await {
        return refused;
    }
    meet_allowed(route, server, call).await
}

/// The same for a client that may use the server.
async fn meet_allowed(route: &Route, server: &Arc<Server>, call: &GatewayCall) -> Greeted {
    let Some(pool) = route.pool(server) else {
        return Greeted::without(
            server,
            UpstreamFailure::Unreachable("it is not on this route".to_owned()),
        );
    };
    let key = pool::handshake(call).key(server);
    let of_any =
        route.catalog_cache.info(&key).or_else(|| route.catalog_cache.server_info_of_any(&key));
    let wait = server.startup.patience(if of_any.is_some() {
        limits::GREETING_WAIT
    } else {
        limits::HANDSHAKE_WAIT
    });
    let met = listed(route, server, &key, Era::Modern, pool.connection(server, call, wait)).await;
    match of_any.filter(|_| met.info.is_none() && met.refused.is_none()) {
        None => met,
        Some(info) => Greeted::there(info),
    }
}

/// The union of all servers' capabilities. If a server is missing, also those it may have: its
/// lists change once it is there.
fn capabilities(infos: &[(String, ServerInfo)], met: &[Greeted]) -> Value {
    let is_missing = |met: &Greeted| met.missing.is_some();
    let mut merged = if met.iter().any(is_missing) { missing::capabilities() } else { Map::new() };
    for (_, info) in infos {
        let own: Option<Map<String, Value>> =
            info.field("capabilities").and_then(|json| serde_json::from_slice(&json).ok());
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

/// Every server's instructions under its name, and warnings about missing servers.
fn instructions(route: &Route, met: &[Greeted], infos: &[(String, ServerInfo)]) -> Option<String> {
    let mut lines = Vec::new();
    for (name, info) in infos {
        let own = info
            .field("instructions")
            .and_then(|json| serde_json::from_slice::<String>(&json).ok());
        lines.extend(own.map(|text| format!("{name}: {text}")));
    }
    let outcomes = met.iter().filter_map(|met| met.missing.clone()).collect();
    let denied =
        route.set.servers.first().map(|server| server.startup.denied_text()).unwrap_or_default();
    lines.extend(missing::warnings(outcomes, denied).prompt);
    (!lines.is_empty()).then(|| lines.join("\n\n"))
}
