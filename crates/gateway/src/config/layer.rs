//! What one place of the configuration says about policies: only what it says, so that the nearest
//! place can win.

use std::time::Duration;

use seawall::{BreakerPolicy, Effect, Kind, Policy, Preset, Scope, ServerPolicy, Tiers, ToolFacts};
use serde_json::Value as Json;

use crate::config::policy::key::Setting;
use crate::config::policy::keys::KEYS;
use crate::config::policy::value::{EFFECTS, KINDS, SCOPES, named};

/// What `[defaults]`, `[kinds.K]`, `[servers.S.policy]` or `[tools."S/T"]` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyLayer {
    /// In the order of the keys.
    settings: Vec<Setting>,
}

/// What becomes of a call whose client gave up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAbandon {
    /// The server is told; an answer that comes all the same is kept for a while.
    #[default]
    Cancel,
    /// It runs to its end, and the answer is kept for a while.
    Finish,
    /// The server is told, and nothing is kept.
    Forget,
}

/// Who counts as the same caller when the identical call is made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rejoining {
    /// The same client: its session, or its identity where it has one.
    #[default]
    Caller,
    /// The same session; clients without sessions are nobody's.
    Session,
    /// Nobody: every call is one of its own.
    Off,
}

/// What the gateway alone knows of a tool, resolved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatewayPolicy {
    /// The limit between two signs of life, progress included.
    pub idle_timeout: Option<Duration>,
    /// The client's own limit: before it, the call is answered with "still running".
    pub client_timeout: Option<Duration>,
    /// What becomes of a call whose client gave up.
    pub on_abandon: OnAbandon,
    /// Who counts as the same caller when the identical call is made again.
    pub rejoin: Rejoining,
    /// How long after a call the identical one means that its client has given it up.
    pub rejoin_after: Duration,
    /// How long a call waits for what its server asks the client, over all questions.
    pub question_time: Duration,
    /// The largest result that is passed on whole, in bytes.
    pub max_result: Option<usize>,
}

impl Default for GatewayPolicy {
    fn default() -> Self {
        Self {
            idle_timeout: None,
            client_timeout: None,
            on_abandon: OnAbandon::default(),
            rejoin: Rejoining::default(),
            rejoin_after: Duration::from_secs(1),
            question_time: Duration::from_secs(600),
            max_result: None,
        }
    }
}

impl PolicyLayer {
    /// Says something more; under a key that it says already, something else.
    pub(crate) fn say(&mut self, setting: Setting) {
        let rank = |setting: &Setting| KEYS.iter().position(|key| key.name == setting.key());
        self.settings.retain(|said| said.key() != setting.key());
        self.settings.push(setting);
        self.settings.sort_by_key(rank);
    }

    /// What it says under a key, as it is spelled.
    pub(crate) fn value(&self, key: &str) -> Option<&Json> {
        self.settings.iter().find(|setting| setting.key() == key).map(Setting::value)
    }

    /// Whether it says something under a key.
    pub(crate) fn says(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Whether what holds under a key is what it says: a breaker that it switches off is like
    /// nothing.
    pub(crate) fn decides(&self, key: &str) -> bool {
        self.says(key) || (self.switches_breaker_off() && is_of_breaker(key))
    }

    /// Whether it says how a breaker is, beside who shares it.
    pub(crate) fn describes_breaker(&self) -> bool {
        self.settings.iter().any(|setting| is_of_breaker(setting.key()))
    }

    /// Whether it switches the breaker off.
    pub(crate) fn switches_breaker_off(&self) -> bool {
        self.value("breaker.failures").is_some_and(|failures| *failures == 0)
    }

    /// The policy family that it states.
    pub(crate) fn kind(&self) -> Option<Kind> {
        named(&KINDS, self.value("kind")?.as_str()?)
    }

    /// What it says that repeating a tool would do.
    pub(crate) fn effect(&self) -> Option<Effect> {
        named(&EFFECTS, self.value("effect")?.as_str()?)
    }

    /// With whom it says that a breaker is shared.
    pub(crate) fn scope(&self) -> Option<Scope> {
        named(&SCOPES, self.value("breaker.scope")?.as_str()?)
    }

    /// What it alone makes of a tool of which nothing is known.
    pub(crate) fn alone(&self) -> Policy {
        let mut policy = blank();
        self.apply(&mut policy, &mut GatewayPolicy::default());
        policy
    }

    /// Lays what it says over a policy.
    pub(crate) fn apply(&self, policy: &mut Policy, own: &mut GatewayPolicy) {
        self.settings.iter().for_each(|setting| setting.apply(policy, own));
    }

    /// Lays what it says of a breaker over one that several tools share.
    pub(crate) fn apply_to_breaker(&self, breaker: &mut Option<BreakerPolicy>) {
        let mut policy = Policy { breaker: breaker.take(), ..blank() };
        let of_breaker = self.settings.iter().filter(|setting| is_of_breaker(setting.key()));
        of_breaker.for_each(|setting| setting.apply(&mut policy, &mut GatewayPolicy::default()));
        *breaker = policy.breaker;
    }

    /// Lays its breaker over those that the tools of a server share.
    pub(crate) fn apply_to_server(&self, policy: &mut ServerPolicy) {
        let mut shared = Some(policy.shared.clone());
        self.apply_to_breaker(&mut shared);
        // A breaker that is off is off for each tool; one that nobody uses may be as it is.
        policy.shared = shared.unwrap_or_default();
    }
}

/// Whether a key says how a breaker is.
pub(crate) fn is_of_breaker(key: &str) -> bool {
    key.starts_with("breaker.") && key != "breaker.scope"
}

/// A policy of which only what is laid over it counts.
fn blank() -> Policy {
    Preset::Default.policy(&ToolFacts::named("tool"), &Tiers::default())
}
