//! Translates a modern client's call for a legacy server: the gateway holds the session, the
//! server's questions become `input_required`, and the answer gets the fields of the modern era.

use std::pin::pin;
use std::sync::Arc;

use serde_json::json;

use super::input_required::{CallStep, ParkedCall};
use super::pool::ConnectionPool;
use super::subscribe;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::{
    CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, MODERN, PROTOCOL_VERSION, SERVER_INFO,
};
use crate::protocol::server_info::ServerInfo;
use crate::protocol::{Message, MessageKind};
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply, answered, with_body};
use crate::upstream::{Connection, Server, UpstreamFailure};

/// Sends one call and translates its answer.
pub(crate) async fn exchange(
    server: &Arc<Server>,
    pool: &ConnectionPool,
    connection: Arc<Connection>,
    call: &GatewayCall,
) -> Reply {
    let request = &call.request;
    let info = connection.info().cloned();
    match request.method() {
        "server/discover" => answered(&discovered(info.as_ref())),
        "subscriptions/listen" => subscribe::listen(pool, &connection, call).await,
        "tools/call" | "prompts/get" | "resources/read" => {
            ask(server, pool, connection, call).await
        }
        _ => {
            let request = legacy_request(request)?;
            let answer = connection.request(&GatewayCall { request, ..call.clone() }).await;
            modern_answer(
                &call.request,
                info.as_ref(),
                answer.map_err(|failure| failed(server, failure))?,
            )
        }
    }
}

fn failed(server: &Server, failure: UpstreamFailure) -> Refusal {
    Refusal::Failed(server.name.clone(), failure)
}

/// Whether the server may ask this client something, or send it logs about this call.
fn may_ask(request: &Message) -> bool {
    let capabilities = JsonObject::of(request.meta_json(CLIENT_CAPABILITIES).unwrap_or_default());
    let can_be_asked = capabilities
        .names()
        .any(|name| matches!(name.as_ref(), "sampling" | "elicitation" | "roots"));
    can_be_asked || request.meta(LOG_LEVEL).is_some()
}

