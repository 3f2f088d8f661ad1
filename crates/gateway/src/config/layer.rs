//! What one place of the configuration says about policies: only what it says, so that the nearest
//! place can win.

use std::time::Duration;

use seawall::{
    BreakerPolicy, BulkheadPolicy, Cooldown, Effect, Fallback, HedgePolicy, Jitter, Kind, LoopMode,
    Policy, Scope, ServerPolicy, ToolErrors,
};

/// What `[defaults]`, `[kinds.K]`, `[servers.S.policy]` or `[tools."S/T"]` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyLayer {
    /// The policy family.
    pub kind: Option<Kind>,
    /// What repeating the tool would do.
    pub effect: Option<Effect>,
    /// The limit over the whole call.
    pub timeout: Option<Duration>,
    /// The limit of one attempt.
    pub attempt_timeout: Option<Duration>,
    /// How many calls of one tool run at a time; zero switches that off.
    pub tool_concurrency: Option<u32>,
    /// How often to try.
    pub retry: RetryLayer,
    /// When to stop trying.
    pub breaker: BreakerLayer,
    /// How long answers are good for.
    pub cache: CacheLayer,
    /// What to do when the tool fails.
    pub fallback: Option<Vec<Fallback>>,
    /// When an agent is going in circles.
    pub loops: LoopLayer,
    /// How long a write that may have been executed is not sent again; zero switches that off.
    pub uncertain_write_hold: Option<Duration>,
    /// A second attempt beside a slow one; the inner `None` switches it off.
    pub hedge: Option<Option<HedgePolicy>>,
    /// Which of the tool's own errors are failures.
    pub tool_errors: Option<ToolErrors>,
    /// What the gateway alone knows.
    pub own: GatewayLayer,
}

/// `retry = { attempts, base, max, jitter }`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RetryLayer {
    /// Attempts in all.
    pub attempts: Option<u32>,
    /// The first pause.
    pub base: Option<Duration>,
    /// The longest.
    pub max: Option<Duration>,
    /// The share that is added by chance.
    pub jitter: Option<f64>,
}

/// `breaker = { failures, cooldown, probes, successes, slow_start, scope }`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BreakerLayer {
    /// Failures in a row; 0 switches it off.
    pub failures: Option<u32>,
    /// How long it stays open.
    pub cooldown: Option<Duration>,
    /// Probes at a time.
    pub probes: Option<u32>,
    /// Probes that must succeed.
    pub successes: Option<u32>,
    /// Attempts at once after they closed it; 0 for any number.
    pub slow_start: Option<u32>,
    /// With whom it is shared.
    pub scope: Option<Scope>,
    /// Whether a server that asks for a pause counts as failing.
    pub trip_on_429: Option<bool>,
}

/// `cache = { ttl, stale_if_error }`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheLayer {
    /// Answers calls for this long.
    pub ttl: Option<Duration>,
    /// Rescues calls for this long.
    pub stale_if_error: Option<Duration>,
}

/// `loop = { repeats, window, mode }`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoopLayer {
    /// How many are too many.
    pub repeats: Option<u32>,
    /// Among how many.
    pub window: Option<u32>,
    /// What counts.
    pub mode: Option<LoopMode>,
}

/// What the gateway alone knows of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GatewayLayer {
    /// The limit between two signs of life, progress included.
    pub idle_timeout: Option<Duration>,
    /// The client's own limit: before it, the call is answered with "still running".
    pub client_timeout: Option<Duration>,
    /// What becomes of a call whose client gave up.
    pub on_abandon: Option<OnAbandon>,
    /// Who counts as the same caller when the identical call is made again.
    pub rejoin: Option<Rejoining>,
    /// How long after a call the identical one means that its client has given it up.
    pub rejoin_after: Option<Duration>,
    /// How long a call waits for what its server asks the client, over all questions.
    pub question_time: Option<Duration>,
    /// The largest result that is passed on whole, in bytes.
    pub max_result: Option<usize>,
}

/// What becomes of a call whose client gave up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAbandon {
    /// The server is told; an answer that comes all the same is kept for a while.
    #[default]
    Cancel,
    /// It runs to its end, and the answer is kept for a while.
    Finish,
    /// The server is told, and nothing is kept.
    Forget,
}

