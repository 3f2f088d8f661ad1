//! Writes that wait for their server: made when it is well again, in their order; and what became of each, for whoever asked.
//!
//! The calls are made in a conversation of the gateway's own: whoever asked may be gone by then. What became of one is the
//! resource `seawall://queue/<id>`, for the client that asked for it.

use std::sync::Arc;
use std::time::Duration;

use seawall::Queued;
use serde_json::{Value, json};
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::bridge::pool::own_info;
use crate::call::{Call, Nowhere};
use crate::dispatch::{Caller, Refusal, once};
use crate::gateway::Route;
use crate::ops::store::{Delivery, Store, deliver};
use crate::policies::is_complete;
use crate::resources::Found;
use crate::upstream::Server;
use crate::wire::build;
use crate::wire::edit::{Object, quoted};
use crate::wire::names::{CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, PROTOCOL_VERSION};
use crate::wire::{Id, Kind, Message};

/// How often it is looked whether a server is well.
const LOOK: Duration = Duration::from_millis(250);

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
    type Turn = TaskTrackerToken;

    async fn ready(&self) -> TaskTrackerToken {
        while !self.route.policies.is_well(&self.server.name) || !self.server.reconnect.wait().is_zero() {
            tokio::time::sleep(LOOK).await;
        }
        self.route.lifecycle.call()
    }

    async fn send(&self, _id: &str, call: Queued) -> Result<String, seawall::Failure> {
        let known = self.route.policies.tool(&self.server.name, &call.tool);
        let limit = known.as_ref().map_or(Duration::from_secs(60), |known| known.tool.policy().timeout);
        let request = request(&call).map_err(|text| seawall::classify(&text.into()))?;
        let call = Call::new(request, Arc::new(Nowhere));
        let caller = Caller::Modern("".into());
        let wait = self.server.reconnect.patience_within(limit);
        let sent = once(&self.route, &caller, &self.server, &call, wait);
        let end = match tokio::time::timeout(limit, sent).await {
            Ok(Ok(answer)) if answer.kind() == Kind::Result && !is_complete(&answer) => {
                let words = "it asks for something, and nobody is there to answer";
                Err(seawall::Failure::local(seawall::Cause::InvalidInput, None, words))
            }
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
        };
        // What was read before it is no longer fresh.
        let is_sent = end.as_ref().err().is_none_or(|failure| failure.sent != seawall::Sent::Never);
        if let Some(known) = known.filter(|_| is_sent) {
            known.tool.server().count_write();
        }
        end
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

/// What became of a call, for the client that asked for it. Clients that cannot be told apart may read what any of them asked.
pub async fn read(route: &Route, client: &Arc<str>, id: &str) -> Option<Found> {
    let item = route.store.as_ref()?.item(id).await.ok().flatten()?;
    if item.call.caller != **client {
        return None;
    }
    let outcome: Option<Value> = item.outcome.as_deref().and_then(|json| serde_json::from_str(json).ok());
    let told = json!({
        "id": id, "server": item.call.server, "tool": item.call.tool, "state": item.state, "attempts": item.attempts,
        "enqueued": item.enqueued, "mayHaveExecuted": item.may_have_executed, "note": item.note, "result": outcome,
    });
    Some(told.into())
}
