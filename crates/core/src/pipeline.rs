//! Decides what a pipeline consists of: which servers and tools it knows, and what they share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::admit::Gatekeeper;
use crate::admit::key::Keys;
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

/// Kept answers take this many bytes unless set.
const KEPT_BYTES: u64 = 64 * 1024 * 1024;
/// The most tools a pipeline knows.
const TOOLS: usize = 20_000;

/// What a pipeline is made of. `T` is what a tool answers with.
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
    /// The surroundings.
    pub env: Env,
    /// What errors mean.
    pub classifier: Classifier,
    /// How often one caller may call tools; lists and other methods do not count.
    pub caller_rate: Option<Rate>,
    /// The breaker of all tools that share one ([`Scope::Global`]).
    pub global_breaker: BreakerPolicy,
    /// How many bytes of answers are kept; 1 KiB to 1 TiB. What must not be kept is said by
    /// [`Policy::cache`].
    pub kept_bytes: u64,
    /// In whose words a copy is labelled. A failure is told in both: see
    /// [`crate::FailureReport::message`] and [`crate::FailureReport::classic`];
    /// [`crate::Rendering`] chooses.
    pub style: TextStyle,
    /// Whether failures always carry details.
    pub debug: bool,
    /// Whether a call may ask for details itself.
    pub debug_on_request: bool,
    /// The time of day, which those details show and nothing else looks at; without it they show
    /// none.
    pub wall_clock: Option<fn() -> SystemTime>,
    /// Where writes wait; without it none does. Whoever gives a store delivers what waits in it:
    /// clients are told that it will be tried.
    pub durable: Option<Arc<dyn DurableQueue>>,
    /// The text of an answer that the tool marked as an error.
    pub error_text: fn(&T) -> Option<String>,
    /// What is looked at to find errors that a tool did not mark; asked only where a policy has
    /// patterns for them.
    pub content: fn(&T) -> Content,
    /// Whether an answer is whole, so that it may be kept.
    pub is_complete: fn(&T) -> bool,
    /// The size of an answer in bytes.
    pub weigh: fn(&T) -> usize,
}

impl<T> Settings<T> {
    /// For answers of any type. Their size has to be told, or nothing would bound what is kept of
    /// them.
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
/// kept.
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

/// The stages, what they share, and the tools that can be called. See [`Pipeline::run`].
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
    pub(crate) gatekeeper: Gatekeeper<T>,
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
}

/// The servers, and the tools of each.
#[derive(Default)]
struct KnownServers {
    servers: HashMap<Arc<str>, KnownServer>,
}

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
    /// A pipeline that knows no servers yet.
    pub fn new(settings: Settings<T>) -> Result<Self, Invalid> {
        let clock = &settings.env.clock;
        let global = Breaker::new("global", settings.global_breaker.clone(), &settings.env);
        let global = Arc::new(global.map_err(|error| error.within("global_breaker"))?);
        let gatekeeper =
            Gatekeeper::new(settings.caller_rate, settings.kept_bytes, settings.weigh, clock)?;
        Ok(Self {
            gatekeeper,
            env: settings.env,
            classifier: settings.classifier,
            keys: Keys::default(),
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
        })
    }
}

impl<T: Clone> Pipeline<T> {
    /// The answer to a call that may be rejoined was written to a client that is there: the
    /// identical call, made again, is another one. An answer that nobody reports as delivered goes
    /// to whoever makes the identical call next.
    pub fn delivered(&self, tool: &Tool, call: &Call) {
        let (Some(rejoin), Some(control)) = (&call.rejoin, &call.control) else { return };
        let key = self.keys.scoped(self.keys.of(tool, call), &rejoin.scope);
        self.gatekeeper.ledger.in_flight.delivered(key, control.entry());
    }

    /// The same call was `sent` so long ago by another process, and for `unknown` nobody has known
    /// what became of it: it is held back as one that became uncertain here.
    pub fn note_uncertain(&self, tool: &Tool, call: &Call, sent: Duration, unknown: Duration) {
        let key = self.keys.of(tool, call);
        let key = call.rejoin.as_ref().map_or(key, |rejoin| self.keys.scoped(key, &rejoin.scope));
        if let Some(lasts) = tool.policy.uncertain_write_hold.filter(|lasts| *lasts > unknown) {
            let uncertain = &self.gatekeeper.ledger.uncertain;
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

    /// Forgets answers that nobody came for in time. They make room for others by themselves; this
    /// frees their memory sooner.
    pub fn sweep(&self) {
        self.gatekeeper.ledger.in_flight.sweep();
    }
}

impl<T> Pipeline<T> {
    /// Makes a server known. One that is known already keeps its state; giving it another policy is
    /// an error, not a silent wish.
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
        let server = Arc::new(Server::new(name.clone(), policy.clone(), &self.env)?);
        let shared_breaker =
            Arc::new(Breaker::new(name.clone(), policy.shared.clone(), &self.env)?);
        let (tools, readers) = (HashMap::new(), Readers::default());
        let entry = KnownServer { server: server.clone(), policy, shared_breaker, tools, readers };
        known.servers.insert(name, entry);
        Ok(server)
    }

    /// Makes a tool of a known server known and gives the handle to call it by. Given another
    /// policy, a tool keeps its breaker unless that is what changed.
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
            // What an operator switched stays switched, whatever a server says of its tool now.
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
        // So does a pause that the server asked for, and an attempt that runs keeps its slot.
        let tool = Arc::new(match before {
            Some(before) => tool.sharing_with(&before),
            None => tool,
        });
        entry.tools.insert(name.into(), tool.clone());
        Ok(tool)
    }

    /// Says who decides about a known tool from now on, however it is made known anew meanwhile;
    /// gives the tool as it is known now. `None` if there is none, or it has no breaker.
    pub fn set_mode(&self, server: &str, name: &str, mode: BreakerMode) -> Option<Arc<Tool>> {
        // Whoever makes it known anew looks at its switch alone: this comes before that, or finds
        // what came of it.
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let tool = known.servers.get(server)?.tools.get(name)?;
        tool.breaker()?.set_mode(mode);
        Some(tool.clone())
    }

    /// Forgets a tool that is at rest and that nobody has but the caller and this pipeline; `false`
    /// if it stays.
    pub(crate) fn forget(&self, tool: &Arc<Tool>) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = known.servers.get_mut(&tool.server.name) else { return false };
        let is_this = entry.tools.get(&tool.name).is_some_and(|known| Arc::ptr_eq(known, tool));
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

    /// The tool of the same server with which to look what a write did, and whether it speaks of
    /// the same things.
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

/// A breaker that is shared is set where all who share it are meant: who wants another one is told,
/// and not passed over.
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
