//! Holds the policy settings that one place of the configuration states, and no others, so that the
//! nearest place can win.

use std::time::Duration;

use seawall::{BreakerPolicy, Effect, Kind, Policy, Preset, Scope, ServerPolicy, Tiers, ToolFacts};
use serde_json::Value as Json;

use crate::config::layers::agree;
use crate::config::policy::key::Setting;
use crate::config::policy::keys::KEYS;
use crate::config::policy::value::{EFFECTS, KINDS, SCOPES, named};

/// The settings of `[defaults]`, `[kinds.K]`, `[servers.S.policy]` or `[tools."S/T"]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyLayer {
    /// In the order of the keys.
    settings: Vec<Setting>,
}

/// The fate of a call whose client gave up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnAbandon {
    /// The server is told to stop; an answer that arrives all the same is kept for a while.
    #[default]
    Cancel,
    /// The call runs to its end, and its answer is kept for a while.
    Finish,
    /// The server is told to stop, and no answer is kept.
    Forget,
}

/// The scope within which an identical call counts as a repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rejoining {
    /// The same client: its identity if it has one, else its session.
    #[default]
    Caller,
    /// The same session; clients without sessions never rejoin.
    Session,
    /// None: every call stands alone.
    Off,
}

/// The policy settings that only the gateway applies, resolved for one tool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GatewayPolicy {
    /// The limit between two messages of the server, progress included.
    pub idle_timeout: Option<Duration>,
    /// The client's own timeout: before it, the call is answered with "still running".
    pub client_timeout: Option<Duration>,
    /// The fate of a call whose client gave up.
    pub on_abandon: OnAbandon,
    /// The scope within which an identical call counts as a repeat.
    pub rejoin: Rejoining,
    /// How long after a call an identical one means that its client has given the first one up.
    pub rejoin_after: Duration,
    /// How long a call waits for the client's answers, over all questions of its server.
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
    /// Adds a setting; replaces an earlier one under the same key.
    pub(crate) fn say(&mut self, setting: Setting) {
        let rank = |setting: &Setting| KEYS.iter().position(|key| key.name == setting.key());
        // Kept in the order of `KEYS`: settings are applied in that order, not in the order of the
        // file.
        self.settings.retain(|said| said.key() != setting.key());
        self.settings.push(setting);
        self.settings.sort_by_key(rank);
    }

    /// Several layers as one, the nearest last: of each key the nearest value. Applied one after
    /// the other, a farther switch would be undone by any nearer key of what it switches off.
    pub(crate) fn merged<'a>(layers: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        let settings = layers.into_iter().flat_map(|layer| &layer.settings);
        settings.for_each(|setting| all.say(setting.clone()));
        all
    }

    /// The layer without a key.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.settings.retain(|said| said.key() != key);
        self
    }

    /// The layer without the settings that switch a breaker or its window off.
    pub(crate) fn without_switches(&self) -> Self {
        let is_off = |key| self.value(key).is_some_and(|value| value.as_f64() == Some(0.0));
        let switches = ["breaker.failures", "breaker.failure_rate"].into_iter();
        switches.filter(|key| is_off(key)).fold(self.clone(), Self::without)
    }

    /// The value under a key, as it is spelled.
    pub(crate) fn value(&self, key: &str) -> Option<&Json> {
        self.settings.iter().find(|setting| setting.key() == key).map(Setting::value)
    }

    /// Whether the layer states this key.
    pub(crate) fn says(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Whether the layer configures a breaker, beyond its scope.
    pub(crate) fn describes_breaker(&self) -> bool {
        self.settings.iter().any(|setting| is_of_breaker(setting.key()))
    }

    /// Whether the layer switches the breaker off.
    pub(crate) fn switches_breaker_off(&self) -> bool {
        self.value("breaker.failures").is_some_and(|failures| *failures == 0)
    }

    /// The tool kind that the layer states.
    pub(crate) fn kind(&self) -> Option<Kind> {
        named(&KINDS, self.value("kind")?.as_str()?)
    }

    /// The effect that the layer states.
    pub(crate) fn effect(&self) -> Option<Effect> {
        named(&EFFECTS, self.value("effect")?.as_str()?)
    }

    /// The breaker scope that the layer states.
    pub(crate) fn scope(&self) -> Option<Scope> {
        named(&SCOPES, self.value("breaker.scope")?.as_str()?)
    }

    /// The policy that the layer alone gives to an unknown tool.
    pub(crate) fn alone(&self) -> Policy {
        let mut policy = blank();
        self.apply(&mut policy, &mut GatewayPolicy::default());
        policy
    }

    /// Applies the layer's settings to a policy.
    pub(crate) fn apply(&self, policy: &mut Policy, own: &mut GatewayPolicy) {
        self.settings.iter().for_each(|setting| setting.apply(policy, own));
    }

    /// Applies the layer's breaker settings to a breaker that several tools share.
    pub(crate) fn apply_to_breaker(&self, breaker: &mut Option<BreakerPolicy>) {
        let mut policy = Policy { breaker: breaker.take(), ..blank() };
        let of_breaker = self.settings.iter().filter(|setting| is_of_breaker(setting.key()));
        of_breaker.for_each(|setting| setting.apply(&mut policy, &mut GatewayPolicy::default()));
        agree(&mut policy);
        *breaker = policy.breaker;
    }

    /// Applies the layer's breaker settings to the shared breakers of a server.
    pub(crate) fn apply_to_server(&self, policy: &mut ServerPolicy) {
        let mut shared = Some(policy.shared.clone());
        self.apply_to_breaker(&mut shared);
        // A breaker that is switched off is off for each tool; the shared one is then unused, so
        // its settings do not matter.
        policy.shared = shared.unwrap_or_default();
    }
}

/// Whether a key configures a breaker.
pub(crate) fn is_of_breaker(key: &str) -> bool {
    key.starts_with("breaker.") && key != "breaker.scope"
}

/// Whether a key configures the window of a breaker.
pub(crate) fn is_of_window(key: &str) -> bool {
    const KEYS: [&str; 5] = ["failure_rate", "window", "min_calls", "slow_call", "slow_call_rate"];
    key.strip_prefix("breaker.").is_some_and(|key| KEYS.contains(&key))
}

/// A neutral policy to apply settings to.
fn blank() -> Policy {
    Preset::Default.policy(&ToolFacts::named("tool"), &Tiers::default())
}
