//! The policies of all tools, and what stands behind them: breakers, budgets, copies of answers.
//!
//! A tool gets its policy when its server lists it. Names that no server listed share one policy and one breaker per
//! server, so that invented names cannot fill memory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use seawall::{Breaker, Durable, Env, Event, Format, Invalid, Mode, Pipeline, Rendering, Settings, Snapshot, Tool};

use crate::catalog::explain::{Asked, Explained, explain};
use crate::catalog::layer::Own;
use crate::catalog::listed::{Decided, Listed};
use crate::catalog::rules::{Rules, ServerRules};
use crate::ops::config::Config;
use crate::wire::edit::Object;
use crate::wire::{Kind, Message, content, limits, scan};

/// How a tool is treated.
pub struct ToolPolicy {
    /// Its policy and its state, as the library knows it.
    pub tool: Arc<Tool>,
    /// What the gateway alone knows.
    pub own: Own,
    /// Whether its results follow a schema of their own, so that ours must not stand in their place.
    pub has_output_schema: bool,
    /// How calls are treated that carry a key by which the server knows a repeat; and the argument that holds it.
    keyed: Option<(String, Arc<ToolPolicy>)>,
    /// What its server says of it.
    listed: Listed,
}

impl ToolPolicy {
    /// How something is treated that has no keys.
    pub fn new(tool: Arc<Tool>, own: Own, has_output_schema: bool) -> Self {
        Self { tool, own, has_output_schema, keyed: None, listed: Listed::default() }
    }

    /// How this very call is treated.
    fn for_call(self: Arc<Self>, request: &Message) -> Arc<Self> {
        let Some((argument, keyed)) = &self.keyed else { return self };
        let arguments = Object::of(request.field_json("arguments").unwrap_or_default());
        let is_given = arguments.get(argument).and_then(scan::text).is_some_and(|key| !key.is_empty());
        if is_given { Arc::clone(keyed) } else { self }
    }
}

/// What a server means by a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// A tool that it listed.
    Tool,
    /// A method of the protocol.
    Method,
    /// Nothing: somebody made it up, or has it from a list that we never saw.
    Unknown,
}

/// The policies of all tools.
pub struct Policies {
    /// The stages of a call.
    pub pipeline: Pipeline<Message>,
    env: Env,
    rules: Rules,
    servers: HashMap<String, Known>,
    /// The file that all of it was read from.
    source: Option<PathBuf>,
}

/// One server's tools.
struct Known {
    rules: ServerRules,
    tools: RwLock<HashMap<String, Arc<ToolPolicy>>>,
    others: Arc<ToolPolicy>,
    methods: HashMap<&'static str, Arc<ToolPolicy>>,
    /// The lists that were learned from, by page.
    seen: Mutex<HashMap<String, u64>>,
}

/// Stands for all names that a server did not list.
const OTHERS: &str = "(others)";
/// Methods that only read, and are treated like tools that do; and those that set what stays set, however often.
const REPEATABLE: [&str; 10] = [
    "resources/read",
    "prompts/get",
    "completion/complete",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
];

impl Policies {
    /// The policies that a configuration asks for; writes may wait in `durable`.
    pub fn new(config: &Config, durable: Option<Arc<dyn Durable>>) -> Result<Self, Invalid> {
        let rules = config.rules.clone();
        let env = Env::new();
        env.events.for_each_rare(log).map_err(|error| Invalid::new("events", error.to_string()))?;
        let pipeline = Pipeline::new(Settings {
            env: env.clone(),
            global_breaker: rules.global_breaker(),
            style: rules.messages.style,
            debug: rules.messages.debug,
            debug_on_request: !rules.messages.no_debug_on_request,
            durable,
            error_text,
            is_complete,
            ..Settings::new(Message::weight)
        })?;
        let mut servers = HashMap::new();
        for server in &config.servers {
            let within = |error: Invalid| error.within(&server.name);
            pipeline.server(&server.name, rules.server(&server.rules)).map_err(within)?;
            let others = resolve(&pipeline, &rules, &server.name, &server.rules, OTHERS, Listed::default());
            let mut methods = HashMap::new();
            for method in REPEATABLE {
                let tool = pipeline.tool(&server.name, method, rules.method(&server.rules, method)).map_err(within)?;
                methods.insert(method, Arc::new(ToolPolicy::new(tool, Own::default(), false)));
            }
            let known = Known {
                rules: server.rules.clone(),
                tools: RwLock::default(),
                others: Arc::new(others.map_err(within)?),
                methods,
                seen: Mutex::default(),
            };
            servers.insert(server.name.clone(), known);
        }
        Ok(Self { pipeline, env, rules, servers, source: config.source.clone() })
    }

