//! Decides which circuit breakers are shown, and under which names.
//!
//! Tools have the names that clients know. A breaker that several tools share is shown once more
//! under the name of its server, or as `global`. Breakers of methods, and of names that no server
//! listed, are shown once they have opened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use seawall::{Breaker, BreakerMode, BreakerStatus, Scope, Tool};

use super::counts::UNKNOWN;
use crate::catalog::names;
use crate::policy::registry::{PolicyName, PolicyRegistry};

/// One breaker, with its server and tool.
#[derive(Clone, Debug)]
pub(crate) struct WatchedBreaker {
    /// The server; empty for the breaker of all servers.
    pub server: String,
    /// The tool; empty for the server as a whole.
    pub tool: String,
    /// Whether the breaker is also shown as the breaker of each tool that shares it.
    pub is_repeated: bool,
    owner: Arc<Tool>,
    is_connection: bool,
}

/// The tools that a breaker guards.
#[derive(Debug)]
pub(crate) struct BreakerScope {
    /// The scope of the breaker: a tool, a server or all servers.
    pub scope: Scope,
    /// The names of all tools that the breaker guards, in order; `unknown` stands for names that no
    /// server listed.
    pub tools: BTreeSet<String>,
}

impl WatchedBreaker {
    /// The breaker itself.
    pub(crate) fn breaker(&self) -> Option<&Breaker> {
        self.of(&self.owner)
    }

    /// The name under which replicas share it; a replica's connections are its own.
    pub(crate) fn fleet_name(&self) -> Option<String> {
        let breaker = self.breaker().filter(|_| !self.is_connection)?;
        Some(breaker.name().to_owned())
    }

    fn of<'a>(&self, tool: &'a Tool) -> Option<&'a Breaker> {
        if self.is_connection { tool.server().connection() } else { tool.breaker() }
    }

    /// Sets the mode of the breaker, also if the tool was listed again since it was found; returns
    /// the current entry.
    pub(crate) fn force(&self, policies: &PolicyRegistry, mode: BreakerMode) -> Option<Self> {
        // A shared breaker is never replaced. A tool's own breaker is replaced when the tool is
        // listed again, so it is looked up by name, and the mode is set on the current one.
        if self.is_connection || self.is_repeated {
            self.breaker()?.set_mode(mode);
            return Some(self.clone());
        }
        let owner =
            policies.pipeline.set_mode(self.owner.server().name(), self.owner.name(), mode)?;
        Some(Self { owner, ..self.clone() })
    }

    /// The tools that the breaker guards. The breaker's own name comes before the policy's scope: a
    /// mode that an operator has set stays with the tool's breaker, even if the policy now wants
    /// another scope.
    pub(crate) fn covers(&self, policies: &PolicyRegistry) -> Option<BreakerScope> {
        let breaker = self.breaker()?;
        let scope = match self.owner.policy().scope {
            _ if self.is_connection => Scope::Server,
            _ if breaker.name().contains('/') => Scope::Tool,
            Scope::Tool if breaker.name() == self.owner.server().name() => Scope::Server,
            Scope::Tool => Scope::Global,
            shared => shared,
        };
        let is_it = |tool: &Tool| self.of(tool).is_some_and(|other| std::ptr::eq(other, breaker));
        let all = policies.all();
        let tools = all
            .iter()
            .filter(|(_, tool)| is_it(tool))
            .map(|(named, tool)| shown(policies, *named, tool));
        Some(BreakerScope { scope, tools: tools.collect() })
    }
}

/// The name that clients know.
fn shown(policies: &PolicyRegistry, named: PolicyName, tool: &Tool) -> String {
    let name = if named == PolicyName::Unknown { UNKNOWN } else { tool.name() };
    if policies.is_single() { name.to_owned() } else { names::public(tool.server().name(), name) }
}

/// All breakers by name. The lookup creates none.
pub(crate) fn all(policies: &PolicyRegistry) -> BTreeMap<String, WatchedBreaker> {
    let mut entries = BTreeMap::new();
    let mut put = |name: String, entry: WatchedBreaker| {
        // The first entry keeps its name: tools come first, and an equally named shared breaker
        // gives way.
        entries.entry(name).or_insert(entry);
    };
    let tools = policies.all();
    let told = |(named, tool): &&(PolicyName, Arc<Tool>)| {
        tool.breaker().is_some_and(|breaker| *named == PolicyName::Tool || has_opened(breaker))
    };
    for (named, tool) in tools.iter().filter(told) {
        // Methods and unknown names with a shared breaker are shown only as part of that breaker.
        if *named == PolicyName::Tool || tool.policy().scope == Scope::Tool {
            let name = if *named == PolicyName::Unknown { UNKNOWN } else { tool.name() };
            put(shown(policies, *named, tool), entry(tool, name));
        }
    }
    for (_, tool) in tools.iter().filter(told) {
        let shared = WatchedBreaker { is_repeated: true, ..entry(tool, "") };
        match tool.policy().scope {
            Scope::Server => put(tool.server().name().to_owned(), shared),
            Scope::Global => {
                put("global".to_owned(), WatchedBreaker { server: String::new(), ..shared })
            }
            Scope::Tool => {}
        }
    }
    for (_, tool) in tools.iter().filter(|(_, tool)| tool.server().connection().is_some()) {
        put(
            format!("{}/connection", tool.server().name()),
            WatchedBreaker { is_connection: true, ..entry(tool, "") },
        );
    }
    entries.retain(|_, entry| entry.breaker().is_some());
    entries
}

fn entry(owner: &Arc<Tool>, tool: &str) -> WatchedBreaker {
    WatchedBreaker {
        server: owner.server().name().to_owned(),
        tool: tool.to_owned(),
        is_repeated: false,
        owner: Arc::clone(owner),
        is_connection: false,
    }
}

fn has_opened(breaker: &Breaker) -> bool {
    breaker.status() != BreakerStatus::Closed || breaker.snapshot().trips > 0
}

#[cfg(test)]
mod tests {
    use seawall::BreakerMode;

    use super::*;
    use crate::config::Config;
    use crate::protocol::Message;

    fn list(hint: &str) -> Message {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"frob","annotations":{{"{hint}":true}}}}]}}}}"#
        );
        Message::parse(text.into()).unwrap()
    }

    /// The mode of the breaker that the next call meets.
    fn mode(policies: &PolicyRegistry) -> BreakerMode {
        policies.tool("s", "frob").unwrap().tool.breaker().unwrap().snapshot().mode
    }

    #[test]
    fn a_switch_that_is_thrown_while_its_tool_is_listed_anew_holds() {
        let config = Config::for_command(Some("s"), vec!["none".to_owned()]).unwrap();
        let policies = PolicyRegistry::new(&config, None).unwrap();
        policies.learn("s", "", &list("readOnlyHint"), true);
        let found = all(&policies);
        policies.learn("s", "", &list("destructiveHint"), true);
        found["frob"].force(&policies, BreakerMode::ForcedOpen).unwrap();
        assert_eq!(
            mode(&policies),
            BreakerMode::ForcedOpen,
            "it was found before, and thrown after"
        );

        let found = all(&policies);
        policies.learn("s", "", &list("readOnlyHint"), true);
        assert_eq!(mode(&policies), BreakerMode::ForcedOpen, "no list lifts it");
        found["frob"].force(&policies, BreakerMode::Auto).unwrap();
        assert_eq!(mode(&policies), BreakerMode::Auto);
    }
}
