//! Decides how a tool is called in one line: [`ToolCaller`], the entry point that combines all
//! stages.

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

/// How many names may get a policy of their own on first use.
const NAMES: usize = 1024;

/// Calls the tools of one server with retries, circuit breakers, fallbacks and honest failures.
///
/// A tool gets its policy by its name on first use, unless [`ToolCaller::tool`] set one before. The
/// number of such names is bounded. At the bound a tool at rest makes room, the least recently used
/// first. A tool is at rest if it has no call in flight, no pause is remembered, and its breaker is
/// closed without remembered failures or was left alone long after its cool-down ended. If a check
/// of a few finds none at rest, the new name shares one breaker with others and is not remembered,
/// so that invented names can neither fill memory nor evict a breaker that still protects. The same
/// holds for a name of more than 256 bytes.
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

/// The settings a [`ToolCaller`] starts from.
#[derive(Clone, Debug, Default)]
pub struct CallerOptions {
    /// The name of the server behind the tools, for texts and events.
    pub server: String,
    /// The policy of that server.
    pub policy: ServerPolicy,
    /// The default policies of its tools.
    pub preset: Preset,
    /// The timeouts of its tools.
    pub tiers: Tiers,
}

impl<T: Clone> ToolCaller<T> {
    /// A caller with the default preset.
    pub fn new(settings: Settings<T>) -> Result<Self, Invalid> {
        Self::with_options(settings, CallerOptions::default())
    }

    /// A caller with other options.
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

    /// Sets the policy of a tool: the preset for its `facts`, then the changes of `adjust`.
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

    /// Calls a tool. `send` makes one attempt and is called again for each retry and fallback.
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

    /// Calls a tool, with fallback steps of the caller after the tool's own. Each step that fails
    /// costs a token of the server's retry budget; without a token it is not tried.
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

    /// The state of a tool's breaker; the lookup does not make the tool known.
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

    /// The pipeline behind this caller.
    pub fn pipeline(&self) -> &Pipeline<T> {
        &self.pipeline
    }

    fn resolve(&self, name: &str) -> Arc<Tool> {
        if let Some(tool) = self.tools.used(name) {
            return tool;
        }
        let policy = || self.preset.policy(&ToolFacts::named(name), &self.tiers);
        // `ok()` hides no error: a preset's policy is always valid, and the pipeline has room.
        let make = || self.pipeline.tool(self.server.name(), name, policy()).ok();
        let learned = self.tools.learn(name, |tool| self.pipeline.forget(tool), make);
        learned.unwrap_or_else(|| Arc::new(self.others.standing_for(name, policy())))
    }
}
