//! Decides how tools are called in one line each: the front door that combines everything.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use crate::attempt::breaker::BreakerSnapshot;
use crate::model::answer::Answer;
use crate::model::call::{Attempt, Call};
use crate::model::effect::ToolFacts;
use crate::model::invalid::Invalid;
use crate::model::names::NameRegistry;
use crate::model::policy::breaker::BreakerStatus;
use crate::model::policy::{Policy, ServerPolicy};
use crate::model::preset::{Preset, Tiers};
use crate::model::signals::FailureSignals;
use crate::pipeline::{Pipeline, Settings};
use crate::recover::chain::Step;
use crate::registry::{Server, Tool};

/// How many names get a policy of their own on first use.
const NAMES: usize = 1024;

/// Calls the tools of one server with retry, breaker, fallback and honest failures.
///
/// A tool gets its policy by its name on first use, unless [`ToolCaller::tool`] gave it one before.
/// Where a bound of such names is reached, one at rest makes room, the least recently used first:
/// no call is under way, no pause is remembered, and its breaker is closed and remembers no
/// failure, or was left alone long after its cool-down ended. Where a look at a few finds none, the
/// name shares one breaker with others and is not remembered, so that invented names can neither
/// fill memory nor make anybody forget a breaker that still protects. So does a name of more than
/// 256 bytes.
///
/// ```
/// # use seawall::{Settings, ToolCaller, ToolFacts};
/// # use serde_json::json;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), seawall::Invalid> {
/// let tools = ToolCaller::<String>::new(Settings::default())?;
/// tools.tool(ToolFacts::named("get_issue"), |policy| policy.retry.attempts = 2)?;
/// let down = |_| async { Err("503 Service Unavailable".into()) };
/// let answer = tools.call("get_issue", json!({}), down).await;
/// assert_eq!((answer.attempts, answer.value()), (2, None));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ToolCaller<T> {
    pipeline: Pipeline<T>,
    preset: Preset,
    tiers: Tiers,
    server: Arc<Server>,
    tools: NameRegistry<Tool>,
    others: Arc<Tool>,
}

/// What a [`ToolCaller`] starts from.
#[derive(Clone, Debug, Default)]
pub struct CallerOptions {
    /// The name of the server behind the tools, for texts and events.
    pub server: String,
    /// How that server is treated.
    pub policy: ServerPolicy,
    /// The defaults of its tools.
    pub preset: Preset,
    /// The timeouts of its tools.
    pub tiers: Tiers,
}

impl<T: Clone> ToolCaller<T> {
    /// A caller with the default preset.
    pub fn new(settings: Settings<T>) -> Result<Self, Invalid> {
        Self::with_options(settings, CallerOptions::default())
    }

    /// A caller that starts from something else.
    pub fn with_options(settings: Settings<T>, options: CallerOptions) -> Result<Self, Invalid> {
        let CallerOptions { server, policy, preset, tiers } = options;
        tiers.validate().map_err(|error| error.within("tiers"))?;
        let pipeline = Pipeline::new(settings)?;
        let server = pipeline.server(&server, policy)?;
        let others = pipeline.tool(
            server.name(),
            "others",
            preset.policy(&ToolFacts::named("others"), &tiers),
        )?;
        Ok(Self { pipeline, preset, tiers, server, tools: NameRegistry::new(NAMES), others })
    }

    /// Gives a tool its policy: what is known of it first, then what `adjust` changes.
    pub fn tool(
        &self,
        facts: ToolFacts<'_>,
        adjust: impl FnOnce(&mut Policy),
    ) -> Result<(), Invalid> {
        let mut policy = self.preset.policy(&facts, &self.tiers);
        adjust(&mut policy);
        let make = || self.pipeline.tool(self.server.name(), facts.name, policy);
        self.tools.keep(facts.name, make).map_err(|error| error.within(facts.name))
    }

    /// Calls a tool. `send` makes one attempt and is asked again for each retry and fallback.
    pub async fn call<F>(
        &self,
        tool: &str,
        call: impl Into<Call>,
        send: impl Fn(Attempt) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        self.call_with(tool, call, &[], send).await
    }

    /// Calls a tool, with steps of the caller's own after the tool's fallbacks. Each that fails
    /// costs a token of the server's retry budget; without one it is not tried.
    pub async fn call_with<F>(
        &self,
        tool: &str,
        call: impl Into<Call>,
        own_steps: &[Step<T>],
        send: impl Fn(Attempt) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<T, FailureSignals>>,
    {
        let (tool, call) = (self.resolve(tool), call.into());
        self.pipeline.run_with(&tool, &call, own_steps, send).await
    }

    /// The state of a tool's breaker; asking does not make the tool known.
    pub fn breaker_status(&self, tool: &str) -> Option<BreakerSnapshot> {
        self.tools.get(tool)?.breaker().map(|breaker| breaker.snapshot())
    }

    /// The state of every known tool's breaker.
    pub fn all_breaker_status(&self) -> HashMap<Arc<str>, BreakerStatus> {
        self.tools
            .all()
            .into_iter()
            .filter_map(|(name, tool)| Some((name, tool.breaker()?.status())))
            .collect()
    }

    /// Closes a tool's breaker; `false` if there is none.
    pub fn reset_breaker(&self, tool: &str) -> bool {
        self.tools
            .get(tool)
            .and_then(|tool| tool.breaker().map(|breaker| breaker.reset()))
            .is_some()
    }

    /// The pipeline behind it.
    pub fn pipeline(&self) -> &Pipeline<T> {
        &self.pipeline
    }

    fn resolve(&self, name: &str) -> Arc<Tool> {
        if let Some(tool) = self.tools.used(name) {
            return tool;
        }
        let policy = || self.preset.policy(&ToolFacts::named(name), &self.tiers);
        // A preset's policy is always valid, and there is room.
        let make = || self.pipeline.tool(self.server.name(), name, policy()).ok();
        let learned = self.tools.learn(name, |tool| self.pipeline.forget(tool), make);
        learned.unwrap_or_else(|| Arc::new(self.others.standing_for(name, policy())))
    }
}
