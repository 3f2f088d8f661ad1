//! Decides which state a tool keeps between calls: its policy, breaker, bulkhead, pause and
//! latencies.

use std::sync::Arc;
use std::time::Duration;

use super::rest;
use super::server::Server;
use crate::admit::key::{CallKey, Keys};
use crate::attempt::breaker::Breaker;
use crate::attempt::bulkhead::Bulkhead;
use crate::attempt::hedge::Latencies;
use crate::attempt::retry_after::ServerPause;
use crate::attempt::silence::Silence;
use crate::model::call::{Call, ToolNames};
use crate::model::effect::Effect;
use crate::model::policy::hedge::HedgePolicy;
use crate::model::policy::loops::LoopMode;
use crate::model::policy::{Policy, Scope};
use crate::time::clock::Moment;

/// A tool that can be called: its resolved policy and its state.
#[derive(Debug)]
pub struct Tool {
    pub(crate) name: Arc<str>,
    pub(crate) names: Arc<ToolNames>,
    pub(crate) server: Arc<Server>,
    pub(crate) policy: Policy,
    pub(crate) breaker: Option<Arc<Breaker>>,
    pub(crate) slots: Option<Arc<Bulkhead>>,
    /// The pause that the server asked for; shared by all variants of the tool under any policy.
    pub(crate) pause: Arc<ServerPause>,
    /// How long attempts with short timeouts have waited without an answer.
    pub(crate) silence: Arc<Silence>,
    latencies: Latencies,
}

impl Tool {
    pub(crate) fn new(
        name: Arc<str>,
        server: Arc<Server>,
        policy: Policy,
        breaker: Option<Arc<Breaker>>,
    ) -> Self {
        let names = Arc::new(ToolNames { server: server.name.clone(), tool: name.clone() });
        // The error is impossible: a tool is made from a validated policy.
        let slots = policy.slots.and_then(|slots| Bulkhead::new(slots).ok()).map(Arc::new);
        let (pause, silence) = (Arc::default(), Arc::default());
        Self {
            name,
            names,
            server,
            policy,
            breaker,
            slots,
            pause,
            silence,
            latencies: Latencies::default(),
        }
    }

    /// A tool with another name and the same policy and breaker, which the pipeline does not
    /// remember.
    pub fn renamed(&self, name: &str) -> Self {
        self.variant(name.into(), self.policy.clone())
    }

    /// A tool with another name and policy and the same breaker, which the pipeline does not
    /// remember.
    pub(crate) fn standing_for(&self, name: &str, policy: Policy) -> Self {
        self.variant(name.into(), policy)
    }

    /// The same tool for calls with an idempotency key, by which the server recognises a repeat:
    /// these may be sent again.
    pub fn idempotent(&self) -> Self {
        let effect = if self.policy.effect.is_replayable() {
            self.policy.effect
        } else {
            Effect::Idempotent
        };
        self.variant(self.name.clone(), Policy { effect, ..self.policy.clone() })
    }

    /// The same tool for a call that is made exactly once, with this `effect` and without retries,
    /// hedges or fallbacks: the caller knows that the call is no slip, and repeats it itself.
    pub fn once(&self, effect: Effect) -> Self {
        let mut policy = Policy {
            effect,
            fallback: Vec::new(),
            uncertain_write_hold: None,
            hedge: None,
            ..self.policy.clone()
        };
        policy.retry.attempts = 1;
        policy.loops.mode = LoopMode::Off;
        self.variant(self.name.clone(), policy)
    }

    /// A variant shares pause, silence and bulkhead: they concern the server, not one policy.
    fn variant(&self, name: Arc<str>, policy: Policy) -> Self {
        Self::new(name, self.server.clone(), policy, self.breaker.clone()).sharing_with(self)
    }

    /// This tool with the pause and the silence of another, and with its bulkhead if both have the
    /// same limits.
    pub(crate) fn sharing_with(self, other: &Self) -> Self {
        let slots =
            if self.policy.slots == other.policy.slots { other.slots.clone() } else { self.slots };
        Self { pause: other.pause.clone(), silence: other.silence.clone(), slots, ..self }
    }

    /// The same tool at its server under another policy.
    pub(crate) fn at(&self, server: &Arc<Server>) -> Self {
        let (name, policy) = (self.name.clone(), self.policy.clone());
        Self::new(name, server.clone(), policy, self.breaker.clone()).sharing_with(self)
    }

    /// Its name at its server.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Its policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Its own bulkhead, if concurrency is limited.
    pub fn slots(&self) -> Option<&Bulkhead> {
        self.slots.as_deref()
    }

    /// Its breaker, shared as the policy's scope says.
    pub fn breaker(&self) -> Option<&Breaker> {
        self.breaker.as_deref()
    }

    /// Whether the tool remembers nothing at `now` that a new one would not know, and no variant of
    /// it is in use.
    pub(crate) fn is_at_rest(&self, now: Moment) -> bool {
        let has_own_breaker = self.policy.scope == Scope::Tool;
        let is_idle = || !has_own_breaker || self.breaker().is_none_or(Breaker::is_idle);
        let is_over = |pause: &ServerPause| pause.until().is_none_or(|until| now >= until);
        rest::is_at_rest(&self.pause, |pause| is_over(pause) && is_idle())
    }

    /// The delay before a slow attempt gets a hedge.
    pub(crate) fn hedge_delay(&self) -> Option<Duration> {
        self.policy.hedge.and_then(|hedge| self.latencies.delay(hedge))
    }

    pub(crate) fn record_latency(&self, took: Duration) {
        if let Some(HedgePolicy::Quantile(_)) = self.policy.hedge {
            self.latencies.record(took);
        }
    }
}

impl Keys {
    /// The key that identifies a call.
    #[inline]
    pub fn of(&self, tool: &Tool, call: &Call) -> CallKey {
        let written = call.written.as_deref().unwrap_or_default();
        self.key(&[&*tool.server.name, &*tool.name, &*call.caller, written], &call.arguments)
    }

    /// The key of the cached response: a call's context, sent beside its arguments, may change the
    /// answer of a read, and a server that took the name of another has responses of its own.
    pub(crate) fn of_copy(&self, key: CallKey, tool: &Tool, call: &Call) -> CallKey {
        let key = call.context.as_deref().map_or(key, |context| self.scoped(key, context));
        match tool.server.born {
            0 => key,
            born => self.scoped(key, &born.to_string()),
        }
    }
}
