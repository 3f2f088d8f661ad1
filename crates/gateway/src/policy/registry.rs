//! Decides the policy of every tool, and holds its state: breakers, retry budgets, cached
//! responses.
//!
//! A tool gets its policy when its server lists it. Names that no server listed share one policy
//! and one breaker per server, so that invented names cannot fill memory.

mod following;
mod kept_back;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use seawall::{
    BreakerPolicy, DurableQueue, Env, Event, Format, Invalid, Pipeline, Policy, ProbeLeases,
    Rendering, Scope, Settings, Tool,
};

use tokio::sync::{mpsc, watch};

use crate::catalog::listed::{ListedTool, ToolDecision};
use crate::config::layer::GatewayPolicy;
use crate::config::layers::{PolicyRules, ServerRules};
use crate::config::{Config, SecretTexts, ServerConfig};
use crate::policy::explain::{ExplainQuery, ExplainedTool, explain};
use crate::policy::probes::{EndedLease, ProbePurse};
use crate::protocol::edit::JsonObject;
use crate::protocol::{Message, MessageKind, content, limits, scan};
use crate::runtime::log::{Level, LogSubject};

/// The policy of one tool.
pub(crate) struct ToolPolicy {
    /// The policy and its state, as the library knows it.
    pub tool: Arc<Tool>,
    /// The settings that only the gateway uses.
    pub own: GatewayPolicy,
    /// Whether the tool's results follow an output schema, so that the gateway must not put its own
    /// structured content in their place.
    pub has_output_schema: bool,
    /// The idempotency key's argument, and the policy of calls that carry it: their server
    /// recognizes a repeat.
    keyed: Option<(String, Arc<ToolPolicy>)>,
    /// The definition of the tool in its server's list.
    listed: ListedTool,
}

impl ToolPolicy {
    /// The policy of a tool or method without an idempotency key.
    pub(crate) fn new(tool: Arc<Tool>, own: GatewayPolicy, has_output_schema: bool) -> Self {
        Self { tool, own, has_output_schema, keyed: None, listed: ListedTool::default() }
    }

    /// The policy of one call: another one if the call carries an idempotency key.
    fn for_call(self: Arc<Self>, request: &Message) -> Arc<Self> {
        let Some((argument, keyed)) = &self.keyed else { return self };
        let arguments = JsonObject::of(request.field_json("arguments").unwrap_or_default());
        let is_given =
            arguments.get(argument).and_then(scan::text).is_some_and(|key| !key.is_empty());
        if is_given { Arc::clone(keyed) } else { self }
    }
}

/// The meaning of a name at a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyName {
    /// A tool that the server listed.
    Tool,
    /// A method of the protocol.
    Method,
    /// Unknown: a client made it up, or has it from a list that the gateway never saw.
    Unknown,
}

pub(crate) use following::{NewestPolicies, ServerContinuity};

/// The policies of all tools, as one configuration has them.
pub(crate) struct PolicyRegistry {
    /// The stages of a call.
    pub pipeline: Pipeline<Message>,
    env: Env,
    rules: PolicyRules,
    servers: HashMap<String, ServerPolicies>,
    /// The configuration file.
    source: Option<PathBuf>,
    shared: RegistryParts,
}

/// The parts of a registry that outlive its configuration.
#[derive(Clone)]
struct RegistryParts {
    /// The number of breaker changes so far.
    breaker_changes: Arc<watch::Sender<u64>>,
    /// The secrets of each server, which the log must not show.
    secrets: Arc<RwLock<HashMap<String, SecretTexts>>>,
    durable: Option<Arc<dyn DurableQueue>>,
    newest: Arc<NewestPolicies>,
    /// Leases of probes, until the fleet takes them; `None` without Redis.
    purse: Arc<Mutex<Option<FleetPurse>>>,
}

/// The leases of this replica, and where their ends are told.
type FleetPurse = (Arc<ProbePurse>, mpsc::Receiver<EndedLease>);

/// The tools of one server.
struct ServerPolicies {
    rules: ServerRules,
    tools: RwLock<HashMap<String, Arc<ToolPolicy>>>,
    others: Arc<ToolPolicy>,
    methods: HashMap<&'static str, Arc<ToolPolicy>>,
    /// Tools that the configuration names and the server has not listed yet.
    stated: HashMap<String, Arc<ToolPolicy>>,
    /// A hash of each list that policies were made from, by page.
    seen: Mutex<HashMap<String, u64>>,
    /// Whether the server itself listed its tools, and not only the catalog cache.
    is_heard: AtomicBool,
}

