//! Where a value comes from: which of the layers decided it. The layers are those that resolve a
//! policy, in their order.
//!
//! A layer decides a value if nothing shows through it: laid over two policies that differ in
//! everything, it makes them agree. So no list of what a layer says can be forgotten here.

use std::time::Duration;

use seawall::{
    BreakerPolicy, CachePolicy, Cooldown, Effect, Fallback, Ground, HedgePolicy, Jitter, Kind,
    LoopMode, LoopPolicy, Policy, Preset, RetryPolicy, Scope, ToolErrors, ToolFacts,
};
use serde_json::Value;

use super::values;
use crate::config::layer::{GatewayPolicy, OnAbandon, PolicyLayer, Rejoining};
use crate::config::layers::{KnownTool, PolicyPlace, PolicyRules};

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
            values::of(&preset.policy(facts, &rules.tiers), &own)
        };
        let plain = resolve(Preset::Default, facts);
        let by_kind =
            KINDS.map(|kind| resolve(rules.preset, &ToolFacts { kind: Some(kind), ..*facts }));
        let by_effect = EFFECTS.map(|effect| {
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
        let origins = values::of(&policy, &own).iter().enumerate().map(origin).collect();
        Self { policy, own, origins }
    }

    /// Lays what a place says over it.
    pub(super) fn lay(&mut self, place: PolicyPlace<'a>, layer: &PolicyLayer) {
        let before = self.values();
        layer.apply(&mut self.policy, &mut self.own);
        let decides = decided(layer);
        for (at, ((_, value), decides)) in self.values().into_iter().zip(decides).enumerate() {
            if decides || value != before[at].1 {
                self.origins[at] = Origin::Config(place);
            }
        }
    }

    /// Its values.
    pub(super) fn values(&self) -> Vec<(&'static str, Value)> {
        values::of(&self.policy, &self.own)
    }
}

const KINDS: [Kind; 5] = [Kind::Read, Kind::Write, Kind::Search, Kind::List, Kind::Batch];
const EFFECTS: [Effect; 4] =
    [Effect::ReadOnly, Effect::Idempotent, Effect::Write, Effect::Destructive];

/// Which values a layer decides.
fn decided(layer: &PolicyLayer) -> Vec<bool> {
    let [one, other] = [false, true].map(|is_other| {
        let (mut policy, mut own) = unlike(is_other);
        layer.apply(&mut policy, &mut own);
        values::of(&policy, &own)
    });
    one.into_iter().zip(other).map(|(one, other)| one == other).collect()
}

/// Two policies that differ in every value.
fn unlike(is_other: bool) -> (Policy, GatewayPolicy) {
    let number = if is_other { 8001 } else { 9001 };
    let time = Duration::from_secs(number.into());
    let pick = |one, other| if is_other { other } else { one };
    let backoff = seawall::Backoff {
        base: time,
        max: time,
        jitter: Jitter::Additive(f64::from(number)),
        clamp: false,
    };
    let breaker = BreakerPolicy {
        failures: number,
        cooldown: Cooldown::fixed(time),
        probes: number,
        successes: number,
        slow_start: number,
        trip_on_429: is_other,
        ..BreakerPolicy::default()
    };
    let policy = Policy {
        kind: Some(if is_other { Kind::Read } else { Kind::Write }),
        effect: if is_other { Effect::ReadOnly } else { Effect::Write },
        timeout: time,
        attempt_timeout: Some(time),
        slots: Some(seawall::BulkheadPolicy::new(number)),
        retry: RetryPolicy::new(number, backoff),
        breaker: Some(breaker),
        scope: if is_other { Scope::Tool } else { Scope::Server },
        cache: CachePolicy { fresh: Some(time), stale_if_error: Some(time) },
        fallback: vec![Fallback::Text(number.to_string())],
        loops: LoopPolicy {
            mode: pick(LoopMode::Failures, LoopMode::Calls),
            repeats: number,
            window: number,
        },
        uncertain_write_hold: Some(time),
        hedge: Some(HedgePolicy::After(time)),
        tool_errors: if is_other { ToolErrors::MARKED } else { ToolErrors::NONE },
    };
    let own = GatewayPolicy {
        idle_timeout: Some(time),
        client_timeout: Some(time),
        on_abandon: if is_other { OnAbandon::Finish } else { OnAbandon::Cancel },
        rejoin: if is_other { Rejoining::Off } else { Rejoining::Caller },
        rejoin_after: time,
        question_time: time,
        max_result: usize::try_from(number).ok(),
    };
    (policy, own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_policies_that_differ_in_everything_do() {
        let values = |(policy, own): (Policy, GatewayPolicy)| values::of(&policy, &own);
        for (one, other) in values(unlike(false)).iter().zip(values(unlike(true))) {
            assert_ne!(*one, other);
        }
        assert_eq!(decided(&PolicyLayer::default()).iter().filter(|decides| **decides).count(), 0);
    }
}
