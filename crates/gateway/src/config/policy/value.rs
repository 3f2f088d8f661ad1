//! Decides the types of policy values: how each is read from a file, spelled for people and
//! described to editors.

use std::time::Duration;

use seawall::{BulkheadPolicy, Effect, HedgePolicy, Jitter, Kind, LoopMode, Scope};
use serde_json::{Value as Json, json};

use crate::config::duration::{self, spelled};
use crate::config::layer::{OnAbandon, Rejoining};
use crate::config::problem::{Problem, Problems};
use crate::config::reconnect::{some_time, time};
use crate::config::tree::{ConfigField, ConfigString};

/// One type of values.
pub(super) trait ValueType: Send + Sync + 'static {
    /// The value in a policy.
    type Value: Clone + Send + Sync + 'static;

    /// Reads a value, or notes the problem with it.
    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<Self::Value>;

    /// The value as a file spells it.
    fn spell(&self, value: &Self::Value) -> Json;

    /// The schema of the type, for editors.
    fn schema(&self) -> Json;
}

/// A duration.
pub(super) struct Time;

/// A duration that is not zero.
pub(super) struct SomeTime;

/// A whole number within bounds.
pub(super) struct Count {
    pub(super) least: u32,
    pub(super) most: u32,
    pub(super) example: u32,
}

/// True or false.
pub(super) struct Flag;

/// One of a few words.
pub(super) struct Word<T: 'static>(pub(super) &'static [(&'static str, T)]);

/// A share, from 0 to 1.
pub(super) struct Share;

/// A share that is not zero.
pub(super) struct ShareAboveZero;

/// Jitter: the share of a pause that is added at random.
pub(super) struct JitterShare;

/// The bulkhead of one tool: calls at a time; 0 sets no bound.
pub(super) struct Concurrency;

/// `"p95"`, a duration, or `"off"`.
pub(super) struct Hedge;

impl ValueType for Time {
    type Value = Duration;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<Duration> {
        problems.keep(time(field))
    }

    fn spell(&self, value: &Duration) -> Json {
        json!(spelled(*value))
    }

    fn schema(&self) -> Json {
        json!({"$ref": "#/$defs/time"})
    }
}

impl ValueType for SomeTime {
    type Value = Duration;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<Duration> {
        problems.keep(some_time(field))
    }

    fn spell(&self, value: &Duration) -> Json {
        json!(spelled(*value))
    }

    fn schema(&self) -> Json {
        json!({"$ref": "#/$defs/some_time"})
    }
}

impl ValueType for Count {
    type Value = u32;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<u32> {
        let within = |count: u32| match count {
            count if count < self.least => Err(format!("must be at least {}", self.least)),
            count if count > self.most => Err(format!("must not exceed {}", self.most)),
            count => Ok(count),
        };
        let checked = field
            .count()
            .and_then(|count| within(count).map_err(|wrong| field.place.problem(wrong)));
        problems.keep(checked)
    }

    fn spell(&self, value: &u32) -> Json {
        json!(value)
    }

    fn schema(&self) -> Json {
        let Self { least, most, example } = self;
        json!({"type": "integer", "minimum": least, "maximum": most, "examples": [example]})
    }
}

impl ValueType for Flag {
    type Value = bool;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<bool> {
        problems.keep(field.flag())
    }

    fn spell(&self, value: &bool) -> Json {
        json!(value)
    }

    fn schema(&self) -> Json {
        json!({"type": "boolean"})
    }
}

impl<T: Copy + PartialEq + Send + Sync> ValueType for Word<T> {
    type Value = T;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<T> {
        problems.keep(one_of(field, self.0))
    }

    fn spell(&self, value: &T) -> Json {
        json!(word(self.0, *value))
    }

    fn schema(&self) -> Json {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        json!({"enum": words})
    }
}

impl ValueType for Share {
    type Value = f64;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<f64> {
        problems.keep(share(field))
    }

    fn spell(&self, value: &f64) -> Json {
        json!(value)
    }

    fn schema(&self) -> Json {
        json!({"type": "number", "minimum": 0, "maximum": 1, "examples": [0.5]})
    }
}

impl ValueType for ShareAboveZero {
    type Value = f64;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<f64> {
        let above = |share: f64| match share > 0.0 {
            true => Ok(share),
            false => Err(field.place.problem("must be above 0")),
        };
        problems.keep(share(field).and_then(above))
    }

    fn spell(&self, value: &f64) -> Json {
        Share.spell(value)
    }

    fn schema(&self) -> Json {
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 1, "examples": [0.5]})
    }
}

impl ValueType for JitterShare {
    type Value = Jitter;

    fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<Jitter> {
        problems.keep(share(field)).map(Jitter::Additive)
    }

    fn spell(&self, value: &Jitter) -> Json {
        match value {
            Jitter::None => json!(0),
            Jitter::Additive(share) => json!(share),
            // Kinds of jitter that no file can choose are shown by their name.
            other => json!(format!("{other:?}")),
        }
    }

    fn schema(&self) -> Json {
        json!({"type": "number", "minimum": 0, "maximum": 1, "examples": [0.2]})
    }
}