/// The name of the policy for all names that a server did not list.
const OTHERS: &str = "(others)";
/// Methods that only read, and so get the policy of read-only tools; and methods that are
/// idempotent.
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

impl PolicyRegistry {
    /// Resolves the policies of a configuration; `durable` holds queued writes.
    pub(crate) fn new(
        config: &Config,
        durable: Option<Arc<dyn DurableQueue>>,
    ) -> Result<Self, Invalid> {
        let purse = config.redis.as_ref().map(|_| ProbePurse::new());
        let env = match &purse {
            Some((purse, _)) => Env::new().with_probes(Arc::clone(purse) as Arc<dyn ProbeLeases>),
            None => Env::new(),
        };
        let shared = RegistryParts {
            breaker_changes: Arc::new(watch::Sender::new(0)),
            secrets: Arc::new(RwLock::new(secrets(config))),
            durable,
            newest: Arc::default(),
            purse: Arc::new(Mutex::new(purse)),
        };
        let (changes, secrets) = (Arc::clone(&shared.breaker_changes), Arc::clone(&shared.secrets));
        env.events
            .for_each_rare(move |event| {
                log(event, &secrets.read().unwrap_or_else(PoisonError::into_inner));
                if let Event::BreakerChanged { .. } = event {
                    changes.send_modify(|count| *count += 1);
                }
            })
            .map_err(|error| Invalid::new("events", error.to_string()))?;
        let pipeline = Pipeline::new(settings(config, &env, &shared))?;
        Self::build(config, pipeline, env, shared)
    }

    /// Resolves the policies of a configuration in this pipeline.
    fn build(
        config: &Config,
        pipeline: Pipeline<Message>,
        env: Env,
        shared: RegistryParts,
    ) -> Result<Self, Invalid> {
        let rules = config.rules.clone();
        let mut servers = HashMap::new();
        for server in &config.servers {
            let within = |error: Invalid| error.within(&server.name);
            pipeline.server(&server.name, rules.server(&server.rules)).map_err(within)?;
            let known = ServerPolicies::new(&pipeline, &rules, &server.name, &server.rules);
            servers.insert(server.name.clone(), known.map_err(within)?);
        }
        Ok(Self { pipeline, env, rules, servers, source: config.source.clone(), shared })
    }

    /// The policy rules of the configuration.
    pub(crate) fn rules(&self) -> &PolicyRules {
        &self.rules
    }

    /// Whether tools keep their servers' names for them, without a prefix: there is only one
    /// server, and the configuration does not ask for the prefix.
    pub(crate) fn is_single(&self) -> bool {
        !self.rules.prefix.is_used(self.servers.len())
    }

    /// The meaning of a name at a server.
    pub(crate) fn named(&self, server: &str, name: &str) -> PolicyName {
        let Some(known) = self.servers.get(server) else { return PolicyName::Unknown };
        if known.tools.read().unwrap_or_else(PoisonError::into_inner).contains_key(name) {
            PolicyName::Tool
        } else if known.methods.contains_key(name) {
            PolicyName::Method
        } else {
            PolicyName::Unknown
        }
    }

    /// All policies: those of listed tools, then of methods, then of names that no server listed.
    pub(crate) fn all(&self) -> Vec<(PolicyName, Arc<Tool>)> {
        let mut tools = Vec::new();
        let mut rest = Vec::new();
        for known in self.servers.values() {
            let listed = known.tools.read().unwrap_or_else(PoisonError::into_inner);
            tools
                .extend(listed.values().map(|policy| (PolicyName::Tool, Arc::clone(&policy.tool))));
            rest.extend(
                known.methods.values().map(|policy| (PolicyName::Method, Arc::clone(&policy.tool))),
            );
            rest.push((PolicyName::Unknown, Arc::clone(&known.others.tool)));
        }
        tools.append(&mut rest);
        tools
    }

    /// How failures are rendered for clients of this tool.
    pub(crate) fn rendering(&self, has_output_schema: bool) -> Rendering {
        let format = if self.rules.as_json() { Format::Json } else { Format::Text };
        Rendering { style: self.rules.style(), format, structured: !has_output_schema }
    }

    /// The leases of probes, for the fleet; once, and only with Redis.
    pub(crate) fn take_purse(&self) -> Option<FleetPurse> {
        lock(&self.shared.purse).take()
    }

    /// Clock, randomness and listeners.
    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Whether this server itself ever listed its tools.
    pub(crate) fn has_heard_tools(&self, server: &str) -> bool {
        self.servers.get(server).is_none_or(|known| known.is_heard.load(Ordering::Acquire))
    }

