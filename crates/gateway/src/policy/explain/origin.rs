//! Decides which layer a value of a policy comes from. The layers are those that resolve a policy,
//! in the same order.
//!
//! A layer decides a value if it has its key, or if the value changed when the layer was applied.

use seawall::{Effect, Ground, Kind, Policy, Preset, ToolFacts};
use serde_json::Value;

use crate::config::layer::{GatewayPolicy, PolicyLayer};
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
        Self { policy, own, origins }
    }

    /// Applies the layer of a place, and notes the values that it decides.
    pub(super) fn lay(&mut self, place: PolicyPlace<'a>, layer: &PolicyLayer) {
        let before = self.values();
        layer.apply(&mut self.policy, &mut self.own);
        for (at, (key, value)) in self.values().into_iter().enumerate() {
            if layer.decides(key) || value != before[at].1 {
                self.origins[at] = Origin::Config(place);
            }
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
