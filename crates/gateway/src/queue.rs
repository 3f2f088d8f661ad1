//! Writes that wait for their server: made when it is well again, in their order; and what became of each, for whoever asked.
//!
//! The calls are made in a conversation of the gateway's own: whoever asked may be gone by then. What became of one is the
//! resource `seawall://queue/<id>`, for the client that asked for it.

use std::sync::Arc;
use std::time::Duration;

use seawall::Queued;
use serde_json::{Value, json};

use crate::bridge::pool::own_info;
use crate::bridge::to_modern::answered;
use crate::call::{Call, Nowhere};
use crate::dispatch::{Caller, Refusal, Reply, once};
use crate::gateway::Route;
use crate::ops::store::{Delivery, Store, deliver};
use crate::upstream::Server;
use crate::wire::build::{self, Error};
use crate::wire::edit::{Object, quoted};
use crate::wire::names::{CLIENT_CAPABILITIES, CLIENT_INFO, Era, MODERN, PROTOCOL_VERSION};
use crate::wire::{Id, Kind, Message};

/// Before the id of an item.
const ADDRESS: &str = "seawall://queue/";
/// How often it is looked whether a server is well.
const LOOK: Duration = Duration::from_millis(250);

/// The address under which a client reads what became of its call.
pub fn address(id: &str) -> String {
    format!("{ADDRESS}{id}")
}

/// Delivers to every server until the gateway goes down.
pub fn start(route: &Arc<Route>, store: &Store) {
    for server in &route.servers {
        let to = ToServer { route: Arc::clone(route), server: Arc::clone(server) };
        let (store, stop) = (store.clone(), route.lifecycle.draining.clone());
        route
            .lifecycle
            .spawn(async move { deliver(&store, &to.server.name, &to, to.route.policies.env(), &stop).await });
    }
}

struct ToServer {
    route: Arc<Route>,
    server: Arc<Server>,
}

impl Delivery for ToServer {
    async fn ready(&self) {
        while !self.route.policies.is_well(&self.server.name) || !self.server.reconnect.wait().is_zero() {
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn send(&self, _id: &str, call: Queued) -> Result<String, seawall::Failure> {
        let known = self.route.policies.tool(&self.server.name, &call.tool);
        let limit = known.map_or(Duration::from_secs(60), |known| known.tool.policy().timeout);
        let request = request(&call).map_err(|text| seawall::classify(&text.into()))?;
        let call = Call::new(request, Arc::new(Nowhere));
        let caller = Caller::Modern("".into());
        let wait = self.server.reconnect.patience_within(limit);
        let sent = once(&self.route, &caller, &self.server, &call, wait);
        match tokio::time::timeout(limit, sent).await {
            Ok(Ok(answer)) if answer.kind() == Kind::Result => {
                Ok(String::from_utf8_lossy(answer.body_json()).into_owned())
            }
            Ok(Ok(answer)) => Err(seawall::classify(&crate::carry::error_signals(&answer))),
            Ok(Err(Refusal::Failed(_, failure))) => Err(seawall::classify(&failure.signals())),
            Ok(Err(Refusal::Wrong(error))) => Err(seawall::classify(&seawall::Signals::rpc(error.code, error.message))),
            Ok(Err(Refusal::Reported(report, _))) => Err(report.failure),
            Err(_) => {
                Err(seawall::classify(&seawall::Signals::transport(seawall::Transport::Timeout, "no answer in time")))
            }
        }
    }
}

/// The call as a client of the modern era would make it.
fn request(call: &Queued) -> Result<Message, &'static str> {
    let mut meta = Object::default();
    meta.set(PROTOCOL_VERSION, quoted(MODERN)).set(CLIENT_CAPABILITIES, "{}").set(CLIENT_INFO, own_info());
    let mut params = Object::default();
    params.set("name", quoted(&call.tool)).set("arguments", call.arguments.to_string()).set("_meta", meta.json());
    let bytes = build::request(&Id::number(0), "tools/call", &params.json());
    Message::parse(bytes).map_err(|_| "the call cannot be written")
}

/// Whether a request asks what became of a call.
pub fn is_about(request: &Message) -> bool {
    request.method() == "resources/read" && request.field_text("uri").is_some_and(|uri| uri.starts_with(ADDRESS))
}

/// What became of a call, for the client that asked for it.
pub async fn read(route: &Route, caller: &Caller, call: &Call) -> Reply {
    let uri = call.request.field_text("uri").unwrap_or_default().into_owned();
    let id = uri.strip_prefix(ADDRESS).unwrap_or_default();
    let unknown = || Refusal::Wrong(Error::new(build::INVALID_PARAMS, format!("nothing is known of {uri}")));
    let store = route.store.as_ref().ok_or_else(unknown)?;
    let item = store.item(id).await.ok().flatten().ok_or_else(unknown)?;
    let (client, _) = caller.identity(&call.request);
    // Whose call it was decides, and clients that cannot be told apart may read what any of them asked for.
    if item.call.caller != *client {
        return Err(unknown());
    }
    let outcome: Option<Value> = item.outcome.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let told = json!({
        "id": id, "server": item.call.server, "tool": item.call.tool, "state": item.state, "attempts": item.attempts,
        "enqueued": item.enqueued, "mayHaveExecuted": item.may_have_executed, "note": item.note, "result": outcome,
    });
    let content = json!({"uri": uri, "mimeType": "application/json", "text": told.to_string()});
    let mut result = json!({"contents": [content]});
    if caller.era() == Era::Modern {
        result["resultType"] = "complete".into();
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
    answered(result.to_string().as_bytes())
}
