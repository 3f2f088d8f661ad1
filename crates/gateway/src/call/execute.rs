//! Runs one call under its tool's policy: the library decides whether, when and how often to
//! attempt it; this file sends every attempt.
//!
//! The first attempt sends the client's own bytes. A fallback may use other arguments or another
//! tool; they are spliced into the request. The server's own last answer is passed on, unless a
//! fallback has a better one.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, Shared};
use seawall::{
    Answer, Attempt, Cause, Effect, ErrorCode, FailureReport, FailureSignals, FallbackBody,
    Outcome, Preset, Rejoin, Sent, TextStyle, Tool, TransportFailure, says_too_many_items,
};
use tokio::time::Instant;

use crate::call::audited;
use crate::call::authorize::authorize;
use crate::call::fallback;
use crate::call::idle_timeout::IdleTimeout;
use crate::call::send::{once, send};
use crate::call::server_error::{error_signals, is_passing};
use crate::catalog::names;
use crate::client::caller::Caller;
use crate::client::detached::{Detachable, DisconnectAction, WaitingClient};
use crate::config::layer::{GatewayPolicy, OnAbandon};
use crate::policy::probes::ProbeOffer;
use crate::policy::registry::{PolicyName, ToolPolicy};
use crate::protocol::edit::{JsonObject, quoted};
use crate::protocol::{Message, MessageKind, arguments, limits};
use crate::route::Route;
use crate::store::journal::{JournaledWrite, Looker, WriteEnd};
use crate::upstream::call::GatewayCall;
use crate::upstream::reply::{Refusal, Reply, with_body};
use crate::upstream::{SendAgain, Server, UpstreamFailure};

/// Runs one call as its policy allows; or answers it with the outcome of the identical call that
/// this client made before and gave up.
pub(crate) async fn execute(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    policy: Arc<ToolPolicy>,
    stand_ins: Option<StandIns>,
    call: &GatewayCall,
) -> Reply {
    let mut execution = Execution::new(route, caller, server, policy, call);
    execution.stand_ins = stand_ins;
    execution.write = execution.noted();
    let own = execution.policy.own;
    call.control.limit_questions(own.question_time);
    let Some(rejoin) = execution.asked.rejoin.clone() else {
        // Boxed, as below: the future of the pipeline lies in the future of a call only once.
        return Box::pin(execution.run()).await;
    };
    let (policies, policy, asked) =
        (&route.policies, Arc::clone(&execution.policy), Arc::clone(&execution.asked));
    // The ledger keeps the answer for a rejoin until the receipt confirms that the client got it.
    call.receipt.want({
        let (policies, policy, asked) =
            (Arc::clone(policies), Arc::clone(&policy), Arc::clone(&asked));
        move || policies.pipeline.delivered(&policy.tool, &asked)
    });
    if let Some(write) = execution.write.clone() {
        call.receipt.want_taken(move || write.delivered());
    }
    let learned = || route.client_limits.of(&rejoin.scope).filter(|_| rejoin.takes);
    // The answer is due before the client's timeout: a tenth of it earlier, at most `CAP_MARGIN`.
    let cap =
        own.client_timeout.or_else(learned).map(|cap| cap - (cap / 10).min(limits::CAP_MARGIN));
    let leaving = match own.on_abandon {
        _ if !rejoin.takes => DisconnectAction::Ends,
        OnAbandon::Finish => DisconnectAction::RunsOn,
        _ if own.client_timeout.is_some() => DisconnectAction::RunsOn,
        // After a cancellation the gateway waits for a write until its outcome is known. For a read
        // it waits only `STOPPED_READ`: losing the answer of a read costs nothing.
        OnAbandon::Cancel | OnAbandon::Forget if policy.tool.policy().effect.is_replayable() => {
            DisconnectAction::IsCancelled(Some(limits::STOPPED_READ))
        }
        OnAbandon::Cancel | OnAbandon::Forget => DisconnectAction::IsCancelled(None),
    };
    if leaving == DisconnectAction::RunsOn {
        // The call runs on, so the server must not see the client's cancellation.
        execution.call.cancel = Arc::default();
    }
    // If a cached response exists, the call ends a little before the client's timeout: a cached
    // response in time is worth more than the report that the call is still running.
    if let Some(cap) = cap.filter(|_| policies.pipeline.has_copy(&policy.tool, &asked)) {
        Arc::make_mut(&mut execution.asked).timeout = Some(cap - cap / 20);
    }
    let limits = Arc::clone(&route.client_limits);
    let client = WaitingClient {
        client: rejoin.scope,
        since: Instant::now(),
        shortest: rejoin.after,
        limits,
    };
    let work = Box::pin(async move { execution.run().await });
    let mut running = Detachable::new(work, call, leaving, &route.detached, client);
    let Some(cap) = cap else { return running.await };
    match tokio::time::timeout(cap, &mut running).await {
        Ok(reply) => reply,
        Err(_) => {
            running.run_on();
            let report = policies.pipeline.still_running(&policy.tool, &asked);
            Err(Refusal::Reported(Box::new(report), policy.has_output_schema))
        }
    }
}

