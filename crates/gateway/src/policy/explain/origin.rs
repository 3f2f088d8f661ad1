//! Where a value comes from: which of the layers decided it. The layers are those that resolve a
//! policy, in their order.
//!
//! A layer decides a value if it says something under its key, or if the value is another one since
//! the layer was laid.

use seawall::{Effect, Ground, Kind, Policy, Preset, ToolFacts};
use serde_json::Value;

use crate::config::layer::{GatewayPolicy, PolicyLayer};
use crate::config::layers::{KnownTool, PolicyPlace, PolicyRules};
use crate::config::policy::keys::KEYS;
use crate::config::policy::value::{EFFECTS, KINDS};

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin<'a> {
    /// The same for all tools.
    BuiltIn,
    /// The built-in table, by kind.
    OfKind(Option<Kind>),
    /// Built in, by what repeating the tool would do.
    OfEffect(Effect),
    /// One of the two limits for whole calls.
    Tier,
    /// The preset.
    Preset,
    /// The configuration.
    Config(PolicyPlace<'a>),
    /// What the tool's kind or effect was concluded from.
    Concluded(Ground),
}

/// A policy while layers are laid over it, and where each of its values comes from.
pub(super) struct TracedPolicy<'a> {
    /// The policy.
    pub(super) policy: Policy,
    /// What the gateway alone knows.
    pub(super) own: GatewayPolicy,
    /// Where each value comes from, in the order of the values.
    pub(super) origins: Vec<Origin<'a>>,
}

impl<'a> TracedPolicy<'a> {
    /// The policy that everything starts from.
    pub(super) fn built_in(rules: &PolicyRules, known: &KnownTool<'a>) -> Self {
        let facts = &known.facts;
        let (policy, own) = (rules.preset.policy(facts, &rules.tiers), GatewayPolicy::default());
        let (kind, effect) = (facts.judge_kind(), facts.judge_effect());
        let resolve = |preset: Preset, facts: &ToolFacts<'_>| {
            values(&preset.policy(facts, &rules.tiers), &own)
        };
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

    /// Lays what a place says over it.
    pub(super) fn lay(&mut self, place: PolicyPlace<'a>, layer: &PolicyLayer) {
        let before = self.values();
        layer.apply(&mut self.policy, &mut self.own);
        for (at, (key, value)) in self.values().into_iter().enumerate() {
            if layer.decides(key) || value != before[at].1 {
                self.origins[at] = Origin::Config(place);
            }
        }
    }

    /// Its values.
    pub(super) fn values(&self) -> Vec<(&'static str, Value)> {
        values(&self.policy, &self.own)
    }
}

/// The values of a policy under the keys of a configuration, all of them in their order; what is
/// not set is null.
pub(super) fn values(policy: &Policy, own: &GatewayPolicy) -> Vec<(&'static str, Value)> {
    KEYS.iter().map(|key| (key.name, key.get(policy, own))).collect()
}