    /// Resolves the policy of every tool in an answer to `tools/list`; a list that was seen before
    /// is skipped. A cached list may be outdated: until the server itself has listed its tools, a
    /// cached hint may forbid repeats, never allow them.
    pub(crate) fn learn(&self, server: &str, page: &str, answer: &Message, is_heard: bool) {
        self.shared.newest.of(self, |newest| newest.take_list(server, page, answer, is_heard));
    }

    fn take_list(&self, server: &str, page: &str, answer: &Message, is_heard: bool) {
        let Some(known) = self
            .servers
            .get(server)
            .filter(|known| is_heard || !known.is_heard.load(Ordering::Acquire))
        else {
            return;
        };
        let list = answer.field("tools");
        let mut hasher = DefaultHasher::new();
        // `is_heard` is part of the hash: the same list counts as new when the server itself sends
        // it, because then its hints may also allow repeats.
        (is_heard, list.map(|list| list.of(answer.raw()))).hash(&mut hasher);
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
        let rules = known.rules(is_heard);
        for (name, listed) in
            ListedTool::read_all(answer.raw(), entries.into_iter().take(limits::LISTED))
        {
            // A tool whose name has another meaning here is treated like an unlisted one.
            if name == OTHERS || known.methods.contains_key(&*name) {
                continue;
            }
            // Pipeline and map change under one lock: if they held two different states of a tool,
            // an operator's switch would reach only one of them.
            let mut tools = known.tools();
            match resolve(&self.pipeline, &self.rules, server, &rules, &name, listed) {
                Ok(policy) => {
                    if tools.len() < limits::LISTED * 2 || tools.contains_key(&name) {
                        tools.insert(name, Arc::new(policy));
                    }
                }
                Err(error) => crate::runtime::log::warn_of(
                    server,
                    &format!("the policy of {name:?}: {error}"),
                ),
            }
        }
        // Set last: a caller that sees it also sees the policies of this list.
        known.is_heard.fetch_or(is_heard, Ordering::AcqRel);
    }

    /// The policy of a `tools/call`.
    pub(crate) fn call(&self, server: &str, request: &Message) -> Option<Arc<ToolPolicy>> {
        Some(self.tool(server, &request.field_text("name")?)?.for_call(request))
    }

    /// The policy of a tool: as listed, else as configured, else that of unlisted names.
    pub(crate) fn tool(&self, server: &str, name: &str) -> Option<Arc<ToolPolicy>> {
        let known = self.servers.get(server)?;
        let listed = known.tools.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        Some(listed.or_else(|| known.stated.get(name).cloned()).unwrap_or_else(|| {
            let tool = Arc::new(known.others.tool.renamed(name));
            Arc::new(ToolPolicy::new(tool, known.others.own, true))
        }))
    }

    /// The names of the tools that a server listed, sorted.
    pub(crate) fn listed(&self, server: &str) -> Vec<String> {
        let Some(known) = self.servers.get(server) else { return Vec::new() };
        let mut names: Vec<String> =
            known.tools.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        names.sort();
        names
    }

    /// The policy of a listed tool, with the origin of each value; `wait` is how long a call waits
    /// for its server.
    pub(crate) fn explain(
        &self,
        server: &str,
        tool: &str,
        wait: Duration,
        has_store: bool,
    ) -> Option<ExplainedTool> {
        let known = self.servers.get(server)?;
        let policy =
            known.tools.read().unwrap_or_else(PoisonError::into_inner).get(tool).cloned()?;
        let is_heard = known.is_heard.load(Ordering::Acquire);
        Some(explain(&ExplainQuery {
            file: self.source.as_deref(),
            rules: &self.rules,
            server,
            of_server: &known.rules(is_heard),
            is_heard,
            wait,
            has_store,
            tool,
            listed: Some(&policy.listed),
            env: &|name| std::env::var(name).ok(),
        }))
    }

    /// The policy of a method, if it can be repeated.
    pub(crate) fn method(&self, server: &str, method: &str) -> Option<&Arc<ToolPolicy>> {
        self.servers.get(server)?.methods.get(method)
    }
}