impl ValueType for Concurrency {
    type Value = Option<BulkheadPolicy>;

    fn read(
        &self,
        field: &ConfigField<'_>,
        problems: &mut Problems,
    ) -> Option<Option<BulkheadPolicy>> {
        let checked = field.count().and_then(|count| {
            let bulkhead = (count > 0).then(|| BulkheadPolicy::new(count));
            let checked = bulkhead.map_or(Ok(()), |bulkhead| bulkhead.validate());
            checked.map(|()| bulkhead).map_err(|invalid| field.place.problem(invalid.problem))
        });
        problems.keep(checked)
    }

    fn spell(&self, value: &Option<BulkheadPolicy>) -> Json {
        json!(value.map(|bulkhead| bulkhead.concurrency))
    }

    fn schema(&self) -> Json {
        Count { least: 0, most: 100_000, example: 2 }.schema()
    }
}

impl ValueType for Hedge {
    type Value = Option<HedgePolicy>;

    fn read(
        &self,
        field: &ConfigField<'_>,
        problems: &mut Problems,
    ) -> Option<Option<HedgePolicy>> {
        problems.keep(hedge(field))
    }

    fn spell(&self, value: &Option<HedgePolicy>) -> Json {
        match value {
            None => Json::Null,
            Some(HedgePolicy::After(delay)) => json!(spelled(*delay)),
            Some(HedgePolicy::Quantile(share)) => json!(format!("p{:.0}", share * 100.0)),
        }
    }

    fn schema(&self) -> Json {
        let after = json!({"$ref": "#/$defs/some_time"});
        json!({
            "type": "string",
            "anyOf": [{"pattern": "^(off|p0*[1-9][0-9]?)$"}, after],
            "examples": ["p95"],
        })
    }
}

fn share(field: &ConfigField<'_>) -> Result<f64, Problem> {
    let number = field.number()?;
    match (0.0..=1.0).contains(&number) {
        true => Ok(number),
        false => Err(field.place.problem(format!("must lie between 0 and 1, not {number}"))),
    }
}

fn hedge(field: &ConfigField<'_>) -> Result<Option<HedgePolicy>, Problem> {
    let ConfigString { place, text } = field.text()?;
    if text == "off" {
        return Ok(None);
    }
    let digits =
        text.strip_prefix('p').filter(|share| share.bytes().all(|digit| digit.is_ascii_digit()));
    let share = digits.and_then(|share| share.parse::<u32>().ok());
    match share {
        Some(share @ 1..=99) => Ok(Some(HedgePolicy::Quantile(f64::from(share) / 100.0))),
        _ => match duration::parse(&text) {
            Ok(Duration::ZERO) => Err(place.problem("must not be zero; \"off\" switches it off")),
            Ok(delay) => Ok(Some(HedgePolicy::After(delay))),
            Err(_) => Err(place.problem(format!(
                "{text:?} is no time to wait; write \"p95\", \"250ms\" or \"off\""
            ))),
        },
    }
}

pub(crate) const KINDS: [(&str, Kind); 5] = [
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("search", Kind::Search),
    ("list", Kind::List),
    ("batch", Kind::Batch),
];
pub(crate) const EFFECTS: [(&str, Effect); 4] = [
    ("read_only", Effect::ReadOnly),
    ("idempotent", Effect::Idempotent),
    ("write", Effect::Write),
    ("destructive", Effect::Destructive),
];
pub(crate) const SCOPES: [(&str, Scope); 3] =
    [("tool", Scope::Tool), ("server", Scope::Server), ("global", Scope::Global)];
pub(super) const LOOP_MODES: [(&str, LoopMode); 3] =
    [("failures", LoopMode::Failures), ("calls", LoopMode::Calls), ("off", LoopMode::Off)];
pub(super) const ON_ABANDON: [(&str, OnAbandon); 3] =
    [("cancel", OnAbandon::Cancel), ("finish", OnAbandon::Finish), ("forget", OnAbandon::Forget)];
pub(super) const REJOIN: [(&str, Rejoining); 3] =
    [("caller", Rejoining::Caller), ("session", Rejoining::Session), ("off", Rejoining::Off)];

/// The word for a value.
pub(crate) fn word<T: PartialEq>(known: &[(&'static str, T)], value: T) -> &'static str {
    known.iter().find(|(_, other)| *other == value).map_or("", |(word, _)| word)
}

/// The value of a word.
pub(crate) fn named<T: Copy>(known: &[(&str, T)], word: &str) -> Option<T> {
    known.iter().find(|(name, _)| *name == word).map(|(_, value)| *value)
}

/// Reads one of a few words.
pub(in crate::config) fn one_of<T: Copy>(
    field: &ConfigField<'_>,
    known: &[(&str, T)],
) -> Result<T, Problem> {
    let ConfigString { place, text } = field.text()?;
    named(known, &text).ok_or_else(|| {
        let names: Vec<String> = known.iter().map(|(name, _)| format!("{name:?}")).collect();
        place.problem(format!("{text:?} is not known; write {}", names.join(" or ")))
    })
}
