//! Decides how one subscription spans several servers: one acknowledgement for all. A missing
//! server is waited for, and the client is told when its tools appear.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use seawall::Question;

use crate::call::ask::ask_allowed;
use crate::call::authorize::authorize;
use crate::client::caller::Caller;
use crate::protocol::edit::JsonObject;
use crate::protocol::names::SUBSCRIPTION_ID;
use crate::protocol::{Message, build, limits};
use crate::route::Route;
use crate::upstream::call::{ClientSink, GatewayCall};
use crate::upstream::reply::{Refusal, Reply, answered};
use crate::upstream::startup::ListingProgress;
use crate::upstream::{Connection, Server};

/// The shortest pause before the gateway subscribes to a server again.
const AGAIN: Duration = Duration::from_millis(250);

/// Subscribes to every server until the client leaves or all servers have ended the subscription.
pub(crate) async fn all(route: &Arc<Route>, caller: &Caller, call: &GatewayCall) -> Reply {
    let sink = Arc::new(FirstAcknowledged {
        sink: Arc::clone(&call.sink),
        is_acknowledged: AtomicBool::new(false),
    });
    let call = GatewayCall { sink, ..call.clone() };
    join_all(route.set.servers.iter().map(|server| one(route, caller, server, &call))).await;
    let id = call.request.id().map(|id| id.json().to_vec()).unwrap_or_default();
    let mut meta = JsonObject::default();
    meta.set(SUBSCRIPTION_ID, id);
    let mut result = JsonObject::default();
    result.set("resultType", r#""complete""#).set("_meta", meta.json());
    answered(&result.json())
}

/// Keeps the subscription to one server open until the server ends or refuses it; the server may
/// come up later than the client.
async fn one(route: &Arc<Route>, caller: &Caller, server: &Arc<Server>, call: &GatewayCall) {
    let Some(call) = &until_allowed(route, server, call).await else { return };
    let mut is_missing = server.startup.is_missing();
    let draining = &route.lifecycle.draining;
    while let Some(pool) = route.pool(server) {
        let connection =
            draining.run_until_cancelled(pool.connection(server, call, limits::SERVER_WAIT)).await;
        match connection {
            None => return,
            Some(Ok(connection)) => {
                let listening = ask_allowed(route, caller, server, call);
                let ended =
                    hearing(listening, appears(std::mem::take(&mut is_missing), &connection, call))
                        .await;
                if !matches!(ended, Err(Refusal::Failed(_, failure)) if !failure.is_final()) {
                    return;
                }
            }
            Some(Err(failure)) if failure.is_final() => return,
            Some(Err(_)) => is_missing = true,
        }
        let pause = tokio::time::sleep(server.reconnect.wait().max(AGAIN));
        draining.run_until_cancelled(pause).await;
    }
}

/// The call once it is allowed; `None` if it is denied. Where nobody can say, it is tried again.
async fn until_allowed(
    route: &Arc<Route>,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> Option<GatewayCall> {
    if route.access.is_open(&server.name) {
        return Some(call.clone());
    }
    loop {
        let after = match authorize(route, server, call).await {
            Ok(call) => return Some(call),
            Err(Refusal::NotAllowed(_, refusal)) => refusal.failure().retry_after?,
            Err(_) => return None,
        };
        route.lifecycle.draining.run_until_cancelled(tokio::time::sleep(after)).await?;
    }
}

/// Waits for the end of the subscription; meanwhile `appears` may tell the client of new tools.
async fn hearing(
    listening: impl Future<Output = Reply>,
    appears: impl Future<Output = ()>,
) -> Reply {
    let mut listening = pin!(listening);
    tokio::select! {
        ended = listening.as_mut() => ended,
        () = appears => listening.await,
    }
}

/// Waits until a formerly missing server has listed its tools, then tells the client.
async fn appears(was_missing: bool, connection: &Arc<Connection>, call: &GatewayCall) {
    if !was_missing {
        return;
    }
    let mut listing = connection.watch_listing();
    let is_there = |listing: &ListingProgress| {
        matches!(listing, ListingProgress::Done | ListingProgress::Unasked)
    };
    if matches!(connection.over.run_until_cancelled(listing.wait_for(is_there)).await, Some(Ok(_)))
    {
        appeared(connection, call);
    }
}

/// Tells the client that the tools of a server appeared after it had subscribed.
fn appeared(connection: &Arc<Connection>, call: &GatewayCall) {
    let wanted = call.request.field_json("notifications").map(JsonObject::of).unwrap_or_default();
    let Some(id) = call.request.id().filter(|_| wanted.get("toolsListChanged") == Some(b"true"))
    else {
        return;
    };
    let mut params = JsonObject::default();
    params.change("_meta", |meta| {
        meta.set(SUBSCRIPTION_ID, id.json().to_vec());
    });
    let changed = build::notification("notifications/tools/list_changed", Some(&params.json()));
    if let Ok(changed) = Message::parse(changed) {
        call.sink.notify(connection, changed);
    }
}

/// Passes on the first acknowledgement only: the client subscribed once.
struct FirstAcknowledged {
    sink: Arc<dyn ClientSink>,
    is_acknowledged: AtomicBool,
}

impl ClientSink for FirstAcknowledged {
    fn notify(&self, connection: &Arc<Connection>, notification: Message) {
        let is_acknowledgement =
            notification.method() == "notifications/subscriptions/acknowledged";
        // A swap, because several servers may acknowledge at the same moment.
        if !is_acknowledgement || !self.is_acknowledged.swap(true, Ordering::AcqRel) {
            self.sink.notify(connection, notification);
        }
    }

    fn ask(&self, connection: &Arc<Connection>, question: Message, open: Option<Question>) {
        self.sink.ask(connection, question, open);
    }

    fn is_open(&self) -> bool {
        self.sink.is_open()
    }
}
