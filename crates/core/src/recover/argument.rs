//! Decides which argument of a call a fallback changes.

use serde_json::Value;

/// The argument to change: the given one, else the first of `names` whose value fits.
pub(crate) fn argument(
    arguments: &Value,
    given: Option<&str>,
    names: &[&str],
    fits: impl Fn(&Value) -> bool,
) -> Option<String> {
    let holds = |name: &&str| arguments.get(name).is_some_and(&fits);
    match given {
        Some(name) => Some(name).filter(holds),
        None => names.iter().copied().find(holds),
    }
    .map(str::to_owned)
}
