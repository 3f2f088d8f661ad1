//! What a policy key is: how it is described once, and what follows for whoever reads, lays, shows
//! or documents it.

use std::fmt;
use std::sync::Arc;

use seawall::Policy;
use serde_json::{Value as Json, json};

use super::value::ValueType;
use crate::config::layer::GatewayPolicy;
use crate::config::problem::Problems;
use crate::config::tree::ConfigField;

/// One key.
pub(crate) struct PolicyKey {
    /// Its name; behind a dot, within a table.
    pub(crate) name: &'static str,
    /// What it means.
    pub(crate) doc: &'static str,
    /// Among which others it is told.
    pub(crate) heading: &'static str,
    schema: Json,
    read: Box<ReadSetting>,
    get: Box<GetValue>,
}

type ReadSetting = dyn Fn(&ConfigField<'_>, &mut Problems) -> Option<Setting> + Send + Sync;
type GetValue = dyn Fn(&Policy, &GatewayPolicy) -> Json + Send + Sync;
type LaySetting = dyn Fn(&mut Policy, &mut GatewayPolicy) + Send + Sync;

/// What a file says under one key.
#[derive(Clone)]
pub(crate) struct Setting {
    /// The key.
    pub(super) key: &'static str,
    /// The value, as it is spelled.
    pub(super) value: Json,
    lay: Arc<LaySetting>,
}

impl Setting {
    /// Lays it over a policy.
    pub(crate) fn apply(&self, policy: &mut Policy, own: &mut GatewayPolicy) {
        (self.lay)(policy, own);
    }

    /// The key.
    pub(crate) fn key(&self) -> &'static str {
        self.key
    }

    /// The value, as it is spelled.
    pub(crate) fn value(&self) -> &Json {
        &self.value
    }
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        (self.key, &self.value) == (other.key, &other.value)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.key, self.value)
    }
}

impl PolicyKey {
    /// The key among others that are told together.
    pub(super) fn under(self, heading: &'static str) -> Self {
        Self { heading, ..self }
    }

    /// Reads what a file says under it.
    pub(super) fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<Setting> {
        (self.read)(field, problems)
    }

    /// Its value in a policy, as a file spells it; null where it is not set.
    pub(crate) fn get(&self, policy: &Policy, own: &GatewayPolicy) -> Json {
        (self.get)(policy, own)
    }

    /// What an editor is told of it.
    pub(crate) fn schema(&self) -> Json {
        let mut schema = self.schema.clone();
        schema["description"] = json!(self.doc);
        schema
    }
}

/// Describes one key: its name, the type of its values, what it means, how it is set, and how it is
/// read from a policy.
pub(super) fn key<T: ValueType>(
    name: &'static str,
    of: T,
    doc: &'static str,
    set: fn(&mut Policy, &mut GatewayPolicy, T::Value),
    get: fn(&Policy, &GatewayPolicy) -> Option<T::Value>,
) -> PolicyKey {
    let (schema, of) = (of.schema(), Arc::new(of));
    let spelled = Arc::clone(&of);
    let read = move |field: &ConfigField<'_>, problems: &mut Problems| {
        of.read(field, problems).map(|value| setting(name, of.spell(&value), value, set))
    };
    let get = move |policy: &Policy, own: &GatewayPolicy| {
        get(policy, own).map_or(Json::Null, |value| spelled.spell(&value))
    };
    PolicyKey { name, doc, heading: "", schema, read: Box::new(read), get: Box::new(get) }
}

pub(super) fn setting<V: Clone + Send + Sync + 'static>(
    key: &'static str,
    spelled: Json,
    value: V,
    set: fn(&mut Policy, &mut GatewayPolicy, V),
) -> Setting {
    let lay = move |policy: &mut Policy, own: &mut GatewayPolicy| set(policy, own, value.clone());
    Setting { key, value: spelled, lay: Arc::new(lay) }
}
