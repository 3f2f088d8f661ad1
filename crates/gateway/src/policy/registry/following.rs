//! Decides what the policies of a new configuration take over from those of the one before.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use seawall::Invalid;

use super::{PolicyRegistry, ServerPolicies, lock, resolve, secrets, settings};
use crate::config::Config;
use crate::protocol::Message;

/// What a server of a new configuration has in common with the one of the same name before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerContinuity {
    /// It goes on, with its connections.
    Same,
    /// It is the same server, reached in another way: with other credentials or settings.
    Reopened,
    /// It is another server, or the first of its name.
    New,
}

/// The registry of the configuration in force. Connections and calls that began under an earlier
/// one bring the lists they get to this one.
#[derive(Default)]
pub(crate) struct NewestPolicies(RwLock<Weak<PolicyRegistry>>);

impl NewestPolicies {
    /// The registry in force.
    pub(crate) fn get(&self) -> Option<Arc<PolicyRegistry>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Resolves the policies of a tool list in the registry in force.
    pub(crate) fn learn(&self, server: &str, page: &str, answer: &Message, is_heard: bool) {
        let newest = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = newest.upgrade() {
            newest.take_list(server, page, answer, is_heard);
        }
    }

    /// Runs `then` on the registry in force; on `own` if that is the only one. No other registry
    /// takes its place meanwhile.
    pub(super) fn of(&self, own: &PolicyRegistry, then: impl FnOnce(&PolicyRegistry)) {
        let newest = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match newest.upgrade() {
            Some(newest) => then(&newest),
            None => then(own),
        }
    }
}

impl PolicyRegistry {
    /// The registry in force, for connections that outlive this one.
    pub(crate) fn newest(&self) -> &Arc<NewestPolicies> {
        &self.shared.newest
    }

    /// Puts this registry in force.
    pub(crate) fn in_force(self: Arc<Self>) -> Arc<Self> {
        let newest = &self.shared.newest.0;
        *newest.write().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&self);
        self
    }

    /// Resolves the policies of a configuration that follows this one, and puts them in force.
    /// Breakers, budgets, cached responses and the ledger stay with their servers; calls in flight
    /// end under the policies they began with.
    pub(crate) fn followed_by(
        &self,
        config: &Config,
        continuity: &HashMap<String, ServerContinuity>,
    ) -> Result<Arc<Self>, Invalid> {
        let of = |name: &str| continuity.get(name).copied().unwrap_or(ServerContinuity::New);
        let goes_on = config.servers.iter().filter(|it| of(&it.name) != ServerContinuity::New);
        let servers = goes_on.map(|it| (it.name.as_str(), config.rules.server(&it.rules)));
        let settings = settings(config, &self.env, &self.shared);
        let pipeline = self.pipeline.reconfigured(settings, servers)?;
        // A list that arrives from now on waits until the new rules can resolve its policies.
        let mut newest = self.shared.newest.0.write().unwrap_or_else(PoisonError::into_inner);
        let next = Self::build(config, pipeline, self.env.clone(), self.shared.clone())?;
        for (name, after) in &next.servers {
            if let (ServerContinuity::Same, Some(before)) = (of(name), self.servers.get(name)) {
                next.take_over(name, before, after)?;
            }
        }
        *self.shared.secrets.write().unwrap_or_else(PoisonError::into_inner) = secrets(config);
        let next = Arc::new(next);
        *newest = Arc::downgrade(&next);
        Ok(next)
    }

    /// Resolves the policies of the tools that a server has listed, by the rules of this registry.
    fn take_over(
        &self,
        server: &str,
        before: &ServerPolicies,
        after: &ServerPolicies,
    ) -> Result<(), Invalid> {
        let is_heard = before.is_heard.load(Ordering::Acquire);
        let rules = after.rules(is_heard);
        let known = before.tools.read().unwrap_or_else(PoisonError::into_inner);
        for (name, policy) in known.iter() {
            let listed = policy.listed.clone();
            let policy = resolve(&self.pipeline, &self.rules, server, &rules, name, listed)?;
            after.tools().insert(name.clone(), Arc::new(policy));
        }
        lock(&after.seen).clone_from(&lock(&before.seen));
        after.is_heard.store(is_heard, Ordering::Release);
        Ok(())
    }
}
