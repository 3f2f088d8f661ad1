//! Decides how else a call can be answered: a chain of steps, a simpler search, the page before, a
//! batch item by item.

pub(crate) mod chain;
pub(crate) mod page;
pub(crate) mod simplify;
pub(crate) mod split;

use serde_json::Value;

/// The argument to work on: the given one, else the first of `names` that holds such a value.
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
