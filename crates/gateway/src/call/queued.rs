//! Decides how a queued write is delivered: in order, once its server is well again, in a call that
//! the library's policies guard.
//!
//! Deliveries use a connection of the gateway's own, for the client that queued the write may have
//! left by then. That client reads the outcome as the resource `seawall://queue/<id>`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use seawall::{
    Attempt, Cause, Disposition, Failure, FailureSignals, Outcome, QueuedWrite, Sent, ToolError,
};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::authz::external::Allowance;
use crate::authz::external::question::CheckQuestion;
use crate::authz::{AuthzRefusal, CallOrigin, Principal};
use crate::call::audited;
use crate::call::send::once;
use crate::call::server_error::{error_signals, is_passing};
use crate::client::caller::Caller;
use crate::policy::registry::is_complete;
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::names::{CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, PROTOCOL_VERSION};
use crate::protocol::{Id, Message, MessageKind, build};
use crate::queue::{Delivery, QueueStore, SendPermit, deliver};
use crate::route::Route;
use crate::translate::pool::own_info;
use crate::upstream::Server;
use crate::upstream::call::{GatewayCall, NoClient};
use crate::upstream::reply::Refusal;

/// The delivery tasks of a route, one per server.
pub(crate) struct QueueDeliveries {
    stop: CancellationToken,
    tasks: HashMap<String, TaskTracker>,
}

/// Starts one delivery task per server; each runs until the gateway drains, or until another route
/// takes over from it. A task begins when the one `before` it has recorded its last attempt: two at
/// once could send an item twice.
pub(crate) fn start(
    route: &Arc<Route>,
    store: &QueueStore,
    before: Option<QueueDeliveries>,
) -> QueueDeliveries {
    let mut earlier = before.map_or_else(HashMap::new, |before| {
        before.stop.cancel();
        before.tasks
    });
    let stop = route.lifecycle.draining.child_token();
    let mut tasks = HashMap::new();
    for server in &route.set.servers {
        let to = QueueDelivery { route: Arc::clone(route), server: Arc::clone(server) };
        let (store, stop) = (store.clone(), stop.clone());
        let earlier = earlier.remove(&server.name).unwrap_or_default();
        let task = TaskTracker::new();
        route.lifecycle.spawn(task.track_future(async move {
            earlier.close();
            earlier.wait().await;
            deliver(&store, &to.server.name, &to, to.route.policies.env(), &stop).await;
        }));
        task.close();
        tasks.insert(server.name.clone(), task);
    }
    // A server that is gone may come back before its last attempt is over.
    tasks.extend(earlier.into_iter().filter(|(_, task)| !task.is_empty()));
    QueueDeliveries { stop, tasks }
}

struct QueueDelivery {
    route: Arc<Route>,
    server: Arc<Server>,
}

impl Delivery for QueueDelivery {
    type Turn = TaskTrackerToken;

    async fn ready(&self, tool: &str) -> TaskTrackerToken {
        let (policies, reconnect) = (&self.route.policies, &self.server.reconnect);
        // Subscribed before the first look: a change between the look and the wait still wakes this
        // loop. The returned token counts as a call in flight, so a shutdown waits for the attempt.
        let (mut breakers, mut tries) = (policies.breaker_changes(), reconnect.tries());
        loop {
            let wait = policies.kept_back(&self.server.name, tool).max(reconnect.wait());
            if wait.is_zero() {
                return self.route.lifecycle.call();
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                Ok(()) = breakers.changed() => {}
                Ok(()) = tries.changed() => {}
            }
        }
    }

    async fn back(&self) {
        let reconnect = &self.server.reconnect;
        let (mut breakers, mut tries) = (self.route.policies.breaker_changes(), reconnect.tries());
        loop {
            tokio::select! {
                Ok(()) = breakers.changed() => {}
                Ok(()) = tries.changed() => {}
                else => std::future::pending().await,
            }
            // A breaker that closes or a reconnection that ends is only a hint; the server is back
            // once its last connection failure is cleared.
            if reconnect.last().is_none() {
                return;
            }
        }
    }

