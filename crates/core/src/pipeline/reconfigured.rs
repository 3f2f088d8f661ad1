//! Decides what a pipeline keeps when its settings change: whatever the change does not name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::{KnownServer, KnownServers, Pipeline, Settings};
use crate::admit::CallerRates;
use crate::attempt::breaker::Breaker;
use crate::env::Env;
use crate::model::invalid::Invalid;
use crate::model::policy::ServerPolicy;
use crate::registry::Tool;

impl<T> Pipeline<T> {
    /// A pipeline with other `settings` and these servers, for the calls from now on; calls in
    /// flight end in the pipeline they began in. Both share the environment, the ledger and the
    /// response cache, so those of `settings` are not used. A listed server keeps its state and its
    /// tools, which keep their policies until they are registered again. A server that is not
    /// listed is forgotten; one registered later under its name is another server, which shares
    /// no cached response with it.
    ///
    /// ```
    /// # use seawall::{Pipeline, Preset, ServerPolicy, Settings, Tiers, ToolFacts};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), seawall::Invalid> {
    /// let before = Pipeline::<String>::new(Settings::default())?;
    /// before.server("github", ServerPolicy::default())?;
    /// let policy = Preset::default().policy(&ToolFacts::named("get_issue"), &Tiers::default());
    /// before.tool("github", "get_issue", policy)?;
    /// let settings = Settings { debug: true, ..Settings::default() };
    /// let after = before.reconfigured(settings, [("github", ServerPolicy::default())])?;
    /// assert!(after.find("github", "get_issue").is_some());
    /// # Ok(()) }
    /// ```
    pub fn reconfigured<'a>(
        &self,
        settings: Settings<T>,
        servers: impl IntoIterator<Item = (&'a str, ServerPolicy)>,
    ) -> Result<Self, Invalid> {
        let global = match settings.global_breaker == self.global_rules {
            true => self.global.clone(),
            false => {
                let rules = settings.global_breaker.clone();
                let global = Breaker::new("global", rules, &self.env);
                Arc::new(global.map_err(|error| error.within("global_breaker"))?)
            }
        };
        let mut known = KnownServers::default();
        {
            let before = self.known.read().unwrap_or_else(PoisonError::into_inner);
            for (name, policy) in servers {
                if let Some(server) = before.servers.get(name) {
                    let renewed = server.renewed(policy, &self.env);
                    known.servers.insert(name.into(), renewed.map_err(|it| it.within(name))?);
                }
            }
        }
        let callers = self.callers(&settings)?;
        let settings = Settings { env: self.env.clone(), ..settings };
        let (gatekeeper, keys) = (self.gatekeeper.clone(), self.keys.clone());
        let after = Self::of(settings, gatekeeper, callers, keys, global);
        let (known, generation) = (RwLock::new(known), self.generation + 1);
        Ok(Self { known, generation, ..after })
    }

    /// The rates of callers: those of this pipeline, unless the settings have another rate.
    fn callers(&self, settings: &Settings<T>) -> Result<Option<Arc<CallerRates>>, Invalid> {
        match (&self.callers, settings.caller_rate) {
            (Some(callers), Some(rate)) if callers.rate() == rate => Ok(Some(callers.clone())),
            (_, rate) => {
                let made = rate.map(|rate| CallerRates::new(rate, &self.env.clock)).transpose()?;
                Ok(made.map(Arc::new))
            }
        }
    }
}

impl KnownServer {
    fn renewed(&self, policy: ServerPolicy, env: &Env) -> Result<Self, Invalid> {
        if self.policy == policy {
            return Ok(self.clone());
        }
        let server = Arc::new(self.server.renewed(&self.policy, policy.clone(), env)?);
        let shared_breaker = match self.policy.shared == policy.shared {
            true => self.shared_breaker.clone(),
            false => Arc::new(Breaker::new(server.name.clone(), policy.shared.clone(), env)?),
        };
        let moved =
            |(name, tool): (&Arc<str>, &Arc<Tool>)| (name.clone(), Arc::new(tool.at(&server)));
        let tools: HashMap<_, _> = self.tools.iter().map(moved).collect();
        let readers = self.readers.clone();
        Ok(Self { server: server.clone(), policy, shared_breaker, tools, readers })
    }
}