/// Runs a call whose server may ask questions, from its beginning or from its parked state.
async fn ask(
    server: &Arc<Server>,
    pool: &ConnectionPool,
    connection: Arc<Connection>,
    call: &GatewayCall,
) -> Reply {
    let info = connection.info().cloned();
    let mut running = match call.request.field_text("requestState") {
        Some(state) => {
            let Some(mut running) = pool.parked.take(&state) else {
                let text = "requestState is not known here: used before, too old, or changed. The call that it belongs to may have been executed: check before you make it anew";
                return Err(RpcError::new(build::INVALID_PARAMS, text).into());
            };
            running.answer(call.request.field_json("inputResponses").unwrap_or(b"{}")).await;
            running
        }
        None => begin(server, pool, connection, call).await?,
    };
    let begun_as = Arc::clone(&running.cancel);
    let step = {
        let mut next = pin!(running.next(call));
        tokio::select! {
            // Biased: an answer that is ready at the moment of the cancellation still counts.
            biased;
            step = next.as_mut() => step,
            // The cancellation goes to the request that began the call; the server may answer all
            // the same.
            () = call.cancel.cancelled() => {
                begun_as.cancel(call.cancel.params().cloned().unwrap_or_default());
                next.await
            }
        }
    };
    match step {
        CallStep::Answered(answer) => {
            let answer = answer.map_err(|failure| failed(server, failure))?;
            match running.undeclared().filter(|_| went_wrong(&answer)) {
                Some(capability) => missing(&call.request, capability),
                None => modern_answer(&call.request, info.as_ref(), answer),
            }
        }
        CallStep::Asking => {
            let questions = asked(&running);
            let state = pool.parked.hold(running);
            let mut result = JsonObject::default();
            result.set("resultType", r#""input_required""#).set("inputRequests", questions);
            result.set("requestState", quoted(&state));
            answered(&result.json())
        }
    }
}

fn went_wrong(answer: &Message) -> bool {
    answer.kind() == MessageKind::Error || answer.field_json("isError") == Some(b"true")
}

/// The modern error for a call that failed because the client lacks a capability.
fn missing(request: &Message, capability: &str) -> Reply {
    let text = format!(
        "this needs the client capability {capability:?}, which the request does not declare"
    );
    let error = RpcError::new(build::MISSING_CAPABILITY, text)
        .with(json!({"requiredCapabilities": {capability: {}}}));
    Message::parse(build::error(request.id(), &error))
        .map_err(|reject| RpcError::from(&reject).into())
}

async fn begin(
    server: &Arc<Server>,
    pool: &ConnectionPool,
    common: Arc<Connection>,
    call: &GatewayCall,
) -> Result<ParkedCall, Refusal> {
    let request = GatewayCall { request: legacy_request(&call.request)?, ..call.clone() };
    if !may_ask(&call.request) {
        return Ok(ParkedCall::start(common, None, &call.request, request));
    }
    let (connection, turn) =
        pool.alone(server, call).await.map_err(|failure| failed(server, failure))?;
    if let Some(level) = call.request.meta_json(LOG_LEVEL) {
        let params = [br#"{"level":"#.as_slice(), level, b"}"].concat();
        let _not_every_server_logs = connection.ask("logging/setLevel", &params).await;
    }
    Ok(ParkedCall::start(connection, turn, &call.request, request))
}

/// The server's questions in the modern form.
fn asked(running: &ParkedCall) -> Vec<u8> {
    let mut questions = JsonObject::default();
    for (key, question) in &running.questions {
        let mut inner = JsonObject::default();
        inner.set("method", quoted(question.method()));
        if question.body().is_some() {
            inner.set("params", question.body_json());
        }
        questions.set(key, inner.json());
    }
    questions.json()
}

/// The request without the fields of the modern era.
fn legacy_request(request: &Message) -> Reply {
    let mut params = JsonObject::of(request.body_json());
    params.remove("requestState").remove("inputResponses");
    let mut meta = JsonObject::of(request.field_json("_meta").unwrap_or_default());
    meta.remove(PROTOCOL_VERSION).remove(CLIENT_CAPABILITIES).remove(CLIENT_INFO).remove(LOG_LEVEL);
    if meta.is_empty() {
        params.remove("_meta");
    } else {
        params.set("_meta", meta.json());
    }
    with_body(request, &params.json())
}

/// A legacy answer with the fields of the modern era.
fn modern_answer(request: &Message, info: Option<&ServerInfo>, answer: Message) -> Reply {
    if answer.kind() == MessageKind::Error {
        // A resource that does not exist: -32002 in the legacy era, invalid params in the modern
        // one.
        let is_missing =
            request.method() == "resources/read" && answer.field_json("code") == Some(b"-32002");
        if !is_missing {
            return Ok(answer);
        }
        let uri = request.field_text("uri").unwrap_or_default();
        let text = answer.field_text("message").unwrap_or_default();
        return Err(RpcError::new(build::INVALID_PARAMS, text).with(json!({"uri": uri})).into());
    }
    let mut result = JsonObject::of(answer.body_json());
    result.set_default("resultType", r#""complete""#);
    if is_cacheable(request.method()) {
        result.set_default("ttlMs", "0").set_default("cacheScope", r#""private""#);
    }
    if let Some(info) = info.and_then(|info| info.field("serverInfo")) {
        result.change("_meta", |meta| {
            meta.set_default(SERVER_INFO, info);
        });
    }
    with_body(&answer, &result.json())
}

fn is_cacheable(method: &str) -> bool {
    matches!(
        method,
        "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
            | "resources/read"
    )
}

/// The `server/discover` result for a legacy server.
pub(crate) fn discovered(info: Option<&ServerInfo>) -> Vec<u8> {
    let field = |name| info.and_then(|info| info.field(name));
    let mut result = JsonObject::default();
    result.set("resultType", r#""complete""#);
    result.set("supportedVersions", format!("[{}]", quoted(MODERN)));
    result.set("capabilities", field("capabilities").unwrap_or_else(|| "{}".into()));
    if let Some(instructions) = field("instructions") {
        result.set("instructions", instructions);
    }
    result.set("ttlMs", "0").set("cacheScope", r#""private""#);
    if let Some(info) = field("serverInfo") {
        result.change("_meta", |meta| {
            meta.set(SERVER_INFO, info);
        });
    }
    result.json()
}
