//! Decides the parts of a tool's and a server's policy: plain data, validated as a whole.

pub(crate) mod backoff;
pub(crate) mod breaker;
pub(crate) mod budget;
pub(crate) mod bulkhead;
pub(crate) mod cache;
pub(crate) mod hedge;
pub(crate) mod loops;
pub(crate) mod rate;
pub(crate) mod retry;

use std::collections::BTreeMap;
use std::time::Duration;

use super::effect::{Effect, Kind};
use super::failure::Failure;
use super::invalid::{self, Invalid};
use super::tool_errors::ToolErrors;
use breaker::BreakerPolicy;
use budget::BudgetPolicy;
use bulkhead::BulkheadPolicy;
use cache::CachePolicy;
use hedge::HedgePolicy;
use loops::LoopPolicy;
use rate::Rate;
use retry::RetryPolicy;

/// Everything that decides how calls of one tool are handled.
///
/// ```
/// # use seawall::{Fallback, Policy, Preset, Tiers, ToolFacts};
/// # use std::time::Duration;
/// let preset = Preset::default().policy(&ToolFacts::named("search_issues"), &Tiers::default());
/// let policy = Policy { timeout: Duration::from_secs(20), ..preset };
/// assert!(policy.validate().is_ok() && policy.retry.attempts == 3);
///
/// let typo = Policy { fallback: vec![Fallback::Text(String::new())], ..policy };
/// assert_eq!(typo.validate().unwrap_err().field, "fallback");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// The kind of the tool, if known. A policy that only reads and has no kind belongs to a
    /// protocol method such as a list, so no client is told to verify a write with it.
    pub kind: Option<Kind>,
    /// The effect of the tool: whether an attempt may be repeated.
    pub effect: Effect,
    /// The timeout of the whole call: all attempts, pauses and fallbacks.
    pub timeout: Duration,
    /// The timeout of one attempt, within the remaining time of the call; not longer than
    /// `timeout`.
    pub attempt_timeout: Option<Duration>,
    /// The tool's own bulkhead, so that one slow tool does not take all slots of its server;
    /// `None`: only the server's bulkhead applies.
    pub slots: Option<BulkheadPolicy>,
    /// How often to attempt the call.
    pub retry: RetryPolicy,
    /// When to stop sending attempts; `None` turns the breaker off. A shared breaker follows the
    /// policy of the place where it is set: see [`ServerPolicy::shared`] and
    /// [`crate::Settings::global_breaker`].
    pub breaker: Option<BreakerPolicy>,
    /// Which tools share the breaker. For a shared breaker `breaker` only says that there is one:
    /// leave it at its default, or repeat the setting of the shared breaker.
    pub scope: Scope,
    /// How long cached responses may be served.
    pub cache: CachePolicy,
    /// The fallback steps when the tool fails, in this order; up to 32 steps.
    pub fallback: Vec<Fallback>,
    /// When identical calls count as a loop.
    pub loops: LoopPolicy,
    /// How long an uncertain write is not sent again, unless its caller has read from the server in
    /// between; `None`: it is sent at once.
    pub uncertain_write_hold: Option<Duration>,
    /// A second attempt beside a slow one; read-only tools only.
    pub hedge: Option<HedgePolicy>,
    /// Which of the tool's own errors are failures.
    pub tool_errors: ToolErrors,
}

/// Which tools share one breaker.
///
/// ```
/// # use seawall::{Preset, Scope, Tiers, ToolFacts};
/// let policy = Preset::Caipe.policy(&ToolFacts::named("get_issue"), &Tiers::default());
/// assert_eq!(policy.scope, Scope::Server);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The tool has its own breaker.
    #[default]
    Tool,
    /// All tools of a server share one.
    Server,
    /// All tools of all servers share one.
    Global,
}