/// What a call brings that may be the probe of a breaker which replicas share.
async fn leased(route: &Route, tool: &Tool) -> Option<ProbeOffer> {
    let fleet = route.fleet.as_ref()?;
    fleet.count(tool);
    fleet.offer(tool).await
}

/// Whether an identical write of the caller may have been executed, or is under way: also one of
/// the process before this one.
pub(crate) fn may_have_run(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
) -> bool {
    let policy = route.policies.call(&server.name, &call.request);
    let Some(policy) = policy.filter(|policy| policy.tool.policy().effect != Effect::ReadOnly)
    else {
        return false;
    };
    // The earlier call was made in the account that this one names.
    let allowed = Arc::new(route.access.passed(&server.name, &call.origin));
    let call = GatewayCall { allowed, ..call.clone() };
    let execution = Execution::new(route, caller, server, policy, &call);
    let _noted = execution.noted();
    route.policies.pipeline.is_pending(&execution.policy.tool, &execution.asked)
}

/// Fetches one list of a server under the policy of its method, waiting up to `wait` for the
/// connection. A server that is away is the catalog's concern: the library does not retry here, and
/// the connection's failure is passed on unchanged.
pub(crate) async fn list(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    call: &GatewayCall,
    wait: Duration,
) -> Reply {
    let Some(policy) = route.policies.method(&server.name, call.request.method()) else {
        return once(route, caller, server, call, wait).await;
    };
    let timeout = policy.tool.policy().timeout;
    let execution = Execution::new(route, caller, server, Arc::clone(policy), call);
    let reply = Execution { list_wait: Some(wait), ..execution }.run().await;
    reply.map_err(|refusal| match refusal {
        Refusal::Reported(report, _) if report.code == ErrorCode::Timeout => {
            Refusal::Failed(report.server, UpstreamFailure::Silent(timeout))
        }
        Refusal::Reported(report, _) => {
            let reason = "failed to give its list several times".to_owned();
            let retry_in = report.retry_after.unwrap_or_default();
            Refusal::Failed(report.server, UpstreamFailure::Away { reason, retry_in })
        }
        other => other,
    })
}

/// Resolves when the alternate servers have been asked for their tool lists.
pub(crate) type StandIns = Shared<BoxFuture<'static, ()>>;

/// One call under its policy, and the state that all its attempts share.
struct Execution {
    route: Arc<Route>,
    caller: Caller,
    server: Arc<Server>,
    policy: Arc<ToolPolicy>,
    call: GatewayCall,
    asked: Arc<seawall::Call>,
    /// For a list: how long to wait for the server's connection.
    list_wait: Option<Duration>,
    /// How often the request may be resent at once, over all attempts.
    again: SendAgain,
    /// The last attempt's own reply, if it is to be passed on unchanged.
    own_words: Mutex<Option<Reply>>,
    /// Resolves when the alternate servers have been asked for their tool lists.
    stand_ins: Option<StandIns>,
    /// The journal's note of a write that must not be resent if this process is killed meanwhile.
    write: Option<Arc<JournaledWrite>>,
}