impl ServerPolicies {
    /// The policies of a server that has not listed its tools yet.
    fn new(
        pipeline: &Pipeline<Message>,
        rules: &PolicyRules,
        server: &str,
        of_server: &ServerRules,
    ) -> Result<Self, Invalid> {
        let listed = ListedTool::default();
        let others = resolve(pipeline, rules, server, of_server, OTHERS, listed)?;
        let mut methods = HashMap::new();
        for method in REPEATABLE {
            let policy = sharing(rules.method(of_server, method));
            let tool = pipeline.tool(server, method, policy)?;
            let policy = ToolPolicy::new(tool, GatewayPolicy::default(), false);
            methods.insert(method, Arc::new(policy));
        }
        Ok(Self {
            rules: of_server.clone(),
            tools: RwLock::default(),
            others: Arc::new(others),
            methods,
            stated: stated(pipeline, rules, server, of_server)?,
            seen: Mutex::default(),
            is_heard: AtomicBool::new(false),
        })
    }

    /// The rules of the server. For tools known only from the catalog cache, annotations are not
    /// trusted: they may forbid repeats, never allow them.
    fn rules(&self, is_heard: bool) -> ServerRules {
        let distrust_annotations = self.rules.distrust_annotations || !is_heard;
        ServerRules { distrust_annotations, ..self.rules.clone() }
    }

