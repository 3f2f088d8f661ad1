//! Decides the parts of a pipeline: which servers and tools it knows, and which state they share.

mod reconfigured;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::admit::key::Keys;
use crate::admit::{CallerRates, Gatekeeper};
use crate::attempt::breaker::{Breaker, BreakerMode};
use crate::classify::Classifier;
use crate::env::Env;
use crate::model::call::Call;
use crate::model::effect::Effect;
use crate::model::invalid::Invalid;
use crate::model::policy::breaker::BreakerPolicy;
use crate::model::policy::rate::Rate;
use crate::model::policy::{Policy, Scope, ServerPolicy};
use crate::model::style::TextStyle;
use crate::model::tool_errors::Content;
use crate::registry::durable::DurableQueue;
use crate::registry::{Server, Tool};
use crate::report::readers::Readers;
use crate::report::tool_result;

/// The default size of the response cache, in bytes.
const KEPT_BYTES: u64 = 64 * 1024 * 1024;
/// The most tools a pipeline knows.
const TOOLS: usize = 20_000;

/// The parts of a pipeline. `T` is the type of a tool's answer.
///
/// ```
/// # use seawall::{Env, Rate, Rng, Settings};
/// let settings: Settings<String> = Settings {
///     env: Env::new().with_rng(Rng::seeded(1)),
///     caller_rate: Some(Rate::per_second(5)),
///     ..Settings::default()
/// };
/// ```
pub struct Settings<T> {
    /// The environment.
    pub env: Env,
    /// The rules that classify errors.
    pub classifier: Classifier,
    /// How often one caller may call tools; lists and other methods do not count.
    pub caller_rate: Option<Rate>,
    /// The breaker of all tools with [`Scope::Global`].
    pub global_breaker: BreakerPolicy,
    /// The size of the response cache in bytes; 1 KiB to 1 TiB. [`Policy::cache`] decides which
    /// answers are cached at all.
    pub kept_bytes: u64,
    /// The wording that labels a cached response. A failure comes in both wordings: see
    /// [`crate::FailureReport::message`] and [`crate::FailureReport::classic`];
    /// [`crate::Rendering`] chooses.
    pub style: TextStyle,
    /// Whether failures always carry details.
    pub debug: bool,
    /// Whether a call may request details itself.
    pub debug_on_request: bool,
    /// The time of day, used only in those details; without it they show none.
    pub wall_clock: Option<fn() -> SystemTime>,
    /// The queue for writes; without it no write is queued. The owner of the queue must deliver its
    /// items: clients are told that their writes will be tried.
    pub durable: Option<Arc<dyn DurableQueue>>,
    /// The text of an answer that the tool marked as an error.
    pub error_text: fn(&T) -> Option<String>,
    /// The content to search for errors that a tool did not mark; called only where a policy has
    /// patterns for them.
    pub content: fn(&T) -> Content,
    /// Whether an answer is complete, so that it may be cached.
    pub is_complete: fn(&T) -> bool,
    /// The size of an answer in bytes.
    pub weigh: fn(&T) -> usize,
}

impl<T> Settings<T> {
    /// Settings for answers of any type. `weigh` is required, because the sizes of answers bound
    /// the cache.
    pub fn new(weigh: fn(&T) -> usize) -> Self {
        Self {
            env: Env::new(),
            classifier: Classifier::new(),
            caller_rate: None,
            global_breaker: BreakerPolicy::default(),
            kept_bytes: KEPT_BYTES,
            style: TextStyle::Plain,
            debug: false,
            debug_on_request: true,
            wall_clock: None,
            durable: None,
            error_text: |_| None,
            content: |_| Content::default(),
            is_complete: |_| true,
            weigh,
        }
    }
}

impl Default for Settings<String> {
    fn default() -> Self {
        let content = |text: &String| Content {
            text: tool_result::beginning(text).to_owned(),
            structured: None,
        };
        Self { content, ..Self::new(String::len) }
    }
}

/// For MCP tool results as JSON: `isError` marks a tool's own error, and only complete results are
/// cached.
impl Default for Settings<Value> {
    fn default() -> Self {
        Self {
            error_text: tool_result::error_text,
            content: tool_result::content,
            is_complete: tool_result::is_complete,
            ..Self::new(tool_result::weigh)
        }
    }
}

