//! Decides how tools are called in one line each: the front door that combines everything.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};

use crate::attempt::breaker::{Snapshot, Status};
use crate::model::answer::Answer;
use crate::model::call::{Attempt, Call};
use crate::model::effect::ToolFacts;
use crate::model::invalid::Invalid;
use crate::model::policy::{Policy, ServerPolicy};
use crate::model::preset::{Preset, Tiers};
use crate::model::signals::Signals;
use crate::recover::chain::Step;
use crate::settings::{Pipeline, Settings};
use crate::state::{Server, Tool};

/// How many names get a policy of their own on first use.
const NAMES: usize = 1024;

/// Calls the tools of one server with retry, breaker, fallback and honest failures.
///
/// A tool gets its policy by its name on first use, unless [`ToolCaller::tool`] gave it one before.
/// Names beyond a bound share one policy and one breaker and are not remembered, so that invented names cannot
/// fill memory.
#[derive(Debug)]
pub struct ToolCaller<T> {
    pipeline: Pipeline<T>,
    preset: Preset,
    tiers: Tiers,
    server: Arc<Server>,
    tools: RwLock<HashMap<Arc<str>, Arc<Tool>>>,
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
        let others = pipeline.tool(server.name(), "others", preset.policy(&ToolFacts::named("others"), &tiers))?;
        Ok(Self { pipeline, preset, tiers, server, tools: RwLock::default(), others })
    }

    /// Gives a tool its policy: what is known of it first, then what `adjust` changes.
    pub fn tool(&self, facts: ToolFacts<'_>, adjust: impl FnOnce(&mut Policy)) -> Result<(), Invalid> {
        let mut policy = self.preset.policy(&facts, &self.tiers);
        adjust(&mut policy);
        let tool =
            self.pipeline.tool(self.server.name(), facts.name, policy).map_err(|error| error.within(facts.name))?;
        self.tools.write().unwrap_or_else(PoisonError::into_inner).insert(facts.name.into(), tool);
        Ok(())
    }

    /// Calls a tool. `send` makes one attempt and is asked again for each retry and fallback.
    pub async fn call<F>(&self, tool: &str, call: impl Into<Call>, send: impl Fn(Attempt) -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, Signals>>,
    {
        self.call_with(tool, call, &[], send).await
    }

    /// Calls a tool, with steps of the caller's own after the tool's fallbacks.
    pub async fn call_with<F>(
        &self,
        tool: &str,
        call: impl Into<Call>,
        own_steps: &[Step<T>],
        send: impl Fn(Attempt) -> F,
    ) -> Answer<T>
    where
        F: Future<Output = Result<T, Signals>>,
    {
        let (tool, call) = (self.resolve(tool), call.into());
        self.pipeline.run_with(&tool, &call, own_steps, send).await
    }

    /// The state of a tool's breaker; asking does not make the tool known.
    pub fn breaker_status(&self, tool: &str) -> Option<Snapshot> {
        self.known(tool)?.breaker().map(|breaker| breaker.snapshot())
    }

    /// The state of every known tool's breaker.
    pub fn all_breaker_status(&self) -> HashMap<Arc<str>, Status> {
        let tools = self.tools.read().unwrap_or_else(PoisonError::into_inner);
        tools.iter().filter_map(|(name, tool)| Some((name.clone(), tool.breaker()?.status()))).collect()
    }

    /// Closes a tool's breaker; `false` if there is none.
    pub fn reset_breaker(&self, tool: &str) -> bool {
        self.known(tool).and_then(|tool| tool.breaker().map(|breaker| breaker.reset())).is_some()
    }

    /// The pipeline behind it.
    pub fn pipeline(&self) -> &Pipeline<T> {
        &self.pipeline
    }

    fn known(&self, name: &str) -> Option<Arc<Tool>> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn resolve(&self, name: &str) -> Arc<Tool> {
        if let Some(tool) = self.known(name) {
            return tool;
        }
        let mut tools = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        if tools.len() >= NAMES {
            return Arc::new(self.others.renamed(name));
        }
        let policy = self.preset.policy(&ToolFacts::named(name), &self.tiers);
        // A preset's policy is always valid, and there is room.
        let tool = self.pipeline.tool(self.server.name(), name, policy);
        let tool = tool.unwrap_or_else(|_| Arc::new(self.others.renamed(name)));
        tools.entry(name.into()).or_insert(tool).clone()
    }
}
