//! Decides how the origin of a value is reported: one word, the place, and its line.

use seawall::{Ground, Tiers};
use serde_json::Value;

use super::origin::Origin;
use super::{ExplainQuery, show};
use crate::config::duration::spelled;
use crate::config::layers::PolicyPlace;
use crate::config::policy::value::{EFFECTS, KINDS, word};
use crate::config::rules::spelled_rate;

/// One value and its origin.
#[derive(Clone)]
pub(super) struct ExplainedValue {
    pub(super) key: &'static str,
    pub(super) value: Value,
    /// The origin in one word: `built in`, `preset`, `config`, `environment`, `annotation`, `name`,
    /// `effect`, `unknown`.
    pub(super) from: &'static str,
    /// The exact origin: a table, a variable, a hint, a word of the name.
    pub(super) place: Option<String>,
    pub(super) line: Option<usize>,
    pub(super) ignored: Option<IgnoredSetting>,
}

/// A setting in the configuration that has no effect.
#[derive(Clone)]
pub(super) struct IgnoredSetting {
    pub(super) value: Value,
    pub(super) place: Option<String>,
    pub(super) line: Option<usize>,
    pub(super) why: &'static str,
}

impl ExplainedValue {
    /// The value that holds instead of this one, which becomes the ignored setting.
    pub(super) fn without(
        self,
        dropped: Value,
        why: &'static str,
        holds: impl FnOnce(&'static str, Value) -> ExplainedValue,
    ) -> ExplainedValue {
        let ExplainedValue { key, value, place, line, .. } = self;
        ExplainedValue {
            ignored: Some(IgnoredSetting { value: dropped, place, line, why }),
            ..holds(key, value)
        }
    }
}

/// Origin, place and line.
type ValueOrigin = (&'static str, Option<String>, Option<usize>);

impl ExplainQuery<'_> {
    /// A value of a policy, with its origin.
    pub(super) fn told(
        &self,
        key: &'static str,
        value: Value,
        origin: Origin<'_>,
    ) -> ExplainedValue {
        let at = match origin {
            Origin::BuiltIn => ("built in", None, None),
            Origin::OfKind(Some(kind)) => {
                ("built in", Some(format!("kind {}", word(&KINDS, kind))), None)
            }
            Origin::OfKind(None) => ("built in", Some("unknown kind".to_owned()), None),
            Origin::OfEffect(effect) => {
                ("built in", Some(format!("effect {}", word(&EFFECTS, effect))), None)
            }
            Origin::Preset | Origin::Concluded(Ground::Preset) => {
                let line = self.rules.written.line(&["preset"]);
                ("preset", Some(show::preset(self.rules.preset).to_owned()), line)
            }
            Origin::Tier => self.tier(),
            Origin::Config(place) => self.place(place, key),
            Origin::Concluded(Ground::Hint(hint)) => ("annotation", Some(hint.to_owned()), None),
            Origin::Concluded(Ground::Word(word)) => ("name", Some(word.to_owned()), None),
            Origin::Concluded(Ground::Effect) => ("effect", None, None),
            Origin::Concluded(Ground::Stated | Ground::Unknown) => ("unknown", None, None),
        };
        told(key, value, at)
    }

    /// The origin of the timeout for whole calls, quick or heavy.
    fn tier(&self) -> ValueOrigin {
        let (tiers, written) = (&self.rules.tiers, &self.rules.written);
        let is_heavy = tiers.is_heavy(self.rules.preset, self.tool);
        let tier = if is_heavy { "heavy" } else { "quick" };
        if let Some(variable) = Tiers::variable(is_heavy, self.env) {
            return ("environment", Some(variable.to_owned()), None);
        }
        let place = Some(format!("{} {tier}", written.heading(&["timeouts"])));
        match written.has(&["timeouts", tier]) {
            true => ("config", place, written.line(&["timeouts", tier])),
            false => ("built in", place, None),
        }
    }

    /// The origin of a key that a place of the configuration sets.
    fn place(&self, place: PolicyPlace<'_>, key: &str) -> ValueOrigin {
        let (rules, of_server) = (&self.rules.written, &self.of_server.written);
        let (written, table) = match place {
            PolicyPlace::Defaults => (rules, vec!["defaults"]),
            PolicyPlace::Kind(kind) => (rules, vec!["kinds", word(&KINDS, kind)]),
            PolicyPlace::Tools(pattern) => (rules, vec!["tools", pattern]),
            PolicyPlace::Server => (of_server, vec!["policy"]),
        };
        let way: Vec<&str> = table.iter().copied().chain(key.split('.')).collect();
        match written.elsewhere(&way) {
            Some((heading, line)) => ("config", Some(heading.clone()), Some(*line)),
            None => ("config", Some(written.heading(&table)), written.line(&way)),
        }
    }

    /// How long calls wait for a server.
    pub(super) fn wait(&self) -> ExplainedValue {
        let written = &self.rules.written;
        let at = match written.has(&["reconnect", "wait"]) {
            true => (
                "config",
                Some(written.heading(&["reconnect"])),
                written.line(&["reconnect", "wait"]),
            ),
            false => ("built in", None, None),
        };
        told("reconnect.wait", spelled(self.wait).into(), at)
    }

    /// The rate limit of each caller, over all servers.
    pub(super) fn caller_rate(&self) -> ExplainedValue {
        let written = &self.rules.written;
        let rate = self.rules.caller_rate.as_ref().map(spelled_rate);
        let heading = match written.at.is_empty() {
            true => "top level".to_owned(),
            false => written.heading(&[]),
        };
        let at = match written.has(&["caller_rate"]) {
            true => ("config", Some(heading), written.line(&["caller_rate"])),
            false => ("built in", None, None),
        };
        told("caller_rate", rate.into(), at)
    }

    /// A setting of the server.
    pub(super) fn of_server(&self, key: &'static str, value: Value) -> ExplainedValue {
        let written = &self.of_server.written;
        let at = match written.has(&[key]) {
            true => ("config", Some(written.heading(&[])), written.line(&[key])),
            false => ("built in", None, None),
        };
        told(key, value, at)
    }
}

fn told(key: &'static str, value: Value, (from, place, line): ValueOrigin) -> ExplainedValue {
    ExplainedValue { key, value, from, place, line, ignored: None }
}
