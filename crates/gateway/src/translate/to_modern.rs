//! Translates a legacy client's call for a modern server: the session's state goes with each
//! request, the server's questions are put to the client, and the answer gets its legacy form.

use std::sync::Arc;

use super::subscribe;
use crate::client::session::Session;
use crate::client::stream::ClientStream;
use crate::protocol::build::{self, RpcError};
use crate::protocol::edit::{self, JsonObject, quoted};
use crate::protocol::names::{CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION};
use crate::protocol::{Message, MessageKind, limits, scan};
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply, answered, parsed, with_body};
use crate::upstream::{Connection, Server};

/// Sends one call and translates its answer.
pub(crate) async fn exchange(
    session: &Arc<Session>,
    stream: &Arc<ClientStream>,
    server: &Arc<Server>,
    connection: &Arc<Connection>,
    call: &GatewayCall,
) -> Reply {
    let request = &call.request;
    match request.method() {
        "ping" => answered(b"{}"),
        "logging/setLevel" => {
            session.set_log_level(request);
            answered(b"{}")
        }
        "resources/subscribe" | "resources/unsubscribe" => {
            let Some(uri) = request.field_text("uri") else {
                return Err(RpcError::new(build::INVALID_PARAMS, "\"uri\" is missing").into());
            };
            subscribe::change(session, connection, &uri, request.method() == "resources/subscribe");
            answered(b"{}")
        }
        _ => rounds(session, stream, server, connection, call).await,
    }
}

/// Repeats the request with the client's answers until the server needs no more input.
async fn rounds(
    session: &Arc<Session>,
    stream: &Arc<ClientStream>,
    server: &Arc<Server>,
    connection: &Arc<Connection>,
    call: &GatewayCall,
) -> Reply {
    let mut params = modern_params(session, &call.request);
    for _ in 0..limits::INPUT_ROUNDS {
        let request = with_body(&call.request, &params)?;
        let round = GatewayCall { request, ..call.clone() };
        let round = server
            .header_params
            .settle(connection, &round, server.sees_headers(connection))
            .await?;
        let answer = connection
            .request(&round)
            .await
            .map_err(|failure| Refusal::Failed(server.name.clone(), failure))?;
        if answer.field_text("resultType").as_deref() != Some("input_required") {
            return legacy_answer(&call.request, answer);
        }
        // People are slower than servers: the time a client takes for an answer is not charged to
        // the call.
        let question = call.control.question();
        let responses = ask_client(session, stream, &answer).await?;
        drop(question);
        let mut next = JsonObject::of(&params);
        next.set("inputResponses", responses);
        match answer.field_json("requestState") {
            Some(state) => next.set("requestState", state),
            None => next.remove("requestState"),
        };
        params = next.json();
    }
    Err(RpcError::new(
        build::INTERNAL_ERROR,
        format!("the server asked for input {} times", limits::INPUT_ROUNDS),
    )
    .into())
}

/// The client's params with the metadata that a modern server expects in each request.
fn modern_params(session: &Session, request: &Message) -> Vec<u8> {
    let mut params = JsonObject::of(request.body_json());
    params.change("_meta", |meta| {
        if let Some(handshake) = session.handshake.get() {
            let common = JsonObject::of(&handshake.meta);
            for name in [PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO] {
                if let Some(value) = common.get(name) {
                    meta.set(name, value);
                }
            }
        }
        if let Some(level) = session.log_level() {
            meta.set(LOG_LEVEL, quoted(&level));
        }
    });
    params.json()
}

/// Puts the server's questions to the client, one by one, in the server's order.
async fn ask_client(
    session: &Session,
    stream: &ClientStream,
    answer: &Message,
) -> Result<Vec<u8>, Refusal> {
    let mut responses = JsonObject::default();
    let Some(questions) = answer.field("inputRequests") else { return Ok(responses.json()) };
    for question in scan::members(answer.raw(), questions) {
        let asked = JsonObject::of(question.value.of(answer.raw()));
        let key = scan::text(question.key.of(answer.raw())).unwrap_or_default();
        let method = asked.get("method").and_then(scan::text).unwrap_or_default();
        let reply = session.ask(stream, &method, asked.get("params").unwrap_or(b"{}")).await;
        match reply {
            Some(reply) if reply.kind() == MessageKind::Result => {
                responses.set(&key, reply.body_json())
            }
            Some(reply) => {
                let text = reply.field_text("message").unwrap_or_default();
                return Err(RpcError::new(
                    build::INTERNAL_ERROR,
                    format!("the client did not answer {method}: {text}"),
                )
                .into());
            }
            None => {
                return Err(RpcError::new(
                    build::INTERNAL_ERROR,
                    format!("the client could not be asked {method}"),
                )
                .into());
            }
        };
    }
    Ok(responses.json())
}

/// A modern answer without the fields of the modern era.
fn legacy_answer(request: &Message, answer: Message) -> Reply {
    if answer.kind() == MessageKind::Error {
        // A resource that does not exist: invalid params in the modern era, -32002 in the legacy
        // one.
        let is_missing =
            request.method() == "resources/read" && answer.field_json("code") == Some(b"-32602");
        let Some(code) = answer.field("code").filter(|_| is_missing) else { return Ok(answer) };
        return parsed(edit::splice(answer.raw(), &mut [(code, b"-32002")]));
    }
    let is_known = answer.field_text("resultType").is_none_or(|kind| kind == "complete");
    if !is_known {
        return Ok(answer);
    }
    let mut result = JsonObject::of(answer.body_json());
    result.remove("resultType").remove("ttlMs").remove("cacheScope");
    with_body(&answer, &result.json())
}