    /// Whether there is one server only, so that its tools keep their names.
    pub fn is_single(&self) -> bool {
        self.servers.len() == 1
    }

    /// What a server means by a name.
    pub fn named(&self, server: &str, name: &str) -> Named {
        let Some(known) = self.servers.get(server) else { return Named::Unknown };
        if known.tools.read().unwrap_or_else(PoisonError::into_inner).contains_key(name) {
            Named::Tool
        } else if known.methods.contains_key(name) {
            Named::Method
        } else {
            Named::Unknown
        }
    }

    /// How everything is treated: the tools that were listed, then the methods, then the names that nobody listed.
    pub fn all(&self) -> Vec<(Named, Arc<Tool>)> {
        let mut tools = Vec::new();
        let mut rest = Vec::new();
        for known in self.servers.values() {
            let listed = known.tools.read().unwrap_or_else(PoisonError::into_inner);
            tools.extend(listed.values().map(|policy| (Named::Tool, Arc::clone(&policy.tool))));
            rest.extend(known.methods.values().map(|policy| (Named::Method, Arc::clone(&policy.tool))));
            rest.push((Named::Unknown, Arc::clone(&known.others.tool)));
        }
        tools.append(&mut rest);
        tools
    }

    /// How failures are shown to a client of this tool.
    pub fn rendering(&self, has_output_schema: bool) -> Rendering {
        let format = if self.rules.as_json() { Format::Json } else { Format::Text };
        Rendering { style: self.rules.messages.style, format, structured: !has_output_schema }
    }

    /// Time, chance and listeners.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Whether no breaker keeps calls of this tool from its server.
    pub fn is_well(&self, server: &str, name: &str) -> bool {
        // One whose cool-down is over shows open until somebody calls; what waits here is that call.
        let cools_down = |breaker: &Breaker| {
            let Snapshot { mode, remaining, .. } = breaker.snapshot();
            mode == Mode::Auto && remaining.is_some_and(|remaining| !remaining.is_zero())
        };
        let is_open = |tool: &Arc<Tool>| tool.breaker().is_some_and(cools_down);
        let tools = self.pipeline.tools();
        !self.is_switched_off(server, name) && !tools.iter().any(|tool| tool.server().name() == server && is_open(tool))
    }

    /// Whether an operator holds a breaker of this tool open.
    fn is_switched_off(&self, server: &str, name: &str) -> bool {
        let is_forced = |breaker: &Breaker| breaker.snapshot().mode == Mode::ForcedOpen;
        self.tool(server, name).is_some_and(|policy| {
            let tool = &policy.tool;
            tool.breaker().is_some_and(is_forced) || tool.server().connection().is_some_and(is_forced)
        })
    }

    /// Whether this server ever answered when it was asked for its tools.
    pub fn has_seen_tools(&self, server: &str) -> bool {
        self.servers.get(server).is_none_or(|known| !lock(&known.seen).is_empty())
    }