/// The name of a caller in an account, where the name is known.
fn of_account(name: Arc<str>, account: &Option<Arc<str>>) -> Arc<str> {
    match account {
        Some(account) if !name.is_empty() => format!("{name} {account}").into(),
        _ => name,
    }
}

impl Execution {
    fn new(
        route: &Arc<Route>,
        caller: &Caller,
        server: &Arc<Server>,
        policy: Arc<ToolPolicy>,
        call: &GatewayCall,
    ) -> Self {
        let request = &call.request;
        let raw = match request.method() {
            "tools/call" => request.field_json("arguments").unwrap_or_default(),
            _ => request.body_json(),
        };
        let (arguments, written) = arguments::read(raw);
        let (client, session) =
            (caller.identity(request), caller.conversation(request, policy.own.rejoin));
        // Only reading data resolves an uncertain write; a list of tools shows nothing about its
        // outcome.
        let is_look = matches!(request.method(), "tools/call" | "resources/read");
        // A call with headers of its own is made in somebody's account: nobody else gets its
        // answer, and it cannot be made later without them. Who makes it is told by the client's
        // own headers: what an authorizer adds may differ for each call, and must not make a
        // repeat another.
        let (account, own) = (call.allowed.account(), call.allowed.clients_account());
        let context = arguments::context(request).map(|context| of_account(context, &account));
        let mut rejoin = rejoin(caller, &policy.own, request);
        if let Some(rejoin) = &mut rejoin {
            rejoin.scope = of_account(Arc::clone(&rejoin.scope), &own);
        }
        let asked = seawall::Call {
            arguments: Arc::new(arguments),
            written,
            context: context.or(account),
            caller: of_account(client, &own),
            session: if is_look { of_account(session, &own) } else { Arc::default() },
            timeout: None,
            retried_outside: false,
            debug: wants_debug(request),
            prefix: if route.single().is_some() {
                Arc::default()
            } else {
                names::public(&server.name, "").into()
            },
            principal: kept_origin(route, server, call),
            rejoin,
            control: Some(Arc::clone(&call.control)),
        };
        Self {
            route: Arc::clone(route),
            caller: caller.clone(),
            server: Arc::clone(server),
            policy,
            call: call.clone(),
            asked: Arc::new(asked),
            list_wait: None,
            again: SendAgain::default(),
            own_words: Mutex::default(),
            stand_ins: None,
            write: None,
        }
    }

    /// Journals a write for the process after this one. If the previous process left the same write
    /// unresolved, the library is told that it is uncertain.
    fn noted(&self) -> Option<Arc<JournaledWrite>> {
        let (tool, asked) = (&self.policy.tool, &self.asked);
        let rejoin = asked.rejoin.as_ref().filter(|_| !tool.policy().effect.is_replayable())?;
        let written = asked.written.as_deref().unwrap_or_default();
        let journal = tool.policy().uncertain_write_hold.and(Some(&self.route.journal))?;
        let write = journal.write(rejoin, self.looker(), tool.name(), &asked.arguments, written)?;
        if let Some((sent, unknown)) = write.left_behind() {
            self.route.policies.pipeline.note_uncertain(tool, asked, sent, unknown);
        }
        Some(write)
    }

