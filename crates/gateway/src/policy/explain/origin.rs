//! Decides which layer a value of a policy comes from. The layers are those that resolve a policy,
//! in the same order.
//!
//! The nearest layer that has its key decides a value, unless a switch holds the value off: then
//! the layer of the switch does. A value without a key of its own is decided by the layer that
//! changed it.

use seawall::{Effect, Ground, Kind, Policy, Preset, ToolFacts};
use serde_json::Value;

use crate::config::layer::{GatewayPolicy, PolicyLayer, is_of_breaker, is_of_window};
use crate::config::layers::{KnownTool, PolicyPlace, PolicyRules};
use crate::config::policy::keys::KEYS;
use crate::config::policy::value::{EFFECTS, KINDS};

/// The origin of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// Built in, the same for all tools.
    BuiltIn,
    /// Built in, by the kind of the tool.
    OfKind(Option<Kind>),
    /// Built in, by the effect of the tool.
    OfEffect(Effect),
    /// One of the two timeouts for whole calls, quick or heavy.
    Tier,
    /// The preset.
    Preset,
    /// The configuration.
    Config(PolicyPlace<'a>),
    /// The hint or word that the tool's kind or effect was concluded from.
    Concluded(Ground),
}

/// A policy while layers are applied to it, with the origin of each value.
pub(super) struct TracedPolicy<'a> {
    /// The policy for the library.
    pub(super) policy: Policy,
    /// The settings that only the gateway uses.
    pub(super) own: GatewayPolicy,
    /// The origin of each value, in the order of the values.
    pub(super) origins: Vec<Origin<'a>>,
    /// The policy before any layer, and the origins of its values.
    base: (Policy, Vec<Origin<'a>>),
    /// The layers so far, the nearest last.
    laid: Vec<(PolicyPlace<'a>, &'a PolicyLayer)>,
    /// The place whose layer changed a value last.
    changed: Vec<Option<PolicyPlace<'a>>>,
}

impl<'a> TracedPolicy<'a> {
    /// The policy before any layer of the configuration.
    pub(super) fn built_in(rules: &PolicyRules, known: &KnownTool<'a>) -> Self {
        let facts = &known.facts;
        let (policy, own) = (rules.preset.policy(facts, &rules.tiers), GatewayPolicy::default());
        let (kind, effect) = (facts.judge_kind(), facts.judge_effect());
        let resolve = |preset: Preset, facts: &ToolFacts<'_>| {
            values(&preset.policy(facts, &rules.tiers), &own)
        };
        // The built-in tables do not say which input decides a value. So the policy is resolved
        // again with another preset, kind or effect: if the value changes, that input decided it.
        let plain = resolve(Preset::Default, facts);
        let by_kind =
            KINDS.map(|(_, kind)| resolve(rules.preset, &ToolFacts { kind: Some(kind), ..*facts }));
        let by_effect = EFFECTS.map(|(_, effect)| {
            resolve(rules.preset, &ToolFacts { kind: kind.0, effect: Some(effect), ..*facts })
        });
        let stated = |ground, place: Option<PolicyPlace<'a>>| {
            place.map_or(Origin::Concluded(ground), Origin::Config)
        };
        let origin = |(at, (key, value)): (usize, &(&'static str, Value))| match *key {
            "kind" => stated(kind.1, known.kind),
            "effect" => stated(effect.1, known.effect),
            "timeout" => Origin::Tier,
            _ if plain[at].1 != *value => Origin::Preset,
            _ if by_kind.iter().any(|other| other[at].1 != *value) => Origin::OfKind(kind.0),
            _ if by_effect.iter().any(|other| other[at].1 != *value) => Origin::OfEffect(effect.0),
            _ => Origin::BuiltIn,
        };
        let origins = values(&policy, &own).iter().enumerate().map(origin).collect();
        Self::of(policy, origins)
    }

    /// A policy before any layer, with the origins of its values.
    pub(super) fn of(policy: Policy, origins: Vec<Origin<'a>>) -> Self {
        Self {
            base: (policy.clone(), origins.clone()),
            laid: Vec::new(),
            changed: vec![None; origins.len()],
            policy,
            own: GatewayPolicy::default(),
            origins,
        }
    }

    /// Applies the layer of a place over those before it, and finds which layer decides each value.
    pub(super) fn lay(&mut self, place: PolicyPlace<'a>, layer: &'a PolicyLayer) {
        let before = self.values();
        self.laid.push((place, layer));
        (self.policy, self.own) = (self.base.0.clone(), GatewayPolicy::default());
        let all = PolicyLayer::merged(self.laid.iter().map(|(_, layer)| *layer));
        all.apply(&mut self.policy, &mut self.own);
        let built_in = values(&self.base.0, &GatewayPolicy::default());
        for (at, (key, value)) in self.values().into_iter().enumerate() {
            if value != before[at].1 {
                self.changed[at] = Some(place);
            }
            let switch = self.switch(key).and_then(|switch| self.nearest(switch));
            let changed = self.changed[at].filter(|_| value != built_in[at].1);
            let decides = switch.or_else(|| self.nearest(key)).or(changed);
            self.origins[at] = decides.map_or(self.base.1[at], Origin::Config);
        }
    }

    /// The nearest place that has a key.
    fn nearest(&self, key: &str) -> Option<PolicyPlace<'a>> {
        self.laid.iter().rev().find(|(_, layer)| layer.says(key)).map(|(place, _)| *place)
    }

    /// The key that holds a value off: that of the breaker, or that of its window.
    fn switch(&self, key: &str) -> Option<&'static str> {
        match &self.policy.breaker {
            None if is_of_breaker(key) => Some("breaker.failures"),
            Some(breaker) if breaker.window.is_none() && is_of_window(key) => {
                Some("breaker.failure_rate")
            }
            _ => None,
        }
    }

    /// The values, under the keys of a configuration.
    pub(super) fn values(&self) -> Vec<(&'static str, Value)> {
        values(&self.policy, &self.own)
    }
}

/// The values of a policy under the keys of a configuration, all of them and in order; a value that
/// is not set is null.
pub(super) fn values(policy: &Policy, own: &GatewayPolicy) -> Vec<(&'static str, Value)> {
    KEYS.iter().map(|key| (key.name, key.get(policy, own))).collect()
}