/// One fallback step when a tool fails.
///
/// ```
/// # use seawall::{Effect, Fallback, Policy, Preset, Tiers, ToolFacts};
/// let read = Preset::default().policy(&ToolFacts::named("get_issue"), &Tiers::default());
/// assert_eq!(read.fallback, [Fallback::Cached]);
///
/// // An old answer of a write would be a lie.
/// let write = Policy { effect: Effect::Write, ..read };
/// assert!(write.validate().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// The last good answer, labelled with its age.
    Cached,
    /// The same search with a simpler query; read-only tools only. The query's argument is found by
    /// name unless given.
    Simplify(Option<String>),
    /// The page before; read-only tools only. The page's argument is found by name unless given.
    PreviousPage(Option<String>),
    /// Each item of a batch on its own. The list's argument is found by name unless given.
    OneByOne(Option<String>),
    /// Queues a write until the server is back.
    Queue,
    /// Another tool, with arguments taken from this call (`theirs → ours`); an empty map passes the
    /// same arguments.
    Alternate {
        /// The other tool's server.
        server: String,
        /// The other tool.
        tool: String,
        /// The other tool's argument names, and the argument of this call that supplies each value.
        map: BTreeMap<String, String>,
    },
    /// A fixed text.
    Text(String),
}

/// Everything that decides how one server is handled.
///
/// ```
/// # use seawall::{BulkheadPolicy, Rate, ServerPolicy};
/// let policy = ServerPolicy {
///     slots: Some(BulkheadPolicy::new(8)),
///     rate: Some(Rate::per_second(20)),
///     ..ServerPolicy::default()
/// };
/// assert!(policy.validate().is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerPolicy {
    /// The server's bulkhead: how many attempts run at a time.
    pub slots: Option<BulkheadPolicy>,
    /// The server's rate limit; calls wait for it within their deadline.
    pub rate: Option<Rate>,
    /// The retry budget.
    pub budget: BudgetPolicy,
    /// The connection breaker: opens when connections fail, for all tools of the server at once.
    pub connection: Option<BreakerPolicy>,
    /// The breaker shared by the tools with [`Scope::Server`].
    pub shared: BreakerPolicy,
    /// A hint of the operator, appended to the failure texts of this server; cut after 16 words.
    pub hint: Option<String>,
}

/// With more steps than this, no step has enough time left.
pub(crate) const MOST_STEPS: usize = 32;

impl Policy {
    /// Validates the settings and how they fit together.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::positive("timeout", self.timeout)?;
        if let Some(limit) = self.attempt_timeout {
            invalid::positive("attempt_timeout", limit)?;
            invalid::within_whole("attempt_timeout", limit, ("timeout", self.timeout))?;
        }
        self.slots
            .map_or(Ok(()), |slots| slots.validate().map_err(|error| error.within("slots")))?;
        self.retry.validate().map_err(|error| error.within("retry"))?;
        self.breaker.as_ref().map_or(Ok(()), |breaker| {
            breaker.validate().map_err(|error| error.within("breaker"))
        })?;
        self.cache.validate().map_err(|error| error.within("cache"))?;
        if self.cache.fresh.is_some() && self.effect != Effect::ReadOnly {
            return Err(Invalid::new(
                "cache.ttl",
                "is for read-only tools; a write has to reach its server each time",
            ));
        }
        self.loops.validate().map_err(|error| error.within("loop"))?;
        self.uncertain_write_hold
            .map_or(Ok(()), |limit| invalid::positive("uncertain_write_hold", limit))?;
        if let Some(hedge) = &self.hedge {
            hedge.validate().map_err(|error| error.within("hedge"))?;
            if matches!(hedge, HedgePolicy::After(delay) if *delay >= self.attempt_timeout.unwrap_or(self.timeout))
            {
                return Err(Invalid::new(
                    "hedge.delay",
                    "must be shorter than the attempt's own limit",
                ));
            }
            if self.effect != Effect::ReadOnly {
                return Err(Invalid::new(
                    "hedge",
                    "is for read-only tools; a second attempt of this one could act twice",
                ));
            }
        }
        self.tool_errors.validate()?;
        if self.fallback.len() > MOST_STEPS {
            return Err(Invalid::new(
                "fallback",
                format!("must not have more than {MOST_STEPS} steps"),
            ));
        }
        self.fallback.iter().try_for_each(|step| self.validate_fallback(step))
    }

    /// Whether this is the policy of a tool, and not of a list or another protocol method: a tool
    /// that may be repeated always has a kind.
    pub(crate) fn is_of_a_tool(&self) -> bool {
        self.kind.is_some() || !self.effect.is_replayable()
    }

    /// Whether identical calls of one caller that are in flight at the same time share one answer
    /// (single flight).
    pub(crate) fn shares_answers(&self) -> bool {
        self.cache.fresh.is_some() && self.effect == Effect::ReadOnly
    }

    fn validate_fallback(&self, step: &Fallback) -> Result<(), Invalid> {
        match step {
            Fallback::Cached if self.cache.stale_if_error.is_none() => {
                Err(Invalid::new("fallback", "\"cached\" needs cache.stale_if_error to be set"))
            }
            Fallback::Cached if self.effect != Effect::ReadOnly => Err(Invalid::new(
                "fallback",
                "\"cached\" is for read-only tools; an old answer of a write would be a lie",
            )),
            Fallback::Queue if self.effect == Effect::ReadOnly => {
                Err(Invalid::new("fallback", "\"queue\" is for writes; nobody waits for a read"))
            }
            Fallback::Queue if self.effect == Effect::Destructive => {
                Err(Invalid::new("fallback", "\"queue\" is not for destructive tools"))
            }
            Fallback::Simplify(_) | Fallback::PreviousPage(_)
                if self.effect != Effect::ReadOnly =>
            {
                Err(Invalid::new(
                    "fallback",
                    format!(
                        "\"{}\" is for read-only tools; a write with other arguments does something else",
                        step.name()
                    ),
                ))
            }
            Fallback::Alternate { server, tool, .. } if server.is_empty() || tool.is_empty() => {
                Err(Invalid::new(
                    "fallback",
                    "an alternate needs the names of a server and of a tool",
                ))
            }
            Fallback::Simplify(Some(name))
            | Fallback::PreviousPage(Some(name))
            | Fallback::OneByOne(Some(name))
                if name.is_empty() =>
            {
                Err(Invalid::new(
                    "fallback",
                    format!("\"{}\" needs the name of an argument, or none", step.name()),
                ))
            }
            Fallback::Text(text) if text.trim().is_empty() => {
                Err(Invalid::new("fallback", "a text must not be empty"))
            }
            _ => Ok(()),
        }
    }
}

