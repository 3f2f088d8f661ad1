//! Decides the JSON schema of Seawall's own file, for editors: `schema.json`, with the policy keys
//! as `policy` describes them.

use std::sync::LazyLock;

use serde_json::{Map, Value as Json};

use super::policy::keys;

/// The schema as text.
pub fn schema() -> &'static str {
    static WRITTEN: LazyLock<String> = LazyLock::new(|| format!("{:#}", complete()));
    &WRITTEN
}

fn complete() -> Json {
    let mut schema: Json = serde_json::from_str(include_str!("schema.json")).unwrap_or_default();
    let keys = keys::schema();
    // The name of a kind's table is its kind.
    let of_kind: Map<_, _> = keys.clone().into_iter().filter(|(key, _)| key != "kind").collect();
    schema["$defs"]["policy"]["properties"] = keys.into();
    schema["$defs"]["policy_of_kind"]["properties"] = of_kind.into();
    schema
}