    /// Gives every tool on an answer to `tools/list` its policy; a list that was seen before says nothing new.
    pub fn learn(&self, server: &str, page: &str, answer: &Message) {
        let Some(known) = self.servers.get(server) else { return };
        let list = answer.field("tools");
        let mut hasher = DefaultHasher::new();
        list.map(|list| list.of(answer.raw())).hash(&mut hasher);
        let hash = hasher.finish();
        {
            let mut seen = lock(&known.seen);
            if seen.len() >= limits::PAGES {
                seen.clear();
            }
            if seen.insert(page.to_owned(), hash) == Some(hash) {
                return;
            }
        }
        let entries = list.map(|list| scan::elements(answer.raw(), list)).unwrap_or_default();
        for entry in entries.into_iter().take(limits::LISTED) {
            let Some((name, listed)) = Listed::read(answer.raw(), entry) else { continue };
            // A tool with a name that means something else here is treated like one that was never listed.
            if name == OTHERS || known.methods.contains_key(&*name) {
                continue;
            }
            match resolve(&self.pipeline, &self.rules, server, &known.rules, &name, listed) {
                Ok(policy) => {
                    let mut tools = known.tools();
                    if tools.len() < limits::LISTED * 2 || tools.contains_key(&name) {
                        tools.insert(name, Arc::new(policy));
                    }
                }
                Err(error) => crate::ops::log::line(&format!("{server}: the policy of {name:?}: {error}")),
            }
        }
    }

    /// How the call of a tool is treated.
    pub fn call(&self, server: &str, request: &Message) -> Option<Arc<ToolPolicy>> {
        Some(self.tool(server, &request.field_text("name")?)?.for_call(request))
    }

    /// How a tool is treated.
    pub fn tool(&self, server: &str, name: &str) -> Option<Arc<ToolPolicy>> {
        let known = self.servers.get(server)?;
        let listed = known.tools.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        Some(listed.unwrap_or_else(|| {
            let tool = Arc::new(known.others.tool.renamed(name));
            Arc::new(ToolPolicy::new(tool, known.others.own, true))
        }))
    }

    /// The names of the tools that a server listed, in order.
    pub fn listed(&self, server: &str) -> Vec<String> {
        let Some(known) = self.servers.get(server) else { return Vec::new() };
        let mut names: Vec<String> =
            known.tools.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        names.sort();
        names
    }

    /// How a listed tool is treated, and why; a call waits as long as `wait` for its server.
    pub fn explain(&self, server: &str, tool: &str, wait: Duration, has_store: bool) -> Option<Explained> {
        let known = self.servers.get(server)?;
        let policy = known.tools.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()?;
        Some(explain(&Asked {
            file: self.source.as_deref(),
            rules: &self.rules,
            server,
            of_server: &known.rules,
            wait,
            has_store,
            tool,
            listed: Some(&policy.listed),
            env: &|name| std::env::var(name).ok(),
        }))
    }

    /// How a method is treated, if it is one that can be repeated.
    pub fn method(&self, server: &str, method: &str) -> Option<&Arc<ToolPolicy>> {
        self.servers.get(server)?.methods.get(method)
    }
}

impl Known {
    fn tools(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<String, Arc<ToolPolicy>>> {
        self.tools.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resolve(
    pipeline: &Pipeline<Message>,
    rules: &Rules,
    server: &str,
    of_server: &ServerRules,
    name: &str,
    listed: Listed,
) -> Result<ToolPolicy, Invalid> {
    let Decided { policy, own, key } = listed.decide(rules, server, of_server, name);
    let has_output_schema = listed.hints.has_output_schema;
    let tool = pipeline.tool(server, name, policy)?;
    let keyed = key.map(|key| (key, Arc::new(ToolPolicy::new(Arc::new(tool.idempotent()), own, has_output_schema))));
    Ok(ToolPolicy { keyed, listed, ..ToolPolicy::new(tool, own, has_output_schema) })
}

/// The text of an answer that is an error: the protocol's, or one that the tool itself marked.
pub fn error_text(answer: &Message) -> Option<String> {
    if answer.kind() == Kind::Error {
        return Some(answer.field_text("message").unwrap_or_default().into_owned());
    }
    if answer.field_json("isError") != Some(b"true") {
        return None;
    }
    Some(content::blocks(answer).filter_map(content::text).collect::<Vec<_>>().join("\n"))
}

/// Whether an answer is the end of its call and not a question back to the client.
pub fn is_complete(answer: &Message) -> bool {
    answer.kind() == Kind::Result && answer.field_text("resultType").is_none_or(|kind| kind == "complete")
}

/// What an operator wants to read while it happens.
fn log(event: &Event) {
    if matches!(event, Event::RetryScheduled { .. } | Event::BreakerChanged { .. }) {
        crate::ops::log::line(&event.to_string());
    }
}
