//! Decides what a tool's and a server's policy consist of: plain data, checked as a whole.

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

/// Everything that decides how calls of one tool are treated.
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
    /// The policy family, where it is known. What only reads and has none is no tool: nobody is
    /// told to look with it.
    pub kind: Option<Kind>,
    /// What repeating the tool would do.
    pub effect: Effect,
    /// The limit over the whole call: all attempts, pauses and fallbacks.
    pub timeout: Duration,
    /// The limit of one attempt, within what is left of the call's; not longer than `timeout`.
    pub attempt_timeout: Option<Duration>,
    /// How many of its attempts run at a time, so that one slow tool does not take all slots of its
    /// server; `None`: as many as the server bears.
    pub slots: Option<BulkheadPolicy>,
    /// How often to try.
    pub retry: RetryPolicy,
    /// When to stop trying; `None` turns the breaker off. A shared breaker follows the policy of
    /// those who share it: see [`ServerPolicy::shared`] and [`crate::Settings::global_breaker`].
    pub breaker: Option<BreakerPolicy>,
    /// With whom the breaker is shared. For a shared one `breaker` says only that there is one: it
    /// is left at its default, or says the same as where the shared one is set.
    pub scope: Scope,
    /// How long answers are good for.
    pub cache: CachePolicy,
    /// What to do when the tool fails, in this order; up to 32 steps.
    pub fallback: Vec<Fallback>,
    /// When an agent is going in circles.
    pub loops: LoopPolicy,
    /// How long a write that may have been executed is not sent again, unless its caller has read
    /// from the server in between; `None`: it is sent at once.
    pub uncertain_write_hold: Option<Duration>,
    /// A second attempt beside a slow one; read-only tools only.
    pub hedge: Option<HedgePolicy>,
    /// Which of the tool's own errors are failures.
    pub tool_errors: ToolErrors,
}

/// With whom a tool shares its breaker.
///
/// ```
/// # use seawall::{Preset, Scope, Tiers, ToolFacts};
/// let policy = Preset::Caipe.policy(&ToolFacts::named("get_issue"), &Tiers::default());
/// assert_eq!(policy.scope, Scope::Server);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// With nobody.
    #[default]
    Tool,
    /// With the tools of its server.
    Server,
    /// With all tools.
    Global,
}

/// One step to take when a tool fails.
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
    /// Keeps a write until the server is back.
    Queue,
    /// Another tool, with its arguments taken from these (`theirs → ours`); empty: the same
    /// arguments.
    Alternate {
        /// The other tool's server.
        server: String,
        /// The other tool.
        tool: String,
        /// The other tool's argument names, and whose value each gets.
        map: BTreeMap<String, String>,
    },
    /// A fixed text.
    Text(String),
}

/// Everything that decides how one server is treated.
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
    /// How many attempts run at a time.
    pub slots: Option<BulkheadPolicy>,
    /// How many attempts start in a time; calls wait for their turn within their deadline.
    pub rate: Option<Rate>,
    /// How many retries it bears.
    pub budget: BudgetPolicy,
    /// Opens when connections fail, for all its tools at once.
    pub connection: Option<BreakerPolicy>,
    /// The breaker of those of its tools that share one ([`Scope::Server`]).
    pub shared: BreakerPolicy,
    /// Appended to the texts of its failures, up to 16 words.
    pub hint: Option<String>,
}

/// More ways than this leave no time for any of them.
pub(crate) const MOST_STEPS: usize = 32;

impl Policy {
    /// Checks the settings and how they fit together.
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

    /// Whether it is the policy of a tool, and not of a list or another method: a tool that may be
    /// repeated always has a kind.
    pub(crate) fn is_of_a_tool(&self) -> bool {
        self.kind.is_some() || !self.effect.is_replayable()
    }

    /// Whether its answers may be shared by those of one caller who ask at the same time.
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
    /// Into how many shares a call's time is split: one for the tool, and one for each way that
    /// leads elsewhere. A write that was cut off has to be told and not replaced, so it gets all
    /// the time there is.
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
    /// Whether it asks a server, which takes time.
    pub(crate) fn asks(&self) -> bool {
        matches!(
            self,
            Fallback::Simplify(_)
                | Fallback::PreviousPage(_)
                | Fallback::OneByOne(_)
                | Fallback::Alternate { .. }
        )
    }

    /// Whether it could help after such a failure: only fewer items at a time mend a batch that is
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