    /// The session and server whose next successful read resolves an uncertain write.
    fn looker(&self) -> Looker<'_> {
        Looker { conversation: &self.asked.session, server: &self.server.name }
    }

    /// Notes the outcome in the journal: how a write ended, or that a read has resolved earlier
    /// uncertain writes.
    fn note_end(&self, outcome: &Outcome<Message>) {
        if let Some(write) = &self.write {
            write.ended(match outcome {
                Outcome::Failed(report) if report.may_have_executed => WriteEnd::Uncertain,
                Outcome::Failed(_) => WriteEnd::NotExecuted,
                Outcome::Live(_) | Outcome::ToolError(_) | Outcome::Served(_) => WriteEnd::Answered,
            });
        }
        let is_look =
            self.policy.tool.policy().effect == Effect::ReadOnly && !self.asked.session.is_empty();
        let has_looked = is_look && !self.call.control.has_left();
        if has_looked
            && matches!(outcome, Outcome::Live(answer) if answer.kind() == MessageKind::Result)
        {
            self.route.journal.looked(self.looker());
        }
    }

    async fn run(&self) -> Reply {
        let (route, policy) = (&self.route, &self.policy);
        let _lease = leased(route, &policy.tool).await;
        // Boxed: a hedged tool has several attempts at a time in the pipeline, and an attempt is a
        // large future.
        let send = |attempt| -> BoxFuture<'_, _> { Box::pin(self.send(attempt)) };
        let mut run = pin!(route.policies.pipeline.run(&policy.tool, &self.asked, send));
        // Shutdown ends calls in flight with the outcome they have by then. Biased: the shutdown is
        // checked before the pipeline is polled, so that no further attempt starts.
        let ended = tokio::select! {
            biased;
            () = route.lifecycle.closing.cancelled() => None,
            answer = run.as_mut() => Some(answer),
        };
        let answer = match ended {
            Some(answer) => Some(answer),
            None => {
                self.call.control.make_last();
                tokio::time::timeout(limits::LAST_ANSWER, run).await.ok()
            }
        };
        let about = (&self.call, &*self.asked);
        audited::ended(route, &self.caller, &self.server, policy, about, answer.as_ref());
        let answer = answer.ok_or_else(|| self.cut_off())?;
        self.note_end(&answer.outcome);
        self.reply(answer)
    }

    /// The refusal of a call that the shutdown ends without an outcome: nobody knows whether a
    /// write was executed. A list is read only, and its failure is the catalog's concern.
    fn cut_off(&self) -> Refusal {
        if self.list_wait.is_some() {
            let lost = UpstreamFailure::Lost("the gateway ends".to_owned());
            return Refusal::Failed(self.server.name.clone(), lost);
        }
        let (pipeline, policy) = (&self.route.policies.pipeline, &self.policy);
        let report = pipeline.cut_off(&policy.tool, &self.asked.prefix);
        Refusal::Reported(Box::new(report), policy.has_output_schema)
    }

    /// Turns the pipeline's answer into the client's reply.
    fn reply(&self, answer: Answer<Message>) -> Reply {
        let (policy, era) = (&self.policy, self.caller.era());
        let effect = policy.tool.policy().effect;
        let reply = match answer.outcome {
            Outcome::Live(value) => self.fit(value),
            Outcome::ToolError(error) => {
                fallback::tool_error(era, *error).and_then(|answer| self.fit(answer))
            }
            Outcome::Served(mut fallback) => {
                if let FallbackBody::Value(value) = fallback.body {
                    fallback.body = FallbackBody::Value(self.fit(value)?);
                }
                let has_schema = policy.has_output_schema && self.is_listed();
                fallback::result(era, &fallback, &answer.warnings, has_schema)
            }
            Outcome::Failed(mut report) => {
                if self.route.policies.rules().preset == Preset::Gitnexus {
                    self.tell_as_gitnexus(&mut report);
                }
                return self
                    .words()
                    .take()
                    .unwrap_or_else(|| Err(Refusal::Reported(report, policy.has_output_schema)));
            }
        };
        match answer.rejoined {
            Some(age) => reply.and_then(|answer| fallback::rejoined(era, answer, age, effect)),
            None => reply,
        }
    }

    /// The answer, or an excerpt where it exceeds `max_result`. A result with an output schema
    /// stays whole, for an excerpt would break the schema.
    fn fit(&self, value: Message) -> Reply {
        match self.policy.own.max_result.filter(|_| !self.policy.has_output_schema) {
            Some(limit) => {
                self.route.results.fit(&self.caller, &self.server.name, &self.call, value, limit)
            }
            None => Ok(value),
        }
    }

    /// Sends one attempt. After a failed attempt, waits briefly for the lists of alternate servers,
    /// so that the fallbacks that follow know their tools.
    async fn send(&self, attempt: Attempt) -> Result<Message, FailureSignals> {
        let (began, limit) = (Instant::now(), attempt.timeout);
        let server = self.route.find(attempt.server()).unwrap_or(&self.server);
        let sent =
            self.send_once(server, attempt).await.map_err(|signals| server.discreet(signals));
        if let (Err(_), Some(stand_ins)) = (&sent, self.stand_ins.clone()) {
            // At most half of the remaining time: if the attempt were cut off here, its failure
            // would be reported as a timeout instead of its own cause.
            let _in_time =
                tokio::time::timeout(limit.saturating_sub(began.elapsed()) / 2, stand_ins).await;
        }
        sent
    }

    async fn send_once(
        &self,
        server: &Arc<Server>,
        attempt: Attempt,
    ) -> Result<Message, FailureSignals> {
        *self.words() = None;
        let watched = IdleTimeout::over(&self.call, self.policy.own.idle_timeout.is_some());
        let ends = Instant::now().checked_add(attempt.timeout);
        let call = GatewayCall { ends, ..self.as_attempted(&attempt, watched.call()?)? };
        let call = self.allowed(server, &attempt, call).await?;
        self.write.iter().for_each(|write| write.begin());
        let asked = pin!(self.ask(server, &call, attempt.timeout));
        let reply = watched.run(self.policy.own.idle_timeout, asked).await;
        match reply {
            Ok(answer) if is_passing(&answer) || self.has_too_many_items(&answer) => {
                let signals = error_signals(&answer);
                // A list's error goes to the catalog as it is; for every other call the library
                // reports the failure.
                *self.words() = self.list_wait.is_some().then_some(Ok(answer));
                Err(signals)
            }
            // A final answer of the server stands, also if it is an error: no cached response may
            // replace it.
            Ok(answer) => Ok(answer),
            Err(Refusal::Failed(name, failure)) if self.list_wait.is_some() => {
                let signals = failure.signals();
                *self.words() = Some(Err(Refusal::Failed(name, failure)));
                // Nothing was sent, so for the pipeline the server is away: that is never retried
                // here.
                let is_away = signals.sent == Sent::Never;
                Err(if is_away {
                    FailureSignals::transport(TransportFailure::Away, signals.message)
                } else {
                    signals
                })
            }
            Err(Refusal::Failed(_, failure)) => Err(failure.signals()),
            Err(Refusal::Wrong(error)) => {
                let signals =
                    FailureSignals::rpc(error.code, error.message.clone()).with_sent(Sent::Never);
                *self.words() = self.is_own(&attempt).then_some(Err(Refusal::Wrong(error)));
                Err(signals)
            }
            Err(Refusal::Reported(report, _)) => Err(FailureSignals::text(report.message)),
            Err(Refusal::NotAllowed(_, refusal)) => Err(refusal.signals()),
        }
    }

    /// The call, if it may be made. The client's own call was allowed before it came here; another
    /// tool or other arguments are another call.
    async fn allowed(
        &self,
        server: &Arc<Server>,
        attempt: &Attempt,
        call: GatewayCall,
    ) -> Result<GatewayCall, FailureSignals> {
        if self.is_own(attempt) {
            return Ok(call);
        }
        if self.route.access.is_open(&server.name) {
            // The headers of the client's own call are for its own server.
            return Ok(GatewayCall { allowed: Arc::default(), ..call });
        }
        authorize(&self.route, server, &call).await.map_err(|refusal| match refusal {
            Refusal::NotAllowed(_, refusal) => refusal.signals(),
            _ => FailureSignals::text("it may not be asked").with_sent(Sent::Never),
        })
    }

    /// Asks the server, and resends at once if the server certainly did not process the request.
    /// All attempts at the call's own server share one allowance for this.
    async fn ask(&self, server: &Arc<Server>, call: &GatewayCall, timeout: Duration) -> Reply {
        let (begun, others) = (Instant::now(), SendAgain::default());
        let again = if Arc::ptr_eq(server, &self.server) { &self.again } else { &others };
        let wait =
            |is_away| self.patience(server, timeout, is_away).saturating_sub(begun.elapsed());
        send(&self.route, &self.caller, server, call, again, wait).await
    }

    /// How long to wait for a server that is away. With a cached response at hand, only as long as
    /// the first retry's backoff: a cached response now is worth more than a live answer later.
    fn patience(&self, server: &Server, timeout: Duration, is_away: bool) -> Duration {
        let tool = &self.policy.tool;
        let patience = self.list_wait.unwrap_or_else(|| server.reconnect.patience_within(timeout));
        let has_copy = || self.route.policies.pipeline.has_copy(tool, &self.asked);
        // GitNexus's agents are told at once that the connection is lost, and when to come back.
        if is_away && self.list_wait.is_none() && self.route.policies.rules().tells_loss_at_once() {
            return Duration::ZERO;
        }
        if is_away && has_copy() {
            patience.min(tool.policy().retry.backoff.base)
        } else {
            patience
        }
    }

    /// Phrases the loss of a server in GitNexus's words ("connection lost"), with the time of the
    /// next reconnection attempt.
    fn tell_as_gitnexus(&self, report: &mut FailureReport) {
        let is_away = report.failure.cause == Cause::Away;
        if report.code == ErrorCode::ConnectionLost {
            let next = self.server.reconnect.wait().max(Duration::from_secs(1));
            report.retry_after = report.retry_after.or(Some(next));
        }
        if is_away {
            report.message = report.text(TextStyle::Gitnexus);
        }
    }

    /// Whether the server refused a batch for having too many items; the fallback then splits it.
    fn has_too_many_items(&self, answer: &Message) -> bool {
        let is_batch = self.policy.tool.policy().kind == Some(seawall::Kind::Batch);
        is_batch
            && answer.kind() == MessageKind::Error
            && answer.field_text("message").is_some_and(|text| says_too_many_items(&text))
    }

    fn words(&self) -> MutexGuard<'_, Option<Reply>> {
        self.own_words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server listed the tool, so that clients know its output schema.
    fn is_listed(&self) -> bool {
        self.route.policies.named(&self.server.name, self.policy.tool.name()) == PolicyName::Tool
    }

    /// Whether an attempt carries the client's own tool and arguments, not those of a fallback.
    fn is_own(&self, attempt: &Attempt) -> bool {
        let tool = &self.policy.tool;
        let is_same_tool =
            attempt.tool() == tool.name() && attempt.server() == tool.server().name();
        is_same_tool && Arc::ptr_eq(&attempt.arguments, &self.asked.arguments)
    }

    /// The request of an attempt: the client's own bytes, or with the tool and arguments of a
    /// fallback.
    fn as_attempted(
        &self,
        attempt: &Attempt,
        call: GatewayCall,
    ) -> Result<GatewayCall, FailureSignals> {
        if self.is_own(attempt) {
            return Ok(call);
        }
        let mut params = JsonObject::of(call.request.body_json());
        params.set("name", quoted(attempt.tool())).set("arguments", attempt.arguments.to_string());
        let request = with_body(&call.request, &params.json());
        let request =
            request.map_err(|_| FailureSignals::text("the arguments cannot be written"))?;
        // The client's headers mirror the original arguments, not the fallback's.
        Ok(GatewayCall { request, mirrored: None, ..call })
    }
}