/// The stages, their shared state, and the tools that can be called. See [`Pipeline::run`].
///
/// ```
/// # use seawall::{Call, Pipeline, Preset, ServerPolicy, Settings, Tiers, ToolFacts};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), seawall::Invalid> {
/// let pipeline = Pipeline::<String>::new(Settings::default())?;
/// pipeline.server("github", ServerPolicy::default())?;
/// let policy = Preset::default().policy(&ToolFacts::named("get_issue"), &Tiers::default());
/// let tool = pipeline.tool("github", "get_issue", policy)?;
/// let call = Call::new(serde_json::json!({"number": 7})).by("ann");
/// let answer = pipeline.run(&tool, &call, |_| async { Ok("issue 7".to_owned()) }).await;
/// assert_eq!(answer.value().map(String::as_str), Some("issue 7"));
/// # Ok(()) }
/// ```
pub struct Pipeline<T> {
    pub(crate) env: Env,
    pub(crate) classifier: Classifier,
    pub(crate) gatekeeper: Arc<Gatekeeper<T>>,
    pub(crate) callers: Option<Arc<CallerRates>>,
    pub(crate) keys: Keys,
    pub(crate) style: TextStyle,
    debug: bool,
    debug_on_request: bool,
    pub(crate) wall_clock: Option<fn() -> SystemTime>,
    pub(crate) durable: Option<Arc<dyn DurableQueue>>,
    pub(crate) error_text: fn(&T) -> Option<String>,
    pub(crate) content: fn(&T) -> Content,
    pub(crate) is_complete: fn(&T) -> bool,
    global: Arc<Breaker>,
    global_rules: BreakerPolicy,
    known: RwLock<KnownServers>,
    /// How many pipelines this one follows; servers that it registers are born then.
    generation: u64,
}

/// The servers, and the tools of each.
#[derive(Default)]
struct KnownServers {
    servers: HashMap<Arc<str>, KnownServer>,
}

#[derive(Clone)]
struct KnownServer {
    server: Arc<Server>,
    policy: ServerPolicy,
    shared_breaker: Arc<Breaker>,
    tools: HashMap<Arc<str>, Arc<Tool>>,
    readers: Readers,
}

impl<T> fmt::Debug for Pipeline<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").finish_non_exhaustive()
    }
}

impl<T: Clone> Pipeline<T> {
    /// A pipeline without servers.
    pub fn new(settings: Settings<T>) -> Result<Self, Invalid> {
        let clock = &settings.env.clock;
        let gatekeeper = Arc::new(Gatekeeper::new(settings.kept_bytes, settings.weigh, clock)?);
        let callers = settings.caller_rate.map(|rate| CallerRates::new(rate, clock)).transpose()?;
        let global = Breaker::new("global", settings.global_breaker.clone(), &settings.env);
        let global = Arc::new(global.map_err(|error| error.within("global_breaker"))?);
        Ok(Self::of(settings, gatekeeper, callers.map(Arc::new), Keys::default(), global))
    }
}

impl<T> Pipeline<T> {
    /// A pipeline without servers, with this state of admission.
    fn of(
        settings: Settings<T>,
        gatekeeper: Arc<Gatekeeper<T>>,
        callers: Option<Arc<CallerRates>>,
        keys: Keys,
        global: Arc<Breaker>,
    ) -> Self {
        Self {
            gatekeeper,
            callers,
            env: settings.env,
            classifier: settings.classifier,
            keys,
            style: settings.style,
            debug: settings.debug,
            debug_on_request: settings.debug_on_request,
            wall_clock: settings.wall_clock,
            durable: settings.durable,
            error_text: settings.error_text,
            content: settings.content,
            is_complete: settings.is_complete,
            global,
            global_rules: settings.global_breaker,
            known: RwLock::default(),
            generation: 0,
        }
    }
}

impl<T: Clone> Pipeline<T> {
    /// Notes that the answer to a call that may be rejoined was written to a connected client: the
    /// identical call, made again, is then a new call. An answer not reported as delivered goes to
    /// the next client that makes the identical call.
    pub fn delivered(&self, tool: &Tool, call: &Call) {
        let (Some(rejoin), Some(control)) = (&call.rejoin, &call.control) else { return };
        let key = self.keys.scoped(self.keys.of(tool, call), &rejoin.scope);
        self.gatekeeper.ledger.in_flight.delivered(key, control.entry());
    }