/// Who counts as the same caller when the identical call is made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rejoining {
    /// The same client: its session, or its identity where it has one.
    #[default]
    Caller,
    /// The same session; clients without sessions are nobody's.
    Session,
    /// Nobody: every call is one of its own.
    Off,
}

/// What the gateway alone knows of a tool, resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatewayPolicy {
    /// See [`OwnLayer`].
    pub idle_timeout: Option<Duration>,
    /// See [`OwnLayer`].
    pub client_timeout: Option<Duration>,
    /// See [`OwnLayer`].
    pub on_abandon: OnAbandon,
    /// See [`OwnLayer`].
    pub rejoin: Rejoining,
    /// See [`OwnLayer`].
    pub rejoin_after: Duration,
    /// See [`OwnLayer`].
    pub question_time: Duration,
    /// See [`OwnLayer`].
    pub max_result: Option<usize>,
}

impl Default for GatewayPolicy {
    fn default() -> Self {
        Self {
            idle_timeout: None,
            client_timeout: None,
            on_abandon: OnAbandon::default(),
            rejoin: Rejoining::default(),
            rejoin_after: Duration::from_secs(1),
            question_time: Duration::from_secs(600),
            max_result: None,
        }
    }
}

impl PolicyLayer {
    /// Lays what it says over a policy.
    pub fn apply(&self, policy: &mut Policy, own: &mut GatewayPolicy) {
        put(&mut policy.timeout, self.timeout);
        policy.attempt_timeout = self.attempt_timeout.or(policy.attempt_timeout);
        put(
            &mut policy.slots,
            self.tool_concurrency.map(|count| (count > 0).then(|| BulkheadPolicy::new(count))),
        );
        put(&mut policy.retry.attempts, self.retry.attempts);
        put(&mut policy.retry.backoff.base, self.retry.base);
        put(&mut policy.retry.backoff.max, self.retry.max);
        put(&mut policy.retry.backoff.jitter, self.retry.jitter.map(Jitter::Additive));
        self.breaker.apply(&mut policy.breaker);
        put(&mut policy.scope, self.breaker.scope);
        policy.cache.fresh = self.cache.ttl.or(policy.cache.fresh);
        policy.cache.stale_if_error = self.cache.stale_if_error.or(policy.cache.stale_if_error);
        put(&mut policy.fallback, self.fallback.clone());
        put(&mut policy.loops.repeats, self.loops.repeats);
        put(&mut policy.loops.window, self.loops.window);
        put(&mut policy.loops.mode, self.loops.mode);
        put(
            &mut policy.uncertain_write_hold,
            self.uncertain_write_hold.map(|time| (!time.is_zero()).then_some(time)),
        );
        put(&mut policy.hedge, self.hedge);
        put(&mut policy.tool_errors, self.tool_errors.clone());
        own.idle_timeout = self.own.idle_timeout.or(own.idle_timeout);
        own.client_timeout = self.own.client_timeout.or(own.client_timeout);
        put(&mut own.on_abandon, self.own.on_abandon);
        put(&mut own.rejoin, self.own.rejoin);
        put(&mut own.rejoin_after, self.own.rejoin_after);
        put(&mut own.question_time, self.own.question_time);
        own.max_result = self.own.max_result.or(own.max_result);
    }

    /// Lays its breaker over those that the tools of a server share.
    pub fn apply_to_server(&self, policy: &mut ServerPolicy) {
        let mut shared = Some(policy.shared.clone());
        self.breaker.apply(&mut shared);
        // A breaker that is off is off for each tool; one that nobody uses may be as it is.
        policy.shared = shared.unwrap_or_default();
    }
}

impl BreakerLayer {
    /// Lays what it says over a breaker.
    pub fn apply(&self, breaker: &mut Option<BreakerPolicy>) {
        if self.failures == Some(0) {
            *breaker = None;
        } else if let Some(failures) = self.failures {
            breaker.get_or_insert_default().failures = failures;
        }
        let Some(breaker) = breaker else { return };
        put(&mut breaker.cooldown, self.cooldown.map(Cooldown::fixed));
        put(&mut breaker.probes, self.probes);
        put(&mut breaker.successes, self.successes);
        put(&mut breaker.slow_start, self.slow_start);
        put(&mut breaker.trip_on_429, self.trip_on_429);
    }
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