/// The rejoin key of a call: whether an identical call counts as the same call, and of which
/// client. A call that carries the answer to a server's question continues the earlier call.
fn rejoin(caller: &Caller, own: &GatewayPolicy, request: &Message) -> Option<Rejoin> {
    let is_call = request.method() == "tools/call";
    let is_kept = own.on_abandon != OnAbandon::Forget || own.client_timeout.is_some();
    let (scope, takes) = caller.rejoins(request, own.rejoin).filter(|_| is_call)?;
    // If answers are not kept, no client gets one by rejoining; the ledger still prevents a write
    // from running twice at the same time.
    let continues = request.field("requestState").is_some();
    Some(Rejoin { scope, after: own.rejoin_after, takes: takes && is_kept, continues })
}

/// The caller as the queue keeps it, where a write must be allowed again when it is delivered.
fn kept_origin(route: &Route, server: &Server, call: &GatewayCall) -> Option<Arc<str>> {
    let principal = call.origin.principal.as_ref().filter(|_| route.store.is_some())?;
    serde_json::to_string(&route.access.kept(&server.name, principal)).ok().map(Into::into)
}

/// Whether the client asks for debug details of a failure.
fn wants_debug(request: &Message) -> bool {
    ["seawall/debug", "debug"].iter().any(|name| request.meta_json(name) == Some(b"true"))
}