    async fn send(&self, call: QueuedWrite, leave: &SendPermit<'_>) -> Result<String, Failure> {
        let policies = &self.route.policies;
        let known = policies.tool(&self.server.name, &call.tool);
        let known = known
            .ok_or_else(|| Failure::local(Cause::Unavailable, None, "its server is not there"))?;
        // The tool's policy applies to this call too, but for the loop guard, hold of uncertain
        // writes, hedge, retries and fallbacks: the repetition is intended, the queue makes the
        // retries, and an answer from elsewhere is no delivery.
        let tool = known.tool.once(call.effect);
        let request = request(&call).map_err(|text| seawall::classify(&text.into()))?;
        let refused = |_: &Failure| audited::delivered(&self.route, &call, None);
        let allowed = self.allowed(&call, &request).await.inspect_err(refused)?;
        let write = call.clone();
        let asked =
            seawall::Call { caller: call.caller.into(), ..seawall::Call::new(call.arguments) };
        let trace = self.route.tracer.of_its_own();
        let call = GatewayCall { allowed, trace, ..GatewayCall::new(request, Arc::new(NoClient)) };
        // A `Retry-After` pause, the bulkhead and the rate limiter may hold the attempt back for
        // long. The item is marked as sent only here, after those waits: until then the server got
        // nothing.
        let send = |attempt: Attempt| {
            let call = &call;
            async move {
                match leave.take().await {
                    true => self
                        .attempt(call, attempt.timeout)
                        .await
                        .map_err(|signals| self.server.discreet(signals)),
                    false => {
                        Err(FailureSignals::text("its turn has passed").with_sent(Sent::Never))
                    }
                }
            }
        };
        let _lease = match &self.route.fleet {
            Some(fleet) => fleet.offer(&tool).await,
            None => None,
        };
        let answer = policies.pipeline.run(&tool, &asked, send).await;
        audited::delivered(&self.route, &write, Some(&answer));
        match answer.outcome {
            Outcome::Live(answer) => outcome(&answer, &self.server),
            Outcome::ToolError(error) => self.tool_error(*error),
            Outcome::Failed(report) => Err(report.failure),
            Outcome::Served(_) => Err(Failure::local(
                Cause::Unavailable,
                None,
                "something else answered in its place",
            )),
        }
    }
}

impl QueueDelivery {
    /// Checks again whether whoever queued the write may make it: what was allowed then may be
    /// denied by now.
    async fn allowed(
        &self,
        write: &QueuedWrite,
        request: &Message,
    ) -> Result<Arc<Allowance>, Failure> {
        let access = &self.route.access;
        if access.is_open(&self.server.name) {
            return Ok(Arc::default());
        }
        let kept: Option<Principal> =
            write.principal.as_deref().and_then(|kept| serde_json::from_str(kept).ok());
        let principal = match (&access.identity, kept) {
            (Some(identity), Some(kept)) => Some(identity.known_now(kept).ok_or_else(|| {
                AuthzRefusal::denied(401, "whoever queued it is not known any more").failure()
            })?),
            (_, kept) => kept,
        };
        let origin = CallOrigin::of_kept(principal, &write.caller);
        let question = CheckQuestion::new(&self.server.name, request, &origin);
        let verdict = access.check(&question).await;
        verdict.map(Arc::new).map_err(|refusal| refusal.failure())
    }

    /// A tool error that is plainly a transient failure (a 503 in words) fails the attempt, so that
    /// the queue may retry where that does no harm; every other tool error is the tool's own
    /// result.
    fn tool_error(&self, error: ToolError<Message>) -> Result<String, Failure> {
        let failure = error.report.failure;
        match failure.disposition == Disposition::Transient {
            true => Err(Failure { message: self.server.hidden(&failure.message), ..failure }),
            false => outcome(&error.value, &self.server),
        }
    }

    async fn attempt(
        &self,
        call: &GatewayCall,
        limit: Duration,
    ) -> Result<Message, FailureSignals> {
        let wait = self.server.reconnect.patience_within(limit);
        match once(&self.route, &Caller::Modern("".into()), &self.server, call, wait).await {
            Ok(answer) if is_passing(&answer) => Err(error_signals(&answer)),
            Ok(answer) => Ok(answer),
            Err(Refusal::Failed(_, failure)) => Err(failure.signals()),
            Err(Refusal::Wrong(error)) => {
                Err(FailureSignals::rpc(error.code, error.message).with_sent(Sent::Never))
            }
            Err(Refusal::Reported(report, _)) => Err(FailureSignals::text(report.message)),
            Err(Refusal::NotAllowed(_, refusal)) => Err(refusal.signals()),
        }
    }
}

/// The outcome of an answered delivery: the tool's result as JSON, or a failure for an error and
/// for an answer that asks for input.
fn outcome(answer: &Message, server: &Server) -> Result<String, Failure> {
    if answer.kind() == MessageKind::Error {
        return Err(seawall::classify(&server.discreet(error_signals(answer))));
    }
    if !is_complete(answer) {
        let words = "it asks for something, and nobody is there to answer";
        // The tool may have acted before it asked.
        return Err(Failure {
            sent: Sent::Maybe,
            ..Failure::local(Cause::InvalidInput, None, words)
        });
    }
    Ok(String::from_utf8_lossy(answer.body_json()).into_owned())
}

/// The queued write as a `tools/call` request of a modern client.
fn request(call: &QueuedWrite) -> Result<Message, &'static str> {
    let mut meta = JsonObject::default();
    meta.set(PROTOCOL_VERSION, quoted(MODERN))
        .set(CLIENT_CAPABILITIES, "{}")
        .set(CLIENT_INFO, own_info());
    let mut params = JsonObject::default();
    params.set("name", quoted(&call.tool)).set("_meta", meta.json());
    if !call.arguments.is_null() {
        params.set("arguments", call.arguments.to_string());
    }
    let bytes = build::request(&Id::number(0), "tools/call", &params.json());
    Message::parse(bytes).map_err(|_| "the call cannot be written")
}
