//! A call under its tool's policy: the library decides whether, when and how often; every attempt goes out from here.
//!
//! The first attempt sends the client's own bytes. A fallback may ask with other arguments, or another tool: then they
//! are put in their place. What the server itself said last stays its answer, unless a fallback has a better one.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use seawall::{Attempt, Disposition, Outcome, Sent, Signals};
use serde_json::Value;

use crate::bridge::to_modern::with_body;
use crate::call::Call;
use crate::catalog::layer::OnAbandon;
use crate::catalog::names;
use crate::dispatch::{Caller, Refusal, Reply, once};
use crate::gateway::Route;
use crate::late::{Abandonable, Whose};
use crate::policies::ToolPolicy;
use crate::served;
use crate::upstream::{Failure, Server};
use crate::watched::Watched;
use crate::wire::edit::{Object, quoted};
use crate::wire::{Kind, Message, limits};

/// One call, answered as its policy allows; or with what the same call of this client came to after it was given up.
pub async fn carry(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    policy: Arc<ToolPolicy>,
    call: &Call,
) -> Reply {
    let arguments = Arc::new(arguments(&call.request));
    if call.request.method() != "tools/call" {
        return run(route, caller, server, &policy, call, &arguments).await;
    }
    let (own, timeout) = (policy.own, policy.tool.policy().timeout);
    let whose = Whose {
        client: caller.identity(&call.request).0,
        server: server.name.clone(),
        tool: policy.tool.name().to_owned(),
        arguments: Arc::clone(&arguments),
    };
    let early = own.client_cap.map(|cap| cap - (cap / 10).min(limits::CAP_MARGIN)).filter(|_| !whose.client.is_empty());
    if let Some((reply, age)) = route.late.join(&whose, early.unwrap_or(timeout)).await {
        return reply.and_then(|answer| served::late(caller.era(), answer, age));
    }
    // One that is to finish does not hear that its client left.
    let call = if own.on_abandon == OnAbandon::Finish || early.is_some() {
        Call { cancel: Arc::default(), ..call.clone() }
    } else {
        call.clone()
    };
    let (cancel, held) = (Arc::clone(&call.cancel), Arc::clone(&call.held));
    let (route, caller, server) = (Arc::clone(route), caller.clone(), Arc::clone(server));
    let (late, shown) = (Arc::clone(&route.late), shown(&route, &server, policy.tool.name()));
    let (era, name) = (caller.era(), server.name.clone());
    let work = Box::pin(async move { run(&route, &caller, &server, &policy, &call, &arguments).await });
    let mut call = Abandonable::new(&late, whose, work, move || {
        if own.on_abandon == OnAbandon::Finish || early.is_some() {
            return timeout;
        }
        held.make_last();
        cancel.cancel(Bytes::new());
        limits::LATE_WAIT
    });
    match early {
        None => call.await,
        Some(early) => match tokio::time::timeout(early, &mut call).await {
            Ok(reply) => reply,
            Err(_) => served::still_running(era, &shown, &name),
        },
    }
}

/// The tool's name as clients of this route know it.
fn shown(route: &Route, server: &Server, tool: &str) -> String {
    if route.single().is_some() { tool.to_owned() } else { names::public(&server.name, tool) }
}