    /// Whether an identical call of the same caller is in flight, has an answer that nobody has
    /// read, is queued or may have been executed: whoever refuses the call for a reason of its own
    /// must not say that nothing was executed.
    pub fn is_pending(&self, tool: &Tool, call: &Call) -> bool {
        let key = self.keys.of(tool, call);
        let key = call.rejoin.as_ref().map_or(key, |rejoin| self.keys.scoped(key, &rejoin.scope));
        let ledger = &self.gatekeeper.ledger;
        ledger.in_flight.has(key) || ledger.uncertain.check(&call.session, || key).is_some()
    }

    /// Notes that another process `sent` the same call this long ago, and that its result has been
    /// unknown for `unknown`: it is held back like a write that became uncertain here.
    pub fn note_uncertain(&self, tool: &Tool, call: &Call, sent: Duration, unknown: Duration) {
        let key = self.keys.of(tool, call);
        let key = call.rejoin.as_ref().map_or(key, |rejoin| self.keys.scoped(key, &rejoin.scope));
        if let Some(lasts) = tool.policy.uncertain_write_hold.filter(|lasts| *lasts > unknown) {
            let uncertain = &self.gatekeeper.ledger.uncertain;
            // The hold counts from the moment the result became unknown, but ages count from the
            // sending.
            let lasts = lasts + sent.saturating_sub(unknown);
            uncertain.note_before(
                sent,
                key,
                (&call.caller, &call.session),
                &tool.server.name,
                lasts,
            );
        }
    }

    /// Drops unread answers whose time is up. New answers evict them anyway; this frees their
    /// memory sooner.
    pub fn sweep(&self) {
        self.gatekeeper.ledger.in_flight.sweep();
    }
}

