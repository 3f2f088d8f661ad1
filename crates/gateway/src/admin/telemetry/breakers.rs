//! Which breakers there are to look at, and what each is called.
//!
//! Tools have the names that clients know them by. A breaker that several tools share is there once
//! more under the name of its server, or `global`. Methods, and names that no server listed, are
//! told once their breaker has opened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use seawall::{Breaker, BreakerMode, BreakerStatus, Scope, Tool};

use super::counts::UNKNOWN;
use crate::catalog::names;
use crate::policy::registry::{PolicyName, PolicyRegistry};

/// One breaker, and whose it is.
#[derive(Clone, Debug)]
pub(crate) struct WatchedBreaker {
    /// The server; empty for the breaker of all.
    pub server: String,
    /// The tool; empty for the server as a whole.
    pub tool: String,
    /// Whether it is shown elsewhere too, as the breaker of each tool that shares it.
    pub is_repeated: bool,
    owner: Arc<Tool>,
    is_connection: bool,
}

/// What a breaker decides about.
#[derive(Debug)]
pub(crate) struct BreakerScope {
    /// Who shares it.
    pub scope: Scope,
    /// The names of all that it decides about, in order; `unknown` stands for those that no server
    /// listed.
    pub tools: BTreeSet<String>,
}

impl WatchedBreaker {
    /// The breaker itself.
    pub(crate) fn breaker(&self) -> Option<&Breaker> {
        self.of(&self.owner)
    }

    fn of<'a>(&self, tool: &'a Tool) -> Option<&'a Breaker> {
        if self.is_connection { tool.server().connection() } else { tool.breaker() }
    }

    /// Says who decides from now on, also where the tool was listed anew since it was looked for;
    /// gives what is there now.
    pub(crate) fn force(&self, policies: &PolicyRegistry, mode: BreakerMode) -> Option<Self> {
        // What many share is never replaced; what a tool has for itself is, and is found by its
        // name.
        if self.is_connection || self.is_repeated {
            self.breaker()?.set_mode(mode);
            return Some(self.clone());
        }
        let owner =
            policies.pipeline.set_mode(self.owner.server().name(), self.owner.name(), mode)?;
        Some(Self { owner, ..self.clone() })
    }

    /// What it decides about. The breaker itself tells, and not the policy: what an operator
    /// switched stays with its tool, also where that is to have another one.
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

/// What clients call it.
fn shown(policies: &PolicyRegistry, named: PolicyName, tool: &Tool) -> String {
    let name = if named == PolicyName::Unknown { UNKNOWN } else { tool.name() };
    if policies.is_single() { name.to_owned() } else { names::public(tool.server().name(), name) }
}

/// All of them by name. Asking makes none.
pub(crate) fn all(policies: &PolicyRegistry) -> BTreeMap<String, WatchedBreaker> {
    let mut entries = BTreeMap::new();
    let mut put = |name: String, entry: WatchedBreaker| {
        // A tool keeps its name; what is called like it gives way.
        entries.entry(name).or_insert(entry);
    };
    let tools = policies.all();
    let told = |(named, tool): &&(PolicyName, Arc<Tool>)| {
        tool.breaker().is_some_and(|breaker| *named == PolicyName::Tool || has_opened(breaker))
    };
    for (named, tool) in tools.iter().filter(told) {
        // What is no tool and shares its breaker is told with those it shares it with.
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