/// One call under its policy.
async fn run(
    route: &Arc<Route>,
    caller: &Caller,
    server: &Arc<Server>,
    policy: &ToolPolicy,
    call: &Call,
    arguments: &Arc<Value>,
) -> Reply {
    let own_words = Mutex::new(None);
    let asked = Asked { route, caller, server, policy, call, arguments, own_words: &own_words };
    // Boxed: the pipeline holds several attempts at a time where a tool is hedged, and an attempt is large.
    let send = |attempt| -> BoxFuture<'_, _> { Box::pin(asked.send(attempt)) };
    let call_for = asked.call();
    let mut run = pin!(route.policies.pipeline.run(&policy.tool, &call_for, send));
    // The gateway ends: what is under way is answered as it is then. That is asked first, so that no attempt follows.
    let ended = tokio::select! {
        biased;
        () = route.lifecycle.closing.cancelled() => None,
        answer = run.as_mut() => Some(answer),
    };
    let answer = match ended {
        Some(answer) => answer,
        None => {
            call.held.make_last();
            let lost = |_| Refusal::Failed(server.name.clone(), Failure::Lost("the gateway ends".to_owned()));
            tokio::time::timeout(limits::LAST_ANSWER, run).await.map_err(lost)?
        }
    };
    match answer.outcome {
        // A result that follows a schema of its own must stay whole.
        Outcome::Live(value) => match policy.own.max_result.filter(|_| !policy.has_output_schema) {
            Some(limit) => route.results.fit(caller, call, value, limit),
            None => Ok(value),
        },
        Outcome::Served(ref fallback) => served::result(caller.era(), fallback, &answer.warnings),
        Outcome::Failed(report) => {
            let words = own_words.lock().unwrap_or_else(PoisonError::into_inner).take();
            words.unwrap_or_else(|| Err(Refusal::Reported(report, policy.has_output_schema)))
        }
    }
}

/// What every attempt of a call knows.
struct Asked<'a> {
    route: &'a Arc<Route>,
    caller: &'a Caller,
    server: &'a Arc<Server>,
    policy: &'a ToolPolicy,
    call: &'a Call,
    arguments: &'a Arc<Value>,
    /// What the last attempt was answered with, if that was an error of the protocol.
    own_words: &'a Mutex<Option<Reply>>,
}

impl Asked<'_> {
    /// The call as the library sees it.
    fn call(&self) -> seawall::Call {
        let (caller, session) = self.caller.identity(&self.call.request);
        let prefix = shown(self.route, self.server, "");
        let raw = self.call.request.field_json("arguments").unwrap_or_default();
        seawall::Call {
            arguments: Arc::clone(self.arguments),
            caller: if is_exact(raw) { caller } else { format!("{caller}{}", String::from_utf8_lossy(raw)).into() },
            session,
            timeout: None,
            retried_outside: false,
            debug: wants_debug(&self.call.request),
            prefix: prefix.into(),
            held: Some(Arc::clone(&self.call.held)),
        }
    }

    /// One attempt.
    async fn send(&self, attempt: Attempt) -> Result<Message, Signals> {
        self.say(None);
        let server = self.route.find(attempt.server()).unwrap_or(self.server);
        let watched = Watched::over(self.call, self.policy.own.idle_timeout.is_some());
        let call = watched.call(self.request(&attempt)?)?;
        let reply = watched.run(self.policy.own.idle_timeout, self.ask(server, &call, attempt.timeout)).await;
        match reply {
            Ok(answer) if is_passing(&answer) => {
                let signals = error_signals(&answer);
                self.say(Some(Ok(answer)));
                Err(signals)
            }
            // What a server says for good is its answer, an error too: no copy may stand in its place.
            Ok(answer) => Ok(answer),
            Err(Refusal::Failed(_, failure)) => Err(failure.signals()),
            Err(Refusal::Wrong(error)) => {
                let signals = Signals::rpc(error.code, error.message.clone()).with_sent(Sent::Never);
                self.say(Some(Err(Refusal::Wrong(error))));
                Err(signals)
            }
            Err(Refusal::Reported(report, _)) => Err(Signals::text(report.message)),
        }
    }

    /// Asks, and once more if the server has only forgotten the session: then it has not looked at the request.
    /// A server that is away is waited for a little less than the attempt may take: then it is certain that nothing was sent.
    async fn ask(&self, server: &Arc<Server>, call: &Call, timeout: Duration) -> Reply {
        let wait = server.reconnect.patience().min(timeout / 10 * 9);
        match once(self.route, self.caller, server, call, wait).await {
            Err(Refusal::Failed(_, Failure::SessionLost)) => once(self.route, self.caller, server, call, wait).await,
            reply => reply,
        }
    }

    fn say(&self, words: Option<Reply>) {
        *self.own_words.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    /// The request of an attempt: the client's own, or with what a fallback asks for.
    fn request(&self, attempt: &Attempt) -> Result<Message, Signals> {
        let is_own = Arc::ptr_eq(&attempt.arguments, self.arguments) && attempt.tool() == self.policy.tool.name();
        if is_own {
            return Ok(self.call.request.clone());
        }
        let mut params = Object::of(self.call.request.body_json());
        params.set("name", quoted(attempt.tool())).set("arguments", attempt.arguments.to_string());
        with_body(&self.call.request, &params.json()).map_err(|_| Signals::text("the arguments cannot be written"))
    }
}

