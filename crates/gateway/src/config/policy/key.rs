//! Decides the form of a policy key: described once, then read, applied, shown and documented from
//! that description.

use std::fmt;
use std::sync::Arc;

use seawall::Policy;
use serde_json::{Value as Json, json};

use super::value::ValueType;
use crate::config::layer::GatewayPolicy;
use crate::config::problem::Problems;
use crate::config::tree::ConfigField;

/// One policy key.
pub(crate) struct PolicyKey {
    /// The name of the key; behind a dot, if the key is within a table.
    pub(crate) name: &'static str,
    /// The meaning of the key, in one sentence.
    pub(crate) doc: &'static str,
    /// The heading under which it is documented.
    pub(crate) heading: &'static str,
    schema: Json,
    read: Box<ReadSetting>,
    get: Box<GetValue>,
}

type ReadSetting = dyn Fn(&ConfigField<'_>, &mut Problems) -> Option<Setting> + Send + Sync;
type GetValue = dyn Fn(&Policy, &GatewayPolicy) -> Json + Send + Sync;
type LaySetting = dyn Fn(&mut Policy, &mut GatewayPolicy) + Send + Sync;

/// The value of one key, as a file sets it.
#[derive(Clone)]
pub(crate) struct Setting {
    /// The key.
    key: &'static str,
    /// The value, as it is spelled.
    value: Json,
    lay: Arc<LaySetting>,
}

impl Setting {
    /// Applies the setting to a policy.
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
    /// The key under a heading of the documentation.
    pub(super) fn under(self, heading: &'static str) -> Self {
        Self { heading, ..self }
    }

    /// Reads the key's value from a file.
    pub(super) fn read(&self, field: &ConfigField<'_>, problems: &mut Problems) -> Option<Setting> {
        (self.read)(field, problems)
    }

    /// The key's value in a policy, as a file spells it; null if it is not set.
    pub(crate) fn get(&self, policy: &Policy, own: &GatewayPolicy) -> Json {
        (self.get)(policy, own)
    }

    /// The schema of the key, for editors.
    pub(crate) fn schema(&self) -> Json {
        let mut schema = self.schema.clone();
        schema["description"] = json!(self.doc);
        schema
    }
}

/// Describes one key: its name, the type of its values, its meaning, and how it is written to and
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