    fn tools(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<String, Arc<ToolPolicy>>> {
        self.tools.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The settings of the pipeline that a configuration describes.
fn settings(config: &Config, env: &Env, shared: &RegistryParts) -> Settings<Message> {
    let rules = &config.rules;
    Settings {
        env: env.clone(),
        caller_rate: rules.caller_rate,
        global_breaker: rules.global_breaker(),
        style: rules.style(),
        debug: rules.messages.debug,
        debug_on_request: !rules.messages.no_debug_on_request,
        wall_clock: Some(time_of_day),
        durable: shared.durable.clone(),
        error_text: content::error_text,
        content: content::looked_at,
        is_complete,
        ..Settings::new(Message::weight)
    }
}

/// The secrets of each server of a configuration.
fn secrets(config: &Config) -> HashMap<String, SecretTexts> {
    let of = |server: &ServerConfig| (server.name.clone(), SecretTexts::of(server));
    config.servers.iter().map(of).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The policies of tools that the configuration names before their server has listed them. Where
/// the configuration does not state their effect, they count as writes.
fn stated(
    pipeline: &Pipeline<Message>,
    rules: &PolicyRules,
    server: &str,
    of_server: &ServerRules,
) -> Result<HashMap<String, Arc<ToolPolicy>>, Invalid> {
    let named = rules.tools.iter().filter_map(|(pattern, _)| pattern.split_once('/'));
    let mut stated = HashMap::new();
    // A name with another meaning here is treated like an unknown one.
    let is_tool = |tool: &str| !tool.contains('*') && tool != OTHERS && !REPEATABLE.contains(&tool);
    for (_, tool) in named.filter(|(of, tool)| *of == server && is_tool(tool)) {
        let mut listed = ListedTool::default();
        listed.hints.annotations.read_only_hint = Some(false);
        listed.hints.has_output_schema = true;
        stated.insert(
            tool.to_owned(),
            Arc::new(resolve(pipeline, rules, server, of_server, tool, listed)?),
        );
    }
    Ok(stated)
}

fn resolve(
    pipeline: &Pipeline<Message>,
    rules: &PolicyRules,
    server: &str,
    of_server: &ServerRules,
    name: &str,
    listed: ListedTool,
) -> Result<ToolPolicy, Invalid> {
    let ToolDecision { policy, own, key } = listed.decide(rules, server, of_server, name);
    let has_output_schema = listed.hints.has_output_schema;
    let tool = pipeline.tool(server, name, sharing(policy))?;
    let keyed = key.map(|key| {
        (key, Arc::new(ToolPolicy::new(Arc::new(tool.idempotent()), own, has_output_schema)))
    });
    Ok(ToolPolicy { keyed, listed, ..ToolPolicy::new(tool, own, has_output_schema) })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a person is told when it was; nothing is decided by it"
)]
fn time_of_day() -> SystemTime {
    SystemTime::now()
}

/// The policy without breaker settings of its own if its breaker is shared: a shared breaker is
/// configured for all tools that share it.
fn sharing(policy: Policy) -> Policy {
    let is_shared = policy.scope != Scope::Tool;
    Policy {
        breaker: policy.breaker.map(|own| if is_shared { BreakerPolicy::default() } else { own }),
        ..policy
    }
}

/// Whether an answer ends its call and is not a question to the client.
pub(crate) fn is_complete(answer: &Message) -> bool {
    answer.kind() == MessageKind::Result
        && answer.field_text("resultType").is_none_or(|kind| kind == "complete")
}

/// Logs the events that an operator follows live. Error texts are the server's own, so secrets are
/// hidden.
fn log(event: &Event, secrets: &HashMap<String, SecretTexts>) {
    match event {
        Event::RetryScheduled { server, tool, .. } => {
            let text = event.to_string();
            let text = secrets.get(server).map_or(text.clone(), |secrets| secrets.hide(&text));
            let subject = LogSubject { server, tool, is_named: true, ..LogSubject::default() };
            crate::runtime::log::about(Level::Info, subject, &text);
        }
        Event::BreakerChanged { name, .. } => {
            let (server, tool) = name.split_once('/').unwrap_or((name, ""));
            let subject = LogSubject { server, tool, is_named: true, ..LogSubject::default() };
            crate::runtime::log::about(Level::Warn, subject, &event.to_string());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use seawall::Effect;

    use super::*;

    fn policies(tools: &[(&str, crate::config::layer::PolicyLayer)]) -> PolicyRegistry {
        let mut config = Config::for_command(Some("s"), vec!["none".to_owned()]).unwrap();
        config.rules.tools =
            tools.iter().map(|(pattern, layer)| ((*pattern).to_owned(), layer.clone())).collect();
        PolicyRegistry::new(&config, None).unwrap()
    }

    fn list(hint: &str) -> Message {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{{"name":"frob","annotations":{{"{hint}":true}}}}]}}}}"#
        );
        Message::parse(text.into()).unwrap()
    }

    #[test]
    fn what_is_only_remembered_of_a_tool_allows_no_repeats() {
        let policies = policies(&[]);
        let effect = || policies.tool("s", "frob").unwrap().tool.policy().effect;
        policies.learn("s", "", &list("readOnlyHint"), false);
        assert_eq!((effect(), policies.has_heard_tools("s")), (Effect::Write, false));
        let told = policies.explain("s", "frob", Duration::ZERO, false).unwrap().json();
        assert_eq!(told["values"]["effect"]["value"], "write", "what is explained is what holds");
        policies.learn("s", "", &list("destructiveHint"), false);
        assert_eq!(effect(), Effect::Destructive, "it may forbid them");

        policies.learn("s", "", &list("readOnlyHint"), true);
        assert_eq!((effect(), policies.has_heard_tools("s")), (Effect::ReadOnly, true));
        policies.learn("s", "", &list("destructiveHint"), false);
        assert_eq!(effect(), Effect::ReadOnly, "the server itself was heard");
    }

    #[test]
    fn what_is_known_of_a_tool_is_never_ahead_of_what_is_called() {
        let policies = policies(&[]);
        policies.learn("s", "", &list("readOnlyHint"), true);
        let tools = &policies.servers["s"].tools;
        let reading = tools.read().unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| policies.learn("s", "", &list("destructiveHint"), true));
            // Once a writer waits, no further reader gets the lock.
            let waits = (0..10_000_000).any(|_| {
                std::thread::yield_now();
                tools.try_read().is_err()
            });
            let known = policies.pipeline.find("s", "frob").unwrap();
            let is_called = Arc::ptr_eq(&reading["frob"].tool, &known);
            drop(reading);
            assert!(waits && is_called, "a switch would be thrown of one, and the other be called");
        });
        let known = policies.pipeline.find("s", "frob").unwrap();
        assert!(Arc::ptr_eq(&policies.tool("s", "frob").unwrap().tool, &known));
        assert_eq!(known.policy().effect, Effect::Destructive);
    }

    #[test]
    fn what_the_configuration_says_of_a_tool_holds_before_anybody_listed_it() {
        let layer = crate::config::policy::layer(&serde_json::json!({"timeout": "2s"}));
        let policies = policies(&[
            ("s/get_x", layer.clone()),
            ("t/get_y", layer.clone()),
            ("s/resources/read", layer),
        ]);
        let known = |name: &str| {
            let policy = policies.tool("s", name).unwrap();
            (policy.tool.policy().timeout, policy.tool.policy().effect)
        };
        assert_eq!(
            known("get_x"),
            (Duration::from_secs(2), Effect::Write),
            "its name alone proves nothing yet"
        );
        assert_eq!(known("get_y"), (Duration::from_secs(60), Effect::Write));
        assert_eq!(policies.named("s", "get_x"), PolicyName::Unknown);
        let read = policies.method("s", "resources/read").unwrap();
        let known = policies.pipeline.find("s", "resources/read").unwrap();
        assert!(Arc::ptr_eq(&read.tool, &known), "a method stays what it is");
    }
}