impl<T> Pipeline<T> {
    /// Registers a server. A known server keeps its state; a different policy for it is an error
    /// and never silently ignored.
    pub fn server(&self, name: &str, policy: ServerPolicy) -> Result<Arc<Server>, Invalid> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.servers.get(name) {
            return match known.policy == policy {
                true => Ok(known.server.clone()),
                false => Err(Invalid::new(
                    "server",
                    format!("\"{name}\" is known already, with another policy"),
                )),
            };
        }
        let name: Arc<str> = name.into();
        let server =
            Arc::new(Server::new(name.clone(), policy.clone(), &self.env, self.generation)?);
        let shared_breaker =
            Arc::new(Breaker::new(name.clone(), policy.shared.clone(), &self.env)?);
        let (tools, readers) = (HashMap::new(), Readers::default());
        let entry = KnownServer { server: server.clone(), policy, shared_breaker, tools, readers };
        known.servers.insert(name, entry);
        Ok(server)
    }

    /// Registers a tool of a known server and returns the handle to call it by. With a new policy a
    /// known tool keeps its breaker, unless the breaker's own settings changed.
    pub fn tool(&self, server: &str, name: &str, mut policy: Policy) -> Result<Arc<Tool>, Invalid> {
        policy.validate()?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let tools: usize = known.servers.values().map(|server| server.tools.len()).sum();
        let Some(entry) = known.servers.get_mut(server) else {
            return Err(Invalid::new(
                "server",
                format!("\"{server}\" is not known; make it known first"),
            ));
        };
        share(&mut policy, &entry.policy.shared, &self.global_rules)?;
        match entry.tools.get(name) {
            Some(tool) if tool.policy == policy => return Ok(tool.clone()),
            None if tools >= TOOLS => {
                return Err(Invalid::new("tool", format!("there are {TOOLS} tools already")));
            }
            _ => {}
        }
        let before = entry.tools.get(name).cloned();
        let same_breaker = |tool: &&Arc<Tool>| {
            // A breaker that an operator switched stays switched, even if the server changes its
            // tool.
            let is_switched =
                tool.breaker().is_some_and(|breaker| breaker.snapshot().mode != BreakerMode::Auto);
            is_switched
                || (tool.policy.breaker == policy.breaker && tool.policy.scope == policy.scope)
        };
        let breaker = match before.as_ref().filter(same_breaker) {
            Some(tool) => tool.breaker.clone(),
            None => policy
                .breaker
                .clone()
                .map(|rules| self.breaker(entry, name, rules, policy.scope))
                .transpose()?,
        };
        let tool = Tool::new(name.into(), entry.server.clone(), policy, breaker);
        if let Some(before) = &before {
            entry.readers.forget(&before.name, &before.policy);
        }
        entry.readers.learn(&tool.name, &tool.policy);
        // A pause that the server asked for stays too, and an attempt in flight keeps its permit of
        // the bulkhead.
        let tool = Arc::new(match before {
            Some(before) => tool.sharing_with(&before),
            None => tool,
        });
        entry.tools.insert(name.into(), tool.clone());
        Ok(tool)
    }

    /// Sets the mode of a known tool's breaker for good, also across a new registration of the
    /// tool; returns the tool as registered now. `None` if the tool is unknown or has no breaker.
    pub fn set_mode(&self, server: &str, name: &str, mode: BreakerMode) -> Option<Arc<Tool>> {
        // The read lock excludes `tool`, which reads the mode and replaces the tool under the write
        // lock: this change comes before that and is carried over, or hits the new tool.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let tool = known.servers.get(server)?.tools.get(name)?;
        tool.breaker()?.set_mode(mode);
        Some(tool.clone())
    }

    /// Forgets a tool at rest that only the caller and this pipeline hold; `false` if it stays.
    pub(crate) fn forget(&self, tool: &Arc<Tool>) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = known.servers.get_mut(&tool.server.name) else { return false };
        let is_this = entry.tools.get(&tool.name).is_some_and(|known| Arc::ptr_eq(known, tool));
        // Two owners: the caller's registry and this map. Under the write lock `find` hands out no
        // third.
        let goes = is_this && Arc::strong_count(tool) == 2 && tool.is_at_rest(self.env.clock.now());
        if goes {
            entry.tools.remove(&tool.name);
            entry.readers.forget(&tool.name, &tool.policy);
        }
        goes
    }

    /// A known tool.
    pub fn find(&self, server: &str, name: &str) -> Option<Arc<Tool>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.servers.get(server)?.tools.get(name).cloned()
    }

    /// All known tools.
    pub fn tools(&self) -> Vec<Arc<Tool>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.servers.values().flat_map(|server| server.tools.values().cloned()).collect()
    }

    fn breaker(
        &self,
        entry: &KnownServer,
        tool: &str,
        rules: BreakerPolicy,
        scope: Scope,
    ) -> Result<Arc<Breaker>, Invalid> {
        let name = match (scope, entry.server.name()) {
            (Scope::Server, _) => return Ok(entry.shared_breaker.clone()),
            (Scope::Global, _) => return Ok(self.global.clone()),
            (Scope::Tool, "") => tool.to_owned(),
            (Scope::Tool, server) => format!("{server}/{tool}"),
        };
        Breaker::new(name, rules, &self.env).map(Arc::new)
    }

    /// The tool of the same server with which a client can check the result of a write, and whether
    /// it is about the same objects.
    pub(crate) fn reader_beside(&self, tool: &Tool) -> Option<(Arc<str>, bool)> {
        if tool.policy.effect == Effect::ReadOnly {
            return None;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.servers.get(&*tool.server.name)?.readers.beside(&tool.name)
    }

    pub(crate) fn shows_debug(&self, asked: bool) -> bool {
        self.debug || (asked && self.debug_on_request)
    }
}

/// A shared breaker is configured once for all tools that share it: a tool that sets its own gets
/// an error and is not silently ignored.
fn share(
    policy: &mut Policy,
    of_server: &BreakerPolicy,
    global: &BreakerPolicy,
) -> Result<(), Invalid> {
    let (shared, place) = match policy.scope {
        Scope::Tool => return Ok(()),
        Scope::Server => (of_server, "ServerPolicy::shared"),
        Scope::Global => (global, "Settings::global_breaker"),
    };
    let Some(own) = &mut policy.breaker else { return Ok(()) };
    if own != shared && *own != BreakerPolicy::default() {
        return Err(Invalid::new(
            "breaker",
            format!("is shared, so it is set in {place}; leave it at its default here"),
        ));
    }
    own.clone_from(shared);
    Ok(())
}