/// The arguments of a call, for keys and fallbacks; what is sent are the client's own bytes.
fn arguments(request: &Message) -> Value {
    match request.method() {
        "tools/call" => request.field_json("arguments"),
        _ => Some(request.body_json()),
    }
    .and_then(|json| serde_json::from_slice(json).ok())
    .unwrap_or_default()
}

/// Whether the client asks for details of a failure.
fn wants_debug(request: &Message) -> bool {
    ["seawall/debug", "debug"].iter().any(|name| request.meta_json(name) == Some(b"true"))
}

/// The longest number that surely keeps its value when it is read.
const EXACT: usize = 15;

/// Whether all numbers keep their values when they are read: two calls that only seem the same are not.
fn is_exact(json: &[u8]) -> bool {
    let mut digits = 0;
    let mut is_text = false;
    let mut is_escaped = false;
    json.iter().all(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'0'..=b'9' | b'.' | b'e' | b'E' if !is_text => digits += 1,
            _ => digits = 0,
        }
        digits <= EXACT
    })
}

/// Whether an answer is an error that may pass.
fn is_passing(answer: &Message) -> bool {
    answer.kind() == Kind::Error && seawall::classify(&error_signals(answer)).disposition == Disposition::Transient
}

/// What a server's error says, and when it wants to be asked again.
pub fn error_signals(answer: &Message) -> Signals {
    let code = answer.field_json("code").and_then(|code| std::str::from_utf8(code).ok()?.parse().ok()).unwrap_or(0);
    let text = answer.field_text("message").unwrap_or_default();
    let data = Object::of(answer.field_json("data").unwrap_or_default());
    let wait = |name: &str| data.get(name).and_then(|json| std::str::from_utf8(json).ok()?.parse::<f64>().ok());
    let retry_after = wait("retryAfter")
        .or_else(|| wait("retry_after"))
        .or_else(|| wait("retryAfterMs").map(|millis| millis / 1000.0))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Signals { retry_after, ..Signals::rpc(code, text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_keep_their_value_are_taken_for_the_same() {
        for exact in ["{}", r#"{"a":12345,"b":"123456789012345678901234567890"}"#, r#"{"a":"\"","b":1.5e3}"#, "[1,2]"] {
            assert!(is_exact(exact.as_bytes()), "{exact}");
        }
        for inexact in [r#"{"a":123456789012345678901234567890}"#, "[0.1234567890123456]"] {
            assert!(!is_exact(inexact.as_bytes()), "{inexact}");
        }
    }

    #[test]
    fn a_servers_error_says_when_to_come_back() {
        let error = |data: &str| {
            let text = format!(
                r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":-32000,"message":"429 slow down","data":{data}}}}}"#
            );
            error_signals(&Message::parse(text.into()).unwrap())
        };
        assert_eq!(error(r#"{"retryAfter":7}"#).retry_after, Some(Duration::from_secs(7)));
        assert_eq!(error(r#"{"retryAfterMs":1500}"#).retry_after, Some(Duration::from_millis(1500)));
        assert_eq!(error(r#"{"retryAfter":-1}"#).retry_after, None);
        assert_eq!((error("null").code, error("null").message.as_str()), (Some(-32000), "429 slow down"));
    }
}