impl ServerPolicy {
    /// Checks the settings.
    pub fn validate(&self) -> Result<(), Invalid> {
        self.slots.map_or(Ok(()), |slots| slots.validate())?;
        self.rate.map_or(Ok(()), |rate| rate.validate().map_err(|error| error.within("rate")))?;
        self.budget.validate().map_err(|error| error.within("budget"))?;
        self.shared.validate().map_err(|error| error.within("shared"))?;
        self.connection.as_ref().map_or(Ok(()), |breaker| {
            breaker.validate().map_err(|error| error.within("connection"))
        })
    }
}

impl Policy {
    /// The number of shares a call's time is split into: one for the tool, and one for each step
    /// that calls another tool. A write gets all the time: if it is cut off, its fate has to be
    /// reported, and no other tool may replace it.
    pub(crate) fn ways(&self, own_steps: usize) -> u32 {
        if !self.effect.is_replayable() {
            return 1;
        }
        let others =
            self.fallback.iter().filter(|step| matches!(step, Fallback::Alternate { .. })).count();
        u32::try_from(1 + others + own_steps).unwrap_or(u32::MAX)
    }
}

impl Fallback {
    /// Whether the step calls a server, which takes time.
    pub(crate) fn asks(&self) -> bool {
        matches!(
            self,
            Fallback::Simplify(_)
                | Fallback::PreviousPage(_)
                | Fallback::OneByOne(_)
                | Fallback::Alternate { .. }
        )
    }

    /// Whether the step can help after such a failure: only smaller batches help a batch that is
    /// too large.
    pub(crate) fn mends(&self, failure: &Failure) -> bool {
        !failure.too_large || matches!(self, Fallback::OneByOne(_))
    }

    /// The step's name in metrics and warnings.
    pub fn name(&self) -> &'static str {
        match self {
            Fallback::Cached => "cached",
            Fallback::Simplify(_) => "simplify",
            Fallback::PreviousPage(_) => "previous_page",
            Fallback::OneByOne(_) => "split_batch",
            Fallback::Queue => "queue",
            Fallback::Alternate { .. } => "alternate",
            Fallback::Text(_) => "text",
        }
    }
}
